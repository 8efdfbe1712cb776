"""What the ranks of the tests of failures do; a module of its own because the processes import it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from backend_tasks import RANKS, join, listen

from collopt.runtime import backend
from collopt.runtime.plan_cache import FAILURE_CALLS, Request
from collopt.schedules import ALLGATHER


class Seen(NamedTuple):
    """What one rank has seen after some calls: whether data was right, what failed, and the network of its plan."""

    right: bool
    failure: str
    network: str


def call(rank: int, times: int) -> Seen:
    """Call allreduce and allgather in turn so often."""
    right = True
    for number in range(times):
        own = torch.arange(1001, dtype=torch.int64) * (rank + 1) + number
        if number % 2:
            dist.all_reduce(own)
            wanted = torch.arange(1001) * 10 + RANKS * number
        else:
            gathered = torch.empty(RANKS * 1001, dtype=torch.int64)
            dist.all_gather_into_tensor(gathered, own)
            own, wanted = gathered, torch.cat([torch.arange(1001) * (each + 1) + number for each in range(RANKS)])
        right &= torch.equal(own, wanted)
    group = dist.group.WORLD
    found = group._cache.find(Request(ALLGATHER, 2**13, None))  # type: ignore[union-attr]
    return Seen(right, backend.usage().failure, found.topology.name)


def lose_a_link(rank: int, folder: str, plans: str) -> tuple[list[Seen], list[str], bool]:
    """Tell rank 3 later than others of a lost link, then all of none, of nonsense, and of one that disconnects."""
    said = listen()
    base = Path(folder)
    own = base / f"told-{rank}"
    os.environ |= {"COLLOPT_PLANS": plans, "COLLOPT_FAILURES_FILE": str(own)}
    join(rank, f"{folder}/store")
    seen = [call(rank, FAILURE_CALLS)]

    def tell(text: str, *, who: bool = True) -> None:
        dist.barrier()
        if who:
            own.write_text(text)
        dist.barrier()
        seen.append(call(rank, FAILURE_CALLS))

    tell("gpu0--gpu1\n", who=rank < RANKS - 1)
    tell("gpu0--gpu1\n", who=rank == RANKS - 1)
    tell("gpu0--gpu1\n gpu2--gpu3 x 1/2\n")
    tell("nonsense")
    tell("gpu0--gpu1 + gpu2--gpu3")
    tell("gpu3")
    tell("")
    unplanned = bool(backend.usage().fallback)
    dist.destroy_process_group()
    return seen, said, unplanned


def told_by_the_environment(rank: int, folder: str, plans: str, some: bool) -> object:
    """Give all ranks, or some, a failure from the start."""
    os.environ["COLLOPT_PLANS"] = plans
    if rank or not some:
        os.environ["COLLOPT_FAILURES"] = "gpu0--gpu1"
    start = time.monotonic()
    try:
        join(rank, f"{folder}/store")
    except Exception as error:  # noqa: BLE001 - Its text is the answer.
        return f"{type(error).__name__}: {error}", time.monotonic() - start < 30
    seen = call(rank, 2)
    dist.destroy_process_group()
    return seen
