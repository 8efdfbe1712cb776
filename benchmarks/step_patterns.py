"""Planning times of the named algorithms in steps, and their bandwidth times over the bound.

All are planned and verified as allgathers: on tori with routers, on which Swing's paper states its factor, and on boxes
of GPUs.  Ratios of planning times are to a `bfb` plan of as many ranks on a torus without routers.
"""

from __future__ import annotations

import time

import collopt
from collopt import Plan, Topology
from collopt.topologies import dgx_h100, torus

CASES: tuple[tuple[Topology, tuple[str, ...]], ...] = (
    (torus(8, 8, routers=True), ("swing", "bine", "trivance", "torus-2-phase")),
    (torus(32, 32, routers=True), ("swing", "bine", "trivance", "torus-2-phase")),
    (torus(32, 32), ("bfb", "swing")),
    (
        dgx_h100(boxes=128),
        ("recursive-doubling", "recursive-halving-doubling-steps", "bruck", "pat", "ring-unwinding", "nccl"),
    ),
)


def planned(topology: Topology, planner: str) -> tuple[Plan, float]:
    """A verified allgather, and CPU seconds."""
    start = time.process_time()
    plan = collopt.plan(topology, "allgather", planner=planner)
    return plan, time.process_time() - start


def measure() -> list[dict[str, object]]:
    """One row for each network and planner."""
    for planner in {planner for _, planners in CASES for planner in planners}:
        network = torus(4, 4) if planner == "bfb" else dgx_h100(boxes=2)
        if planner != "torus-2-phase":
            planned(network, planner)  # compiling and importing is not what is compared
    _, peer = planned(torus(32, 32), "bfb")
    rows: list[dict[str, object]] = []
    for topology, planners in CASES:
        for planner in planners:
            plan, taken = planned(topology, planner)
            row: dict[str, object] = {
                "benchmark": "step-patterns",
                "case": f"{topology.name}, {planner}",
                "cpu_s": taken,
                "steps": plan.schedule.num_steps or None,
                "factor": float(plan.bound.algbw / plan.algbw),
            }
            if topology.num_ranks == 1024:
                row["ratio"] = taken / peer
            rows.append(row)
    return rows
