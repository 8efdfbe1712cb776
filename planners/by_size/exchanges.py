"""Exchanges along the digits of ranks, and the shortest paths that their messages take through switches.

Steps take one digit each, or overlap, or go in several orders at once; last hops also make trees.  Allreduces in one
phase exchange whole vectors, or shards of inner groups: ranks that differ in one digit send each other what they have
and add it up, the innermost digit first (Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005).

Of the shortest paths the widest are taken.  Where several leave a node, the place of the receiver chooses: its
innermost digit where paths part first, its next digit where they part next, ...  On fat trees this is d-mod-k routing,
on which no link is shared by the messages of a shift of all ranks (Zahavi, JPDC 72(11), 2012).
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...schedules import Forest, StepExchange, StepSchedule
from ...schedules.message_order import message_rounds
from ...support.arrays import BoolArray, FloatArray, IntArray
from ...topologies.network.direct_graph import partial_hop_distances
from ...topologies.symmetry.rank_groups import UNREACHED, RankGroups
from ..trees.problem import TreeProblem
from .digits import Digits, LastHops, Level

SmallMatrix = npt.NDArray[np.int16]


class Paths(NamedTuple):
    """Paths as schedules hold them: int64 (paths + 1,) and int64, see `collopt.schedules.StepSchedule`."""

    path_starts: IntArray
    path_nodes: IntArray


class Routing:
    """Shortest paths on the links of a problem, which are turned around where data is reduced.

    Parameters
    ----------
    problem : TreeProblem
        The network.
    groups : RankGroups
        Of its ranks.
    """

    def __init__(self, problem: TreeProblem, groups: RankGroups) -> None:
        self.problem = problem
        self.num_ranks = problem.topology.num_ranks
        self._spread = groups.values
        order = np.argsort(problem.tails, kind="stable")
        self._heads = problem.heads[order]
        self._degrees = np.bincount(problem.tails, minlength=problem.num_nodes)
        self._first = np.cumsum(self._degrees) - self._degrees
        kinds, widths = np.unique(problem.capacities[order], return_inverse=True)
        self._wide = widths.astype(np.int16) + 1  # links by bandwidth, the narrowest 1
        self._most = np.int16(min(len(kinds) + 1, UNREACHED))

    @cached_property
    def lengths(self) -> SmallMatrix:
        """Links of the shortest path from each node to each rank, int16 (nodes, ranks); `UNREACHED` without one."""
        problem = self.problem
        lengths = partial_hop_distances(problem.num_nodes, problem.heads, problem.tails, self.num_ranks).T
        return np.ascontiguousarray(np.where(lengths < 0, np.int16(UNREACHED), lengths))

    @cached_property
    def reaches(self) -> BoolArray:
        """Whether each rank has a path to each other that passes no rank, bool (ranks, ranks)."""
        return self.lengths[: self.num_ranks] < UNREACHED

    @cached_property
    def _widths(self) -> SmallMatrix:
        """Width of the widest shortest path from each node to each rank, int16 (nodes, ranks)."""
        lengths, ranks = self.lengths, self.num_ranks
        senders = np.flatnonzero(self._degrees)
        starts = self._first[senders]
        tails = np.repeat(np.arange(len(lengths)), self._degrees)
        widths = np.where(lengths == 0, self._most, np.int16(0))
        for length in range(1, int(lengths[lengths < UNREACHED].max()) + 1):
            usable = (lengths[tails] == length) & (lengths[self._heads] == length - 1)
            if length > 1:
                usable[self._heads < ranks] = False
            through = np.where(usable, np.minimum(self._wide[:, None], widths[self._heads]), np.int16(0))
            widths[senders] = np.maximum(widths[senders], np.maximum.reduceat(through, starts, axis=0))
        return widths

    def paths(self, senders: IntArray, receivers: IntArray) -> Paths:
        """Path of each pair, in their order; each sender reaches its receiver.

        Shapes: both int64 (pairs,).
        """
        current, spread = senders.copy(), self._spread[receivers].copy()
        nodes = [senders]
        while (active := np.flatnonzero(current != receivers)).size:
            states, state = np.unique(current[active] * self.num_ranks + receivers[active], return_inverse=True)
            choices, starts, counts = self._next_nodes(*np.divmod(states, self.num_ranks))
            spread[active], numbers = np.divmod(spread[active], counts[state])
            current[active] = choices[starts[state] + numbers]
            following = np.full_like(senders, -1)
            following[active] = current[active]
            nodes.append(following)
        table = np.column_stack(nodes)
        there = table >= 0
        return Paths(np.concatenate([[0], np.cumsum(there.sum(axis=1))]), table[there])

    def _next_nodes(self, nodes: IntArray, targets: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Nodes that the best paths to ranks go to next: all of them, and for each pair where they begin and how many.

        Shapes: `nodes`, `targets` int64 (pairs,); returns int64 (choices,), int64 (pairs,), int64 (pairs,).
        """
        degrees = self._degrees[nodes]
        pair = np.repeat(np.arange(len(nodes)), degrees)
        links = np.repeat(self._first[nodes] - np.cumsum(degrees) + degrees, degrees) + np.arange(len(pair))
        heads, targets = self._heads[links], targets[pair]
        good = (heads >= self.num_ranks) | (heads == targets)
        good &= self.lengths[heads, targets] == self.lengths[nodes[pair], targets] - 1
        good &= np.minimum(self._wide[links], self._widths[heads, targets]) == self._widths[nodes[pair], targets]
        counts = np.bincount(pair[good], minlength=len(nodes))
        return heads[good], np.cumsum(counts) - counts, counts


