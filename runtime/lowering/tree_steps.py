"""Kernels that write the steps of one rank of a program of trees, and number the different ones of all ranks."""

import numpy as np

from ...support.arrays import IntArray, SmallArray
from ...support.kernels import kernel, kernel_with

SEND, RECV, RECV_REDUCE = range(3)
HASH_FACTOR = 0x9E3779B97F4A7C1  # Odd, with bits of both kinds all over
NONE, INPUT, OUTPUT, SCRATCH = range(4)


@kernel_with(lambda _rank, events, *_: 40 * len(events))
def tree_steps(
    rank: int,
    events: IntArray,
    hops: IntArray,
    sizes: IntArray,
    firsts: IntArray,
    ends: tuple[int, int, int],
    places: IntArray,
) -> tuple[IntArray, IntArray, int]:
    """Steps (kind, source, target, count; buffers and starts) of a rank, what each comes after, and the scratch.

    Steps are in the global order.  Shapes: `events`, hops of the rank in that order; `hops` (hops, 6) as in `Hop`;
    `firsts` (ranges,), first chunks; `places` (ranges, 4), of the last rank: rank, buffer, start and event to wait
    for.  `ends`: first chunk of its input, and first and last one of its output.
    """
    rows = np.zeros((len(events), 8), dtype=np.int64)
    after, scratch = np.full(len(events), -1, dtype=np.int64), 0
    own, amounts = hops[events], sizes[events]  # At once, as they are scattered over more memory than caches hold
    for event in range(len(events)):
        number, sender, reduces, together = own[event, 0], own[event, 1], own[event, 3], own[event, 4]
        first, count, row = firsts[number], amounts[event], rows[event]
        # Where the rank has these chunks: in its input, or where an earlier step put them
        is_moved = places[number, 0] == rank
        buffer, start = INPUT, first - ends[0]
        if is_moved:
            buffer, start, after[event] = places[number, 1], places[number, 2], places[number, 3]
        row[5], row[6], row[7] = count, -1, -1
        kind, last = RECV, event
        if sender == rank:
            kind = SEND
            row[1], row[2] = buffer, start
            last = event if reduces else after[event]
        elif not reduces:
            buffer, start = OUTPUT, first - ends[1]
            row[3], row[4] = buffer, start
        else:
            kind = RECV_REDUCE
            row[1], row[2] = buffer, start
            # The first sum goes to the output if it is of the rank's result, or else to scratch.
            if not is_moved and ends[1] <= first < ends[2]:
                buffer, start = OUTPUT, first - ends[1]
            elif not is_moved:
                buffer, start = SCRATCH, scratch
                scratch += count
            row[3], row[4] = buffer, start
        row[0] = kind
        for part in range(number, number + together):
            place = places[part]
            place[0], place[1], place[2], place[3] = rank, buffer, start + firsts[part] - first, last
    return rows, after, scratch


@kernel_with(lambda rows, *_: 60 * len(rows))
def step_numbers(rows: IntArray, distinct_rows: IntArray, count: int, slots: SmallArray) -> tuple[IntArray, int]:
    """Numbers (rows,) of rows of `tree_steps` among different ones, and how many of those there are now.

    Shapes: `distinct_rows` (any, 8), of which the first `count` are used; `slots` (power of two,), a hash table with
    linear probing of their numbers, from 1 on.
    """
    numbers, width = np.empty(len(rows), dtype=np.int64), rows.shape[1]
    for place in range(len(rows)):
        # Hash the row, then look it up.
        key = 0
        for column in range(width):
            key = (key ^ rows[place, column]) * HASH_FACTOR
            key ^= key >> 32
        slot = key & (len(slots) - 1)
        while slots[slot] and _differ(distinct_rows, slots[slot] - 1, rows, place):
            slot = (slot + 1) & (len(slots) - 1)
        if not slots[slot]:
            distinct_rows[count] = rows[place]
            count += 1
            slots[slot] = count
        numbers[place] = slots[slot] - 1
    return numbers, count


@kernel
def _differ(some: IntArray, one: int, other_rows: IntArray, other: int) -> bool:
    """Whether two rows differ; many times as fast as numpy's comparison of rows so short."""
    differ = False
    for column in range(some.shape[1]):
        differ |= some[one, column] != other_rows[other, column]
    return differ
