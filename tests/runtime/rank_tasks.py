"""What processes do in the tests of starting and stopping them; free of torch, so that they start quickly."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from collopt.errors import UnsupportedError
from collopt.runtime.execution.local_ranks import count_call, notify


def square(rank: int, folder: str) -> tuple[int, str | None, str | None]:
    """Return a number of the rank, how many threads libraries may use, and whose rank the environment names."""
    assert not list(Path(folder).iterdir())
    return rank * rank, os.environ.get("OMP_NUM_THREADS"), os.environ.get("RANK")


def complain(rank: int, folder: str, error: type[Exception] = UnsupportedError) -> None:
    """Rank 1 raises, the others never end."""
    if rank == 1:
        raise error("this will not do\nand here is more")
    time.sleep(600)


def note(rank: int, notes: str) -> None:
    """Leave the process number behind, whole or not at all."""
    Path(notes, f"{rank}.part").write_text(str(os.getpid()))
    Path(notes, f"{rank}.part").rename(Path(notes, f"{rank}.pid"))


def note_and_sleep(rank: int, folder: str, notes: str) -> None:
    """Leave the process number behind and never end."""
    note(rank, notes)
    time.sleep(600)


def note_and_kill_supervisor(rank: int, folder: str, notes: str) -> None:
    """Once all ranks have left their process numbers, kill the process that watches over them."""
    note(rank, notes)
    if rank == 0:
        Path(notes, "supervisor.pid").write_text(str(os.getppid()))
        while len(list(Path(notes).glob("*.pid"))) < 3:
            time.sleep(0.05)
        os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def leave(rank: int, folder: str) -> None:
    """Rank 2 ends without a word."""
    if rank == 2:
        os._exit(7)
    time.sleep(600)


def say_and_wait(rank: int, folder: str, answer: str) -> str:
    """Rank 0 says two things, and is done once somebody has answered."""
    if rank == 0:
        notify("one")
        notify({"two": 2})
        for _ in range(600):
            if Path(answer).exists():
                return "answered"
            time.sleep(0.1)
    return "silent"


def note_say_and_sleep(rank: int, folder: str, notes: str) -> None:
    """Once both have left their process numbers, rank 0 says so; they never end."""
    note(rank, notes)
    while rank == 0 and len(list(Path(notes).glob("*.pid"))) < 2:
        time.sleep(0.02)
    if rank == 0:
        notify("noted")
    time.sleep(600)


def wait_for_rank_1(rank: int, folder: str) -> None:
    """All but rank 1 begin one more call of a plan than it, and wait for it in vain."""
    for _ in range(2 if rank == 1 else 3):
        count_call()
    time.sleep(60)
