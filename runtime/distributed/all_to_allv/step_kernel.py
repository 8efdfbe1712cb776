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

import numpy as np

from ....support.arrays import IntArray
from ....support.compiling.kernels import kernel
from .step_tables import (
    AFTER,
    BEFORE,
    EARLY,
    FIRST_BATCH,
    INPUT,
    LATE,
    OUTPUT,
    PACK_OFFSET,
    RECV,
    SCRATCH,
    SCRATCH_PEAK,
    SEND,
    StepTables,
    as_int64,
    compacted,
    copy,
    empty_tables,
    end_step,
    pack,
    post,
)


class RankContext(NamedTuple):
    """Inputs of the kernel's functions: the schedule and this rank's position in it."""

    traffic: IntArray
    starts: IntArray
    segments: IntArray
    input_begins: IntArray  # Where what is for each rank begins in the input.
    output_begins: IntArray  # Where what is from each rank begins in the output.
    rank: int
    server: int
    gpu: int
    gpus: int
    shifts: int  # As many distances go into one batch.


class Arrivals(NamedTuple):
    """Data received in the last two stages, alternating, and the state of the streams.

    Rows of `outgoing` (received here for other ranks) are destination, offset in scratch and length; rows of `expected`
    (received by other ranks for this one) are holder, offset in the output and length.
    """

    lengths: IntArray  # Of the streams to this server, by server and GPU.
    segment: IntArray  # Which segment of each stream comes next,
    done: IntArray  # and how much of that has come.
    outgoing: IntArray
    expected: IntArray
    counts: IntArray  # Rows of both, by turn.
    area_begins: IntArray  # Where the two areas of scratch begin, and where the second ends.


@kernel
def stream_locations(own: RankContext) -> tuple[IntArray, IntArray, IntArray, int]:
    """Return the memory and offset that each stream to another server is sent from, its length, and the scratch used.

    A stream that is contiguous in the input stays there; others are gathered in scratch.
    """
    servers = len(own.traffic) // own.gpus
    memories, offsets = np.full(servers, INPUT), np.zeros(servers, dtype=np.int64)
    lengths = np.zeros(servers, dtype=np.int64)
    scratch_used = 0
    for other in range(servers):
        stream = (own.server * servers + other) * own.gpus + own.gpu
        first = own.starts[stream]
        for at in range(first, own.starts[stream + 1]):
            place = input_offset(own, at)
            if at == first:
                offsets[other] = place
            if own.segments[at, 0] != own.rank or place != offsets[other] + lengths[other]:
                memories[other] = SCRATCH
            lengths[other] += own.segments[at, 3]
        if memories[other] == SCRATCH:
            offsets[other] = scratch_used
            scratch_used += lengths[other]
    return memories, offsets, lengths, scratch_used


@kernel
def plan_arrivals(
    own: RankContext, partners: IntArray, begins: IntArray, ends: IntArray, scratch_used: int
) -> Arrivals:
    """Compute the lengths of received streams, and lay out the receive areas behind `scratch_used`."""
    servers, gpus = len(own.traffic) // own.gpus, own.gpus
    lengths, segment = np.zeros((servers, gpus), dtype=np.int64), np.zeros((servers, gpus), dtype=np.int64)
    max_segments = 0
    for other in range(servers):
        tile = (other * servers + own.server) * gpus
        max_segments = max(max_segments, own.starts[tile + gpus] - own.starts[tile])
        for peer in range(gpus):
            segment[other, peer] = own.starts[tile + peer]
            for at in range(own.starts[tile + peer], own.starts[tile + peer + 1]):
                lengths[other, peer] += own.segments[at, 3]
    area_begins = np.full(3, scratch_used)
    sizes = np.zeros(2, dtype=np.int64)
    for stage in range(len(partners)):
        for other in range(servers):
            # A server's only GPU has all that comes in its place at once.
            if partners[stage, other] == own.server and gpus > 1:
                length = lengths[other, own.gpu]
                received = min(ends[stage, other], length) - min(begins[stage, other], length)
                sizes[(stage + 1) % 2] = max(sizes[(stage + 1) % 2], received)
    area_begins[1] += sizes[0]
    area_begins[2] = area_begins[1] + sizes[1]
    # A stage may end inside a segment of each stream, which the next one goes on with.
    outgoing, expected = (
        np.empty((2, max_segments + gpus, 3), dtype=np.int64),
        np.empty((2, max_segments + gpus, 3), dtype=np.int64),
    )
    done, counts = np.zeros((servers, gpus), dtype=np.int64), np.zeros((2, 2), dtype=np.int64)
    return Arrivals(lengths, segment, done, outgoing, expected, counts, area_begins)


