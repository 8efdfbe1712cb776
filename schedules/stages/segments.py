"""Lanes, segments, moves and stage totals of an all-to-allv schedule; lanes are the NICs of servers in equal shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm
from typing import Any, NamedTuple, Self

import numpy as np

from ...support.arrays import IntArray, read_only
from ...support.kernels import kernel, runtime_kernel

Rates = Sequence[Sequence[Fraction]]
"""Of the NIC of each GPU, one row for each server; 0 where there is none."""


ARRAYS = ("traffic", "stream_starts", "segments", "stage_bytes", "partners", "begins", "ends")
PARTS = 64  # parts at most that the local bytes of a server are cut into
Streams = tuple[IntArray, IntArray, IntArray, IntArray]
"""Where streams start, their segments, and of each the segment that it has come to and the bytes of that."""
Steps = tuple[IntArray, IntArray, IntArray, IntArray]
"""Loads by step modulo 3, of GPUs (3, 2, ranks), sent and received, and from each to each place in its server,
(3, ranks, places); the place of each rank; and the largest loads of GPUs and links, (2, steps)."""


def lane_rate(nics: Rates) -> Fraction:
    """Return the largest rate that divides those of all NICs, which are 1 where none are given."""
    rates = [rate for row in nics for rate in row] or [Fraction(1)]
    scale = lcm(*(rate.denominator for rate in rates))
    return Fraction(gcd(*(int(rate * scale) for rate in rates)), scale)


def lane_counts(nics: Rates) -> IntArray:
    """Count the lanes of each rank; int64 (ranks,)."""
    unit = lane_rate(nics)
    return np.array([int(rate / unit) for row in nics for rate in row], dtype=np.int64)


def lanes_in_parts(counts: IntArray, homes: IntArray, width: int) -> tuple[IntArray, IntArray]:
    """Cut servers into parts of `width` lanes, in the order of ranks; the last part of a server may have fewer.

    Shapes: `counts` and `homes`, the lanes and the server of each rank, int64 (ranks,).  Returns the rank of each lane,
    (parts, width), with -1 for none, and the first part of each server, (servers + 1,).
    """
    ranks = np.repeat(np.arange(len(counts)), counts)
    before = np.searchsorted(homes[ranks], np.arange(homes[-1] + 2))
    firsts = np.append(0, np.cumsum(-(-np.diff(before) // width)))
    lanes = np.full(firsts[-1] * width, -1)
    lanes[np.arange(len(ranks)) + (firsts[:-1] * width - before[:-1])[homes[ranks]]] = ranks
    return lanes.reshape(-1, width), firsts


@dataclass(frozen=True, eq=False, repr=False)
class StagedArrays:
    """The data of an `AllToAllvSchedule`, which describes them: all that its pieces, its check and its cost rest on."""

    traffic: IntArray
    servers: int
    gpus_per_server: int
    stream_starts: IntArray
    segments: IntArray
    stage_bytes: IntArray
    partners: IntArray
    begins: IntArray
    ends: IntArray
    server_sizes: tuple[int, ...] = ()
    nics: tuple[tuple[Fraction, ...], ...] = ()

    def __post_init__(self) -> None:
        for name in ARRAYS:
            array = getattr(self, name)
            if array.flags.writeable:
                object.__setattr__(self, name, read_only(array))

    @classmethod
    def of_own(cls, *values: Any) -> Self:
        """Construct from the values of all fields; arrays are the planner's own and read-only.

        Planning takes microseconds, and the checks of a frozen dataclass would take several.
        """
        schedule = cls.__new__(cls)
        schedule.__dict__.update(zip(cls.__match_args__, values, strict=True))
        return schedule

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        """Copy and pickle by construction, as numpy does not keep arrays read-only."""
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    @property
    def num_ranks(self) -> int:
        """Number of GPUs."""
        return len(self.traffic)

    @property
    def sizes(self) -> tuple[int, ...]:
        """GPUs of each server, not of its parts."""
        return self.server_sizes or (self.gpus_per_server,) * self.servers

    @cached_property
    def first_ranks(self) -> IntArray:
        """GPU 0 of each server; shape (servers,)."""
        return np.cumsum((0, *self.sizes[:-1]))

    @cached_property
    def homes(self) -> IntArray:
        """The server of each rank; shape (ranks,)."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def lane_rate(self) -> Fraction:
        """Rate of a lane, which divides those of all NICs, over that of a NIC of rate 1."""
        return lane_rate(self.nics)

    @cached_property
    def lane_counts(self) -> IntArray:
        """Lanes of each rank; shape (ranks,)."""
        return lane_counts(self.nics) if self.nics else np.ones(self.num_ranks, dtype=np.int64)

    @cached_property
    def server_lanes(self) -> IntArray:
        """Lanes of each server; shape (servers,), not of its parts."""
        return np.asarray(np.add.reduceat(self.lane_counts, self.first_ranks), dtype=np.int64)

    @cached_property
    def lanes(self) -> IntArray:
        """Rank that has each lane, or -1; shape (parts, lanes of a part)."""
        return lanes_in_parts(self.lane_counts, self.homes, self.gpus_per_server)[0]

    @property
    def num_stages(self) -> int:
        """Number of stages between servers."""
        return len(self.stage_bytes)

    @cached_property
    def step_loads(self) -> StepLoads:
        """Bytes that the steps move inside servers, and the scratch that they need."""
        firsts = np.append(self.first_ranks, self.num_ranks)
        return step_loads(self.traffic, firsts, self.lanes, *(getattr(self, name) for name in ARRAYS[1:]))


