"""CPU time of whole processes that plan an allgather at the optimum: start, imports, planning and verification.

And the ratio of packing trees untested to packing them with a test of every link, on random regular networks.

Kernels are compiled once and cached on disk; the run that may compile is reported apart.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import numpy as np
from scaling import random_regular

from collopt.solvers.flows.bottleneck import bottleneck_cut
from collopt.solvers.trees.batch_packing import pack_in_batches
from collopt.solvers.trees.tree_packing import pack_trees

CASES = (("dgx-a100", "boxes=2"), ("mi250", "boxes=2"))
REPEATS = 5
PROGRAM = """
import sys, collopt
options = dict(argument.split("=", 1) for argument in sys.argv[2:])
plan = collopt.plan(collopt.topologies.build(sys.argv[1], **options), "allgather")
assert plan.gap == 0
"""


def cpu_seconds(case: tuple[str, ...]) -> float:
    """User and system time of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", PROGRAM, *case], check=True, cwd="/")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def packing_row(ranks: int, bandwidths: int) -> dict[str, object]:
    """Pack allgather trees of a random regular network of degree 8 in both ways, kernels compiled."""
    tails, heads, capacities, _ = random_regular(ranks, 8, bandwidths).arrays
    best = bottleneck_cut(ranks, tails, heads, capacities, np.ones(ranks, dtype=np.int64))
    problem = (ranks, tails, heads, capacities * best.supply, np.full(ranks, best.capacity))
    seconds = []
    for pack in (pack_in_batches, pack_trees):
        start = time.process_time()
        pack(*problem)
        seconds.append(time.process_time() - start)
    case = f"random regular, {ranks} ranks, bandwidths 1..{bandwidths}"
    return {
        "benchmark": "tree packing by batches",
        "case": case,
        "cpu_s": seconds[0],
        "before_cpu_s": seconds[1],
        "ratio": seconds[0] / seconds[1],
    }


def measure() -> list[dict[str, object]]:
    """Time each case: first run, then the median of several; and packing."""
    rows: list[dict[str, object]] = []
    for case in CASES:
        first = cpu_seconds(case)
        later = sorted(cpu_seconds(case) for _ in range(REPEATS))[REPEATS // 2]
        for kind, seconds in (("first run", first), ("after that", later)):
            rows.append(
                {"benchmark": "planning, whole process", "case": " ".join(case), "engine": kind, "cpu_s": seconds}
            )
    packing_row(64, 1)
    return rows + [packing_row(ranks, bandwidths) for ranks in (256, 512) for bandwidths in (1, 100)]
