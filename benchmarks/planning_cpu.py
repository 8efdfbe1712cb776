"""CPU time of whole processes that plan an allgather at the optimum: start, imports, planning and verification.

Kernels are compiled once and cached on disk; the run that may compile is reported apart.
"""

from __future__ import annotations

import resource
import subprocess
import sys

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


def measure() -> list[dict[str, object]]:
    """Time each case: first run, then the median of several."""
    rows: list[dict[str, object]] = []
    for case in CASES:
        first = cpu_seconds(case)
        later = sorted(cpu_seconds(case) for _ in range(REPEATS))[REPEATS // 2]
        for kind, seconds in (("first run", first), ("after that", later)):
            rows.append(
                {"benchmark": "planning, whole process", "case": " ".join(case), "engine": kind, "cpu_s": seconds}
            )
    return rows
