"""Shortest routes between ranks through switches, loads of links, and boxes of ranks.

A hop takes a route with the fewest links; of these, the widest; of these, the one used least.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import lcm
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...support.arrays import IntArray, components
from ..trees.problem import TreeProblem

MAX_ROUTES = 64
"""Equally good ways that are told apart for one hop: all that lead from pod to pod of a fat tree with 16 ports."""

FEW_HEADS = 16  # asked for one after the other, to which ways from one rank are searched one by one
MAX_KEPT = 64  # ranks whose ways are kept: with 1024 ranks on one fabric, those of all would take a gigabyte


class Route(NamedTuple):
    """A route from rank to rank: `nodes` with both ends and the switches in between, and `links` by number."""

    nodes: tuple[int, ...]
    links: tuple[int, ...]


class _ShortestRoutes(NamedTuple):
    """Shortest routes from one rank, per node: length, bottleneck capacity, and last links."""

    lengths: dict[int, int]
    widths: dict[int, int]
    arrivals: dict[int, list[int]]


class Hops:
    """The hops of a network, computed on first use."""

    def __init__(self, problem: TreeProblem) -> None:
        self.problem = problem
        self._tails, self._heads = problem.tails.tolist(), problem.heads.tolist()
        self._capacities = problem.capacities.tolist()
        self._out: list[dict[int, int]] = [{} for _ in range(problem.num_nodes)]  # links by head
        self._in: list[list[int]] = [[] for _ in range(problem.num_nodes)]
        for link, (tail, head) in enumerate(zip(self._tails, self._heads, strict=True)):
            self._out[tail][head] = link
            self._in[head].append(tail)
        self._ways: dict[int, _ShortestRoutes] = {}
        self._last_tail, self._asked = -1, 0

    def nearest(self, tail: int) -> tuple[int, list[int]]:
        """Distance in links to the nearest ranks, and these ranks; none if `tail` reaches no rank."""
        reached, level, length = {tail}, [tail], 0
        while level:
            length += 1
            level = list(dict.fromkeys(head for node in level for head in self._out[node]))
            if ranks := [node for node in level if node < self.problem.topology.num_ranks and node != tail]:
                return length, ranks
            level = [node for node in level if node not in reached]
            reached.update(level)
        return length, []

    def following(self, tail: int) -> Iterable[int]:
        """Nodes that one link leads to."""
        return self._out[tail]

    def distances(self, tail: int) -> Mapping[int, int]:
        """Lengths of the ways from `tail` to all nodes that it reaches without passing a rank, in links."""
        return self._from(tail).lengths

    def widths(self, tail: int) -> Mapping[int, int]:
        """Capacities of the widest of these ways that are shortest."""
        return self._from(tail).widths

    def routes(self, tail: int, head: int) -> tuple[Route, ...]:
        """List the widest of the shortest routes, at most `MAX_ROUTES`; none if every route passes other ranks."""
        if head == tail:
            return ()
        # Ways to all nodes are searched once they are known, or many are asked for.
        self._asked = self._asked + 1 if tail == self._last_tail else 1
        self._last_tail = tail
        if tail in self._ways or self._asked > FEW_HEADS:
            ways = self._from(tail)
        else:
            ways = self._search(tail, self._levels_between(tail, head))
        if head not in ways.lengths:
            return ()
        width, routes, unfinished = ways.widths[head], list[Route](), [Route((head,), ())]
        while unfinished and len(routes) < MAX_ROUTES:
            nodes, links = unfinished.pop()
            if nodes[0] == tail:
                routes.append(Route(nodes, links))
                continue
            for link in reversed(ways.arrivals[nodes[0]]):
                before = self._tails[link]
                if self._capacities[link] >= width and ways.widths[before] >= width:
                    unfinished.append(Route((before, *nodes), (link, *links)))
        return tuple(routes)

    def find_routes(self, tail: int, head: int) -> tuple[Route, ...]:
        """Return `routes`, or raise `UnsupportedError` if there are none."""
        if routes := self.routes(tail, head):
            return routes
        topology = self.problem.topology
        if self.problem.direction == "reduce":
            tail, head = head, tail
        raise UnsupportedError(
            f"rank {topology.nodes[tail]!r} would have to send to {topology.nodes[head]!r}, but every path there in "
            f"{topology.name} passes through other ranks"
        )

    def _from(self, tail: int) -> _ShortestRoutes:
        if tail not in self._ways:
            if len(self._ways) == MAX_KEPT:
                del self._ways[next(iter(self._ways))]
            self._ways[tail] = self._search(tail)
        return self._ways[tail]

    def _search(self, start: int, levels: Sequence[set[int]] | None = None) -> _ShortestRoutes:
        """Breadth-first search through switches, which ends at ranks; over some nodes of each distance if given."""
        ranks = self.problem.topology.num_ranks
        ways = _ShortestRoutes({start: 0}, {start: int(self.problem.capacities.sum())}, {})
        level, length = [start], 0
        while level and (levels is None or length < len(levels)):
            fresh: dict[int, None] = {}
            for tail in level:
                row = self._out[tail]
                links = row.values() if levels is None else sorted(row[head] for head in row.keys() & levels[length])
                for link in links:
                    head = self._heads[link]
                    if ways.lengths.setdefault(head, length + 1) <= length:
                        continue
                    ways.arrivals.setdefault(head, []).append(link)
                    width = min(ways.widths[tail], self._capacities[link])
                    ways.widths[head] = max(width, ways.widths.get(head, 0))
                    if head >= ranks:
                        fresh[head] = None
            level, length = list(fresh), length + 1
        return ways

    def _levels_between(self, tail: int, head: int) -> list[set[int]]:
        """Bidirectional breadth-first search: nodes by distance, with all that are on shortest routes."""
        ranks = self.problem.topology.num_ranks
        ahead, behind = [{tail}], [{head}]
        while ahead[-1] and behind[-1]:
            if common := ahead[-1] & behind[-1]:
                return [*ahead[:-1], common, *behind[-2::-1]][1:]
            if sum(len(self._out[node]) for node in ahead[-1]) <= sum(len(self._in[node]) for node in behind[-1]):
                reached = {following for node in ahead[-1] for following in self._out[node]}
                ahead.append({node for node in reached if node >= ranks or node == head}.difference(*ahead))
            else:
                reached = {before for node in behind[-1] for before in self._in[node]}
                behind.append({node for node in reached if node >= ranks or node == tail}.difference(*behind))
        return []


class LinkLoads:
    """Uses of each link so far, and `costs`, the time of one in the unit that a link of capacity `common` takes."""

    def __init__(self, capacities: IntArray) -> None:
        integers: list[int] = capacities.tolist()
        self.common = lcm(*set(integers))
        self.costs = [self.common // capacity for capacity in integers]
        self.uses = [0] * len(self.costs)

    def add(self, links: Iterable[int], times: int = 1) -> None:
        """Add `times` uses of some links; may be negative."""
        for link in links:
            self.uses[link] += times

    def peak(self, links: Iterable[int] | None = None) -> int:
        """Largest time of a link, of `links` or of all."""
        numbers = range(len(self.uses)) if links is None else links
        return max(self.uses[link] * self.costs[link] for link in numbers)

    def take(self, routes: Sequence[Route], times: int = 1) -> Route:
        """Choose the first route with the least time of its busiest link, and add its load."""
        best = min(routes, key=lambda route: max((self.uses[link] + times) * self.costs[link] for link in route.links))
        self.add(best.links, times)
        return best


def find_boxes(hops: Hops) -> tuple[tuple[int, ...], ...]:
    """Group the ranks into boxes, whatever they are called: those connected by the shortest hops."""
    nearest = [hops.nearest(rank) for rank in range(hops.problem.topology.num_ranks)]
    shortest = min((length for length, peers in nearest if peers), default=0)
    joined = [(rank, other) for rank, (length, peers) in enumerate(nearest) for other in peers if length == shortest]
    labels = components(len(nearest), joined)
    boxes = np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])
    return tuple(tuple(box.tolist()) for box in boxes)
