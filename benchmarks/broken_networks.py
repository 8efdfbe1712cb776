"""Fixed patterns on networks with one failure: planning time as a multiple of that on the intact network.

Each time is that of a second run, after kernels were compiled.
"""

from __future__ import annotations

import time

from collopt import Topology, plan
from collopt.topologies import dgx_a100, mi250

PLANNERS: tuple[str, ...] = ("ring", "multitree", "blink")
SHORTEST = 0.01  # seconds below which ratios say nothing


def measure() -> list[dict[str, object]]:
    """One row per network, failure and planner."""
    box, hive = dgx_a100(boxes=4), mi250(boxes=2)
    cases = [
        (box, "a NIC lost", box.without_node("box0/nic0")),
        (box, "a NIC at half rate", box.derate("box0/nic0", "ib", "1/2")),
        (box, "an NVLink lost", box.without_link("box0/gpu0", "box0/nvswitch")),
        (box, "a GPU lost", box.without_node("box0/gpu1")),
        (hive, "a NIC lost", hive.without_node("box0/nic0")),
        (hive, "a link lost", hive.without_link("box0/gpu0", "box0/gpu1")),
        (hive, "a GPU lost", hive.without_node("box0/gpu1")),
    ]
    return [
        {
            "benchmark": "broken-networks",
            "case": f"{planner}, {intact.name}, {failure}",
            "intact_cpu_s": (before := _seconds(intact, planner)),
            "plan_cpu_s": (after := _seconds(broken, planner)),
            "ratio": after / max(before, SHORTEST),
        }
        for intact, failure, broken in cases
        for planner in PLANNERS
    ]


def _seconds(topology: Topology, planner: str) -> float:
    for _ in range(2):
        start = time.process_time()
        plan(topology, "allgather", planner=planner)
        seconds = time.process_time() - start
    return seconds
