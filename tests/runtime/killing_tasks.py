"""Ranks that are killed in mid-run, several times over; a program of its own, run as ``python killing_tasks.py``.

It imports torch once, forks all ranks of a try from itself, and writes what became of them as JSON.  `run_ranks` would
not do: it ends all ranks as soon as one has died, and here they are to find out for themselves.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import torch
import torch.distributed as dist
from runtime_forests import random_schedule

from collopt.errors import ColloptError
from collopt.runtime import Mesh, Replicate, Shard, Sharding, all_to_all_single, execute, reshard
from collopt.runtime.all_to_allv.steps import Exchange, rank_steps
from collopt.runtime.execution.execute import program_of

RANKS = 5
GROUP_TIMEOUT_S = 600
"""Far longer than anything here may take, so that only the timeout of the call itself can end a wait."""
START_S, PATIENCE_S = 120, 60
"""Seconds that the ranks get to come together, and the others to notice a death, before a try has failed."""
ELEMENTS = 5003
"""Of each tensor, or shard."""
LONGEST_RUN_S = 0.4
"""Seconds of undisturbed calls, at most."""


def planned_call(rank: int, collective: str) -> Callable[[float], None]:
    """Return a call, with a timeout, of `execute`, which takes a number of rounds on trees of all sorts."""
    program = program_of(
        SimpleNamespace(collective=collective, schedule=random_schedule(collective, RANKS, 3, seed=4, root=1))
    )
    output = torch.zeros(ELEMENTS * RANKS if collective == "allgather" else ELEMENTS, dtype=torch.int64)
    mine = torch.full((ELEMENTS,), rank)
    return lambda timeout: execute(program, output, mine, timeout=timeout, slices=2)


def overlapped_calls(rank: int) -> Callable[[float], None]:
    """Return some calls, with a timeout, of `execute` that go on beside the caller; the last one is waited for."""
    program = program_of(
        SimpleNamespace(collective="allreduce", schedule=random_schedule("allreduce", RANKS, 3, seed=4, root=1))
    )
    rows = torch.full((4, ELEMENTS), rank)

    def call(timeout: float) -> None:
        works = [execute(program, row, row, timeout=timeout, slices=2, async_op=True) for row in rows]
        assert works[-1] is not None
        works[-1].wait()

    return call


def staged_call(rank: int) -> Callable[[float], None]:
    """Return a call, with a timeout, of `all_to_all_single` with unequal parts."""
    rows = [[(source + 3 * target) % 7 * 100 for target in range(RANKS)] for source in range(RANKS)]
    takes, sends = [row[rank] for row in rows], rows[rank]
    output, mine = torch.zeros(sum(takes)), torch.full((sum(sends),), float(rank))

    def call(timeout: float) -> None:
        all_to_all_single(output, mine, takes, sends, servers=RANKS, timeout=timeout)

    return call


def moves_between_meshes(rank: int) -> Callable[[float], None]:
    """Return calls, with a timeout, of `reshard`: from three ranks to all, then among two, which leaves others out."""
    split, pair = Sharding(Mesh(range(3)), [Shard(0)]), Sharding(Mesh([1]), [Replicate()])
    parts = {"a": torch.full((ELEMENTS, 4), rank)} if rank < 3 else {}
    own = {"a": torch.zeros(5)} if rank == 1 else {}

    def call(timeout: float) -> None:
        reshard(parts, split, (Mesh(range(RANKS)), [Replicate()]), max_scratch_bytes=2**17, timeout=timeout)
        reshard(own, pair, (Mesh([2]), [Replicate()]), timeout=timeout)

    return call


def be_a_rank(rank: int, folder: str, what: str, timeout: float, pipe: Connection) -> NoReturn:
    """Say so after the first call; then call on and on, and tell how that ended."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=GROUP_TIMEOUT_S),
    )
    others = {"all_to_all_single": staged_call, "overlapped": overlapped_calls, "reshard": moves_between_meshes}
    call = others[what](rank) if what in others else planned_call(rank, what)
    # The first call makes connections and compiles, which may take a while.
    call(START_S)
    dist.barrier()
    pipe.send("going")
    try:
        while True:
            call(timeout)
    except ColloptError as error:
        pipe.send((type(error).__name__, str(error), time.monotonic()))
    except BaseException as error:  # noqa: BLE001 - everything has to be told.
        pipe.send((f"torch's {type(error).__name__}", str(error), time.monotonic()))
    # With its connections open, so that the others do not learn of this rank's end instead of the victim's.
    time.sleep(GROUP_TIMEOUT_S)
    os._exit(0)


class Try:
    """Ranks one of which is killed at a random time."""

    def __init__(self, what: str, timeout: float, seed: int) -> None:
        self.chance = random.Random(seed)
        self.victim = self.chance.randrange(RANKS)
        self.died = 0.0
        self.pipes: list[Connection] = []
        self.processes: list[ForkProcess] = []
        self.folder = tempfile.TemporaryDirectory()
        context = multiprocessing.get_context("fork")
        for rank in range(RANKS):
            here, there = context.Pipe(duplex=False)
            arguments = (rank, self.folder.name, what, timeout, there)
            self.processes.append(context.Process(target=be_a_rank, args=arguments, daemon=True))
            self.processes[-1].start()
            there.close()
            self.pipes.append(here)

    def kill(self) -> None:
        """Kill the victim when all ranks have been going for a while."""
        started = [heard(pipe, time.monotonic() + START_S) for pipe in self.pipes]
        assert started == ["going"] * RANKS, started
        time.sleep(self.chance.uniform(0, LONGEST_RUN_S))
        self.died = time.monotonic()
        pid = self.processes[self.victim].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def end(self) -> dict[str, Any]:
        """Return what the others raised, and how long after."""
        told = [heard(pipe, self.died + PATIENCE_S) for rank, pipe in enumerate(self.pipes) if rank != self.victim]
        return {
            "victim": self.victim,
            "raised": [answer[0] if answer else None for answer in told],
            "messages": [answer[1] if answer else None for answer in told],
            "seconds": [answer[2] - self.died if answer else PATIENCE_S for answer in told],
        }

    def close(self) -> None:
        """Leave nothing behind."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()
        self.folder.cleanup()


def tries(what: str, timeout: float, number: int) -> list[dict[str, Any]]:
    """Kill a rank so many times; the ranks of one try wait for theirs while the next ones start."""
    # Loads the kernels once, instead of in every rank of every try.
    if what == "all_to_all_single":
        rank_steps(Exchange(np.ones((RANKS, RANKS), dtype=np.int64).tobytes(), RANKS, 1, 4), 0)
    elif what != "reshard":
        planned_call(0, "allreduce")
    started: list[Try] = []
    try:
        for seed in range(number):
            started.append(Try(what, timeout, seed))
            started[-1].kill()
        return [one.end() for one in started]
    finally:
        for one in started:
            one.close()


def heard(pipe: Connection, until: float) -> Any:
    """Return what a rank says until then; None if nothing."""
    if not wait([pipe], max(0.0, until - time.monotonic())):
        return None
    try:
        return pipe.recv()
    except EOFError:
        return None


if __name__ == "__main__":
    sys.stdout.write(json.dumps(tries(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))))
