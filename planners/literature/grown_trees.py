"""Trees that MultiTree (Huang et al., ISCA 2021) and TACOS (Won et al., MICRO 2024) grow, and that Blink packs.

Hops may pass switches here, and take part of every link on their way.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from itertools import groupby, product
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...formulations.allreduce_cuts import opposite_links
from ...schedules import BROADCAST, TREE_COLLECTIVES, Forest
from ...schedules.collective import EVERY_ROOT, AnyCollective
from ...support.arrays import IntArray, joined_rows
from ...support.seed import current_seed
from ...support.validation import as_whole
from ...topologies import Topology
from ..plans.plan import Plan
from ..plans.registry import register_planner
from ..plans.stages import Trace
from ..trees.forest import best_forest, bottleneck
from ..trees.problem import TreeProblem, check_request, shard_weights, tree_problem
from .fixed_pattern import forest_along, plan_pattern
from .routes import Hops, LinkLoads, Route, find_boxes

MAX_RANKS = 256  # growing takes time with the third power of the number of ranks: about a minute for as many
USUAL_CHUNKS = 16  # per shard, or fewer to stay within `USUAL_WORK`
USUAL_WORK, MAX_WORK = 2**20, 2**23  # hops times chunks: some seconds, and half a minute


def _check_ranks(topology: Topology, planner: str) -> None:
    if topology.num_ranks > MAX_RANKS:
        raise UnsupportedError(f"{topology} has {topology.num_ranks} ranks; {planner} plans for up to {MAX_RANKS}")


@register_planner("multitree", EVERY_ROOT)
def plan_multitree(topology: Topology, collective: AnyCollective, *, weights: Sequence[object] | None = None) -> Plan:
    """Plan one greedily grown tree per rank (MultiTree)."""
    return plan_pattern(topology, collective, "multitree", _grown_forest, weights=weights)


def _grown_forest(problem: TreeProblem) -> Forest:
    """Grow the trees round-robin; in a step a link carries one tree for each unit of its bandwidth."""
    _check_ranks(problem.topology, "multitree")
    roots = np.flatnonzero(problem.root_weights).tolist()
    trees, units = [_Tree(root, problem.topology.num_ranks) for root in roots], _Units(problem)
    growing = trees
    while growing:
        units.start_step()
        for tree in growing:
            tree.start_step(units.lengths)
        taking_turns = [tree for tree in growing if tree.add_rank(units)]
        units.detours |= not taking_turns
        while taking_turns:
            taking_turns = [tree for tree in taking_turns if tree.add_rank(units)]
        growing = [tree for tree in growing if tree.missing]
    numbers: dict[Route, int] = {}
    hops = np.zeros((len(trees), problem.topology.num_ranks), dtype=np.int32)
    for row, tree in zip(hops, trees, strict=True):
        for route in tree.routes:
            row[route.nodes[-1]] = numbers.setdefault(route, len(numbers))
    return forest_along(problem, 1, np.array(roots), problem.root_weights[roots], hops, list(numbers))


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
        away = {
            rank: {node: length for node, length in hops.distances(rank).items() if node < self._num_ranks}
            for rank in self._box
        }
        self.lengths = sorted({length for rank, row in away.items() for node, length in row.items() if node != rank})
        self._near = {  # ranks that are as near to a rank, as bits
            (rank, limit): sum(1 << node for node, length in away[rank].items() if length <= limit)
            for rank, limit in product(self._box, self.lengths)
        }
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
                is_target = targets >> head & 1 and self._left[link] and head not in reached
                if is_target and (length == self.lengths[0] or self.detours or self._box[tail] != self._box[head]):
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


@register_planner("greedy", EVERY_ROOT)
def plan_greedy(
    topology: Topology, collective: AnyCollective, *, chunks: int | None = None, weights: Sequence[object] | None = None
) -> Plan:
    """Plan chunks matched greedily with links over time, in the manner of TACOS.

    `chunks` per shard, up to 16 by default.  Another seed, by `collopt.solvers.seeded`, gives another plan.
    """
    count = None if chunks is None else as_whole(chunks, "chunks", high=MAX_WORK)
    options = {} if count is None else {"chunks": count}
    return plan_pattern(
        topology, collective, "greedy", partial(_matched_forest, count), weights=weights, options=options
    )


class _Hop(NamedTuple):
    """A hop from rank to rank, and the time of a chunk of weight 1 on each of its links."""

    cost: int  # the largest of `costs`
    tail: int
    head: int
    costs: tuple[int, ...]
    route: Route


def _matched_forest(count: int | None, problem: TreeProblem) -> Forest:
    ranks, roots = problem.topology.num_ranks, np.flatnonzero(problem.root_weights)
    _check_ranks(problem.topology, "greedy")
    hops = _hops(problem)
    work = len(hops) * len(roots)
    count = count or max(min(USUAL_CHUNKS, USUAL_WORK // work), 1)
    if work * count > MAX_WORK:
        raise UnsupportedError(
            f"{len(hops)} hops and {count * len(roots)} chunks on {problem.topology} take too long to match; "
            f"expected a product of at most {MAX_WORK}: take fewer chunks or ranks"
        )
    trees = np.repeat(roots, count)
    weights = problem.root_weights[trees]
    brought = _match(hops, ranks, trees.tolist(), weights.tolist())
    return forest_along(problem, count, trees, weights, brought, [hop.route for hop in hops])


def _hops(problem: TreeProblem) -> list[_Hop]:
    """List the hops between all pairs of ranks that have a way past no other rank, the fastest first."""
    hops, costs, ranks = Hops(problem), LinkLoads(problem.capacities).costs, problem.topology.num_ranks
    pairs = [(tail, head) for tail in range(ranks) for head in hops.distances(tail) if head < ranks]
    routes = [(tail, head, route) for tail, head in pairs for route in hops.routes(tail, head)]
    times = [tuple(costs[link] for link in route.links) for _, _, route in routes]
    return sorted(
        _Hop(max(own), tail, head, own, route) for own, (tail, head, route) in zip(times, routes, strict=True)
    )


def _match(hops: Sequence[_Hop], num_ranks: int, roots: Sequence[int], weights: Sequence[int]) -> IntArray:
    """Match chunks, given by root and weight, with hops until all are everywhere, from event to event.

    Fast links choose first, between chunks that the fewest ranks have or are being sent, and among these by chance; a
    chunk is passed on when it has arrived.  Shapes: returns the hop that brings each chunk to each rank, int64 (chunks,
    ranks).
    """
    chance = random.Random(current_seed())
    brought = np.zeros((len(roots), num_ranks), dtype=np.int64)
    everything = (1 << len(roots)) - 1  # sets of chunks are bits
    holdings = [sum(1 << chunk for chunk, root in enumerate(roots) if root == rank) for rank in range(num_ranks)]
    missing = [everything ^ own for own in holdings]
    copies = [everything, *[0] * num_ranks]  # the chunks by how many more ranks have them, or are being sent them
    free = dict.fromkeys((link for hop in hops for link in hop.route.links), 0)
    groups = [list(group) for _, group in groupby(enumerate(hops), key=lambda pair: pair[1].cost)]
    events = [(0, 0, 0)]  # time, rank, and the chunks that have arrived there by then
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, rank, arrived = heappop(events)
            holdings[rank] |= arrived
        for group in groups:
            chance.shuffle(group)
            for number, (cost, tail, head, costs, route) in group:
                choice = holdings[tail] & missing[head]
                if not choice or max(map(free.__getitem__, route.links)) > now:
                    continue
                level = next(number for number, chunks in enumerate(copies) if chunks & choice)
                chunk = _some_bit(choice & copies[level], chance.randrange(len(roots)))
                for bits, place in ((copies, level), (copies, level + 1), (missing, head)):
                    bits[place] ^= 1 << chunk
                brought[chunk, head] = number
                for link, time in zip(route.links, costs, strict=True):
                    free[link] = now + weights[chunk] * time
                    heappush(events, (free[link], head, 1 << chunk if time == cost else 0))
    return brought


def _some_bit(bits: int, first: int) -> int:
    """Return the lowest bit that is not below `first`, or else the lowest of all."""
    later = bits >> first << first or bits
    return (later & -later).bit_length() - 1


@register_planner("blink", TREE_COLLECTIVES)
def plan_blink(
    topology: Topology,
    collective: AnyCollective,
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
) -> Plan:
    """Plan optimal trees that all have one root (Blink).

    An allreduce adds up and sends along the same trees at the same time.  An allgather does so without additions, and
    without sending data back to where it came from: a shard climbs the trees from its rank, and comes down elsewhere.
    """
    planned = check_request(topology, collective)
    single = planned.has_one_root
    through = shard_weights(topology, BROADCAST, root if single or root is not None else 0, None)
    if planned.is_sharded and opposite_links(topology) is None:
        raise UnsupportedError(
            f"{topology} has links without a reverse link of the same bandwidth; blink needs those for {planned}"
        )

    def build(problem: TreeProblem) -> Forest:
        from_root = tree_problem(problem.topology, problem.direction, through)
        packed = best_forest(from_root, bottleneck(from_root), None, Trace())
        return _from_every_rank(packed, problem) if planned.is_sharded else packed

    options = {} if single or root is None else {"root": through.index(1)}
    return plan_pattern(
        topology, planned, "blink", build, root=root if single else None, weights=weights, options=options
    )


def _from_every_rank(packed: Forest, problem: TreeProblem) -> Forest:
    """Reroot the trees at every rank with a shard: hops towards the old root are reversed."""
    paths = [packed.path(route) for route in range(len(packed.path_starts) - 1)]
    roots = np.flatnonzero(problem.root_weights)
    routes = np.repeat(packed.routes, len(roots), axis=0)
    for row, root in zip(routes, np.tile(roots, packed.num_trees), strict=True):
        rank, route = int(root), int(row[root])
        row[root] = -1
        while route >= 0:
            rank = paths[route][0]
            following = int(row[rank])
            row[rank], route = len(paths) + route, following
    starts, nodes = joined_rows([*paths, *(path[::-1] for path in paths)])
    return replace(
        packed,
        roots=np.tile(roots, packed.num_trees),
        weights=np.outer(packed.weights, problem.root_weights[roots]).ravel(),
        routes=routes,
        path_starts=starts,
        path_nodes=nodes,
        root_weights=problem.root_weights,
    )