class Routes(NamedTuple):
    """Paths, and which of them each pair takes, int64 (pairs,)."""

    paths: Paths
    numbers: IntArray


def in_turn(digits: Digits, routing: Routing) -> StepSchedule:
    """Exchange along one digit in each step: all that a rank has by then."""
    return _whole_shards(digits, routing, digits.last_hops.places)


def overlapping(digits: Digits, routing: Routing) -> StepSchedule:
    """Pass each shard on as soon as it is there: after as many steps as it has made hops."""
    return _whole_shards(digits, routing, digits.last_hops.counts - 1)


def in_waves(digits: Digits, groups: RankGroups, early: int, routing: Routing) -> StepSchedule:
    """Pass on what comes over rails in two messages to each rank of the box, the first before all has come.

    The first has what came while a rank starts the first messages to all: for the rank that is p-th of g - 1 in order,
    as many shards as p early / (g - 1), rounded down, and one.
    """
    hops = digits.last_hops
    steps, passed = hops.counts - 1, np.flatnonzero(hops.counts > 1)
    sources, senders, receivers = (ends[passed] for ends in (hops.sources, hops.senders, hops.receivers))
    come, turn = (
        np.unique(message_rounds(groups, *ends), return_inverse=True)[1]
        for ends in ((sources, senders), (senders, receivers))
    )
    steps[passed] += come > turn * early // (digits.levels[1].size - 1)
    return _whole_shards(digits, routing, steps)


def in_all_orders(orders: Sequence[Digits], routing: Routing) -> StepSchedule:
    """Exchange along one digit in each step, an equal part of each shard in each of the orders of digits."""
    all_hops = [digits.last_hops for digits in orders]
    hops = LastHops(*map(np.concatenate, zip(*all_hops, strict=True)))
    part = np.repeat(np.arange(len(orders)), [len(order_hops.sources) for order_hops in all_hops])
    return exchange(hops, routing, len(orders), hops.places, part, part + 1)


def trees(digits: Digits, routing: Routing) -> Forest:
    """One tree per root, as high as there are steps: the last hops into all ranks."""
    hops, ranks = digits.last_hops, routing.num_ranks
    routes = routes_of(routing, hops.senders, hops.receivers)
    numbers = np.full((ranks, ranks), -1, dtype=np.int32)
    numbers[hops.sources, hops.receivers] = routes.numbers
    roots, weights = np.arange(ranks), np.ones(ranks, dtype=np.int64)
    return Forest(ranks, 1, roots, weights, numbers, *routes.paths, direction=routing.problem.direction)


def exchange(
    hops: LastHops, routing: Routing, chunks: int, steps: IntArray, lower: IntArray, upper: IntArray
) -> StepSchedule:
    """Send intervals of chunks over last hops, in given steps; hops may be named more than once."""
    routes = routes_of(routing, hops.senders, hops.receivers)
    sends = steps, hops.sources, lower, upper, routes.numbers
    return StepSchedule(routing.num_ranks, chunks, *sends, *routes.paths, direction=routing.problem.direction)


def _whole_shards(digits: Digits, routing: Routing, steps: IntArray) -> StepSchedule:
    """Send whole shards over all last hops."""
    lower = np.zeros_like(steps)
    return exchange(digits.last_hops, routing, 1, steps, lower, lower + 1)


def routes_of(routing: Routing, senders: IntArray, receivers: IntArray) -> Routes:
    """Paths of the pairs that occur."""
    pairs, numbers = np.unique(senders * routing.num_ranks + receivers, return_inverse=True)
    return Routes(routing.paths(*np.divmod(pairs, routing.num_ranks)), numbers)


