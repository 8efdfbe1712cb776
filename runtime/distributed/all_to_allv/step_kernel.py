"""Steps of one rank of a staged all-to-allv, in one compiled call.

Step 0 balances: GPUs hand to the proxies of their server what those will send.  Step k + 1 has stage k, and with it the
redistribution of the stage before; the first one also has what stays inside servers.  The last step redistributes the
last stage.

Between two ranks there is at most one message each way in a step.  It is packed in the order of streams and of bytes in
them, which both ends know.  Messages inside a server go in the order of the distance of the two GPUs, so that all ranks
can cut batches alike.

Scratch has the streams that leave by the rank, then what a stage brings, in two areas by turns as it is handed on while
the next comes, and then packed messages, which are forgotten after their step.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from ....support.arrays import IntArray
from .step_tables import (
    AFTER,
    AREA,
    BEFORE,
    EARLY,
    FIRST_BATCH,
    INPUT,
    LATE,
    MOST,
    OUTPUT,
    SCRATCH,
    SENT,
    TAKEN,
    StepTables,
    copy,
    end_step,
    no_literal,
    open_tables,
    pack,
    post,
    trimmed,
)


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
def allocate_tables(own: OwnPlace, partners: IntArray, held: int) -> StepTables:
    """Allocate tables for every segment once, and again for every stage that cuts it."""
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


HERE, WANTED = map(no_literal, range(2))  # Counters of `Arrivals`


@numba.njit(cache=True, nogil=True)
def exchange_steps(
    rank: int,
    traffic: IntArray,
    gpus: int,
    starts: IntArray,
    segments: IntArray,
    partners: IntArray,
    begins: IntArray,
    ends: IntArray,
    shifts: int,
) -> StepTables:
    """Work out one rank's part of an all-to-allv.

    Shapes: `traffic` int64 (ranks, ranks).
    """
    ranks, stages = len(traffic), len(partners)
    server, gpu = rank // gpus, rank % gpus
    sent_from, kept_at = np.zeros(ranks, dtype=np.int64), np.zeros(ranks, dtype=np.int64)
    for other in range(1, ranks):
        sent_from[other] = sent_from[other - 1] + traffic[rank, other - 1]
        kept_at[other] = kept_at[other - 1] + traffic[other - 1, rank]
    own = OwnPlace(traffic, starts, segments, sent_from, kept_at, rank, server, gpu, gpus, shifts)
    memories, homes, lengths, held = homes_of(own)
    arrivals = arrivals_of(own, partners, begins, ends, held)
    tables = allocate_tables(own, partners, held)
    _balance(own, tables, memories, homes)
    area = arrivals.landing[2]
    end_step(tables, area)
    for step in range(1, stages + 2):
        turn = step % 2
        if step <= stages:
            other = partners[step - 1, server]
            if other >= 0:
                begin = min(begins[step - 1, server], lengths[other])
                length = min(ends[step - 1, server], lengths[other]) - begin
                post(tables, FIRST_BATCH, other * gpus + gpu, SENT, memories[other], homes[other] + begin, length)
            arrivals.counts[turn] = 0
            for other in range(ranks // gpus):
                if partners[step - 1, other] == server:
                    _arrive(own, tables, arrivals, turn, other, begins[step - 1, other], ends[step - 1, other])
        if step == 1:
            _stay_inside(own, tables)
        else:
            _redistribute(own, tables, arrivals, 1 - turn)
        end_step(tables, area)
    tables.counts[MOST] = max(tables.counts[MOST], area)
    return trimmed(tables)


@numba.njit(cache=True, nogil=True)
def _balance(own: OwnPlace, tables: StepTables, memories: IntArray, homes: IntArray) -> None:
    """Give proxies what they are to send, and put together what this rank is to send."""
    servers, gpus, first = len(homes), own.gpus, own.rank - own.gpu
    start = tables.counts[BEFORE]
    for shift in range(gpus):
        ahead, behind = first + (own.gpu + shift) % gpus, first + (own.gpu - shift) % gpus
        if shift:
            floor, place = tables.counts[BEFORE], tables.counts[AREA]
            for other in range(servers):
                stream = (own.server * servers + other) * gpus + ahead - first
                for at in range(own.starts[stream], own.starts[stream + 1]):
                    if own.segments[at, 0] == own.rank:
                        length = own.segments[at, 3]
                        copy(tables, EARLY, floor, INPUT, sent_from_place(own, at), SCRATCH, place, length)
                        place += length
            pack(tables, shift // own.shifts, ahead, SENT, floor)
        floor, place = tables.counts[AFTER], tables.counts[AREA]
        for other in range(servers):
            stream = (own.server * servers + other) * gpus + own.gpu
            target = homes[other]
            for at in range(own.starts[stream], own.starts[stream + 1]):
                length = own.segments[at, 3]
                if own.segments[at, 0] == behind and memories[other] == SCRATCH:
                    if shift:
                        copy(tables, LATE, floor, SCRATCH, place, SCRATCH, target, length)
                        place += length
                    else:
                        copy(tables, EARLY, start, INPUT, sent_from_place(own, at), SCRATCH, target, length)
                target += length
        if shift:
            pack(tables, shift // own.shifts, behind, TAKEN, floor)


@numba.njit(cache=True, nogil=True)
def _stay_inside(own: OwnPlace, tables: StepTables) -> None:
    """Send what is for GPUs of the same server directly."""
    first, rank = own.rank - own.gpu, own.rank
    floor, length = tables.counts[BEFORE], own.traffic[rank, rank]
    copy(tables, EARLY, floor, INPUT, own.sent_from[rank], OUTPUT, own.kept_at[rank], length)
    for shift in range(1, own.gpus):
        ahead, behind = first + (own.gpu + shift) % own.gpus, first + (own.gpu - shift) % own.gpus
        batch = shift // own.shifts
        post(tables, batch, ahead, SENT, INPUT, own.sent_from[ahead], own.traffic[rank, ahead])
        post(tables, batch, behind, TAKEN, OUTPUT, own.kept_at[behind], own.traffic[behind, rank])


@numba.njit(cache=True, nogil=True)
def _arrive(own: OwnPlace, tables: StepTables, arrivals: Arrivals, turn: int, other: int, begin: int, end: int) -> None:
    """Take this rank's part of a stage from another server, and note who is to have what of it and of its neighbours'.

    What comes for the rank itself goes to its place at once.
    """
    floor, first = tables.counts[AFTER], own.rank - own.gpu
    landing = arrivals.landing[turn]
    place, kept = landing, 0
    for peer in range(own.gpus):
        longest = arrivals.lengths[other, peer]
        left = min(end, longest) - min(begin, longest)
        while left:
            at = arrivals.segment[other, peer]
            origin, final = own.segments[at, 0], own.segments[at, 1]
            done = arrivals.done[other, peer]
            length = min(left, own.segments[at, 3] - done)
            target = own.kept_at[origin] + own.segments[at, 2] + done
            if peer != own.gpu:
                if final == own.rank:
                    _note(arrivals.wanted[turn], arrivals.counts[turn], WANTED, first + peer, target, length)
            elif final == own.rank:
                copy(tables, LATE, floor, SCRATCH, place, OUTPUT, target, length)
                kept += length
            else:
                _note(arrivals.here[turn], arrivals.counts[turn], HERE, final, place, length)
            if peer == own.gpu:
                place += length
            left -= length
            if done + length == own.segments[at, 3]:
                arrivals.segment[other, peer] += 1
                arrivals.done[other, peer] = 0
            else:
                arrivals.done[other, peer] = done + length
    sender = other * own.gpus + own.gpu
    if kept == place - landing and tables.counts[AFTER] == floor + 1:
        pack(tables, FIRST_BATCH, sender, TAKEN, floor)
    else:
        post(tables, FIRST_BATCH, sender, TAKEN, SCRATCH, landing, place - landing)


@numba.njit(cache=True, nogil=True)
def _note(rows: IntArray, counts: IntArray, which: int, rank: int, place: int, length: int) -> None:
    row = rows[counts[which]]
    row[0], row[1], row[2] = rank, place, length
    counts[which] += 1


@numba.njit(cache=True, nogil=True)
def _redistribute(own: OwnPlace, tables: StepTables, arrivals: Arrivals, turn: int) -> None:
    """Hand on what a stage brought for others, and take what it brought to others for this rank."""
    first = own.rank - own.gpu
    here, wanted = arrivals.here[turn], arrivals.wanted[turn]
    for shift in range(1, own.gpus):
        ahead, behind = first + (own.gpu + shift) % own.gpus, first + (own.gpu - shift) % own.gpus
        floor, place = tables.counts[BEFORE], tables.counts[AREA]
        for at in range(arrivals.counts[turn, HERE]):
            if here[at, 0] == ahead:
                copy(tables, EARLY, floor, SCRATCH, here[at, 1], SCRATCH, place, here[at, 2])
                place += here[at, 2]
        if tables.counts[BEFORE] > floor:
            pack(tables, shift // own.shifts, ahead, SENT, floor)
        floor, place = tables.counts[AFTER], tables.counts[AREA]
        for at in range(arrivals.counts[turn, WANTED]):
            if wanted[at, 0] == behind:
                copy(tables, LATE, floor, SCRATCH, place, OUTPUT, wanted[at, 1], wanted[at, 2])
                place += wanted[at, 2]
        if tables.counts[AFTER] > floor:
            pack(tables, shift // own.shifts, behind, TAKEN, floor)
