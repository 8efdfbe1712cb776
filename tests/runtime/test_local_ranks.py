"""Processes for ranks: results in order, failures told, nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import rank_tasks

from collopt.errors import ProgramError, UnsupportedError
from collopt.runtime.execution.local_ranks import run_ranks

pytestmark = pytest.mark.usefixtures("real_supervisors")


def running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return "State:\tZ" not in status


def assert_all_gone(notes: Path, number: int) -> None:
    """The processes that left their numbers have ended, or do so in a moment."""
    pids = [int(path.read_text()) for path in notes.glob("*.pid")]
    assert len(pids) == number
    deadline = time.monotonic() + 5
    while any(running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in pids if running(pid)]


def test_results_come_back_in_rank_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks have one thread each, and no rank of the caller's launcher."""
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert run_ranks(rank_tasks.square, 5, timeout_s=60) == [(rank * rank, "1", None) for rank in range(5)]


@pytest.mark.slow
def test_functions_of_the_main_program_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks do not run it, so they cannot find its functions."""

    def task(rank: int, folder: str) -> int:
        return rank

    task.__module__, task.__qualname__ = "__main__", "task"
    monkeypatch.setattr(sys.modules["__main__"], "task", task, raising=False)
    with pytest.raises(UnsupportedError, match=r"^the local ranks could not start: AttributeError: .* in a module"):
        run_ranks(task, 2, timeout_s=60)


@pytest.mark.parametrize(
    ("task", "error", "message"),
    [
        (rank_tasks.complain, UnsupportedError, r"^rank 1: this will not do"),
        pytest.param(
            partial(rank_tasks.complain, error=KeyError),
            ProgramError,
            r"^rank 1: KeyError: .*this will not do",
            marks=pytest.mark.slow,
        ),
        (rank_tasks.leave, ProgramError, r"^rank 2: the process ended with exit status 7"),
        pytest.param(
            rank_tasks.wait_for_rank_1,
            ProgramError,
            r"ranks \[0, 1, 2\] did not finish within 5 s; ranks \[1\] are late: they began 2 calls, others 3",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["error of ours", "other error", "end", "late"],
)
def test_a_failure_names_the_rank_and_ends_the_others(
    task: Callable[[int, str], None], error: type[Exception], message: str
) -> None:
    """Errors of ours keep their class; the other ranks would never end."""
    with pytest.raises(error, match=message):
        run_ranks(task, 3, timeout_s=5 if task is rank_tasks.wait_for_rank_1 else 60)


def test_what_a_rank_says_is_heard_while_it_works(tmp_path: Path) -> None:
    """The rank waits for an answer, so updates that came with the results would be too late."""
    on_update: list[object] = []

    def listen(updates: object) -> None:
        on_update.append(updates)
        if len(on_update) == 2:
            (tmp_path / "answer").touch()

    task = partial(rank_tasks.say_and_wait, answer=str(tmp_path / "answer"))
    assert run_ranks(task, 2, timeout_s=60, on_update=listen) == ["answered", "silent"]
    assert on_update == ["one", {"two": 2}]


@pytest.mark.slow
def test_whoever_does_not_want_to_hear_more_ends_the_ranks(tmp_path: Path) -> None:
    """A listener ends them by an error of its own."""

    def refuse(updates: object) -> None:
        raise BrokenPipeError(updates)

    with pytest.raises(BrokenPipeError, match="noted"):
        run_ranks(partial(rank_tasks.note_say_and_sleep, notes=str(tmp_path)), 2, timeout_s=60, on_update=refuse)
    assert_all_gone(tmp_path, 2)


def test_nothing_survives_the_death_of_the_supervisor(tmp_path: Path) -> None:
    """The caller stops the ranks itself."""
    with pytest.raises(ProgramError, match="gave no answer"):
        run_ranks(partial(rank_tasks.note_and_kill_supervisor, notes=str(tmp_path)), 2, timeout_s=60)
    assert_all_gone(tmp_path, 3)


@pytest.mark.slow
def test_nothing_survives_the_death_of_the_caller(tmp_path: Path) -> None:
    """The supervisor sees that nobody listens any more, and cleans up in its place."""
    notes, scratch = tmp_path / "notes", tmp_path / "scratch"
    notes.mkdir()
    scratch.mkdir()
    program = (
        "from functools import partial; import rank_tasks; "
        "from collopt.runtime.execution.local_ranks import run_ranks; "
        f"run_ranks(partial(rank_tasks.note_and_sleep, notes={str(notes)!r}), 2, timeout_s=60)"
    )
    environment = {
        **os.environ,
        "TMPDIR": str(scratch),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    caller = subprocess.Popen([sys.executable, "-P", "-c", program], env=environment)
    deadline = time.monotonic() + 60
    while len(list(notes.glob("*.pid"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    caller.kill()
    caller.wait()
    assert_all_gone(notes, 2)
    deadline = time.monotonic() + 10
    while list(scratch.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not list(scratch.iterdir())
