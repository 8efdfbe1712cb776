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


def random_switched_forest(boxes: int, gpus: int, switches: int, seed: int, direction: Any = "broadcast") -> Forest:
    """Trees that enter boxes anywhere, and branch at some switches, for all or some ranks of the box, or at none."""
    chance, ranks = random.Random(seed), boxes * gpus
    numbers = [[ranks + box * switches + number for number in range(switches)] for box in range(boxes)]
    trees = [(root, 1, _random_paths(chance, root, gpus, numbers)) for root in range(ranks)]
    every = [number for own in numbers for number in own]
    return Forest.from_paths(ranks, 1, trees, direction=direction, switches=every)


def _random_paths(chance: random.Random, root: int, gpus: int, switches: list[list[int]]) -> list[tuple[int, ...]]:
    unused = [(box, number) for box, own in enumerate(switches) for number in own]
    reached, left = [root], [rank for rank in range(gpus * len(switches)) if rank != root]
    paths: list[tuple[int, ...]] = []
    while left:
        sender = chance.choice(reached)
        beside = [rank for rank in left if rank // gpus == sender // gpus]
        able = [each for each in unused if each[0] == sender // gpus]
        if beside and able and chance.random() < 0.7:
            unused.remove(each := chance.choice(able))
            found = beside if chance.random() < 0.7 else chance.sample(beside, chance.randint(1, len(beside)))
            paths += [(sender, each[1]), *((each[1], rank) for rank in found)]
        else:
            found = [chance.choice(left)]
            paths.append((sender, found[0]))
        reached += found
        left = [rank for rank in left if rank not in found]
    return paths


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
