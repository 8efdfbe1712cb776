"""Writing of files that is disturbed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from collopt.support.writing import write_all_whole

WRITE = """
import os, signal, sys
from collopt.support.writing import write_whole
sync = os.fsync
os.fsync = lambda handle: (os.kill(os.getpid(), signal.SIGTERM), sync(handle))
write_whole(sys.argv[1], "whole")
"""


def test_sigterm_leaves_no_temporary_file(tmp_path: Path) -> None:
    """The file that is being written is finished before the program ends."""
    target = tmp_path / "plan.json"
    ended = subprocess.run([sys.executable, "-c", WRITE, target], check=False, timeout=60)
    assert ended.returncode == -15
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]
    assert target.read_text() == "whole"


def test_files_are_written_together(tmp_path: Path) -> None:
    """Text and bytes."""
    write_all_whole({tmp_path / "one": "text", tmp_path / "other": b"bytes"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "other"]