class Pieces(NamedTuple):
    """Runs of bytes, each of one cell and one stage, in the order of streams and then of bytes in them.

    All arrays have the shape (pieces,); `origin`, `proxy`, `peer` and `final` are ranks.
    """

    stage: IntArray  # in which stage it goes from server to server
    origin: IntArray  # row of the cell of the traffic matrix
    proxy: IntArray  # the rank that sends it in its stage
    peer: IntArray  # the rank that receives it in its stage
    final: IntArray  # column of the cell
    first: IntArray  # first byte in the cell
    length: IntArray  # number of bytes
    offset: IntArray  # where in the stream it starts


class Moves(NamedTuple):
    """Bytes that go from GPU to GPU of the same server; all arrays have the shape (moves,)."""

    source: IntArray  # sending rank
    destination: IntArray  # receiving rank
    length: IntArray  # bytes


def pieces_of(schedule: StagedArrays, server: int) -> Pieces:
    """Cut the streams that leave `server` at the ends of segments and of stages' intervals."""
    n, m = schedule.servers, schedule.gpus_per_server
    starts = schedule.stream_starts[server * n * m : (server + 1) * n * m + 1]
    segments = schedule.segments[starts[0] : starts[-1]]
    # One line of bytes: all streams of the server, one after another.
    segment_ends = np.cumsum(segments[:, 3])
    base = np.concatenate([[0], segment_ends])[starts - starts[0]]
    partners = schedule.partners[:, server]
    stages = np.flatnonzero(partners >= 0)
    order = np.argsort(partners[stages], kind="stable")
    stages = np.repeat(stages[order], m)
    streams = (partners[stages].reshape(-1, m) * m + np.arange(m)).ravel()
    cuts = base[streams] + np.minimum(schedule.ends[stages, server], np.diff(base)[streams])
    by_place = np.lexsort((stages, streams))
    stages, cuts = stages[by_place], cuts[by_place]
    ends = np.union1d(segment_ends, cuts)
    ends = ends[ends > 0]
    begins = np.concatenate([[0], ends])[:-1]
    segment = np.searchsorted(segment_ends, begins, side="right")
    stream = np.searchsorted(base, begins, side="right") - 1
    origin, final, first, length = segments[segment].T
    return Pieces(
        stage=stages[np.searchsorted(cuts, begins, side="right")],
        origin=origin,
        proxy=schedule.lanes[server, stream % m],
        peer=schedule.lanes.ravel()[stream],
        final=final,
        first=first + begins - (segment_ends[segment] - length),
        length=ends - begins,
        offset=begins - base[stream],
    )


