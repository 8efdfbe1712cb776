"""`collopt explore`: what it says before it serves, and how it ends; tests/report has the page itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("tornado", reason="the explorer needs tornado")

from cli_calls import Cli, refusal


def test_without_its_package_it_says_what_to_install(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the pip command."""
    monkeypatch.setitem(sys.modules, "tornado", None)
    assert "pip install 'collopt[explore]'" in refusal(cli("explore"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, -15), (signal.SIGHUP, -1), (signal.SIGKILL, -9)]
)
def test_it_serves_until_it_is_ended(number: signal.Signals, status: int, tmp_path: Path) -> None:
    """A signal ends the server without a word, and no dropped file stays on disk."""
    program = [sys.executable, "-m", "collopt", "explore", "ring", "--nodes", "4", "--no-browser"]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    ) as running:
        assert running.stderr is not None
        line, more = running.stderr.readline(), running.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/[\w-]+/", line)
        assert found, line
        with urllib.request.urlopen(f"{found[0]}facts", timeout=60) as reply:
            assert reply.status == 200
        put = urllib.request.Request(f"{found[0]}upload/box.xml", b"<system/>", method="PUT")
        with urllib.request.urlopen(put, timeout=60) as reply:
            assert reply.status == 200
        running.send_signal(number)
        try:
            out, err = running.communicate(timeout=60)
        finally:
            running.kill()  # Else a server that the signal did not end would be waited for without end.
    assert (running.returncode, out, err) == (status, "", "")
    assert list(tmp_path.iterdir()) == []
    assert more == "collopt: this address works on this machine only; Ctrl-C ends it\n"


@pytest.mark.slow
def test_who_plans_ends_with_a_server_that_is_killed() -> None:
    """Worker processes end with a killed server, even within a long question."""
    script = (
        "import time; from collopt.report.pages.worker import _Process; process = _Process(); "
        "process.send((time.sleep, 1000)); print('asked', flush=True); time.sleep(1000)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "asked\n"
        running.kill()
        running.communicate(timeout=120)  # until the last process that holds its output has ended
