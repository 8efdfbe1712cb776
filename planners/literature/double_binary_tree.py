"""Double binary trees (Sanders, Speck, Träff, Parallel Computing 35(12), 2009): two trees with half of the data each.

A box that passes data on in one tree is a leaf in the other, so that all boxes send about as much as they receive.  As
in NCCL, boxes are the nodes of the trees, the GPUs of a box form a chain from the one that talks to other boxes, and
there is one pair of trees for every GPU, so that every NIC is used.  In a network of one box, its ranks are the nodes.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from ...schedules import ALLREDUCE, BROADCAST, REDUCE, Forest
from ...schedules.collective import AnyCollective
from ...topologies import Topology
from ...topologies.direct_connect.basic_graphs import double_binary_tree_parents
from ..plans.plan import Plan
from ..plans.registry import register_planner
from ..trees.problem import TreeProblem, check_request
from .fixed_pattern import Hops, LinkLoads, Route, find_boxes, forest_along, plan_baseline
from .ring import box_rings
from .ring_walk import Ring


@register_planner("double-binary-tree", (ALLREDUCE, BROADCAST, REDUCE))
def plan_double_binary_tree(topology: Topology, collective: AnyCollective, *, root: int | str | None = None) -> Plan:
    """Plan two trees over the boxes for every GPU of a box, as NCCL runs them."""
    planned = check_request(topology, collective)

    def build(problem: TreeProblem) -> Forest:
        return _Trees(problem, None if planned.has_two_phases else int(problem.root_weights.argmax())).forest()

    return plan_baseline(topology, planned, "double-binary-tree", build, root=root)


class _Trees:
    """The trees of all channels."""

    def __init__(self, problem: TreeProblem, root: int | None) -> None:
        self._problem, self._root = problem, root
        self._hops, self._uses = Hops(problem), LinkLoads(problem.capacities)
        boxes: Sequence[tuple[int, ...]] = find_boxes(self._hops)
        if len(boxes) == 1:
            boxes = [(rank,) for rank in boxes[0]]
        # The root's box comes first.
        self._boxes = sorted(boxes, key=lambda box: root not in box) if root is not None else list(boxes)
        large = [box for box in self._boxes if len(box) > 1]
        self._rings = dict(zip(large, box_rings(self._hops, large), strict=True)) if large else {}
        self._routes: list[Route] = []

    def forest(self) -> Forest:
        """Two trees for every place in a box and ring of the boxes."""
        rings = max((len(rings) for rings in self._rings.values()), default=1)
        roots, rows = [], []
        for ring in range(rings):
            for place in range(max(map(len, self._boxes))):
                for parents in double_binary_tree_parents(len(self._boxes)):
                    rows.append(self._tree(ring, place, parents))
                    roots.append(self._entry(0, place) if self._root is None else self._root)
        per_root = int(np.gcd.reduce(np.unique(roots, return_counts=True)[1]))
        return forest_along(
            self._problem, per_root, np.array(roots), np.ones(len(roots), dtype=np.int64), np.array(rows), self._routes
        )

    def _tree(self, ring: int, place: int, parents: Sequence[int]) -> list[int]:
        """Number of the route into each rank: between the entries of boxes, and along a chain in every box."""
        row = [-1] * self._problem.topology.num_ranks
        for number, parent in enumerate(parents):
            entry = self._entry(number, place)
            if parent >= 0:
                sender = self._entry(parent, place)
                row[entry] = self._number(self._uses.take(self._hops.find_routes(sender, entry)))
            start = self._root if number == 0 and self._root is not None else entry
            for rank, route in self._chain(number, ring, start):
                row[rank] = self._number(route)
        return row

    def _chain(self, number: int, ring: int, start: int) -> Iterator[tuple[int, Route]]:
        """Ranks of a box after the first, each with the route into it."""
        box = self._boxes[number]
        if len(box) == 1:
            return
        order: Ring = self._rings[box][ring]
        first, size = order.ranks.index(start), len(box)
        for step in range(first, first + size - 1):
            yield order.ranks[(step + 1) % size], order.routes[step % size]

    def _entry(self, number: int, place: int) -> int:
        box = self._boxes[number]
        return box[place % len(box)]

    def _number(self, route: Route) -> int:
        self._routes.append(route)
        return len(self._routes) - 1
