"""Where one rank of a staged all-to-allv has its streams and what comes to it, before the steps are written.

Scratch has the streams that leave by the rank, then what a stage brings, in two areas by turns as it is handed on while
the next comes, and then packed messages, which are forgotten after their step.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from ....support.arrays import IntArray
from .step_tables import AREA, INPUT, SCRATCH, StepTables, open_tables

__all__ = ["Arrivals", "OwnPlace", "arrivals_of", "homes_of", "room_for", "sent_from_place"]


class OwnPlace(NamedTuple):
    """What the parts of the kernel read: the schedule, and this rank's place in it."""

    traffic: IntArray
    starts: IntArray
    segments: IntArray
    sent_from: IntArray  # Where what is for each rank begins in the input.
    kept_at: IntArray  # Where what is from each rank begins in the output.
    rank: int
    server: int
    gpu: int
    gpus: int
    shifts: int  # As many distances go into one batch.


class Arrivals(NamedTuple):
    """What the last two stages brought, by turns, and where to go on.

    Rows of `here`, what came to this rank for others, and of `wanted`, what came to others for it: the rank that it is
    for or that it came to, its place in scratch or in the output, and its length.
    """

    lengths: IntArray  # Of the streams to this server, by server and GPU.
    segment: IntArray  # Which segment of each stream comes next,
    done: IntArray  # and how much of that has come.
    here: IntArray
    wanted: IntArray
    counts: IntArray  # Rows of both, by turn.
    landing: IntArray  # Where the two areas of scratch begin, and where the second ends.


@numba.njit(cache=True, nogil=True)
def homes_of(own: OwnPlace) -> tuple[IntArray, IntArray, IntArray, int]:
    """Decide where the stream to each other server is sent from: in which memory, where, and how long it is.

    A stream that is one run of the input stays there, the others are put together in scratch; also return how much.
    """
    servers = len(own.traffic) // own.gpus
    memories, homes = np.full(servers, INPUT), np.zeros(servers, dtype=np.int64)
    lengths = np.zeros(servers, dtype=np.int64)
    held = 0
    for other in range(servers):
        stream = (own.server * servers + other) * own.gpus + own.gpu
        first = own.starts[stream]
        for at in range(first, own.starts[stream + 1]):
            place = sent_from_place(own, at)
            if at == first:
                homes[other] = place
            if own.segments[at, 0] != own.rank or place != homes[other] + lengths[other]:
                memories[other] = SCRATCH
            lengths[other] += own.segments[at, 3]
        if memories[other] == SCRATCH:
            homes[other] = held
            held += lengths[other]
    return memories, homes, lengths, held


@numba.njit(cache=True, nogil=True)
def arrivals_of(own: OwnPlace, partners: IntArray, begins: IntArray, ends: IntArray, held: int) -> Arrivals:
    """Measure what will come, and lay out the areas where stages bring it, behind what is `held` in scratch."""
    servers, gpus = len(own.traffic) // own.gpus, own.gpus
    lengths, segment = np.zeros((servers, gpus), dtype=np.int64), np.zeros((servers, gpus), dtype=np.int64)
    most = 0
    for other in range(servers):
        tile = (other * servers + own.server) * gpus
        most = max(most, own.starts[tile + gpus] - own.starts[tile])
        for peer in range(gpus):
            segment[other, peer] = own.starts[tile + peer]
            for at in range(own.starts[tile + peer], own.starts[tile + peer + 1]):
                lengths[other, peer] += own.segments[at, 3]
    landing = np.full(3, held)
    sizes = np.zeros(2, dtype=np.int64)
    for stage in range(len(partners)):
        for other in range(servers):
            # A server's only GPU has all that comes in its place at once.
            if partners[stage, other] == own.server and gpus > 1:
                length = lengths[other, own.gpu]
                coming = min(ends[stage, other], length) - min(begins[stage, other], length)
                sizes[(stage + 1) % 2] = max(sizes[(stage + 1) % 2], coming)
    landing[1] += sizes[0]
    landing[2] = landing[1] + sizes[1]
    # A stage may end inside a segment of each stream, which the next one goes on with.
    here, wanted = np.empty((2, most + gpus, 3), dtype=np.int64), np.empty((2, most + gpus, 3), dtype=np.int64)
    done, counts = np.zeros((servers, gpus), dtype=np.int64), np.zeros((2, 2), dtype=np.int64)
    return Arrivals(lengths, segment, done, here, wanted, counts, landing)


@numba.njit(cache=True, nogil=True)
def room_for(own: OwnPlace, partners: IntArray, held: int) -> StepTables:
    """Make tables that are large enough: every segment once, and again for every stage that cuts it."""
    servers, gpus = len(own.traffic) // own.gpus, own.gpus
    copies = gpus + 1
    for other in range(servers):
        for tile in (own.server * servers + other, other * servers + own.server):
            copies += own.starts[(tile + 1) * gpus] - own.starts[tile * gpus]
    for stage in range(len(partners)):
        for other in range(servers):
            if partners[stage, other] == own.server:
                copies += gpus
    tables = open_tables(copies, 2 * (copies + len(partners) + gpus), len(partners) + 2)
    tables.counts[AREA] = held
    return tables


@numba.njit(cache=True, nogil=True)
def sent_from_place(own: OwnPlace, at: int) -> int:
    """Where in the input a segment of this rank's own begins."""
    return int(own.sent_from[own.segments[at, 1]] + own.segments[at, 2])