class _Step(NamedTuple):
    """Exchanges along one level."""

    level: int
    adds: bool
    before: int  # Parts that the vector is divided into when the step begins
    parts: int  # Into how many more, of which each rank is sent its own


class Exchange(NamedTuple):
    """Exchange along digits, of which `scattered` ones, the innermost, are reduced by a reduce-scatter."""

    digits: Digits
    scattered: int

    @property
    def name(self) -> str:
        """Such as ``"exchange-4x8"``, or ``"exchange-4-of-shards-8"``."""
        sizes = [str(level.size) for level in self.digits.levels]
        outer, inner = sizes[: len(sizes) - self.scattered], sizes[len(sizes) - self.scattered :]
        return f"exchange-{'x'.join(outer)}" + (f"-of-shards-{'x'.join(inner)}" if inner else "")

    @property
    def steps(self) -> list[_Step]:
        """All steps, in their order."""
        reductions, divided = list[_Step](), 1
        for number in range(len(self.digits.levels) - 1, -1, -1):
            parts = self.digits.levels[number].size if len(reductions) < self.scattered else 1
            reductions.append(_Step(number, True, divided, parts))
            divided *= parts
        gathers = [step._replace(adds=False, before=step.before * step.parts, parts=1) for step in reductions]
        return reductions + gathers[: self.scattered][::-1]

    @property
    def vectors(self) -> FloatArray:
        """What each move carries in each step, in vectors, float (steps, moves)."""
        level_of = np.array([move.level for move in self.digits.moves])
        return np.array([(level_of == step.level) / (step.before * step.parts) for step in self.steps])

    @property
    def chunks(self) -> int:
        """Parts that the vector is divided into."""
        return prod(level.size for level in self.digits.levels[len(self.digits.levels) - self.scattered :])

    def sends(self, offset: int) -> tuple[IntArray, ...]:
        """Columns of all sends: steps, adds, lower and upper from `offset` on, senders and receivers."""
        level_of = np.array([move.level for move in self.digits.moves])
        first = np.full(self.digits.num_ranks, offset)  # of the chunks that a rank is to reduce
        rows: list[tuple[IntArray, ...]] = []
        for number, step in enumerate(self.steps):
            tails, heads = (ends[level_of == step.level].ravel() for ends in self.digits.partners)
            digits, width = self.digits.levels[step.level].digits, self.chunks // (step.before * step.parts)
            lower = first[tails] + (digits[heads] * width if step.parts > 1 else 0)
            numbers, adds = (np.full_like(tails, value) for value in (number, step.adds))
            rows.append((numbers, adds, lower, lower + width, tails, heads))
            if step.parts > 1:
                first += digits * width
            elif not step.adds:
                first -= digits * width
        return tuple(map(np.concatenate, zip(*rows, strict=True)))


def schedule_of(routing: Routing, parts: Sequence[Exchange]) -> StepExchange:
    """Build the schedule of exchanges of equal parts of the vector at the same time."""
    columns = [part.sends(number * part.chunks) for number, part in enumerate(parts)]
    steps, adds, lower, upper, tails, heads = map(np.concatenate, zip(*columns, strict=True))
    routes, chunks = routes_of(routing, tails, heads), parts[0].chunks * len(parts)
    return StepExchange(routing.num_ranks, chunks, steps, adds != 0, lower, upper, routes.numbers, *routes.paths)


def exchanges(groups: RankGroups, ways: Sequence[Digits], radices: Sequence[int], largest: int) -> Iterator[Digits]:
    """Yield digits to exchange along: those of `ways`, and each level of the groups in factors up to a radix."""
    ways_by_sizes = {tuple(level.size for level in digits.levels): digits for digits in ways}
    for radix in radices:
        sizes = tuple(part for size in groups.sizes for part in _factors(size, radix))
        if sizes not in ways_by_sizes:
            values = zip(np.unravel_index(groups.values, tuple(sizes)), sizes, strict=True)
            ways_by_sizes[sizes] = Digits(
                [Level(np.asarray(value, dtype=np.int64), size, size) for value, size in values]
            )
    yield from (digits for sizes, digits in ways_by_sizes.items() if max(sizes) <= largest)


def _factors(size: int, radix: int) -> list[int]:
    """Divide a size into factors, each the largest that is at most a radix; a prime one may be larger."""
    factors = []
    while size > radix:
        factor = max((divisor for divisor in range(2, radix + 1) if size % divisor == 0), default=size)
        factors.append(factor)
        size //= factor
    return factors + [size] * (size > 1)
