"""Networks of boxes whose switches multicast and aggregate, and plans of trees that branch at them."""

from __future__ import annotations

import random
from typing import Any

import collopt
from collopt.planners import Plan
from collopt.planners.plans.plan import proved_plan
from collopt.planners.plans.stages import Trace
from collopt.schedules import COLLECTIVES, Allreduce, Forest, TreeSchedule
from collopt.topologies import SwitchLimits, Topology


def switched_boxes(boxes: int, gpus: int, **limits: Any) -> Topology:
    """Boxes with a switch and a NIC for each GPU, around one fabric; the switches follow the ranks, box by box."""
    names = [[f"box{box}/gpu{gpu}" for gpu in range(gpus)] for box in range(boxes)]
    switches = [f"box{box}/switch" for box in range(boxes)]
    links = [(name, switch, 400) for own, switch in zip(names, switches, strict=True) for name in own]
    nics = [f"{name}/nic" for own in names for name in own] if boxes > 1 else []
    links += [(nic.removesuffix("/nic"), nic, 50) for nic in nics] + [(nic, "fabric", 50) for nic in nics]
    return Topology.from_links(
        links,
        compute=[name for own in names for name in own],
        switches=[*switches, *(["fabric", *nics] if nics else [])],
        bidirectional=True,
        multicast=switches,
        aggregation=switches,
        limits=[SwitchLimits(switch, **limits) for switch in switches] if limits else [],
    )


def switched_forest(boxes: int, gpus: int, direction: Any = "broadcast", trees: int = 1, seed: int = 0) -> Forest:
    """Trees that enter every box once, from a box that has the data already, and branch at its switch."""
    chance, ranks = random.Random(seed), boxes * gpus
    fabric, found = ranks + boxes, []
    for root in range(ranks):
        for tree in range(trees):
            heads, paths = [root], []
            for box in chance.sample([box for box in range(boxes) if box != root // gpus], boxes - 1):
                head, sender = box * gpus + (root + tree) % gpus, chance.choice(heads)
                paths.append((sender, fabric + 1 + sender, fabric, fabric + 1 + head, head))
                heads.append(head)
            for head in heads:
                switch, first = ranks + head // gpus, head // gpus * gpus
                others = [rank for rank in range(first, first + gpus) if rank != head]
                paths += [(head, switch), *((switch, rank) for rank in others)]
            found.append((root, 1, paths))
    return Forest.from_paths(ranks, trees, found, direction=direction, switches=range(ranks, ranks + boxes))


def switched_schedule(collective: str, boxes: int, gpus: int, trees: int = 1) -> TreeSchedule:
    """For an allgather, reduce-scatter or allreduce."""
    if collective == "allgather":
        return switched_forest(boxes, gpus, trees=trees)
    reduce = switched_forest(boxes, gpus, "reduce", trees, seed=1)
    return reduce if collective == "reduce_scatter" else Allreduce(reduce, switched_forest(boxes, gpus, trees=trees))


def switched_plan(collective: str, boxes: int, gpus: int, trees: int = 1, **limits: Any) -> Plan:
    """Such a schedule as a plan."""
    topology, schedule = switched_boxes(boxes, gpus, **limits), switched_schedule(collective, boxes, gpus, trees)
    bound = collopt.bound(topology, collective)
    return proved_plan(topology, COLLECTIVES[collective], schedule, "test", {}, Trace(), bound)
