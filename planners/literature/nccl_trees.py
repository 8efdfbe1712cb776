"""Trees of NCCL: double binary trees (Sanders, Speck and Träff, 2009), NVLS, NVLSTree and CollNet Direct.

The last three divide the data among heads, GPUs that each send and receive a share for their box, through switches that
add up and copy, as NCCL's sources at 0f900e1 (2026) say; docs/reference/planners.md has what is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np

from ...errors import UnsupportedError
from ...formulations.allreduce_cuts import opposite_links
from ...schedules import ALLREDUCE, BROADCAST, REDUCE, Forest
from ...schedules.collective import EVERY_ROOT, AnyCollective
from ...topologies import Topology
from ...topologies.direct_connect.basic_graphs import double_binary_tree_parents
from ..plans.plan import Plan
from ..plans.registry import register_planner
from ..trees.problem import TreeProblem, check_request
from .fixed_pattern import forest_along, plan_pattern
from .ring import box_rings
from .routes import Hops, LinkLoads, Route, find_boxes

MAX_HEADS = 32  # NCCL_MAX_NVLS_ARITY
MAX_DIRECT = 8  # GPUs of a box with CollNet Direct: NCCL_MAX_DIRECT_ARITY + 1

Tree = list[tuple[int, ...]]
"""Paths of a tree from vertex to vertex, among ranks and switches; the first is that of the root alone."""


@register_planner("double-binary-tree", (ALLREDUCE, BROADCAST, REDUCE))
def plan_double_binary_tree(topology: Topology, collective: AnyCollective, *, root: int | str | None = None) -> Plan:
    """Plan two trees over the boxes for every GPU of a box, as NCCL runs them."""
    planned = check_request(topology, collective)

    def build(problem: TreeProblem) -> Forest:
        return _two_trees(problem, None if planned.has_two_phases else int(problem.root_weights.argmax()))

    return plan_pattern(topology, planned, "double-binary-tree", build, root=root)


def _two_trees(problem: TreeProblem, root: int | None) -> Forest:
    """Make two trees for every place in a box and ring of the boxes."""
    hops, uses = Hops(problem), LinkLoads(problem.capacities)
    boxes: Sequence[tuple[int, ...]] = find_boxes(hops)
    if len(boxes) == 1:
        boxes = [(rank,) for rank in boxes[0]]
    if root is not None:  # its box comes first
        boxes = sorted(boxes, key=lambda box: root not in box)
    large = [box for box in boxes if len(box) > 1]
    rings = dict(zip(large, box_rings(hops, large), strict=True)) if large else {}
    num_rings = max((len(rings) for rings in rings.values()), default=1)
    roots, rows, routes = list[int](), list[list[int]](), list[Route]()
    for number, place in product(range(num_rings), range(max(map(len, boxes)))):
        entries = [box[place % len(box)] for box in boxes]
        for parents in double_binary_tree_parents(len(boxes)):
            row = [-1] * problem.topology.num_ranks
            for box, entry, parent in zip(boxes, entries, parents, strict=True):
                if parent >= 0:
                    row[entry] = len(routes)
                    routes.append(uses.take(hops.find_routes(entries[parent], entry)))
                if len(box) > 1:  # a chain from the GPU that talks to other boxes
                    ranks, ways = rings[box][number]
                    first = ranks.index(root if parent < 0 and root is not None else entry)
                    for step in range(first, first + len(box) - 1):
                        row[ranks[(step + 1) % len(box)]] = len(routes)
                        routes.append(ways[step % len(box)])
            rows.append(row)
            roots.append(entries[0] if root is None else root)
    per_root = int(np.gcd.reduce(np.unique(roots, return_counts=True)[1]))
    units = np.ones(len(roots), dtype=np.int64)
    return forest_along(problem, per_root, np.array(roots), units, np.array(rows), routes)


@register_planner("nvls", EVERY_ROOT)
def plan_nvls(topology: Topology, collective: AnyCollective) -> Plan:
    """Plan sums and copies by one switch, as NCCL's NVLS."""
    planned = check_request(topology, collective)

    def build(boxes: _Boxes) -> Iterator[Tree]:
        if planned is not ALLREDUCE and (len(boxes.boxes) > 1 or topology.num_ranks > MAX_HEADS):
            raise UnsupportedError(
                f"{topology} has {topology.num_ranks} ranks, in boxes of {len(boxes.boxes[0])}; NVLS runs {planned} in "
                f"one box of up to {MAX_HEADS}, use the planner 'ring'"
            )
        if len(boxes.boxes) > 1:
            return boxes.with_nvswitches(boxes.through_fabric(MAX_HEADS))
        return boxes.with_nvswitches(iter([[(head,)] for head in boxes.boxes[0][:MAX_HEADS]]))

    return _plan_in_boxes(topology, planned, "nvls", build)


