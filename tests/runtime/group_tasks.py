"""What the ranks of the tests of process groups do; a module of its own because the processes import it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from backend_tasks import RANKS, join, listen

from collopt.runtime import backend, plan_cache
from collopt.topologies import dgx_a100

GROUPS = ([0, 2], [1, 3], [1, 2], [0, 1, 3])


class Called(NamedTuple):
    """What one rank has seen of the calls of one group."""

    right: bool
    usage: backend.Usage


def call(group: dist.ProcessGroup, ranks: list[int]) -> Called:
    """Call allreduce, and broadcast from the last rank."""
    own = torch.arange(1001, dtype=torch.int64) * (dist.get_rank() + 1)
    dist.all_reduce(own, group=group)
    right = torch.equal(own, torch.arange(1001) * sum(rank + 1 for rank in ranks))
    root = torch.full((5,), dist.get_rank())
    dist.broadcast(root, ranks[-1], group=group)
    return Called(right and root.tolist() == [ranks[-1]] * 5, backend.usage(group))


class Seen(NamedTuple):
    """What one rank has seen of all groups, and of one whose first rank plans for all, and what the log says."""

    by_group: dict[str, list[Called]]
    planned_by_one: list[Called]
    said: list[str]


def call_in_groups(rank: int, folder: str) -> Seen:
    """Call in groups of the network of all ranks, before and after a failure, and let one rank plan for all."""
    said = listen()
    os.environ["COLLOPT_FAILURES_FILE"] = f"{folder}/told"
    backend.configure(topology=dgx_a100(boxes=2).restrict(["box0/gpu0", "box0/gpu1", "box1/gpu0", "box1/gpu1"]))
    join(rank, f"{folder}/store")
    groups = [(dist.new_group(ranks), ranks) for ranks in GROUPS]
    own = [(group, ranks) for group, ranks in groups if rank in ranks]
    seen = {str(ranks): [call(group, ranks)] for group, ranks in own}
    dist.barrier()
    Path(f"{folder}/told").write_text("box0/nic0--ib x 1/2")
    dist.barrier()
    for _ in range(plan_cache.FAILURE_CALLS // 2):
        for group, ranks in own:
            seen[str(ranks)].append(call(group, ranks))
    plan_cache.MAX_OWN_WORK = 0
    several = dist.new_group(ranks := GROUPS[-1])
    by_one = []
    # The second broadcast has another root, so there is no plan yet, and no time to make it.
    for plan_cache.PLANNING_S, order in ((60, ranks), (0.01, ranks[::-1])) if rank in ranks else ():
        by_one.append(call(several, order))
    dist.destroy_process_group()
    return Seen(seen, by_one, said)


__all__ = ["GROUPS", "RANKS", "Called", "Seen", "call_in_groups"]
