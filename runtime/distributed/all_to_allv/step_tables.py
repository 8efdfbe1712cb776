"""Tables of the copies and messages of one rank, step by step, as compiled code writes them."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from ....support.arrays import IntArray


def no_literal(number: int) -> int:
    """Make a constant that kernels can hand to each other; numba compiles a function again for every literal."""
    return np.int64(number)  # type: ignore[return-value]


INPUT, OUTPUT, SCRATCH = map(no_literal, range(3))  # The memories of a rank
EARLY, LATE = map(no_literal, range(2))  # Copies before the messages of a step, and after them
TAKEN, SENT = map(no_literal, range(2))  # Messages to this rank, and from it
FIRST_BATCH = no_literal(0)  # The number of a step's first batch
BEFORE, AFTER, MESSAGES, BATCHES, STEPS, AREA, MOST, BATCH = range(8)
"""Counters: rows of the tables, where the next packed message begins, the end of all of them, the batch at hand."""


class StepTables(NamedTuple):
    """What a rank does, as rows of integers; places and lengths are in one unit.

    `before`, `after` (int64 (copies, 5)): Copies before the messages of a step and after them: from which memory and
        place, to which memory and place, and the length.
    `messages` (int64 (messages, 5)): Peer, whether it is sent (1) or received (0), memory, place and length.
    `batches` (int64 (batches + 1,)): Batch b has the messages from ``batches[b]`` to ``batches[b + 1]``.
    `steps` (int64 (steps + 1, 3)): Step s has the rows from ``steps[s]`` to ``steps[s + 1]`` of `before`, `batches` and
        `after`.
    `counts` (int64 (8,)): ``counts[MOST]`` is the scratch that is needed; the others are for those who write.
    """

    before: IntArray
    after: IntArray
    messages: IntArray
    batches: IntArray
    steps: IntArray
    counts: IntArray


@numba.njit(cache=True, nogil=True)
def open_tables(copies: int, messages: int, steps: int) -> StepTables:
    """Allocate empty tables of so many rows."""
    counts = np.zeros(8, dtype=np.int64)
    counts[BATCH] = -1
    return StepTables(
        np.empty((copies, 5), dtype=np.int64),
        np.empty((copies, 5), dtype=np.int64),
        np.empty((messages, 5), dtype=np.int64),
        np.zeros(messages + 1, dtype=np.int64),
        np.zeros((steps + 1, 3), dtype=np.int64),
        counts,
    )


@numba.njit(cache=True, nogil=True)
def trimmed(tables: StepTables) -> StepTables:
    """Return copies of the rows that are used."""
    counts = tables.counts
    return StepTables(
        tables.before[: counts[BEFORE]].copy(),
        tables.after[: counts[AFTER]].copy(),
        tables.messages[: counts[MESSAGES]].copy(),
        tables.batches[: counts[BATCHES] + 1].copy(),
        tables.steps[: counts[STEPS] + 1].copy(),
        counts,
    )


@numba.njit(cache=True, nogil=True)
def copy(
    tables: StepTables, late: int, floor: int, source: int, begin: int, target: int, place: int, length: int
) -> None:
    """Add a copy of what is not empty, `EARLY` or `LATE`.

    It is joined to the last one, unless that is not among the rows from `floor` on, if it goes on where that ends.
    """
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


@numba.njit(cache=True, nogil=True)
def post(tables: StepTables, batch: int, peer: int, sent: int, memory: int, place: int, length: int) -> None:
    """Add a message of what is not empty; batches are numbered within their step and come in order."""
    if length == 0:
        return
    counts = tables.counts
    count = counts[MESSAGES]
    if batch != counts[BATCH]:
        counts[BATCH] = batch
        counts[BATCHES] += 1
    table = tables.messages
    table[count, 0], table[count, 1], table[count, 2], table[count, 3] = peer, sent, memory, place
    table[count, 4] = length
    counts[MESSAGES] = count + 1
    tables.batches[counts[BATCHES]] = count + 1


@numba.njit(cache=True, nogil=True)
def pack(tables: StepTables, batch: int, peer: int, sent: int, floor: int) -> None:
    """Post what the copies from `floor` on bring to (`sent`) or take from scratch, from ``counts[AREA]`` on.

    A single copy is left out: the message then is where that would take it from or bring it to.
    """
    table = tables.before if sent else tables.after
    counter = BEFORE if sent else AFTER
    count = tables.counts[counter] - floor
    if count == 0:
        return
    if count == 1:
        tables.counts[counter] = floor
        far = 0 if sent else 2
        post(tables, batch, peer, sent, table[floor, far], table[floor, far + 1], table[floor, 4])
        return
    place = tables.counts[AREA]
    end = place
    for at in range(floor, floor + count):
        end += table[at, 4]
    post(tables, batch, peer, sent, SCRATCH, place, end - place)
    tables.counts[AREA] = end
    tables.counts[MOST] = max(tables.counts[MOST], end)


@numba.njit(cache=True, nogil=True)
def end_step(tables: StepTables, area: int) -> None:
    """Go on to the next step, unless nothing is in this one; packed messages again begin at `area`."""
    counts = tables.counts
    counts[AREA] = area
    counts[BATCH] = -1
    last = tables.steps[counts[STEPS]]
    if last[0] == counts[BEFORE] and last[1] == counts[BATCHES] and last[2] == counts[AFTER]:
        return
    counts[STEPS] += 1
    step = tables.steps[counts[STEPS]]
    step[0], step[1], step[2] = counts[BEFORE], counts[BATCHES], counts[AFTER]
