"""Output that cannot be written as a whole: a full disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from cli_calls import call


@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_on_a_full_disk_a_plan_and_its_files_are_written_together(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """None of four, whichever does not fit, and the old ones stay."""
    names = {"-o": "x", "--xml": "y", "--mscclpp": "z", "--register": "code.py"}
    files = {flag: tmp_path / name for flag, name in names.items()}
    files["-o"].write_text("old")
    synced = []
    sync = os.fsync

    def fill(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink().is_relative_to(tmp_path):
            synced.append(handle)
            if len(synced) > before:
                raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", fill)
    options = [word for flag, path in files.items() for word in (flag, path)]
    answer = call(capsys, "plan", "ring", "--nodes", "4", "allgather", *options)
    name = [*files.values()][before]
    assert answer.status == 2
    assert answer.err == f"collopt: error: {name} cannot be written: No space left on device\n"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert files["-o"].read_text() == "old"
