"""Check of a schedule in steps that every plan's certificate rests on, arrivals of chunks in order included.

It shares no code with the planners, the solvers or the methods of `StepSchedule`: it reads the arrays and the
topology's links and nothing else.  Copies of different shards never meet, so sends are looked at source by source, many
at once by sorting, in blocks of bounded memory.  Of an allreduce in one phase, a `StepExchange`, it follows whose
vectors are in the sums of every rank, after every step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ...errors import CertificateError
from ...support.arrays import BoolArray, IntArray, distinct
from ...support.validation import as_kind, shown
from ...topologies import Topology
from ..collective import Direction
from ..path_checks import check_arrays, check_steps_used, refuse_if, switched_paths, verified_hops
from .sends import ShardSends, StepSends, VectorSends

NEVER = 2**62  # the step that brings a chunk which never comes
FROM_THE_START = -1
BLOCK = 2**16
"""Sends and holdings that are looked at together, if that is not less than one source's: few enough for caches."""


@dataclass(frozen=True)
class Sends:
    """All sends of the shards of consecutive ranks; different shards are independent."""

    first: int
    count: int  # the shards are those of ranks ``first``, ..., ``first + count - 1``
    num_ranks: int
    chunks: int  # of one shard
    numbers: IntArray  # int64 (sends,); where the sends are in the schedule's arrays
    steps: IntArray  # int64 (sends,)
    sources: IntArray  # int64 (sends,)
    lower: IntArray  # int64 (sends,)
    upper: IntArray  # int64 (sends,)
    senders: IntArray  # int64 (sends,)
    receivers: IntArray  # int64 (sends,)


def blocks_of(schedule: ShardSends) -> Iterator[Sends]:
    """Yield all sends, source by source, in blocks of limited memory."""
    ranks, starts = schedule.num_ranks, schedule.path_starts
    small = schedule.sources.astype(np.min_scalar_type(ranks))  # short integers are sorted fast
    order = np.argsort(small, kind="stable")
    until = np.cumsum(np.bincount(schedule.sources, minlength=ranks))
    senders, receivers = schedule.path_nodes[starts[:-1]], schedule.path_nodes[starts[1:] - 1]
    first = 0
    while first < ranks:
        begin = int(until[first - 1]) if first else 0
        weights = until[first:] - begin + ranks * np.arange(1, ranks - first + 1)
        count = max(1, int(np.searchsorted(weights, BLOCK, side="right")))
        numbers = order[begin : until[first + count - 1]]
        routes = schedule.routes[numbers]
        columns = (schedule.steps, schedule.sources, schedule.lower, schedule.upper)
        values = (*(column[numbers] for column in columns), senders[routes], receivers[routes])
        yield Sends(first, count, ranks, schedule.chunks_per_shard, numbers, *values)
        first += count


@dataclass(frozen=True)
class Arrivals:
    """Arrival times of each part of each shard at each rank.

    A *holding* is one rank's copy of one shard, number ``source * num_ranks + rank``, sources counted from the first of
    the block.  It falls into pieces between the points where intervals that this rank sends or is sent begin or end.  A
    point is the number of its holding times `span` plus its chunk, so that one sorted array holds all of them.

    `points` (int64 (pieces,)): Where each piece begins; the next one is where it ends.  The last piece of a holding is
        empty.
    `first` (int64 (pieces,)): The step that brings each piece first; -1 if it is there from the start, `NEVER` if no
        step does.
    """

    points: IntArray
    first: IntArray
    times: IntArray  # int64 (pieces,); how often a piece is brought, or there from the start
    ready: IntArray  # int64 (sends,); the step after which the sender has all chunks of the send

    @classmethod
    def of(cls, sends: Sends) -> Arrivals:
        """Compute the arrival times.

        Points are less than ``num_ranks**2 * (chunks + 1)``, and so fit 64 bits: a schedule that is worth a look has
        ``num_ranks * (num_ranks - 1)`` sends at least, and its sends times chunks are less than 2**62.
        """
        span = sends.chunks + 1
        bases = np.arange(sends.count * sends.num_ranks) * span
        own = bases[np.arange(sends.count) * (sends.num_ranks + 1) + sends.first]
        rows = (sends.sources - sends.first) * sends.num_ranks
        sender_base, receiver_base = (rows + sends.senders) * span, (rows + sends.receivers) * span
        keyed = (
            own,
            receiver_base + sends.lower,
            own + sends.chunks,
            receiver_base + sends.upper,
            sender_base + sends.lower,
        )
        keys = np.concatenate([*keyed, sender_base + sends.upper, bases, bases + sends.chunks])
        points, places = distinct(keys)
        brought = len(own) + len(receiver_base)
        starts, stops = places[:brought], places[brought : 2 * brought]
        steps = np.concatenate([np.full(len(own), FROM_THE_START), sends.steps])
        first = _least_over(len(points), starts, stops, steps)
        changes = np.bincount(starts, minlength=len(points)) - np.bincount(stops, minlength=len(points))
        queries = places[2 * brought :]
        ready = _greatest_in(first, queries[: len(receiver_base)], queries[len(receiver_base) : 2 * len(receiver_base)])
        return cls(points, first, np.cumsum(changes), ready)


