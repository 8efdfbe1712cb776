"""NCCL's algorithms in which switches add up and copy: NVLS, NVLSTree and CollNet Direct.

All divide the data among heads, GPUs that each send and receive a share for their box.  Inside a box the NVSwitch adds
up into the head and copies what the head has to all GPUs (NVLS), or the head exchanges it with each GPU (CollNet
Direct).  Heads with the same place in their boxes are joined by double binary trees (NVLSTree), or by switches of the
fabric that add up and copy (CollNet, and NVLS in several boxes).

From the sources of NCCL (connect.cc, search.cc, tuning.cc at 0f900e1, 2026) these plans have the trees, the largest
number of heads, and what each algorithm needs.  Left out are channels, protocols and buffers; which GPUs a search makes
heads, here the first ones of each box; CollNet in an allgather or a reduce-scatter; and CollNet Chain, which loads the
links of an NVSwitch as CollNet Direct does, and which NCCL runs instead where boxes have no NVSwitch.  NCCL roots the
second tree of a pair at another box, with as much traffic at the busiest box.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np

from ...errors import UnsupportedError
from ...formulations.allreduce_cuts import opposite_links
from ...schedules import ALLREDUCE, Forest
from ...schedules.collective import EVERY_ROOT, AnyCollective
from ...topologies import Topology
from ...topologies.direct_connect.basic_graphs import double_binary_tree_parents
from ..plans.plan import Plan
from ..plans.registry import register_planner
from ..trees.problem import TreeProblem, check_request
from .fixed_pattern import Hops, LinkLoads, find_boxes, plan_baseline

MAX_HEADS = 32  # NCCL_MAX_NVLS_ARITY
MAX_DIRECT = 8  # GPUs of a box with CollNet Direct: NCCL_MAX_DIRECT_ARITY + 1

Tree = list[tuple[int, ...]]
"""Paths of a tree from vertex to vertex, among ranks and switches; the first is that of the root alone."""


@register_planner("nvls", EVERY_ROOT)
def plan_nvls(topology: Topology, collective: AnyCollective) -> Plan:
    """Plan sums and copies by one switch, as NCCL's NVLS.

    It plans in one box, and an allreduce also in several boxes on a fabric that adds up and copies.
    """
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
    return _plan_in_boxes(topology, ALLREDUCE, "nvls-tree", lambda boxes: boxes.with_nvswitches(boxes.double_binary_trees()))


@register_planner("collnet", ALLREDUCE)
def plan_collnet(topology: Topology) -> Plan:
    """Plan sums by the fabric for GPUs that add up in their boxes, as NCCL's CollNet Direct.

    GPUs send to the heads of their box.
    """
    return _plan_in_boxes(
        topology, ALLREDUCE, "collnet", lambda boxes: boxes.with_direct_sends(boxes.through_fabric(MAX_DIRECT))
    )


def _plan_in_boxes(
    topology: Topology, collective: AnyCollective, planner: str, build: Callable[[_Boxes], Iterator[Tree]]
) -> Plan:
    """Plan with trees of equal weight."""
    check_request(topology, collective)
    if opposite_links(topology) is None:
        raise UnsupportedError(
            f"{topology} has links without a reverse link of the same bandwidth; {planner} needs both "
            "directions alike, use the planner 'ring'"
        )

    def forest(problem: TreeProblem) -> Forest:
        ranks = topology.num_ranks
        trees = [(tree[0][0], 1, tree[1:]) for tree in build(_Boxes(problem, planner))]
        counts = np.bincount([root for root, _, _ in trees], minlength=ranks)
        per_root = int(np.gcd.reduce(counts))
        switches = sorted({path[-1] for _, _, paths in trees for path in paths if path[-1] >= ranks})
        return Forest.from_paths(
            ranks,
            per_root,
            trees,
            root_weights=(counts // per_root).tolist(),
            direction=problem.direction,
            switches=switches,
        ).tidied()

    return plan_baseline(topology, collective, planner, forest)


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
                sends = [(parent, number) for number, parent in enumerate(parents) if parent >= 0]
                yield [(heads[0],), *(self._path(heads[parent], heads[number]) for parent, number in sends)]

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
        """The able switches that are on the shortest ways between any two ranks of a box; none for one rank."""
        shortest = self._hops.nearest(box[0])[0]
        switches = self._nearest(box, self._able_switches(len(box))) if len(box) > 1 else []
        return [switch for switch in switches if 2 * self._hops.distances(box[0])[switch] <= shortest]

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
