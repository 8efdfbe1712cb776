"""Breadth-first broadcast on the networks of Table 6 of the direct-connect paper: formulas against linear programs.

Four things are timed: the exact loads of all steps, the whole schedule, its check, and linear program (1) as
`collopt.formulations.bfb` states it with Pyomo and HiGHS solves it, one program per step.  All must find the same T_B.
The programs of different ranks are independent of each other, and here alike: beyond 64 ranks the program is that of
one rank, while formulas and schedule are of all, so that ratios there are far too low.
"""

from __future__ import annotations

import resource
import time
from fractions import Fraction

import collopt
from collopt.formulations import bfb as programs
from collopt.planners import bfb_cost, bfb_schedule
from collopt.schedules import step_cost, verified_loads
from collopt.topologies import Topology, hypercube, torus

CASES = (
    *(hypercube(dimension) for dimension in (2, 3, 4, 5, 6, 10)),
    *(torus(side, side) for side in (3, 4, 5, 6, 20, 50)),
)
MAX_RANKS_FOR_ALL = 64
MAX_RANKS_FOR_ONE = 1024
REPEATS = 3
MIB = 2**10


def by_programs(topology: Topology, diameter: int) -> tuple[Fraction, float]:
    """Solve linear program (1) step by step; return the sum of the largest loads, and CPU seconds."""
    ranks = None if topology.num_ranks <= MAX_RANKS_FOR_ALL else topology.compute_nodes[:1]
    start = time.process_time()
    solutions = [collopt.solve(programs.build(topology, distance, ranks=ranks)) for distance in range(1, diameter + 1)]
    busiest = [max(solution.values["busiest"].values()) for solution in solutions]
    taken = time.process_time() - start
    return sum((Fraction(load).limit_denominator(1000) for load in busiest), Fraction(0)), taken


def measure() -> list[dict[str, object]]:
    """Cost and schedule of every network; ratios are those of the linear programs to the formulas."""
    bfb_schedule(hypercube(2))  # compiling and importing is not what is compared
    by_programs(hypercube(2), 2)
    rows: list[dict[str, object]] = []
    for topology in CASES:
        graph = topology.direct_graph()
        formulas = []
        for _ in range(REPEATS):
            start = time.process_time()
            cost = bfb_cost(graph)
            formulas.append(time.process_time() - start)
        start = time.process_time()
        schedule = bfb_schedule(graph)
        built = time.process_time() - start
        start = time.process_time()
        verified_loads(schedule, topology)
        verified = time.process_time() - start
        if step_cost(graph, schedule) != cost:
            raise RuntimeError(f"the schedule for {topology} costs {step_cost(graph, schedule)} instead of {cost}")
        row: dict[str, object] = {
            "benchmark": "bfb",
            "case": topology.name,
            "steps": cost.steps,
            "bandwidth_factor": str(cost.bandwidth_factor),
            "cpu_s": min(formulas),
            "schedule_cpu_s": built,
            "verify_cpu_s": verified,
            "sends": schedule.num_sends,
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // MIB,
        }
        if topology.num_ranks <= MAX_RANKS_FOR_ONE:
            total, taken = by_programs(topology, cost.steps)
            if total * Fraction(graph.degree, graph.num_nodes) != cost.bandwidth_factor:
                raise RuntimeError(f"the linear programs of {topology} add up to {total}")
            row |= {
                "program_ranks": "all" if topology.num_ranks <= MAX_RANKS_FOR_ALL else 1,
                "programs_cpu_s": taken,
                "ratio": taken / min(formulas),
            }
        rows.append(row)
    return rows
