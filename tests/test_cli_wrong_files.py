"""Files that came to the wrong command: each is named, and the one that is for it."""

from __future__ import annotations

from pathlib import Path

import pytest

import collopt
from cli_calls import Cli, netfile, refusal
from collopt.topologies import ring

TABLE = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
READERS = {
    "a collopt plan": [("verify", "FILE"), ("report", "FILE"), ("run", "FILE"), ("bench", "FILE")],
    "a network": [
        ("import", "FILE"),
        ("bound", "FILE", "allgather"),
        ("compare", "FILE", "allgather"),
        ("calibrate", "--topology", "FILE"),
    ],
    "a file for MSCCL or MSCCL++": [("lint", "FILE"), ("lint", "FILE", "--runtime", "msccl")],
    "a benchmark of nccl-tests or collopt": [("calibrate", "FILE"), ("diagnose", "FILE")],
    "a traffic matrix": [("bound", "ring", "--nodes", "2", "all_to_allv", "--traffic", "FILE")],
}
CALLS = [(wanted, words) for wanted, readers in READERS.items() for words in readers]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One file of each kind that has a command of its own."""
    folder = tmp_path_factory.mktemp("kinds")
    plan = collopt.plan(ring(4, bandwidth=25), "allgather")
    plan.save(folder / "plan.json")
    plan.to_msccl_xml(folder / "a.xml")
    plan.to_mscclpp_json(folder / "a.json")
    (folder / "times.txt").write_text(TABLE)
    (folder / "traffic.csv").write_text("0,1\n3,0\n")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0")
    return {
        "a collopt plan": folder / "plan.json",
        "a topology file": netfile(folder),
        "MSCCL XML": folder / "a.xml",
        "an MSCCL++ execution plan": folder / "a.json",
        "a benchmark of nccl-tests or collopt": folder / "times.txt",
        "a table of numbers": folder / "traffic.csv",
        "a picture": folder / "picture.png",
    }


FITTING = {
    "a network": {"a topology file"},
    "a file for MSCCL or MSCCL++": {"MSCCL XML", "an MSCCL++ execution plan"},
    "a traffic matrix": {"a table of numbers"},
}


@pytest.mark.parametrize(("wanted", "words"), CALLS)
def test_each_command_says_what_the_file_is(
    cli: Cli, files: dict[str, Path], wanted: str, words: tuple[str, ...]
) -> None:
    """The error names the kind of the file and the command for it."""
    for kind, path in files.items():
        if kind == wanted or kind in FITTING.get(wanted, ()):
            continue
        message = refusal(cli(*(path if word == "FILE" else word for word in words)))
        assert message.startswith(f"{path} is {kind}, not {wanted}; ")
