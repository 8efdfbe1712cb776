"""What a collective on four Gloo processes costs by a plan beside Gloo's own, at all sizes, side by side in one run.

The processes take turns with groups of calls of both, and the median of the groups counts, of the slowest rank.  Gloo's
allreduce is a ring, its allgather and reduce-scatter too; the plans are rings in one direction and what is best for a
ring in both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median

from collopt import plan
from collopt.runtime import execute
from collopt.runtime.execution.local_ranks import run_ranks
from collopt.topologies import ring

RANKS = 4
SIZES = (64, 4 * 1024, 64 * 1024, 512 * 1024, 4 * 1024**2, 32 * 1024**2)
COLLECTIVES = ("allreduce", "allgather", "reduce_scatter")
PLANNERS = ("ring", "auto")
GROUPS, CALLS = 9, 8
MOST_BYTES = 8 * 1024**2  # Of the calls of a group together
TIMEOUT_S = 1200


def measure() -> list[dict[str, object]]:
    """Return one row per collective, size and planner, with the time of a call."""
    by_rank = run_ranks(measure_on_rank, RANKS, timeout_s=TIMEOUT_S, preload=("torch", "torch.distributed"))
    rows: list[dict[str, object]] = []
    for cases in zip(*by_rank, strict=True):
        name, size, planner, _, _ = cases[0]
        planned, gloo = (max(case[at] for case in cases) * 1e6 for at in (3, 4))
        case = f"{name}, {size:,} bytes, {planner}"
        rows.append(
            {"benchmark": "call-overhead", "case": case, "call_us": planned, "gloo_us": gloo, "ratio": planned / gloo}
        )
    return rows


def measure_on_rank(rank: int, folder: str) -> list[tuple[str, int, str, float, float]]:
    """Measure all cases on one rank; return (collective, size, planner, seconds by the plan, seconds by Gloo)."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", RANKS), rank=rank, world_size=RANKS)
    gloo = dist.new_group()
    rows = []
    for name in COLLECTIVES:
        for planner in PLANNERS:
            made = plan(ring(RANKS, bandwidth=25), name, planner=planner)
            for size in SIZES:
                whole, shard = torch.zeros(size // 4), torch.zeros(size // 4 // RANKS)
                output, given, own = {
                    "allreduce": (whole, whole, lambda output, _, **group: dist.all_reduce(output, **group)),
                    "allgather": (whole, shard, dist.all_gather_into_tensor),
                    "reduce_scatter": (shard, whole, dist.reduce_scatter_tensor),
                }[name]
                ways = partial(execute, made, output, given), partial(own, output, given, group=gloo)
                calls = min(CALLS, 1 + MOST_BYTES // size)
                rows.append((name, size, planner, *_compared(*ways, partial(dist.barrier, group=gloo), calls)))
    dist.destroy_process_group()
    return rows


def _compared(
    planned: Callable[[], object], own: Callable[[], object], barrier: Callable[[], object], calls: int
) -> list[float]:
    """Seconds of a call of each, by turns."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(GROUPS + 1):
        for call, times in zip((planned, own), taken, strict=True):
            barrier()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            times.append((time.perf_counter() - start) / calls)
    return [median(times[1:]) for times in taken]
