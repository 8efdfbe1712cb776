"""Calls the command line, in this process or in one of its own, and says what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collopt.cli import main
from collopt.topologies import Topology, ring, write_topology

if TYPE_CHECKING:
    import pytest

__all__ = ["Answer", "Cli", "call", "netfile", "process", "refusal", "terminal_output", "uneven_torus"]

# Else typer takes the logs of CI services for terminals and colors its help there.
os.environ["_TYPER_FORCE_DISABLE_TERMINAL"] = "1"


@dataclass(frozen=True)
class Answer:
    """What a call ended with and printed."""

    status: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Standard output, which has to be JSON and nothing else."""
        return json.loads(self.out)


Cli = Callable[..., Answer]
"""What the fixture `cli` is: `call` without its first argument."""


def call(capsys: pytest.CaptureFixture[str], *words: object) -> Answer:
    """Call the program in this process."""
    capsys.readouterr()
    status = main([str(word) for word in words])
    printed = capsys.readouterr()
    return Answer(status, printed.out, without_note(printed.err))


def process(*words: object, **environment: str) -> Answer:
    """Call the program as `python -m collopt` in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-m", "collopt", *map(str, words)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return Answer(result.returncode, result.stdout, without_note(result.stderr))


def terminal_output(*words: str, **environment: str) -> str:
    """What a terminal of 160 columns gets to see of a call that succeeds."""
    ours, theirs = os.openpty()
    known = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    with subprocess.Popen(
        [sys.executable, "-m", "collopt", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**known, "TERM": "xterm-256color", "COLUMNS": "160", **environment},
    ) as child:
        os.close(theirs)
        seen = b""
        with suppress(OSError):  # Linux says so when the other side has closed.
            while part := os.read(ours, 4096):
                seen += part
    os.close(ours)
    assert child.returncode == 0
    return seen.decode()


def without_note(printed: str) -> str:
    """Leave out that kernels are compiled, which depends on what ran before."""
    told = ("this run compiles numba kernels", "compiling kernels took ")
    return "".join(line for line in printed.splitlines(keepends=True) if not any(words in line for words in told))


def refusal(answer: Answer, status: int = 2) -> str:
    """The message of a call that must have failed: with this status, one line, and no data."""
    assert (answer.status, answer.out) == (status, "")
    assert answer.err.startswith("collopt: error: ")
    assert answer.err.count("\n") == 1
    assert answer.err.endswith("\n")
    return answer.err.removeprefix("collopt: error: ").rstrip("\n")


def netfile(folder: Path, topology: Topology | None = None) -> Path:
    """Write a topology file: a ring of four, unless told otherwise."""
    path = folder / "net.json"
    write_topology(ring(4, bandwidth=25) if topology is None else topology, path)
    return path


def uneven_torus() -> Topology:
    """Four rows of 25 GB/s and 1 µs, four columns of 12.5 GB/s and 5 µs."""
    places = [(row, column) for row in range(4) for column in range(4)]
    rows = [(f"{row}.{column}", f"{row}.{(column + 1) % 4}", 25, 1) for row, column in places]
    columns = [(f"{row}.{column}", f"{(row + 1) % 4}.{column}", "12.5", 5) for row, column in places]
    names = [f"{row}.{column}" for row, column in places]
    return Topology.from_links(rows + columns, compute=names, bidirectional=True, name="uneven")
