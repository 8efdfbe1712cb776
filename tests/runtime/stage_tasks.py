"""What the ranks of tests of all-to-allvs in stages do; a module of its own because the processes import it."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
from runtime_tasks import RANKS, join, same

import collopt
from collopt.runtime import execute, lower

CASES: dict[str, tuple[list[int], list[list[int]]]] = {
    "two servers": ([2, 2], [[1, 4, 9, 2], [0, 3, 5, 5], [7, 0, 0, 2], [6, 6, 1, 1]]),
    "one sends": ([2, 2], [[0, 0, 13, 5], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]),
    "unequal servers": ([1, 2, 1], [[2, 8, 3, 12], [6, 0, 0, 1], [0, 4, 0, 10], [5, 0, 7, 0]]),
    "four servers": ([1, 1, 1, 1], [[0, 1, 2, 3], [4, 0, 5, 6], [7, 8, 0, 9], [1, 3, 5, 0]]),
}


def exchange_in_stages(rank: int, folder: str) -> dict[str, bool]:
    """Run programs on random bytes and compare every bit with torch's own."""
    join(rank, folder)
    results = {}
    for name, (sizes, rows) in CASES.items():
        traffic = np.array(rows, dtype=np.int64)
        schedule = collopt.schedule_all_to_allv(traffic, servers=len(sizes), gpus_per_server=sizes)
        program = lower(schedule, "all_to_allv", instances=2 if name == "two servers" else 1)
        for unit, slices in ((1, 1), (257, 3)):
            sends, takes = ((unit * part).tolist() for part in (traffic[rank], traffic[:, rank]))
            generator = torch.Generator().manual_seed(RANKS * unit + rank)
            mine = torch.randint(-(2**31), 2**31, (sum(sends),), dtype=torch.int32, generator=generator)
            wanted = torch.empty(sum(takes), dtype=torch.int32)
            dist.all_to_all_single(wanted, mine, takes, sends)
            output = ~wanted
            execute(program, output, mine.clone(), slices=slices)
            results[f"{name}, {unit} in {slices} slices"] = same(output, wanted)
    return results