def _least_over(size: int, starts: IntArray, stops: IntArray, values: IntArray) -> IntArray:
    """At each position the least value of the intervals that cover it, `NEVER` if none does.

    An interval is covered by two blocks whose length is a power of two; blocks are halved, the longest first.
    """
    powers = np.frexp(stops - starts)[1] - 1
    minimum = np.full(size, NEVER)
    for power in range(int(powers.max()), -1, -1):
        block = 1 << power
        wider, minimum = minimum, minimum.copy()
        np.minimum(minimum[block:], wider[:-block], out=minimum[block:])
        mask = powers == power
        np.minimum.at(minimum, starts[mask], values[mask])
        np.minimum.at(minimum, stops[mask] - block, values[mask])
    return minimum


def _greatest_in(values: IntArray, starts: IntArray, stops: IntArray) -> IntArray:
    """Greatest value in each interval, by blocks as in `_least_over`, the shortest first."""
    powers = np.frexp(stops - starts)[1] - 1
    greatest = np.empty(len(starts), dtype=np.int64)
    values = values.copy()
    for power in range(int(powers.max(initial=-1)) + 1):
        block = 1 << power
        mask = powers == power
        greatest[mask] = np.maximum(values[starts[mask]], values[stops[mask] - block])
        values[:-block] = np.maximum(values[:-block], values[block:])
    return greatest


LOAD_LIMIT = 2**62


def verified_steps(schedule: ShardSends, topology: Topology) -> IntArray:
    """Verify that a schedule is an allgather, or reversed a reduce-scatter, and sum its loads; int64 (steps, links).

    Checked: the arrays fit together; every path follows links of the topology, passes only switches and no node twice;
    something happens in every step; a rank sends only chunks that it holds at the beginning of the step; in the end
    every rank has every shard.  Of a reduce-scatter also: no rank is brought the same part of a shard twice, for it
    would reduce it twice.
    """
    _check_shapes(schedule, topology.num_ranks)
    hops = verified_hops(schedule.path_starts, schedule.path_nodes, schedule.direction, topology, "schedule")
    _check_sends(schedule)
    check_steps_used(schedule.steps)
    loads = np.zeros((int(schedule.steps.max()) + 1, topology.num_links), dtype=np.int64)
    for sends in _checked_blocks(schedule):
        add_loads(loads, schedule, sends.numbers, hops.links)
    return loads


def check_steps(parts: Sequence[ShardSends]) -> None:
    """Check all that `verified_loads` does without a topology, but for steps in which nothing happens."""
    if len(parts) > 1:
        check_halves(parts)
    for part in parts:
        _check_shapes(part, part.num_ranks)
        if part.num_ranks > 1:
            switched_paths(part.path_starts, part.path_nodes, part.num_ranks, "schedule")
        _check_sends(part)
        for _ in _checked_blocks(part):
            pass