@register_planner("nvls-tree", ALLREDUCE)
def plan_nvls_tree(topology: Topology) -> Plan:
    """Plan NVLS in boxes and double binary trees between them, as NCCL's NVLSTree."""
    return _plan_in_boxes(
        topology, ALLREDUCE, "nvls-tree", lambda boxes: boxes.with_nvswitches(boxes.double_binary_trees())
    )


@register_planner("collnet", ALLREDUCE)
def plan_collnet(topology: Topology) -> Plan:
    """Plan sums by the fabric for GPUs that add up in their boxes, as NCCL's CollNet Direct."""
    return _plan_in_boxes(
        topology, ALLREDUCE, "collnet", lambda boxes: boxes.with_direct_sends(boxes.through_fabric(MAX_DIRECT))
    )


def _plan_in_boxes(
    topology: Topology, collective: AnyCollective, planner: str, build: Callable[[_Boxes], Iterator[Tree]]
) -> Plan:
    """Plan with trees of equal weight."""
    if opposite_links(topology) is None:
        raise UnsupportedError(
            f"{topology} has links without a reverse link of the same bandwidth, which {planner} needs; use the "
            "planner 'ring'"
        )

    def forest(problem: TreeProblem) -> Forest:
        ranks = topology.num_ranks
        trees = [(tree[0][0], 1, tree[1:]) for tree in build(_Boxes(problem, planner))]
        counts = np.bincount([root for root, _, _ in trees], minlength=ranks)
        per_root = int(np.gcd.reduce(counts))
        return Forest.from_paths(
            ranks,
            per_root,
            trees,
            root_weights=(counts // per_root).tolist(),
            direction=problem.direction,
            switches=sorted({path[-1] for _, _, paths in trees for path in paths if path[-1] >= ranks}),
        ).tidied()

    return plan_pattern(topology, collective, planner, forest)


class _Boxes:
    """Boxes of a network, the ways in them, and the ways between them."""

    def __init__(self, problem: TreeProblem, planner: str) -> None:
        self._topology, self._planner = problem.topology, planner
        self._hops, self._uses = Hops(problem), LinkLoads(problem.capacities)
        self.boxes = find_boxes(self._hops)
        self._nvswitches = [self._inside(box) for box in self.boxes]

    def with_nvswitches(self, across: Iterator[Tree]) -> Iterator[Tree]:
        """Let NVSwitches join each head with its box, in one tree for each NVSwitch of a box."""
        for box, switches in zip(self.boxes, self._nvswitches, strict=True):
            if len(box) > 1 and not switches:
                raise UnsupportedError(
                    f"no switch of {self._topology} multicasts and aggregates for the {len(box)} ranks in the box of "
                    f"{self._topology.nodes[box[0]]!r}; use the planner 'double-binary-tree'"
                )
        copies = max(map(len, self._nvswitches)) or 1
        box_of = {rank: number for number, box in enumerate(self.boxes) for rank in box}
        for tree, copy in product(across, range(copies)):
            paths = list(tree)
            for head in [path[-1] for path in tree if path[-1] in box_of]:
                number = box_of[head]
                if switches := self._nvswitches[number]:
                    switch = switches[copy % len(switches)]
                    paths.append(self._path(head, switch))
                    paths += [self._path(switch, rank) for rank in self.boxes[number] if rank != head]
            yield paths

    def with_direct_sends(self, across: Iterator[Tree]) -> Iterator[Tree]:
        """Let each head send to every other GPU of its box."""
        if (largest := max(map(len, self.boxes))) > MAX_DIRECT:
            raise UnsupportedError(
                f"{self._topology} has boxes of {largest} ranks; CollNet Direct takes up to {MAX_DIRECT}"
            )
        box_of = {rank: box for box in self.boxes for rank in box}
        for tree in across:
            heads = [path[-1] for path in tree if path[-1] in box_of]
            yield tree + [self._path(head, rank) for head in heads for rank in box_of[head] if rank != head]

    def double_binary_trees(self) -> Iterator[Tree]:
        """Join the heads of all boxes by two trees for each place in a box."""
        for heads in self._heads(MAX_HEADS):
            for parents in double_binary_tree_parents(len(heads)):
                sends = [(heads[parent], head) for head, parent in zip(heads, parents, strict=True) if parent >= 0]
                yield [(heads[0],), *(self._path(*ends) for ends in sends)]

    def through_fabric(self, limit: int) -> Iterator[Tree]:
        """Join the heads of all boxes by switches of the fabric, one tree for each place in a box, `limit` at most."""
        for place, heads in enumerate(self._heads(limit)):
            able_switches = self._able_switches(len(heads)).difference(*self._nvswitches)
            tops = self._nearest(heads, able_switches)
            if not tops:
                raise UnsupportedError(
                    f"no switch between boxes of {self._topology} multicasts and aggregates for {len(heads)} GPUs "
                    f"such as {self._topology.nodes[heads[0]]!r}, one of each box; use the planner 'nvls-tree'"
                )
            yield self._below(tops[place % len(tops)], heads, able_switches)

    def _heads(self, limit: int) -> Iterator[list[int]]:
        """Yield the GPU of each box that takes part, for each place in a box."""
        if len(self.boxes) == 1:
            raise UnsupportedError(
                f"the ranks of {self._topology} form one box; {self._planner} joins several, use the planner 'nvls'"
            )
        for place in range(min(limit, max(map(len, self.boxes)))):
            yield [box[place % len(box)] for box in self.boxes]

    def _inside(self, box: Sequence[int]) -> list[int]:
        """The switches that reduce on the shortest ways between any two ranks of a box; none for one rank."""
        if len(box) == 1:
            return []
        shortest, distances = self._hops.nearest(box[0])[0], self._hops.distances(box[0])
        switches = self._nearest(box, self._able_switches(len(box)))
        return [switch for switch in switches if 2 * distances[switch] <= shortest]

    def _able_switches(self, neighbors: int) -> set[int]:
        """Switches that add up and copy among so many neighbors."""
        topology = self._topology
        small = {limits.switch for limits in topology.limits if limits.group is not None and limits.group < neighbors}
        return {topology.node_index[name] for name in (topology.multicast & topology.aggregation) - small}

    def _nearest(self, ranks: Sequence[int], switches: set[int]) -> list[int]:
        """Those of `switches` that are nearest to all of these ranks together, and reach them past no other rank."""
        if next_to_all := switches.intersection(*map(self._hops.following, ranks)):
            return sorted(next_to_all)
        ways = [self._hops.distances(rank) for rank in ranks]
        reached = [switch for switch in sorted(switches) if all(switch in lengths for lengths in ways)]
        distances = [sum(lengths[switch] for lengths in ways) for switch in reached]
        return [switch for switch, away in zip(reached, distances, strict=True) if away == min(distances)]

    def _below(self, top: int, heads: Sequence[int], able_switches: set[int]) -> Tree:
        """The tree of the ways from a switch down to the heads, rooted at the first of them."""
        near: dict[int, list[int]] = {top: []}
        for head in heads:
            way = self._path(top, head)
            last_known = max(place for place, node in enumerate(way) if node in near)
            for above, below in zip(way[last_known:], way[last_known + 1 :], strict=False):
                near[above].append(below)
                near[below] = [above]
        tree: Tree = [(heads[0],)]
        ways, reached = list(tree), {heads[0]}
        while ways:
            way = ways.pop()
            for node in near[way[-1]]:
                if node not in reached:
                    reached.add(node)
                    is_vertex = node in able_switches or node in heads
                    if is_vertex:
                        tree.append((*way, node))
                    ways.append((node,) if is_vertex else (*way, node))
        return tree

    def _path(self, tail: int, head: int) -> tuple[int, ...]:
        return self._uses.take(self._hops.find_routes(tail, head)).nodes
