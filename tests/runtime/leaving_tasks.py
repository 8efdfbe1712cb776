"""Ranks that come to the end of their program with calls that nobody waited for; run as ``python leaving_tasks.py``.

A program of its own, as the interpreter is to end in the ordinary way, which processes of multiprocessing do not.  It
imports torch once, loads kernels once and forks the ranks of every way to leave from itself.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from async_tasks import plan_for, started
from runtime_tasks import RANKS, join, message_of

from collopt.runtime import execute
from collopt.runtime.execution import call_queue
from collopt.runtime.execution.execute import program_of

PATIENCE_S = 1.0
"""Of the end of the interpreter, where calls cannot come to theirs."""
ABSENCE_S = 6.0
LONG_S = 60.0
"""Longer than anything takes that works."""


def leave(rank: int, folder: str, how: str) -> None:
    """Begin calls and return; rank 0 waits for them if all come to their end."""
    torch.set_num_threads(1)
    join(rank, folder)
    plan, data = plan_for("allreduce"), torch.full((5, 100_000), rank)
    execute(plan, data[0].clone(), data[0])
    dist.barrier()
    if how == "without rank 3":
        call_queue.EXIT_TIMEOUT_S = PATIENCE_S
        if rank == 3:
            # With its connections open: nobody is to learn of its end.
            time.sleep(ABSENCE_S)
            return
    if how == "forked":
        fork(rank, Path(folder, "over"), lambda: execute(plan, data[0], data[0], async_op=True), data[0])
        return
    works = [started(lambda row=row: execute(plan, row, row, async_op=True)) for row in data]
    if how == "finished" and rank == 0:
        assert all(work.wait() for work in works)
        assert bool((data == 6).all())


def fork(rank: int, over: Path, call: Callable[[], Any], data: torch.Tensor) -> None:
    """Begin a call, for which rank 3 comes late, and let rank 0 fork; its fork says what it can do, and ends."""
    call_queue.EXIT_TIMEOUT_S = LONG_S
    until = time.monotonic() + LONG_S
    while rank == 3 and not over.exists() and time.monotonic() < until:
        time.sleep(0.05)
    work = call()
    if rank:
        return
    warnings.simplefilter("ignore")  # Newer versions of Python warn of forks beside threads.
    if not (pid := os.fork()):
        for what in (work.wait, call):
            print(message_of(what), file=sys.stderr, flush=True)
        return
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    went_on = "while the call went on" * (not work.is_completed())
    print("the fork has ended with", status, went_on, file=sys.stderr)
    over.touch()
    work.wait()
    print("the call has brought", int(data[0]), file=sys.stderr)


def report(pids: list[int], folder: str) -> list[dict[str, Any]]:
    """Wait for the ranks; return how and when each ended, and what it wrote to standard error."""
    begin = time.monotonic()
    ends = {}
    for _ in pids:
        pid, status = os.wait()
        ends[pid] = os.waitstatus_to_exitcode(status), time.monotonic() - begin
    return [
        {"code": ends[pid][0], "seconds": ends[pid][1], "said": Path(folder, f"said{rank}").read_text()}
        for rank, pid in enumerate(pids)
    ]


def main() -> None:
    """Fork the ranks of one way after the other; in each of them the program goes on to its end."""
    program_of(plan_for("allreduce"))
    gc.freeze()  # Else each rank looks, when it ends, for circles among what torch has made, which takes a second.
    found = {}
    for how in sys.argv[1:]:
        folder = tempfile.mkdtemp()
        pids = []
        for rank in range(RANKS):
            if not (pid := os.fork()):
                os.dup2(os.open(f"{folder}/said{rank}", os.O_WRONLY | os.O_CREAT), 2)
                leave(rank, folder, how)
                return
            pids.append(pid)
        found[how] = report(pids, folder)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