def check_halves(parts: Sequence[ShardSends]) -> None:
    """Check that a schedule that reduces and one that broadcasts are for the same ranks."""
    for part in parts:
        as_kind(part, ShardSends, "the schedule", error=CertificateError)
    reduce, broadcast = parts
    if (reduce.direction, broadcast.direction) != ("reduce", "broadcast"):
        raise CertificateError("the allreduce does not consist of one schedule that reduces and one that broadcasts")
    if reduce.num_ranks != broadcast.num_ranks:
        raise CertificateError(
            f"the allreduce's schedules are for {reduce.num_ranks} and {broadcast.num_ranks} ranks; "
            "expected the same ranks in both"
        )


def add_loads(loads: IntArray, schedule: StepSends, numbers: IntArray, links: IntArray) -> None:
    """Add the loads of the sends with these numbers; `links` are those of all hops, path by path."""
    routes = schedule.routes[numbers]
    counts = schedule.path_starts[routes + 1] - schedule.path_starts[routes] - 1
    # A path has one hop less than nodes, so the first of path p is p less than its first node.
    before = schedule.path_starts[routes] - routes - np.cumsum(counts) + counts
    passed = links[np.repeat(before, counts) + np.arange(counts.sum())]
    places = np.repeat(schedule.steps[numbers], counts) * loads.shape[1] + passed
    amounts = schedule.upper[numbers] - schedule.lower[numbers]
    np.add.at(loads.reshape(-1), places, np.repeat(amounts, counts))


def _check_shapes(schedule: ShardSends, ranks: int) -> None:
    sends = schedule.steps.size
    if schedule.num_ranks != ranks:
        raise CertificateError(f"the schedule is for {schedule.num_ranks} ranks; the topology has {ranks}")
    if schedule.chunks_per_shard < 1:
        raise CertificateError(f"the schedule has {schedule.chunks_per_shard} chunks per shard; expected at least 1")
    if schedule.direction not in ("broadcast", "reduce"):
        raise CertificateError(
            f"the schedule's direction is {shown(schedule.direction)}; expected 'broadcast' or 'reduce'"
        )
    if sends < ranks * (ranks - 1):
        # Also keeps the memory of this check in proportion to the schedule's own.
        raise CertificateError(f"the schedule has {sends} sends; {ranks} ranks need at least {ranks * (ranks - 1)}")
    if int(schedule.chunks_per_shard) * sends >= LOAD_LIMIT:
        raise CertificateError(
            f"{schedule.chunks_per_shard} chunks per shard could overflow the 64-bit sums of this check"
        )
    shapes = dict.fromkeys(("steps", "sources", "lower", "upper", "routes"), (sends,))
    shapes |= {name: (len(getattr(schedule, name)),) for name in ("path_starts", "path_nodes")}
    check_arrays(schedule, shapes, "schedule")


def _check_sends(schedule: ShardSends) -> None:
    """Check each send by itself."""
    source = schedule.sources
    refuse_if((source < 0) | (source >= schedule.num_ranks), "send {} has a source that is not a rank")
    check_columns(schedule, schedule.chunks_per_shard, "a shard")


def check_columns(schedule: StepSends, chunks: int, unit_name: str) -> None:
    """Check routes, intervals of the chunks of `unit_name` and steps."""
    route, lower, upper = schedule.routes, schedule.lower, schedule.upper
    refuse_if((route < 0) | (route >= len(schedule.path_starts) - 1), "send {} has a route that is not a path")
    invalid = (lower < 0) | (lower >= upper) | (upper > chunks)
    refuse_if(invalid, f"send {{}} does not carry an interval of chunks of {unit_name}")
    refuse_if(schedule.steps < 0, "send {} happens before step 0")


def _checked_blocks(schedule: ShardSends) -> Iterator[Sends]:
    """Yield all sends in blocks, and in the end refuse those that bring too little, too early or twice."""
    faults = _Faults()
    for sends in blocks_of(schedule):
        faults.look_at(sends, Arrivals.of(sends), schedule.direction)
        yield sends
    faults.refuse()


