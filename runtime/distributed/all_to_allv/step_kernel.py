"""One rank's steps of a staged all-to-allv, in one compiled call.

Step 0 balances: GPUs hand to the proxies of their server what those will send.  Step k + 1 has stage k, and with it the
redistribution of the stage before; the first one also has what stays inside servers.  The last step redistributes the
last stage.

Between two ranks there is at most one message each way in a step.  It is packed in the order of streams and of bytes in
them, which both ends know.  Messages inside a server go in the order of the distance of the two GPUs, so that all ranks
can cut batches alike.
"""

from __future__ import annotations

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
    pack,
    post,
    trimmed,
)
from .stream_layout import Arrivals, OwnPlace, arrivals_of, homes_of, room_for, sent_from_place

__all__ = ["exchange_steps"]


HERE, WANTED = map(no_literal, range(2))
"""Counters of `Arrivals`."""


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
    tables = room_for(own, partners, held)
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
    copy(
        tables,
        EARLY,
        tables.counts[BEFORE],
        INPUT,
        own.sent_from[rank],
        OUTPUT,
        own.kept_at[rank],
        own.traffic[rank, rank],
    )
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
