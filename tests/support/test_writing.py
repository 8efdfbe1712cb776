"""Writing of files that is disturbed: the old file or the new one is there, and whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from collopt.support.files import write_all_whole

WRITE = """
import os, signal, sys
from collopt.support.files import write_whole
sync = os.fsync
os.fsync = lambda handle: (os.kill(os.getpid(), int(sys.argv[2])), sync(handle))
write_whole(sys.argv[1], "new")
"""


REPLACE = """
import os, signal, sys
from pathlib import Path
from collopt.support.files import write_all_whole
replace = Path.replace
Path.replace = lambda file, target: (replace(file, target), os.kill(os.getpid(), signal.SIGKILL))
write_all_whole(dict.fromkeys(sys.argv[1:], "new"))
"""


def test_a_writer_that_is_ended_between_two_files_leaves_both(tmp_path: Path) -> None:
    """Each is the old one or the new one."""
    for target in (targets := [tmp_path / "plan.json", tmp_path / "plan.xml"]):
        target.write_text("old")
    assert subprocess.run([sys.executable, "-c", REPLACE, *targets], check=False).returncode == -signal.SIGKILL
    assert [target.read_text() for target in targets] == ["new", "old"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_writer_that_is_ended_leaves_the_old_file(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C leaves nothing else; other signals may leave a temporary file, which the next writer does not mind."""
    (target := tmp_path / "plan.json").write_text("old")
    ended = subprocess.run([sys.executable, "-c", WRITE, target, str(int(number))], check=False, capture_output=True)
    assert ended.returncode == -number
    assert target.read_text() == "old"
    assert number is not signal.SIGINT or os.listdir(tmp_path) == ["plan.json"]  # noqa: PTH208
    write_all_whole({target: "newer"})
    assert target.read_text() == "newer"