class _Faults:
    """Errors in the order of the sends: the first of each kind over all blocks."""

    def __init__(self) -> None:
        self._early: tuple[int, ...] | None = None
        self._missing = ""
        self._again = ""

    def look_at(self, sends: Sends, arrivals: Arrivals, direction: Direction) -> None:
        """Check the next block."""
        self._look_for_early(sends, arrivals)
        missing = arrivals.first == NEVER
        missing[arrivals.points % (sends.chunks + 1) == sends.chunks] = False
        if missing.any() and not self._missing:
            source, rank, chunk = _whereabouts(int(np.flatnonzero(missing)[0]), sends, arrivals)
            self._missing = f"rank {rank} never gets chunk {chunk} of the shard of rank {source}"
        again = arrivals.times > 1
        if direction == "reduce" and again.any() and not self._again:
            piece = int(np.flatnonzero(again)[0])
            source, rank, chunk = _whereabouts(piece, sends, arrivals)
            times = f"{arrivals.times[piece]} times"
            self._again = f"rank {rank} would send chunk {chunk} of the shard of rank {source} {times}"

    def refuse(self) -> None:
        """Raise the first error; early sends come first, as missing chunks may follow from them."""
        if self._early is not None:
            step, sender, source, lower, _, upper = self._early
            raise CertificateError(
                f"in step {step} rank {sender} sends chunks {lower} to {upper - 1} of the shard of rank {source}, "
                "but does not have them by then"
            )
        if self._missing or self._again:
            raise CertificateError(self._missing or self._again)

    def _look_for_early(self, sends: Sends, arrivals: Arrivals) -> None:
        """Find chunks that are sent before they have arrived at the sender."""
        early = np.flatnonzero(arrivals.ready >= sends.steps)
        if len(early):
            keys = (sends.steps, sends.senders, sends.sources, sends.lower, sends.numbers, sends.upper)
            first = early[np.lexsort([key[early] for key in keys[::-1]])[0]]
            fault = tuple(int(key[first]) for key in keys)
            self._early = fault if self._early is None else min(self._early, fault)


def _whereabouts(piece: int, sends: Sends, arrivals: Arrivals) -> tuple[int, int, int]:
    """Source, rank and first chunk of a piece."""
    holding, chunk = divmod(int(arrivals.points[piece]), sends.chunks + 1)
    source, rank = divmod(holding, sends.num_ranks)
    return sends.first + source, rank, chunk


MAX_PARTS = 2**28  # sends, each counted once for every part of the vector that it carries


def verified_exchange(schedule: VectorSends, topology: Topology) -> IntArray:
    """Verify that a schedule is an allreduce, and sum its load on every link, by steps.

    Checked: the arrays fit together; every path follows links of the topology and passes only switches; something
    happens in every step; no rank adds a vector to a sum twice, or is sent two values of a chunk in a step of
    which one replaces the other; in the end every rank holds the sum of all vectors.
    """
    check_shapes(schedule, topology.num_ranks)
    hops = verified_hops(schedule.path_starts, schedule.path_nodes, "broadcast", topology, "schedule")
    check_columns(schedule, schedule.chunks, "the vector")
    check_steps_used(schedule.steps)
    loads = np.zeros((int(schedule.steps.max()) + 1, topology.num_links), dtype=np.int64)
    add_loads(loads, schedule, np.arange(len(schedule.steps)), hops.links)
    check_sums(schedule)
    return loads


