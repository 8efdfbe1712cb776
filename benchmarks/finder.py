"""The topology finder: one size built in full, sweeps over sizes by theorems, and figures of generalized Kautz graphs.

Each part runs in a process of its own, as the finder keeps what it has found.  The kernel of generalized Kautz graphs
is compared with the general kernel, `collopt.planners.bfb_cost`.  Both get what they ask for: a degree and a size, or
the graph, which is built outside the timing.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from concurrent.futures import ProcessPoolExecutor

from collopt.planners import bfb_cost, find_topologies, sweep_topologies
from collopt.solvers.steps.graph_costs import kautz_figures
from collopt.topologies import generalized_kautz

DEGREES = (2, 4, 8, 16)
SIZE, DEGREE = 1024, 4
LAST = 2000
SAMPLE = range(200, LAST + 1, 257)
"""Of all remainders: there is less to do where d + 1 and the size have a common divisor."""
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
    sweep_topologies([12], degree)
    start = time.process_time()
    frame = sweep_topologies(range(2, LAST + 1), degree)
    taken = time.process_time() - start
    return {"case": f"sweep to {LAST}, degree {degree}", "cpu_s": taken, "found": len(frame), "peak_mib": _peak()}


def kautz(degree: int) -> dict[str, object]:
    """Work out the figures of some generalized Kautz graphs of a degree, by both kernels."""
    kautz_figures(degree, degree + 1)
    bfb_cost(generalized_kautz(degree, degree + 2))
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
    name = f"generalized Kautz graphs, degree {degree}"
    return {"case": name, "sample_cpu_s": special, "general_cpu_s": general, "ratio": general / special}


def measure() -> list[dict[str, object]]:
    """One size, the sweeps and the graphs; ratios are those of the general kernel to the special one."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh, max_tasks_per_child=1) as pool:
        rows = [pool.submit(search).result()]
        rows += pool.map(sweep, DEGREES)
        rows += pool.map(kautz, DEGREES)
    return [{"benchmark": "finder", **row} for row in rows]