def handed_over(schedule: StagedArrays) -> Moves:
    """Moves from GPUs to proxies of their server before the first stage, by segment."""
    n, m = schedule.servers, schedule.gpus_per_server
    streams = np.repeat(np.arange(n * n * m), np.diff(schedule.stream_starts))
    return _moves(schedule.segments[:, 0], schedule.lanes[streams // (n * m), streams % m], schedule.segments[:, 3])


def local_bytes(schedule: StagedArrays) -> Moves:
    """Moves of the all-to-allv inside servers, without copies to self."""
    inside = schedule.homes[:, None] == schedule.homes
    source, destination = np.nonzero(np.where(inside, schedule.traffic, 0))
    return _moves(source, destination, schedule.traffic[source, destination])


def busiest_by_shift(schedule: StagedArrays, moves: Moves) -> IntArray:
    """Bytes of the busiest GPU of each server at each distance; shape (servers, largest server - 1).

    At distance d GPU a of a server sends to GPU a + d modulo the server's size; the first column is distance 1.
    """
    loads = np.zeros((schedule.num_ranks, max(schedule.sizes)), dtype=np.int64)
    np.add.at(loads, (moves.source, _shift(schedule, moves.source, moves.destination)), moves.length)
    busiest: IntArray = np.maximum.reduceat(loads, schedule.first_ranks, axis=0)
    return busiest[:, 1:]


def redistributed_by_stage(schedule: StagedArrays) -> IntArray:
    """As `busiest_by_shift`, for the redistribution after each stage; int64 (stages, servers, shifts)."""
    ranks, width = schedule.num_ranks, max(schedule.sizes)
    parts = [pieces_of(schedule, part) for part in range(schedule.servers)]
    stage, peer, final, length = (
        np.concatenate([getattr(pieces, name) for pieces in parts]) for name in ("stage", "peer", "final", "length")
    )
    # A GPU may receive on several lanes.
    moves, of_move = np.unique((stage * ranks + peer) * width + _shift(schedule, peer, final), return_inverse=True)
    received = np.zeros(len(moves), dtype=np.int64)
    np.add.at(received, of_move, length)
    redistributed = np.zeros((schedule.num_stages, len(schedule.sizes), width), dtype=np.int64)
    np.maximum.at(
        redistributed, (moves // width // ranks, schedule.homes[moves // width % ranks], moves % width), received
    )
    return redistributed[:, :, 1:]


def _moves(source: IntArray, destination: IntArray, length: IntArray) -> Moves:
    moved = source != destination
    return Moves(source[moved], destination[moved], length[moved])


def _shift(schedule: StagedArrays, source: IntArray, destination: IntArray) -> IntArray:
    """Distance from GPU to GPU of the same server."""
    sizes = np.array(schedule.sizes)[schedule.homes[source]]
    return np.asarray((destination - source) % sizes, dtype=np.int64)


class StepLoads(NamedTuple):
    """Most bytes in a step, (steps,), to or from a GPU inside its server, and between two; scratch, (ranks,)."""

    busiest: IntArray
    busiest_link: IntArray
    scratch: IntArray


@kernel
def local_shares(stage_bytes: IntArray) -> IntArray:
    """Return how many `PARTS` of the local bytes have gone before each step, and after all; int64 (stages + 3,)."""
    stages = len(stage_bytes)
    shares = np.zeros(stages + 3, dtype=np.int64)
    part, done = max(1, stage_bytes.sum() // PARTS), 0
    for stage in range(stages):
        done += stage_bytes[stage]
        shares[stage + 2] = min(PARTS, done // part)
    shares[stages + 1 :] = PARTS
    return shares


@kernel
def part_of(cell: int, share: int) -> int:
    """Bytes of a cell that have gone once so many parts of the local bytes have."""
    return cell // PARTS * share + cell % PARTS * share // PARTS


@runtime_kernel
def step_loads(
    traffic: IntArray,
    firsts: IntArray,
    lanes: IntArray,
    starts: IntArray,
    segments: IntArray,
    stage_bytes: IntArray,
    partners: IntArray,
    begins: IntArray,
    ends: IntArray,
) -> StepLoads:
    """Follow all streams through all steps.

    Shapes: `firsts`, int64 (servers + 1,), has GPU 0 of each server, not of parts; `lanes`, int64 (parts, lanes).
    """
    ranks, stages, (parts, width) = len(traffic), len(partners), lanes.shape
    places = np.diff(firsts).max()
    place = np.empty(ranks, dtype=np.int64)  # in its server
    for server in range(len(firsts) - 1):
        place[firsts[server] : firsts[server + 1]] = np.arange(firsts[server + 1] - firsts[server])
    shares = local_shares(stage_bytes)
    busiest = np.zeros((2, stages + 2), dtype=np.int64)
    loads, links = np.zeros((3, 2, ranks), dtype=np.int64), np.zeros((3, ranks, places), dtype=np.int64)
    steps = loads, links, place, busiest
    staged, largest = np.zeros((2, ranks), dtype=np.int64), np.zeros((2, 2, ranks), dtype=np.int64)  # proxied, landed
    streams = starts, segments, starts[:-1].copy(), np.zeros(len(starts) - 1, dtype=np.int64)
    for step in range(stages + 2):
        # Balancing of this stage, and redistribution two steps later.
        if step < stages:
            staged[:] = 0
            for part in range(parts):
                other = partners[step, part]
                if other >= 0:
                    for lane in range(width):
                        stream = (part * parts + other) * width + lane
                        left = ends[step, part] - begins[step, part]
                        _walk(stream, lanes[part, lane], lanes[other, lane], left, streams, step, steps, staged)
            largest[step % 2] = np.maximum(largest[step % 2], staged)
        # Local bytes, in proportion to the bytes between servers.
        if shares[step] < shares[step + 1]:
            _add_local(traffic, firsts, shares[step], shares[step + 1], step, steps)
        # The step is over: its row is free for the third one from here.
        loads[step % 3] = 0
        links[step % 3] = 0
    return StepLoads(busiest[0], busiest[1], largest.sum(axis=0).sum(axis=0))


@kernel
def _walk(
    stream: int, proxy: int, peer: int, left: int, streams: Streams, step: int, steps: Steps, staged: IntArray
) -> None:
    """Add the next `left` bytes of a stream to the loads of balancing and redistribution, and to the scratch."""
    starts, segments, at, done = streams
    while left and at[stream] < starts[stream + 1]:
        origin, final, _, size = segments[at[stream]]
        length = min(left, size - done[stream])
        if origin != proxy:
            _add(origin, proxy, length, step, steps)
            staged[0, proxy] += length
        if final != peer:
            _add(peer, final, length, step + 2, steps)
            staged[1, peer] += length
        left -= length
        done[stream] += length
        if done[stream] == size:
            at[stream] += 1
            done[stream] = 0


@kernel
def _add_local(traffic: IntArray, firsts: IntArray, begin: int, end: int, step: int, steps: Steps) -> None:
    """Add the local bytes of servers, from one share of them to another."""
    for server in range(len(firsts) - 1):
        for source in range(firsts[server], firsts[server + 1]):
            for final in range(firsts[server], firsts[server + 1]):
                if source != final:
                    length = part_of(traffic[source, final], end) - part_of(traffic[source, final], begin)
                    _add(source, final, length, step, steps)


@kernel
def _add(source: int, destination: int, length: int, step: int, steps: Steps) -> None:
    """Add bytes between GPUs of a server to the loads of a step, and to the largest of them."""
    loads, links, place, busiest = steps
    sent, received, link = loads[step % 3, 0], loads[step % 3, 1], links[step % 3, source]
    sent[source] += length
    received[destination] += length
    link[place[destination]] += length
    busiest[0, step] = max(busiest[0, step], sent[source], received[destination])
    busiest[1, step] = max(busiest[1, step], link[place[destination]])
