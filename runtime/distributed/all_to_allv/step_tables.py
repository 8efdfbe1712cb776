"""Tables of the copies and messages of one rank, step by step, as compiled code writes them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....support.arrays import IntArray
from ....support.compiling.kernels import kernel


def as_int64(number: int) -> int:
    """Return a constant as int64, not as a literal, for each of which numba would compile a function again."""
    return np.int64(number)  # type: ignore[return-value]


INPUT, OUTPUT, SCRATCH = map(as_int64, range(3))  # Memories of a rank
EARLY, LATE = map(as_int64, range(2))  # Copies before the messages of a step, and after them
RECV, SEND = map(as_int64, range(2))  # Messages to this rank, and from it
FIRST_BATCH = as_int64(0)  # The number of a step's first batch
BEFORE, AFTER, MESSAGES, BATCHES, STEPS, PACK_OFFSET, SCRATCH_PEAK, CURRENT_BATCH = range(8)
"""Counters: rows of the five tables, scratch offset of the next packed message, peak use of scratch, current batch."""


class StepTables(NamedTuple):
    """Copies and messages of one rank as rows of integers; offsets and lengths are in one unit.

    `before`, `after` (int64 (copies, 5)): Copies before the messages of a step and after them: source memory and
        offset, target memory and offset, and length.
    `messages` (int64 (messages, 5)): Peer, send (1) or receive (0), memory, offset and length.
    `batches` (int64 (batches + 1,)): Batch b has the messages from ``batches[b]`` to ``batches[b + 1]``.
    `steps` (int64 (steps + 1, 3)): Step s has the rows from ``steps[s]`` to ``steps[s + 1]`` of `before`, `batches` and
        `after`.
    `counts` (int64 (8,)): ``counts[SCRATCH_PEAK]`` is the scratch that is needed; the others are used while writing.
    """

    before: IntArray
    after: IntArray
    messages: IntArray
    batches: IntArray
    steps: IntArray
    counts: IntArray


@kernel
def empty_tables(copies: int, messages: int, steps: int) -> StepTables:
    """Allocate empty tables of so many rows."""
    counts = np.zeros(8, dtype=np.int64)
    counts[CURRENT_BATCH] = -1
    return StepTables(
        np.empty((copies, 5), dtype=np.int64),
        np.empty((copies, 5), dtype=np.int64),
        np.empty((messages, 5), dtype=np.int64),
        np.zeros(messages + 1, dtype=np.int64),
        np.zeros((steps + 1, 3), dtype=np.int64),
        counts,
    )


@kernel
def compacted(tables: StepTables) -> StepTables:
    """Return copies of the used rows."""
    counts = tables.counts
    return StepTables(
        tables.before[: counts[BEFORE]].copy(),
        tables.after[: counts[AFTER]].copy(),
        tables.messages[: counts[MESSAGES]].copy(),
        tables.batches[: counts[BATCHES] + 1].copy(),
        tables.steps[: counts[STEPS] + 1].copy(),
        counts,
    )


@kernel
def copy(
    tables: StepTables, late: int, floor: int, source: int, begin: int, target: int, place: int, length: int
) -> None:
    """Add a copy, `EARLY` or `LATE`; merge it into the last row, if that is at `floor` or later and adjacent."""
    if length == 0:
        return
    table = tables.after if late else tables.before
    counter = AFTER if late else BEFORE
    count = tables.counts[counter]
    if count > floor:
        last, done = count - 1, table[count - 1, 4]
        follows = table[last, 1] + done == begin and table[last, 3] + done == place
        if follows and table[last, 0] == source and table[last, 2] == target:
            table[last, 4] = done + length
            return
    table[count, 0], table[count, 1], table[count, 2], table[count, 3] = source, begin, target, place
    table[count, 4] = length
    tables.counts[counter] = count + 1


@kernel
def post(tables: StepTables, batch: int, peer: int, is_send: int, memory: int, place: int, length: int) -> None:
    """Add a message, unless it is empty; batches are numbered within their step and added in order."""
    if length == 0:
        return
    counts = tables.counts
    count = counts[MESSAGES]
    if batch != counts[CURRENT_BATCH]:
        counts[CURRENT_BATCH] = batch
        counts[BATCHES] += 1
    table = tables.messages
    table[count, 0], table[count, 1], table[count, 2], table[count, 3] = peer, is_send, memory, place
    table[count, 4] = length
    counts[MESSAGES] = count + 1
    tables.batches[counts[BATCHES]] = count + 1


@kernel
def pack(tables: StepTables, batch: int, peer: int, is_send: int, floor: int) -> None:
    """Post one message for the copies from `floor` on, which pack (`is_send`) or unpack it in scratch.

    A single copy is dropped: the message then uses the memory at its other end directly.
    """
    table = tables.before if is_send else tables.after
    counter = BEFORE if is_send else AFTER
    count = tables.counts[counter] - floor
    if count == 0:
        return
    if count == 1:
        tables.counts[counter] = floor
        column = 0 if is_send else 2
        post(tables, batch, peer, is_send, table[floor, column], table[floor, column + 1], table[floor, 4])
        return
    place = tables.counts[PACK_OFFSET]
    end = place
    for at in range(floor, floor + count):
        end += table[at, 4]
    post(tables, batch, peer, is_send, SCRATCH, place, end - place)
    tables.counts[PACK_OFFSET] = end
    tables.counts[SCRATCH_PEAK] = max(tables.counts[SCRATCH_PEAK], end)


@kernel
def end_step(tables: StepTables, pack_offset: int) -> None:
    """Start the next step, unless this one is empty; packed messages again begin at `pack_offset`."""
    counts = tables.counts
    counts[PACK_OFFSET] = pack_offset
    counts[CURRENT_BATCH] = -1
    last = tables.steps[counts[STEPS]]
    if last[0] == counts[BEFORE] and last[1] == counts[BATCHES] and last[2] == counts[AFTER]:
        return
    counts[STEPS] += 1
    step = tables.steps[counts[STEPS]]
    step[0], step[1], step[2] = counts[BEFORE], counts[BATCHES], counts[AFTER]
