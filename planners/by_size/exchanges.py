"""Exchanges along the digits of ranks, in steps or trees, and in pieces: what comes is passed on beside the next.

Steps take one digit each, or overlap, or go in several orders at once.  Allreduces in one phase exchange whole vectors,
or shards of inner groups, with ranks that differ in one digit (Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005).
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from ...formulations.piece_shares import HopKind, build
from ...schedules import Forest, StepExchange, StepSchedule
from ...schedules.message_order import message_rounds
from ...solvers import solve
from ...support.arrays import BoolArray, FloatArray, IntArray
from ...topologies.symmetry.rank_groups import RankGroups
from .digits import Digits, LastHops, Level
from .routing import MoveLoads, Routing

CHUNKS_TRIED = (*range(2, 65), *(1 << power for power in range(7, 13)))
ROUNDING_LOSS = 2e-3
LEAST_GAIN = 1e-2  # of one more step
MOST_STEPS = 8
MOST_LEVELS = 3
MOST_LINKS = 256  # that are compared with each other


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
    return _exchange(hops, routing, len(orders), hops.places, part, part + 1)


def trees(digits: Digits, routing: Routing) -> Forest:
    """One tree per root, as high as there are steps: the last hops into all ranks."""
    hops, ranks = digits.last_hops, routing.num_ranks
    routes, starts, nodes = routing.routes(hops.senders, hops.receivers)
    numbers = np.full((ranks, ranks), -1, dtype=np.int32)
    numbers[hops.sources, hops.receivers] = routes
    roots, weights = np.arange(ranks), np.ones(ranks, dtype=np.int64)
    return Forest(ranks, 1, roots, weights, numbers, starts, nodes, direction=routing.problem.direction)


def _exchange(
    hops: LastHops, routing: Routing, chunks: int, steps: IntArray, lower: IntArray, upper: IntArray
) -> StepSchedule:
    """Send intervals of chunks over last hops, in given steps; hops may be named more than once."""
    sends = steps, hops.sources, lower, upper, *routing.routes(hops.senders, hops.receivers)
    return StepSchedule(routing.num_ranks, chunks, *sends, direction=routing.problem.direction)


def _whole_shards(digits: Digits, routing: Routing, steps: IntArray) -> StepSchedule:
    """Send whole shards over all last hops."""
    lower = np.zeros_like(steps)
    return _exchange(digits.last_hops, routing, 1, steps, lower, lower + 1)


class _Step(NamedTuple):
    """Exchanges along one level."""

    level: int
    adds: bool
    before: int  # parts that the vector is divided into when the step begins
    parts: int  # into how many more, of which each rank is sent its own


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
    chunks = parts[0].chunks * len(parts)
    return StepExchange(routing.num_ranks, chunks, steps, adds != 0, lower, upper, *routing.routes(tails, heads))


def exchanges(groups: RankGroups, ways: Sequence[Digits], radices: Sequence[int], largest: int) -> Iterator[Digits]:
    """Yield digits to exchange along: those of `ways`, and each level of the groups in factors up to a radix."""
    ways_by_sizes = {tuple(level.size for level in digits.levels): digits for digits in ways}
    for radix in radices:
        sizes = tuple(part for size in groups.sizes for part in _factors(size, radix))
        if sizes not in ways_by_sizes:
            values = zip(np.unravel_index(groups.values, sizes), sizes, strict=True)
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


class Pieces:
    """Exchanges in uneven pieces by kind of hop, the levels that differ: the optimum of `piece_shares`."""

    def __init__(self, digits: Digits, routing: Routing, moves: MoveLoads) -> None:
        self.digits, self.routing, self._moves = digits, routing, moves
        self._shares: dict[int, FloatArray] = {}
        # Kinds, which are bits of levels, in order: fewer levels first, so that each comes after the one before it.
        self._masks = sorted(range(1, 1 << len(digits.levels)), key=lambda mask: (mask.bit_count(), mask))
        place = {mask: kind for kind, mask in enumerate(self._masks)} | {0: -1}
        # The kind that hops of each kind go on from: that of one level less; -1 for the source.
        self._before = [place[mask ^ 1 << mask.bit_length() - 1] for mask in self._masks]

    @cached_property
    def _kinds(self) -> IntArray:
        """The kind of each last hop, int64 (pairs,)."""
        hops = self.digits.last_hops
        masks = np.zeros(len(hops.sources), dtype=np.int64)
        for number, level in enumerate(self.digits.levels):
            masks |= (level.digits[hops.sources] != level.digits[hops.receivers]).astype(np.int64) << number
        kinds: IntArray = np.argsort([0, *self._masks])[masks] - 1
        return kinds

    @cached_property
    def shards(self) -> IntArray:
        """Shards that hops of each kind carry in each move, int64 (kinds, moves)."""
        levels = self.digits.levels
        carried_shards = np.zeros((len(self._masks), len(self.digits.moves)), dtype=np.int64)
        for kind, mask in enumerate(self._masks):
            last = mask.bit_length() - 1
            before = prod(level.size - 1 for place, level in enumerate(levels[:last]) if mask >> place & 1)
            carried_shards[kind, [move.level == last for move in self.digits.moves]] = before
        return carried_shards

    @cached_property
    def _loads(self) -> tuple[IntArray, IntArray]:
        """Shards on each link by kind, int64 (kinds, links), and capacities, of links that are not always less busy."""
        loads = self.shards @ self._moves.loads
        columns = np.unique(np.vstack([loads, self.routing.problem.topology.arrays.capacities]), axis=1)
        columns = columns[:, columns[:-1].any(axis=0)]
        if columns.shape[1] <= MOST_LINKS:
            columns = columns[:, ~_dominated(columns[:-1] / columns[-1])]
        return columns[:-1], columns[-1]

    def _time(self, shares: FloatArray) -> float:
        """Time of all steps with shares of the kinds, float (kinds, steps)."""
        loads, capacities = self._loads
        return float((loads.T @ shares / capacities[:, None]).max(axis=0).sum())

    def shares(self, steps: int) -> FloatArray:
        """Return the best shares of the kinds in each step, float (kinds, steps)."""
        if steps not in self._shares:
            loads, capacities = self._loads
            rows = zip(loads, self._before, strict=True)
            kinds = [HopKind(row, None if before < 0 else before) for row, before in rows]
            # The least capacity is one, so that the solver's tolerances fit.
            values = solve(build(kinds, capacities / capacities.min(), steps)).values["share"]
            self._shares[steps] = np.maximum(values, 0)
        return self._shares[steps]

    def useful_steps(self) -> Iterator[int]:
        """Yield numbers of steps, more than there are levels, each of which gains something over fewer."""
        first = len(self.digits.levels)
        if first > MOST_LEVELS:
            return
        loads, capacities = self._loads
        limit = float((loads.sum(axis=0) / capacities).max()) * (1 + LEAST_GAIN)  # of the busiest link
        best = self._time(self.shares(first))
        for steps in range(first + 1, MOST_STEPS + 1):
            if best <= limit:
                break
            time = self._time(self.shares(steps))
            if time * (1 + LEAST_GAIN) < best:
                best = time
                yield steps

    def schedule(self, steps: int) -> StepSchedule:
        """Build the schedule in whole chunks."""
        chunks, ends = self._rounded(self.shares(steps))
        hops, parts = self.digits.last_hops, np.diff(ends, axis=1)
        hops_of_steps = [np.flatnonzero(parts[self._kinds, step]) for step in range(steps)]
        numbers, step = np.concatenate(hops_of_steps), np.repeat(np.arange(steps), list(map(len, hops_of_steps)))
        kinds = self._kinds[numbers]
        picked = LastHops(*(column[numbers] for column in hops))
        return _exchange(picked, self.routing, chunks, step, ends[kinds, step], ends[kinds, step + 1])

    def _rounded(self, shares: FloatArray) -> tuple[int, IntArray]:
        """Round shares to chunks, and say where pieces end, int64 (kinds, steps + 1); the first column is 0."""
        exact_time = self._time(shares)
        best: tuple[float, int, IntArray] | None = None
        for chunks in CHUNKS_TRIED:
            ends = self._whole_ends(shares, chunks)
            time = self._time(np.diff(ends, axis=1) / chunks)
            if best is None or time < best[0]:
                best = time, chunks, ends
            if time <= exact_time * (1 + ROUNDING_LOSS):
                break
        assert best
        return best[1:]

    def _whole_ends(self, shares: FloatArray, chunks: int) -> IntArray:
        """Round the sums of shares; no kind may get ahead of the one before it."""
        ends = np.zeros((len(shares), shares.shape[1] + 1), dtype=np.int64)
        ends[:, 1:] = np.rint(shares.cumsum(axis=1) * chunks)
        ends[:, -1] = chunks
        for kind, before in enumerate(self._before):
            if before >= 0:
                ends[kind, 1:] = np.minimum(ends[kind, 1:], ends[before, :-1])
        return ends


def _dominated(times: FloatArray) -> BoolArray:
    """Whether each link, a column of times by kind, is never busier than another one, bool (links,)."""
    less = (times[:, :, None] <= times[:, None, :]).all(axis=0)
    order = np.arange(times.shape[1])
    ties = less & less.T & (order[:, None] < order)  # of equal ones the last stays
    return np.asarray((less & ~less.T | ties).any(axis=1))
