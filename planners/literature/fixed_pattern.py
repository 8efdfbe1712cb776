"""Shortest routes between ranks through switches, and plans of trees along them, for planners with a fixed pattern.

A ring or a binary tree says which rank sends to which, and nothing about the network.  Each such hop takes a route with
the fewest links; of these, the widest; and of these, where a fabric has several, the one used least so far.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import lcm
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ...errors import UnsupportedError
from ...formulations.allreduce_cuts import opposite_links
from ...schedules import Allreduce, Collective, Forest, StepAllreduce, StepSchedule
from ...schedules.collective import AnyCollective
from ...support.arrays import IntArray, components, joined_rows
from ...topologies import Topology
from ..plans.plan import Plan, proved_plan
from ..plans.stages import Trace
from ..trees.forestcoll import bound_trees
from ..trees.problem import TreeProblem, check_request, shard_weights, tree_problem

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
        self._out: list[list[int]] = [[] for _ in range(problem.num_nodes)]
        self._in: list[list[int]] = [[] for _ in range(problem.num_nodes)]
        for link, (tail, head) in enumerate(zip(self._tails, self._heads, strict=True)):
            self._out[tail].append(link)
            self._in[head].append(link)
        self._ways: dict[int, _ShortestRoutes] = {}
        self._last_tail, self._asked = -1, 0

    def nearest(self, tail: int) -> tuple[int, list[int]]:
        """Distance in links to the nearest ranks, and these ranks; none if `tail` reaches no rank."""
        reached, level, length = {tail}, [tail], 0
        while level:
            length += 1
            level = list(dict.fromkeys(self._heads[link] for node in level for link in self._out[node]))
            if ranks := [node for node in level if node < self.problem.topology.num_ranks and node != tail]:
                return length, ranks
            level = [node for node in level if node not in reached]
            reached.update(level)
        return length, []

    def following(self, tail: int) -> set[int]:
        """Nodes that one link leads to."""
        return {self._heads[link] for link in self._out[tail]}

    def distances(self, tail: int) -> Mapping[int, int]:
        """Lengths of the ways from `tail` to all nodes that it reaches without passing a rank, in links."""
        return self._from(tail).lengths

    def widths(self, tail: int) -> Mapping[int, int]:
        """Capacities of the widest of these ways that are shortest."""
        return self._from(tail).widths

    def lengths(self, tail: int) -> set[int]:
        """Lengths of the hops from `tail`, in links."""
        ranks = self.problem.topology.num_ranks
        return {length for node, length in self._from(tail).lengths.items() if node < ranks and node != tail}

    def routes(self, tail: int, head: int) -> tuple[Route, ...]:
        """List the widest of the shortest routes, at most `MAX_ROUTES`; none if every route passes other ranks."""
        if head == tail:
            return ()
        ways = self._towards(tail, head)
        if head not in ways.lengths:
            return ()
        width, disjoint = ways.widths[head], list[Route]()
        unfinished = [Route((head,), ())]
        while unfinished and len(disjoint) < MAX_ROUTES:
            nodes, links = unfinished.pop()
            if nodes[0] == tail:
                disjoint.append(Route(nodes, links))
                continue
            for link in reversed(ways.arrivals[nodes[0]]):
                before = self._tails[link]
                if self._capacities[link] >= width and ways.widths[before] >= width:
                    unfinished.append(Route((before, *nodes), (link, *links)))
        return tuple(disjoint)

    def find_routes(self, tail: int, head: int) -> tuple[Route, ...]:
        """Return `routes`, or raise `UnsupportedError` if there are none."""
        if routes := self.routes(tail, head):
            return routes
        names = self.problem.topology.nodes
        if self.problem.direction == "reduce":
            tail, head = head, tail
        raise UnsupportedError(
            f"rank {names[tail]!r} would have to send to {names[head]!r}, but every path there in "
            f"{self.problem.topology.name} passes through other ranks"
        )

    def _towards(self, tail: int, head: int) -> _ShortestRoutes:
        """Shortest routes to one node; with those to all others where they are known, or many are asked for."""
        self._asked = self._asked + 1 if tail == self._last_tail else 1
        self._last_tail = tail
        wants_all = tail in self._ways or self._asked > FEW_HEADS
        return self._from(tail) if wants_all else self._between(tail, head)

    def _from(self, tail: int) -> _ShortestRoutes:
        if tail not in self._ways:
            if len(self._ways) == MAX_KEPT:
                del self._ways[next(iter(self._ways))]
            self._ways[tail] = self._search(tail)
        return self._ways[tail]

    def _search(self, start: int) -> _ShortestRoutes:
        """Breadth-first search through switches; routes end at ranks."""
        ranks = self.problem.topology.num_ranks
        ways = _ShortestRoutes({start: 0}, {start: int(self.problem.capacities.sum())}, {})
        level, length = [start], 0
        while level:
            length += 1
            fresh: dict[int, None] = {}
            for tail in level:
                for link in self._out[tail]:
                    head = self._heads[link]
                    if ways.lengths.setdefault(head, length) < length:
                        continue
                    ways.arrivals.setdefault(head, []).append(link)
                    width = min(ways.widths[tail], self._capacities[link])
                    ways.widths[head] = max(width, ways.widths.get(head, 0))
                    if head >= ranks:
                        fresh[head] = None
            level = list(fresh)
        return ways

    def _between(self, tail: int, head: int) -> _ShortestRoutes:
        """The part of `_search` that leads to one node, in the same order."""
        ways = _ShortestRoutes({tail: 0}, {tail: int(self.problem.capacities.sum())}, {})
        level = [tail]
        for length, following in enumerate(self._levels_between(tail, head), 1):
            place = {node: number for number, node in enumerate(level)}
            if sum(len(self._out[node]) for node in level) <= sum(len(self._in[node]) for node in following):
                steps = [link for node in level for link in self._out[node] if self._heads[link] in following]
            else:
                arriving = (link for node in following for link in self._in[node] if self._tails[link] in place)
                steps = sorted(arriving, key=lambda link: (place[self._tails[link]], link))
            for link in steps:
                node = self._heads[link]
                ways.lengths[node] = length
                ways.arrivals.setdefault(node, []).append(link)
                width = min(ways.widths[self._tails[link]], self._capacities[link])
                ways.widths[node] = max(width, ways.widths.get(node, 0))
            level = list(dict.fromkeys(self._heads[link] for link in steps))
        return ways

    def _levels_between(self, tail: int, head: int) -> list[set[int]]:
        """Bidirectional breadth-first search: nodes by distance, with all that are on shortest routes."""
        ranks = self.problem.topology.num_ranks
        ahead, behind = [{tail}], [{head}]
        while ahead[-1] and behind[-1]:
            if common := ahead[-1] & behind[-1]:
                return [*ahead[:-1], common, *behind[-2::-1]][1:]
            if sum(len(self._out[node]) for node in ahead[-1]) <= sum(len(self._in[node]) for node in behind[-1]):
                reached = {self._heads[link] for node in ahead[-1] for link in self._out[node]}
                ahead.append({node for node in reached if node >= ranks or node == head}.difference(*ahead))
            else:
                reached = {self._tails[link] for node in behind[-1] for link in self._in[node]}
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


def plan_baseline(
    topology: Topology,
    collective: AnyCollective,
    planner: str,
    build: Callable[[TreeProblem], Forest],
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    options: Mapping[str, int | str] | None = None,
) -> Plan:
    """Plan a collective with trees that `build` returns."""
    collective = check_request(topology, collective)
    trace = Trace()
    shards = shard_weights(topology, collective, root, weights)
    with trace.stage("bottleneck"):
        bound = bound_trees(topology, collective, root=root, weights=weights)
    with trace.stage("trees"):
        schedule = in_phases(topology, collective, shards, build, Allreduce)
    return proved_plan(topology, collective, schedule, planner, options or {}, trace, bound)


def forest_along(
    problem: TreeProblem,
    trees_per_root: int,
    roots: IntArray,
    weights: IntArray,
    hops: npt.NDArray[np.integer],
    routes: Sequence[Route],
) -> Forest:
    """Build a forest whose hops, shape (trees, ranks), follow given routes; `roots`, `weights` int64 (trees,)."""
    numbers = hops.astype(np.int32)
    numbers[np.arange(len(roots)), roots] = -1
    shards = np.zeros(problem.topology.num_ranks, dtype=np.int64)
    np.add.at(shards, roots, weights)
    rows = np.asarray(roots, dtype=np.int64), np.asarray(weights, dtype=np.int64), numbers
    paths, shards = joined_rows([route.nodes for route in routes]), shards // trees_per_root
    return Forest(len(shards), trees_per_root, *rows, *paths, shards, problem.direction)


Phase = TypeVar("Phase", Forest, StepSchedule)
Both = TypeVar("Both", Allreduce, StepAllreduce)


def in_phases(
    topology: Topology,
    collective: Collective,
    shards: tuple[int, ...],
    build: Callable[[TreeProblem], Phase],
    join: Callable[[Phase, Phase], Both],
) -> Phase | Both:
    """Build the schedule of the only phase of a collective, or those of both phases, and join them."""
    *first, last = collective.phases
    schedule = build(tree_problem(topology, last, shards))
    if not first:
        return schedule
    if opposite_links(topology) is not None:
        # Sums come in on the links that they go out on, turned around: as fast as any others of the kind.
        return join(replace(schedule, direction="reduce"), schedule)
    return join(build(tree_problem(topology, first[0], shards)), schedule)
