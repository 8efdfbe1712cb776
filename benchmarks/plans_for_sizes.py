"""Plans for a size: planning times as ratios to the plan for large data, and predicted times over the bound at a size.

Costs are those of fused kernels, at line rate.  The plan for large data is the peer, planned and timed in the same run.
"""

from __future__ import annotations

import time

import collopt
from collopt import Plan
from collopt.schedules import as_bytes
from collopt.schedules.timed_run import Predictor
from collopt.topologies import RuntimeCosts, dgx_a100, dgx_h100, dragonfly, fat_tree, mi250, mi300x, torus

COSTS = RuntimeCosts(alpha=2, send="0.2")
NETWORKS = (
    dgx_a100(boxes=2),
    dgx_h100(boxes=4),
    mi300x(boxes=4),
    mi250(boxes=2),
    torus(8, 8, bandwidth=25, latency="0.5"),
    dragonfly(4, 2, 2),
    fat_tree(8),
)
SIZES = ("1K", "64K", "1M", "64M", "256M", "1G")
COLLECTIVES = ("allgather", "allreduce")


def planned(network: collopt.Topology, collective: str, size: str | None) -> tuple[Plan, float]:
    """A verified plan, and CPU seconds."""
    start = time.process_time()
    plan = collopt.plan(network, collective, size=size, costs=COSTS)
    return plan, time.process_time() - start


def peer_time(plan: Plan, size: str) -> float:
    """Time in µs of the plan for large data, predicted as those of plans for a size."""
    return float(Predictor(plan.schedule, plan.topology, COSTS).time(as_bytes(size)))


def measure() -> list[dict[str, object]]:
    """One row for each network, collective and size."""
    for collective in COLLECTIVES:  # compiling and importing is not what is compared
        for network in (dgx_a100(boxes=2), torus(3, 3)):
            planned(network, collective, "1M")
            planned(network, collective, None)
    rows: list[dict[str, object]] = []
    for network in NETWORKS:
        for collective in COLLECTIVES:
            peer, seconds = planned(network, collective, None)
            for size in SIZES:
                plan, taken = planned(network, collective, size)
                predicted = float(plan.provenance["predicted_us"])
                least = float(collopt.bound(network, collective, size=size, costs=COSTS).time)
                rows.append(
                    {
                        "benchmark": "plans for sizes",
                        "case": f"{network.name}, {collective}, {size}",
                        "engine": plan.planner,
                        "cpu_s": taken,
                        "ratio": taken / seconds,
                        "predicted_us": predicted,
                        "factor": predicted / least,
                        "gain": peer_time(peer, size) / predicted,
                    }
                )
    return rows
