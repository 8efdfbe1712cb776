"""The topology finder: one size built in full, sweeps over sizes by theorems, and the generalized Kautz graphs' table.

Each part runs in a process of its own, as the finder keeps what it has found.  The table is worked out before a sweep,
and not by it, and put into a folder that is deleted in the end; so the sweeps are those of a machine that has it.

The table's kernel is compared with the general kernel, `collopt.planners.bfb_cost`, on some of its sizes.  Both get
what they ask for: the table's a degree and a size, the general one the graph, which is built outside the timing.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from unittest.mock import patch

from collopt.planners import bfb_cost, find_topologies, sweep_topologies
from collopt.planners.finder import kautz_cache
from collopt.solvers.bfb.kautz_bandwidth import kautz_figures, kautz_table
from collopt.topologies import generalized_kautz

DEGREES = (2, 4, 8, 16)
SIZE, DEGREE = 1024, 4
LAST = kautz_cache.LARGEST
SAMPLE = range(200, LAST + 1, 257)
"""Of all remainders: the table's kernel has less to do where d + 1 and the size have a common divisor."""
MIB = 2**10


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // MIB


def search() -> dict[str, object]:
    """Find the topologies of one size, each graph built and measured."""
    find_topologies(12, DEGREE)  # compiling and importing is not what is timed
    start = time.process_time()
    found = find_topologies(SIZE, DEGREE)
    taken = time.process_time() - start
    return {"case": f"find_topologies({SIZE}, {DEGREE})", "cpu_s": taken, "found": len(found), "peak_mib": _peak()}


def sweep(degree: int) -> dict[str, object]:
    """List the topologies of all sizes up to 2000."""
    for divisor in range(2, degree + 1):
        if degree % divisor == 0:
            kautz_cache.load_kautz_table(divisor)
    sweep_topologies([12], 1)
    start = time.process_time()
    frame = sweep_topologies(range(2, LAST + 1), degree)
    taken = time.process_time() - start
    return {"case": f"sweep to {LAST}, degree {degree}", "cpu_s": taken, "found": len(frame), "peak_mib": _peak()}


def table(degree: int) -> dict[str, object]:
    """Work out the figures of all generalized Kautz graphs of a degree, and some of them by the general kernel too."""
    kautz_table(degree, degree + 1, degree + 1)
    bfb_cost(generalized_kautz(degree, degree + 2))
    start = time.process_time()
    kautz_table(degree, degree + 1, LAST)
    taken = time.process_time() - start
    special = general = 0.0
    for size in SAMPLE:
        graph = generalized_kautz(degree, size).direct_graph()
        start = time.process_time()
        figures = kautz_figures(degree, size)
        between = time.process_time()
        cost = bfb_cost(graph)
        general += time.process_time() - between
        special += between - start
        if (cost.steps, cost.bandwidth_factor) != figures[:2]:
            raise RuntimeError(f"the kernels say {figures[:2]} and {cost} of {size} nodes, degree {degree}")
    name = f"generalized Kautz table, degree {degree}"
    return {"case": name, "cpu_s": taken, "sample_cpu_s": special, "general_cpu_s": general, "ratio": general / special}


def measure() -> list[dict[str, object]]:
    """One size, the sweeps and the tables; ratios are those of the general kernel to the table's."""
    fresh = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, {kautz_cache.FOLDER_VARIABLE: folder}):
        for degree in DEGREES:
            kautz_cache.load_kautz_table(degree)
        with ProcessPoolExecutor(1, mp_context=fresh, max_tasks_per_child=1) as pool:
            rows = [pool.submit(search).result()]
            rows += pool.map(sweep, DEGREES)
            rows += pool.map(table, DEGREES)
    return [{"benchmark": "finder", **row} for row in rows]
