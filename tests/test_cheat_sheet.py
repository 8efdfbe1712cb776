"""docs/cheat-sheet.md: every command and every call, in the order of the page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import collopt
from cli_calls import call
from doc_pages import ROOT
from nccl_texts import cpu, gpu, link, nic, pci, port, slot, system

ROW = re.compile(r"^\| (?P<task>[^|]+) \| `(?P<command>[^`]+)` \| `(?P<python>[^`]+)` \|$", re.MULTILINE)


def rows() -> list[tuple[str, str, str]]:
    """Task, command and Python of each row."""
    return ROW.findall((ROOT / "docs" / "cheat-sheet.md").read_text(encoding="utf-8"))


def machine() -> str:
    """A dump of NCCL: two GPUs with a NIC each."""
    places = (
        pci(f"0000:{9 + me}0:00.0", gpu(me, link(slot(1 - me), 6)), nic(f"0000:{9 + me}1:00.0", port(me)))
        for me in (0, 1)
    )
    return system(cpu(*places))


@pytest.mark.slow
def test_every_row_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands end well, calls raise nothing; each row may use what those above it have made."""
    monkeypatch.chdir(tmp_path)
    Path("machine.xml").write_text(machine(), encoding="utf-8")
    names: dict[str, Any] = {"collopt": collopt}
    table = rows()
    assert len(table) >= 20
    for _, command, python in table:
        program, *words = shlex.split(command)
        assert program == "collopt"
        answer = call(capsys, *words)
        assert answer.status == 0, (command, answer.err)
        target, _, expression = python.rpartition(" = ") if re.match(r"\w+ = ", python) else ("", "", python)
        value: Any = eval(expression, names)
        if target:
            names[target] = value
