"""MultiTree (Huang et al., ISCA 2021): one tree per rank, all grown greedily in steps.

In a step every unit of bandwidth of every link can carry one tree's data once; the trees take turns, and each adds a
rank that some rank reached in an earlier step can still send to.  Units are the slowest link's bandwidth, as in
ForestColl (section 6.5).  With switches, which the description leaves open, a hop takes a unit of every link on its
way; hops of fewer links are tried first; and no hop leaves a box to come back to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

import numpy as np

from ...errors import UnsupportedError
from ...schedules import Forest
from ...schedules.collective import EVERY_ROOT, AnyCollective
from ...topologies import Topology
from ..plans.plan import Plan
from ..plans.registry import register_planner
from ..trees.problem import TreeProblem
from .fixed_pattern import Hops, Route, find_boxes, forest_along, plan_baseline

MAX_RANKS = 256  # growing takes time with the third power of the number of ranks: about a minute for as many


@register_planner("multitree", EVERY_ROOT)
def plan_multitree(topology: Topology, collective: AnyCollective, *, weights: Sequence[object] | None = None) -> Plan:
    """Plan one greedily grown tree per rank (MultiTree)."""
    return plan_baseline(topology, collective, "multitree", _grown_forest, weights=weights)


def _grown_forest(problem: TreeProblem) -> Forest:
    if problem.topology.num_ranks > MAX_RANKS:
        raise UnsupportedError(f"MultiTree grows trees for up to {MAX_RANKS} ranks here; {problem.topology} has more")
    roots = np.flatnonzero(problem.root_weights).tolist()
    trees = [_Tree(root, problem.topology.num_ranks) for root in roots]
    _grow(trees, _Units(problem))
    numbers: dict[Route, int] = {}
    hops = np.zeros((len(trees), problem.topology.num_ranks), dtype=np.int32)
    for row, tree in zip(hops, trees, strict=True):
        for route in tree.routes:
            row[route.nodes[-1]] = numbers.setdefault(route, len(numbers))
    return forest_along(problem, 1, np.array(roots), problem.root_weights[roots], hops, list(numbers))


def _grow(trees: Sequence[_Tree], units: _Units) -> None:
    """Grow the trees round-robin, step by step, until each spans all ranks."""
    growing = list(trees)
    while growing:
        units.start_step()
        for tree in growing:
            tree.start_step(units.lengths)
        taking_turns, stuck = growing, True
        while taking_turns := [tree for tree in taking_turns if tree.add_rank(units)]:
            stuck = False
        if stuck:
            units.detours = True
        growing = [tree for tree in growing if tree.missing]


class _Units:
    """Remaining units of every link in the current step, and the routes that they allow."""

    def __init__(self, problem: TreeProblem) -> None:
        self._num_ranks = problem.topology.num_ranks
        self._heads = problem.heads.tolist()
        self._all = (problem.capacities // problem.capacities.min()).tolist()
        self._out: list[list[int]] = [[] for _ in range(problem.num_nodes)]
        for link, tail in enumerate(problem.tails.tolist()):
            self._out[tail].append(link)
        hops = Hops(problem)
        self._box = {rank: number for number, box in enumerate(find_boxes(hops)) for rank in box}
        self.lengths = sorted(set().union(*(hops.lengths(rank) for rank in self._box)))
        self._near: dict[tuple[int, int], int] = {}  # ranks that are as near to a rank, as bits
        for rank, length in product(self._box, self.lengths):
            nodes = (
                node for node, distance in hops.distances(rank).items() if node < self._num_ranks and distance <= length
            )
            self._near[rank, length] = sum(1 << node for node in nodes)
        self.detours = False  # whether hops may leave a box and return, once no others remain

    def start_step(self) -> None:
        """Reset the units of every link, and of all links into every rank; `open` has ranks with some, as bits."""
        self._left = list(self._all)
        self._into = [0] * self._num_ranks
        for head, units in zip(self._heads, self._all, strict=True):
            if head < self._num_ranks:
                self._into[head] += units
        self.open = sum(1 << rank for rank, units in enumerate(self._into) if units)

    def reach(self, tail: int, targets: int, length: int) -> Route | None:
        """Use a route of `length` links, with units left, to one of some ranks, given as bits; None if none is left."""
        if not targets & self._near[tail, length]:
            return None
        reached, level = {tail}, [Route((tail,), ())]
        for _ in range(length - 1):
            level = [route for route in self._longer(level, reached) if route.nodes[-1] >= self._num_ranks]
        for nodes, links in level:
            for link in self._out[nodes[-1]]:
                head = self._heads[link]
                if (
                    targets >> head & 1
                    and self._left[link]
                    and head not in reached
                    and self._allows(tail, head, length)
                ):
                    for used_link in (*links, link):
                        self._left[used_link] -= 1
                    self._into[head] -= 1
                    self.open ^= (not self._into[head]) << head
                    return Route((*nodes, head), (*links, link))
        return None

    def _longer(self, routes: Iterable[Route], reached: set[int]) -> Iterator[Route]:
        """Extend routes by one link with units left, to nodes not seen before."""
        for nodes, links in routes:
            for link in self._out[nodes[-1]]:
                head = self._heads[link]
                if self._left[link] and head not in reached:
                    reached.add(head)
                    yield Route((*nodes, head), (*links, link))

    def _allows(self, tail: int, head: int, length: int) -> bool:
        return length == self.lengths[0] or self.detours or self._box[tail] != self._box[head]


class _Tree:
    """A growing tree: its ranks in the order of joining, their routes, and as bits the ranks that it misses."""

    def __init__(self, root: int, num_ranks: int) -> None:
        self.members, self.routes = [root], list[Route]()
        self.missing = (1 << num_ranks) - 1 ^ 1 << root
        self._choices: list[tuple[int, int]] = []

    def start_step(self, lengths: Sequence[int]) -> None:
        """Let all ranks in the tree send from now on."""
        self._choices = [(length, sender) for length in lengths for sender in self.members][::-1]

    def add_rank(self, units: _Units) -> bool:
        """Add one rank; False if none can be added in this step."""
        while self._choices and (targets := self.missing & units.open):
            length, sender = self._choices[-1]
            if route := units.reach(sender, targets, length):
                self.routes.append(route)
                self.members.append(route.nodes[-1])
                self.missing ^= 1 << route.nodes[-1]
                return True
            # In this step there will only be less room: nothing will come of this choice.
            self._choices.pop()
        return False