def check_shapes(schedule: VectorSends, ranks: int) -> None:
    """Check that arrays fit together, and that there are enough sends for so many ranks."""
    sends = len(schedule.steps)
    if schedule.num_ranks != ranks:
        raise CertificateError(f"the schedule is for {schedule.num_ranks} ranks; the topology has {ranks}")
    if schedule.chunks < 1 or int(schedule.chunks) * sends >= LOAD_LIMIT:
        raise CertificateError(
            f"the schedule has {schedule.chunks} chunks; expected at least 1, and fewer than {LOAD_LIMIT} in all sends"
        )
    if sends < ranks:
        raise CertificateError(f"the schedule has {sends} sends; {ranks} ranks need at least one each")
    shapes = dict.fromkeys(("steps", "lower", "upper", "routes"), (sends,))
    shapes |= {name: (len(getattr(schedule, name)),) for name in ("path_starts", "path_nodes")}
    check_arrays(schedule, shapes, "schedule")
    if schedule.adds.dtype != np.bool_ or schedule.adds.shape != (sends,):
        raise CertificateError(
            f"the schedule's adds are {schedule.adds.dtype} of shape {schedule.adds.shape}; expected bool, {(sends,)}"
        )


def check_sums(schedule: VectorSends) -> None:
    """Check each part of the vector between points where sends begin or end by itself."""
    points = np.unique(np.concatenate([[0, schedule.chunks], schedule.lower, schedule.upper]))
    first = np.searchsorted(points, schedule.lower)
    counts = np.searchsorted(points, schedule.upper) - first
    if int(counts.sum()) > MAX_PARTS:
        raise CertificateError(f"the sends carry {counts.sum()} parts of the vector; expected at most {MAX_PARTS}")
    number = np.repeat(np.arange(len(counts)), counts)
    part = np.arange(len(number)) + np.repeat(first - np.cumsum(counts) + counts, counts)
    starts, nodes = schedule.path_starts, schedule.path_nodes
    senders, receivers = (nodes[ends][schedule.routes] for ends in (starts[:-1], starts[1:] - 1))
    order = np.lexsort((receivers[number], schedule.steps[number], part))
    number = number[order]
    ends = np.searchsorted(part[order], np.arange(len(points)))
    for begin, end, chunk in zip(ends[:-1], ends[1:], points[:-1].tolist(), strict=True):
        of_part = number[begin:end]
        steps, tails, heads = (column[of_part] for column in (schedule.steps, senders, receivers))
        _check_part(steps, tails, heads, schedule.adds[of_part], schedule.num_ranks, chunk)


def _check_part(steps: IntArray, tails: IntArray, heads: IntArray, all_adds: BoolArray, ranks: int, chunk: int) -> None:
    """Check that every rank ends with all vectors, each once; sends are in the order of steps and receivers."""
    # Bits of a row are the vectors in the sum that a rank holds; sums of numbers of vectors tell whether any is twice.
    vectors = np.packbits(np.eye(ranks, dtype=np.bool_), axis=1)
    count = np.ones(ranks, dtype=np.int64)
    for begin, end in pairwise(np.flatnonzero(np.diff(steps, prepend=-1, append=-1)).tolist()):
        senders, receivers, adds = tails[begin:end], heads[begin:end], all_adds[begin:end]
        step, replaced = int(steps[begin]), receivers[~adds]
        values = np.bincount(receivers, minlength=ranks)
        if (values[replaced] > 1).any():
            rank = int(replaced[values[replaced] > 1][0])
            raise CertificateError(f"in step {step} rank {rank} is sent two values of chunk {chunk} to keep")
        following, number = vectors.copy(), count.copy()
        following[replaced] = number[replaced] = 0
        begins = np.flatnonzero(np.diff(receivers, prepend=-1))
        following[receivers[begins]] |= np.bitwise_or.reduceat(vectors[senders], begins, axis=0)
        np.add.at(number, receivers, count[senders])
        vectors, count = following, np.unpackbits(following, axis=1).sum(axis=1, dtype=np.int64)
        if (number != count).any():
            rank = int(np.flatnonzero(number != count)[0])
            raise CertificateError(f"in step {step} rank {rank} adds a vector twice to its sum of chunk {chunk}")
    if (count < ranks).any():
        rank = int(np.flatnonzero(count < ranks)[0])
        missing = int(np.argmin(np.unpackbits(vectors[rank], count=ranks)))
        raise CertificateError(f"rank {rank} never adds chunk {chunk} of rank {missing}")
