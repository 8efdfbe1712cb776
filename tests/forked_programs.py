"""Python programs in processes that are forked from one that has imported torch, which takes two seconds each time.

They do what ``python script words`` or ``python -m module words`` would: with a folder, an environment, streams and an
exit status of their own.  What the start of an interpreter decides is for tests that start one.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path

from cli_calls import Answer, without_note
from collopt.runtime.execution import local_ranks
from forked_supervisors import ForkedSubprocess, forking_context, start

__all__ = ["ForkedProgram", "forked"]


class ForkedProgram:
    """A program that runs, started as ``python words``; its environment is this one's with changes."""

    def __init__(
        self, *words: object, folder: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.streams = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115 - closed when they are read
        ends = [Connection(os.dup(stream.fileno())) for stream in self.streams]
        variables = {**os.environ, **(environment or {})}
        context = forking_context()
        self.process = context.Process(
            target=_become, args=([str(word) for word in words], str(folder or Path.cwd()), variables, *ends)
        )
        try:
            start(self.process)
        finally:
            for end in ends:
                end.close()

    def send_signal(self, number: signal.Signals) -> None:
        """Send it to the process."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def answer(self, timeout: float = 100) -> Answer:
        """Wait for the end, and return what it ended with and printed."""
        self.process.join(timeout)
        status = self.process.exitcode
        if status is None:
            self.process.kill()
            raise subprocess.TimeoutExpired("program", timeout)
        printed = []
        for stream in self.streams:
            with stream:
                stream.seek(0)
                printed.append(stream.read().decode())
        return Answer(status, printed[0], without_note(printed[1]))


def forked(*words: object, folder: Path | None = None, **environment: str) -> Answer:
    """Run a program to its end."""
    return ForkedProgram(*words, folder=folder, environment=environment).answer()


def _become(words: list[str], folder: str, environment: dict[str, str], out: Connection, err: Connection) -> None:
    """Become what ``python words`` would be in this folder, whose local ranks are forked from it."""
    for number, stream in ((1, out), (2, err)):
        os.dup2(stream.fileno(), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    local_ranks.subprocess = ForkedSubprocess  # type: ignore[assignment]
    if words[0] == "-m":
        sys.argv = words[1:]
        sys.path.insert(0, folder)
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path.insert(0, str(Path(words[0]).parent))
        runpy.run_path(words[0], run_name="__main__")
