"""Hierarchical rings (BlueConnect: Cho et al., MLSys 2019): among ranks of equal index in all boxes, then in each box.

In an allgather, a shard visits the other boxes along a ring of ranks with the same place, and goes from each of them
along rings of the box; reduce-scatter is the reverse, and allreduce both.  A shard enters each box once and leaves it
at most once, where plain rings take nearly all shards through every box.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ...errors import UnsupportedError
from ...schedules import Forest
from ...schedules.collective import EVERY_ROOT, AnyCollective
from ...topologies import Topology
from ..plans.plan import Plan
from ..plans.registry import register_planner
from ..trees.problem import TreeProblem
from .fixed_pattern import Hops, LinkLoads, Route, find_boxes, forest_along, plan_baseline
from .ring import find_rings, ring_along, sharing_time
from .ring_walk import Ring


@register_planner("hierarchical-ring", EVERY_ROOT)
def plan_hierarchical_ring(
    topology: Topology, collective: AnyCollective, *, weights: Sequence[object] | None = None
) -> Plan:
    """Plan rings among boxes, then rings inside boxes (BlueConnect)."""
    return plan_baseline(topology, collective, "hierarchical-ring", _hierarchical_forest, weights=weights)


def box_rings(hops: Hops, boxes: Sequence[Sequence[int]]) -> list[list[Ring]]:
    """Find rings inside every box, equally many in all boxes: the best number for the slowest box."""
    rings_by_box: list[list[Ring]] = []
    for number, box in enumerate(boxes):
        # Boxes of one kind can have the same rings, which saves looking for them.
        copies = _moved(hops, rings_by_box[-1], boxes[number - 1], box) if rings_by_box else None
        rings_by_box.append(copies or find_rings(hops, [box]))
    counts = sorted({len(rings) for rings in rings_by_box})
    filled = [[[rings[number % len(rings)] for number in range(count)] for rings in rings_by_box] for count in counts]
    return min(filled, key=lambda all_rings: max(sharing_time(hops, rings) for rings in all_rings))


def _moved(hops: Hops, rings: Sequence[Ring], box: Sequence[int], other: Sequence[int]) -> list[Ring] | None:
    """Translate the rings of one box to another, if they are possible there and as fast."""
    if len(box) != len(other):
        return None
    place, uses = dict(zip(box, other, strict=True)), LinkLoads(hops.problem.capacities)
    try:
        moved = [ring_along(hops, [place[rank] for rank in ring.ranks], uses) for ring in rings]
    except UnsupportedError:
        return None
    return moved if sharing_time(hops, moved) <= sharing_time(hops, rings) else None


def _hierarchical_forest(problem: TreeProblem) -> Forest:
    hops = Hops(problem)
    boxes = find_boxes(hops)
    _check_boxes(problem, boxes)
    inside, across = box_rings(hops, boxes), _rings_across(hops, boxes)
    routes = [route for rings in inside for ring in rings for route in ring.routes]
    into = _receiving(inside, problem.topology.num_ranks)
    channels, rows, roots = len(into), [], []
    for place, ring in enumerate(across):
        entered = np.array([box[place] for box in boxes])
        numbers = len(routes) + (np.arange(len(boxes)) - 1) % len(boxes)
        routes += ring
        for root in entered[problem.root_weights[entered] > 0]:
            row = into.copy()
            row[:, entered] = numbers
            rows.append(row)
            roots.append(root)
    weights = np.repeat(problem.root_weights[roots], channels)
    return forest_along(problem, channels, np.repeat(roots, channels), weights, np.concatenate(rows), routes)


def _rings_across(hops: Hops, boxes: Sequence[Sequence[int]]) -> list[list[Route]]:
    """Per place, the routes from each box to the next one."""
    uses = LinkLoads(hops.problem.capacities)
    rings = []
    for members in zip(*boxes, strict=True):
        pairs = pairwise([*members, members[0]])
        rings.append([uses.take(hops.find_routes(tail, head)) for tail, head in pairs])
    return rings


def _receiving(inside: Sequence[Sequence[Ring]], num_ranks: int) -> npt.NDArray[np.int32]:
    """Shape (rings per box, ranks): the number of the route into each rank, counting ring by ring and box by box."""
    into = np.empty((len(inside[0]), num_ranks), dtype=np.int32)
    first = 0
    for rings in inside:
        for number, ring in enumerate(rings):
            into[number, np.roll(ring.ranks, -1)] = first + np.arange(len(ring.ranks))
            first += len(ring.ranks)
    return into


def _check_boxes(problem: TreeProblem, boxes: Sequence[Sequence[int]]) -> None:
    sizes = sorted({len(box) for box in boxes})
    if len(boxes) < 2:
        raise UnsupportedError(
            f"the ranks of {problem.topology} form one box, where a hierarchical ring is a ring; use the planner 'ring'"
        )
    if len(sizes) > 1 or sizes[0] < 2:
        raise UnsupportedError(
            f"the boxes of {problem.topology} have {' or '.join(map(str, sizes))} ranks; a hierarchical ring needs "
            "boxes of equal size, of two or more"
        )