@kernel
def allocate_tables(own: RankContext, partners: IntArray, scratch_used: int) -> StepTables:
    """Allocate tables with a row for every segment, and one more for every stage that cuts it."""
    servers, gpus = len(own.traffic) // own.gpus, own.gpus
    copies = gpus + 1
    for other in range(servers):
        for tile in (own.server * servers + other, other * servers + own.server):
            copies += own.starts[(tile + 1) * gpus] - own.starts[tile * gpus]
    for stage in range(len(partners)):
        for other in range(servers):
            if partners[stage, other] == own.server:
                copies += gpus
    tables = empty_tables(copies, 2 * (copies + len(partners) + gpus), len(partners) + 2)
    tables.counts[PACK_OFFSET] = scratch_used
    return tables


@kernel
def input_offset(own: RankContext, at: int) -> int:
    """Offset in the input of one of this rank's own segments."""
    return int(own.input_begins[own.segments[at, 1]] + own.segments[at, 2])


OUTGOING, EXPECTED = map(as_int64, range(2))  # Counters of `Arrivals`


@kernel
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
    input_begins, output_begins = np.zeros(ranks, dtype=np.int64), np.zeros(ranks, dtype=np.int64)
    for other in range(1, ranks):
        input_begins[other] = input_begins[other - 1] + traffic[rank, other - 1]
        output_begins[other] = output_begins[other - 1] + traffic[other - 1, rank]
    own = RankContext(traffic, starts, segments, input_begins, output_begins, rank, server, gpu, gpus, shifts)
    memories, offsets, lengths, scratch_used = stream_locations(own)
    arrivals = plan_arrivals(own, partners, begins, ends, scratch_used)
    tables = allocate_tables(own, partners, scratch_used)
    _balance(own, tables, memories, offsets)
    area = arrivals.area_begins[2]
    end_step(tables, area)
    for step in range(1, stages + 2):
        turn = step % 2
        if step <= stages:
            other = partners[step - 1, server]
            if other >= 0:
                begin = min(begins[step - 1, server], lengths[other])
                length = min(ends[step - 1, server], lengths[other]) - begin
                post(tables, FIRST_BATCH, other * gpus + gpu, SEND, memories[other], offsets[other] + begin, length)
            arrivals.counts[turn] = 0
            for other in range(ranks // gpus):
                if partners[step - 1, other] == server:
                    _receive_stage(own, tables, arrivals, turn, other, begins[step - 1, other], ends[step - 1, other])
        if step == 1:
            _send_inside_server(own, tables)
        else:
            _redistribute(own, tables, arrivals, 1 - turn)
        end_step(tables, area)
    tables.counts[SCRATCH_PEAK] = max(tables.counts[SCRATCH_PEAK], area)
    return compacted(tables)


@kernel
def _balance(own: RankContext, tables: StepTables, memories: IntArray, offsets: IntArray) -> None:
    """Hand data to the proxies that will send it, and gather the streams that this rank sends."""
    servers, gpus, first = len(offsets), own.gpus, own.rank - own.gpu
    start = tables.counts[BEFORE]
    for shift in range(gpus):
        ahead, behind = first + (own.gpu + shift) % gpus, first + (own.gpu - shift) % gpus
        if shift:
            floor, place = tables.counts[BEFORE], tables.counts[PACK_OFFSET]
            for other in range(servers):
                stream = (own.server * servers + other) * gpus + ahead - first
                for at in range(own.starts[stream], own.starts[stream + 1]):
                    if own.segments[at, 0] == own.rank:
                        length = own.segments[at, 3]
                        copy(tables, EARLY, floor, INPUT, input_offset(own, at), SCRATCH, place, length)
                        place += length
            pack(tables, shift // own.shifts, ahead, SEND, floor)
        floor, place = tables.counts[AFTER], tables.counts[PACK_OFFSET]
        for other in range(servers):
            stream = (own.server * servers + other) * gpus + own.gpu
            target = offsets[other]
            for at in range(own.starts[stream], own.starts[stream + 1]):
                length = own.segments[at, 3]
                if own.segments[at, 0] == behind and memories[other] == SCRATCH:
                    if shift:
                        copy(tables, LATE, floor, SCRATCH, place, SCRATCH, target, length)
                        place += length
                    else:
                        copy(tables, EARLY, start, INPUT, input_offset(own, at), SCRATCH, target, length)
                target += length
        if shift:
            pack(tables, shift // own.shifts, behind, RECV, floor)


@kernel
def _send_inside_server(own: RankContext, tables: StepTables) -> None:
    """Exchange data between GPUs of one server directly."""
    first, rank = own.rank - own.gpu, own.rank
    floor, length = tables.counts[BEFORE], own.traffic[rank, rank]
    copy(tables, EARLY, floor, INPUT, own.input_begins[rank], OUTPUT, own.output_begins[rank], length)
    for shift in range(1, own.gpus):
        ahead, behind = first + (own.gpu + shift) % own.gpus, first + (own.gpu - shift) % own.gpus
        batch = shift // own.shifts
        post(tables, batch, ahead, SEND, INPUT, own.input_begins[ahead], own.traffic[rank, ahead])
        post(tables, batch, behind, RECV, OUTPUT, own.output_begins[behind], own.traffic[behind, rank])


@kernel
def _receive_stage(
    own: RankContext, tables: StepTables, arrivals: Arrivals, turn: int, other: int, begin: int, end: int
) -> None:
    """Receive this rank's part of a stage from another server, and record what its server has to redistribute.

    Data for this rank itself goes to the output at once.
    """
    floor, first = tables.counts[AFTER], own.rank - own.gpu
    area_begin = arrivals.area_begins[turn]
    place, kept = area_begin, 0
    for peer in range(own.gpus):
        longest = arrivals.lengths[other, peer]
        left = min(end, longest) - min(begin, longest)
        while left:
            at = arrivals.segment[other, peer]
            origin, final = own.segments[at, 0], own.segments[at, 1]
            done = arrivals.done[other, peer]
            length = min(left, own.segments[at, 3] - done)
            target = own.output_begins[origin] + own.segments[at, 2] + done
            if peer != own.gpu:
                if final == own.rank:
                    _append(arrivals.expected[turn], arrivals.counts[turn], EXPECTED, first + peer, target, length)
            elif final == own.rank:
                copy(tables, LATE, floor, SCRATCH, place, OUTPUT, target, length)
                kept += length
            else:
                _append(arrivals.outgoing[turn], arrivals.counts[turn], OUTGOING, final, place, length)
            if peer == own.gpu:
                place += length
            left -= length
            if done + length == own.segments[at, 3]:
                arrivals.segment[other, peer] += 1
                arrivals.done[other, peer] = 0
            else:
                arrivals.done[other, peer] = done + length
    sender = other * own.gpus + own.gpu
    if kept == place - area_begin and tables.counts[AFTER] == floor + 1:
        pack(tables, FIRST_BATCH, sender, RECV, floor)
    else:
        post(tables, FIRST_BATCH, sender, RECV, SCRATCH, area_begin, place - area_begin)


@kernel
def _append(rows: IntArray, counts: IntArray, which: int, rank: int, place: int, length: int) -> None:
    row = rows[counts[which]]
    row[0], row[1], row[2] = rank, place, length
    counts[which] += 1


@kernel
def _redistribute(own: RankContext, tables: StepTables, arrivals: Arrivals, turn: int) -> None:
    """Forward data of a stage to its destinations, and receive this rank's from the GPUs that hold it."""
    first = own.rank - own.gpu
    outgoing, expected = arrivals.outgoing[turn], arrivals.expected[turn]
    for shift in range(1, own.gpus):
        ahead, behind = first + (own.gpu + shift) % own.gpus, first + (own.gpu - shift) % own.gpus
        floor, place = tables.counts[BEFORE], tables.counts[PACK_OFFSET]
        for at in range(arrivals.counts[turn, OUTGOING]):
            if outgoing[at, 0] == ahead:
                copy(tables, EARLY, floor, SCRATCH, outgoing[at, 1], SCRATCH, place, outgoing[at, 2])
                place += outgoing[at, 2]
        if tables.counts[BEFORE] > floor:
            pack(tables, shift // own.shifts, ahead, SEND, floor)
        floor, place = tables.counts[AFTER], tables.counts[PACK_OFFSET]
        for at in range(arrivals.counts[turn, EXPECTED]):
            if expected[at, 0] == behind:
                copy(tables, LATE, floor, SCRATCH, place, OUTPUT, expected[at, 1], expected[at, 2])
                place += expected[at, 2]
        if tables.counts[AFTER] > floor:
            pack(tables, shift // own.shifts, behind, RECV, floor)
