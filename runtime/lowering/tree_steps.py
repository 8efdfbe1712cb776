"""Kernels that write the steps of one rank of a program of trees, and number the different ones of all ranks."""

import numpy as np

from ...support.arrays import IntArray, SmallArray
from ...support.kernels import kernel

SEND, RECV, RECV_REDUCE = range(3)
HASH_FACTOR = 0x9E3779B97F4A7C1  # Odd, with bits of both kinds all over
NONE, INPUT, OUTPUT, SCRATCH = range(4)


@kernel
def tree_steps(
    rank: int,
    events: IntArray,
    blocks: IntArray,
    counts: IntArray,
    hops: IntArray,
    sizes: IntArray,
    firsts: IntArray,
    ends: tuple[int, int, int],
    places: IntArray,
    memory: SmallArray,
) -> tuple[IntArray, int]:
    """Steps (kind, source, target, count, awaited block and step; buffers and starts) of a rank, and its scratch.

    Steps are by thread blocks.  Shapes: `events`, hops of the rank in the global order, and `blocks` (events,);
    `counts` (thread blocks,), their steps; `hops` (hops, 6) as in `Hop`;
    `firsts` (ranges,), first chunks; `places` (ranges, 4), of the last rank: rank, buffer, start and event to wait
    for; `memory` (at least (events + 1) * thread blocks,), to be used for the clocks, which are those of `Waits`.
    `ends`: first chunk of its input, and first and last one of its output.
    """
    rows = np.zeros((len(events), 8), dtype=np.int64)
    num_blocks, steps = len(counts), np.zeros(len(events), dtype=np.int64)
    begins = np.cumsum(counts) - counts
    position = begins.copy()
    clocks = memory[: (len(events) + 1) * num_blocks].reshape(-1, num_blocks)
    clocks[0] = -1
    current, used, scratch = np.zeros(num_blocks, dtype=np.int64), 1, 0  # Row 0: knows of nothing
    known = np.zeros(len(events), dtype=np.int64)  # The row of its block at the end of each event
    own, amounts = hops[events], sizes[events]  # At once, as they are scattered over more memory than caches hold
    for event in range(len(events)):
        block = blocks[event]
        number, sender, reduces, together = own[event, 0], own[event, 1], own[event, 3], own[event, 4]
        first, count, row = firsts[number], amounts[event], rows[position[block]]
        seen = places[number, 0] == rank
        buffer, start, after = INPUT, first - ends[0], -1
        if seen:
            buffer, start, after = places[number, 1], places[number, 2], places[number, 3]
        row[5], row[6], row[7] = count, -1, -1
        if after >= 0 and clocks[current[block], blocks[after]] < steps[after]:
            mine, other, joined = clocks[current[block]], clocks[known[after]], clocks[used]
            for each in range(num_blocks):
                joined[each] = max(mine[each], other[each])
            row[6], row[7] = blocks[after], steps[after]
            clocks[used, row[6]] = row[7]
            current[block] = used
            used += 1
        known[event] = current[block]
        kind, last = RECV, event
        if sender == rank:
            kind = SEND
            row[1], row[2] = buffer, start
            last = event if reduces else after
        elif not reduces:
            buffer, start = OUTPUT, first - ends[1]
            row[3], row[4] = buffer, start
        else:
            kind = RECV_REDUCE
            row[1], row[2] = buffer, start
            if not seen and ends[1] <= first < ends[2]:
                buffer, start = OUTPUT, first - ends[1]
            elif not seen:
                buffer, start = SCRATCH, scratch
                scratch += count
            row[3], row[4] = buffer, start
        row[0], steps[event] = kind, position[block] - begins[block]
        position[block] += 1
        for each in range(number, number + together):
            place = places[each]
            place[0], place[1], place[2], place[3] = rank, buffer, start + firsts[each] - first, last
    return rows, scratch


@kernel
def step_numbers(rows: IntArray, known: IntArray, count: int, slots: SmallArray) -> tuple[IntArray, int]:
    """Numbers (rows,) of rows of `tree_steps` among different ones, and how many of those there are now.

    Shapes: `known` (any, 8), different rows so far, of which there are `count`; `slots` (power of two,), a hash table
    with linear probing of their numbers, from 1 on.
    """
    numbers, width = np.empty(len(rows), dtype=np.int64), rows.shape[1]
    for place in range(len(rows)):
        key = 0
        for column in range(width):
            key = (key ^ rows[place, column]) * HASH_FACTOR
            key ^= key >> 32
        slot = key & (len(slots) - 1)
        while slots[slot] and _differ(known, slots[slot] - 1, rows, place):
            slot = (slot + 1) & (len(slots) - 1)
        if not slots[slot]:
            known[count] = rows[place]
            count += 1
            slots[slot] = count
        numbers[place] = slots[slot] - 1
    return numbers, count


@kernel
def _differ(some: IntArray, one: int, others: IntArray, other: int) -> bool:
    """Whether two rows differ; many times as fast as numpy's comparison of rows so short."""
    differ = False
    for column in range(some.shape[1]):
        differ |= some[one, column] != others[other, column]
    return differ
