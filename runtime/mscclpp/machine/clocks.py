"""Kernels that note what processes know, and what they have to know when they access memory; see `state`.

Vector clocks are worked out afterwards, for a few processes at a time.
"""

import numpy as np
import numpy.typing as npt

from ....support.arrays import IntArray, ShortArray, SmallArray
from ....support.kernels import kernel
from . import fields
from .code import Code
from .state import State

MAX_CLOCKS = 2**23  # Numbers held at a time: more do not stay in a cache


@kernel
def part(state: State, row: int, process: int, step: int, other: int, other_step: int) -> None:
    """Add a part to the row that is being made."""
    found = state.parts[state.counts[fields.PARTS]]
    found[0], found[1], found[2], found[3], found[4] = row, process, step, other, other_step
    state.counts[fields.PARTS] += 1


@kernel
def closed_row(state: State) -> int:
    """Return the number of the row that has been made."""
    state.row_ends[state.counts[fields.ROWS]] = state.counts[fields.PARTS]
    state.counts[fields.ROWS] += 1
    return int(state.counts[fields.ROWS] - 1)


@kernel
def token(state: State, row: int, process: int, step: int, other: int, other_step: int) -> int:
    """Return the number of a new token."""
    found = state.tokens[state.counts[fields.TOKENS]]
    found[0], found[1], found[2], found[3], found[4] = row, process, step, other, other_step
    state.counts[fields.TOKENS] += 1
    return int(state.counts[fields.TOKENS] - 1)


@kernel
def wait_for(state: State, block: int, thread: int, found: int) -> None:
    """Let a thread of a block know of a token."""
    node = state.counts[fields.NODES]
    state.nodes[node, 0], state.nodes[node, 1] = thread, found
    state.nodes[node, 2] = state.processes[block, fields.WAITED]
    state.processes[block, fields.WAITED] = node
    state.counts[fields.NODES] += 1


@kernel
def joined_row(state: State, block: int, thread: int) -> int:
    """Return a row of what a thread of a block, or all of them (-1), know together, and forget what they waited for."""
    process, nodes = state.processes[block], state.nodes
    node, before, found = process[fields.WAITED], -1, False
    while node >= 0:
        following = nodes[node, 2]
        if thread < 0 or nodes[node, 0] == thread:
            if not found:
                part(state, process[fields.ROW], -1, 0, -1, 0)
            found = True
            each = state.tokens[nodes[node, 1]]
            part(state, each[0], each[1], each[2], each[3], each[4])
            if before < 0:
                process[fields.WAITED] = following
            else:
                nodes[before, 2] = following
        else:
            before = node
        node = following
    return closed_row(state) if found else int(process[fields.ROW])


@kernel
def thread_token(state: State, block: int, thread: int) -> int:
    """Return a token of what a thread of a block knows."""
    process = state.processes[block]
    row = joined_row(state, block, thread)
    if row != process[fields.ROW]:
        wait_for(state, block, thread, token(state, row, -1, 0, -1, 0))
    return token(state, row, block, process[fields.SYNCED], -1, 0)


@kernel
def access(code: Code, state: State, process: int, found: SmallArray, place: int, slice_of: int, writes: bool) -> None:
    """Ask for all earlier accesses that one conflicts with, and note it; `found`: the process' token, (5,)."""
    why = np.empty(4, dtype=np.int32)
    why[0], why[1], why[2], why[3] = place, process, fields.START_WRITE if writes else fields.START_READ, 0
    if code.places[place, fields.RANK] != code.ranks[process]:
        _ask(state, found[0], len(code.ranks) + code.places[place, fields.RANK], 1, why)
    step, readers = state.processes[process, fields.COUNT], state.readers
    first, last = segments(code, place, slice_of)
    for segment in range(first, last):
        writer = state.writers[segment]
        why[2], why[3] = fields.WRITE_WRITE if writes else fields.WRITE_READ, segment
        _need(state, step, found, writer[0], writer[1], why)
        node = state.reader_heads[segment]
        if not writes:
            while node >= 0 and readers[node, 0] != process:
                node = readers[node, 2]
            if node < 0:
                node = state.counts[fields.FREE]
                if node < 0:
                    node = state.counts[fields.READERS]
                    state.counts[fields.READERS] += 1
                else:
                    state.counts[fields.FREE] = readers[node, 2]
                readers[node, 0], readers[node, 2] = process, state.reader_heads[segment]
                state.reader_heads[segment] = node
            readers[node, 1] = step
            continue
        why[2] = fields.READ_WRITE
        while node >= 0:
            _need(state, step, found, readers[node, 0], readers[node, 1], why)
            following = readers[node, 2]
            readers[node, 2], state.counts[fields.FREE] = state.counts[fields.FREE], node
            node = following
        state.reader_heads[segment], writer[0], writer[1] = -1, process, step


@kernel
def segments(code: Code, place: int, slice_of: int) -> tuple[int, int]:
    """First segment, and the one after the last, of a place or of one of its slices."""
    if slice_of < 0:
        return code.segments[place, 0], code.segments[place, -1]
    return code.segments[place, slice_of], code.segments[place, slice_of + 1]


@kernel
def _need(state: State, step: int, found: SmallArray, earlier: int, reached: int, why: SmallArray) -> None:
    """Ask for an earlier access, unless the token says by itself whether it is known."""
    if earlier < 0 or (earlier == why[1] and reached == step):
        return
    if earlier == found[1]:
        if reached > found[2]:
            _ask(state, -1, earlier, reached, why)
    elif earlier != why[1]:  # A proxy does one job after the other.
        _ask(state, found[0], earlier, reached, why)


@kernel
def _ask(state: State, row: int, earlier: int, reached: int, why: SmallArray) -> None:
    """Ask whether a row, or -1, knows of a process' step, but not twice for chunks that follow one another."""
    at = state.counts[fields.QUERIES]
    query = state.queries[at]
    query[0], query[1], query[2] = row, earlier, reached
    query[fields.PLACE :] = why
    if at == 0 or not np.array_equal(query[: fields.SEGMENT], state.queries[at - 1, : fields.SEGMENT]):
        state.counts[fields.QUERIES] += 1


def first_unknown(code: Code, state: State) -> SmallArray | None:
    """Return the first query, in order of execution, whose row does not know of the step that it asks for."""
    queries, rows = state.queries[: state.counts[fields.QUERIES]], int(state.counts[fields.ROWS])
    processes, numbers = np.unique(queries[:, fields.EARLIER], return_inverse=True)
    most = max(processes.max(initial=0), len(code.ranks) + code.ranks.max())
    column_of = np.full(most + 1, -1, dtype=np.int64)
    column_of[processes] = np.arange(len(processes))
    steps = int(state.processes[:, fields.COUNT].max(initial=0))
    width = min(len(processes), max(8, MAX_CLOCKS // rows))
    narrow: npt.DTypeLike = np.int16 if steps <= np.iinfo(np.int16).max else np.int32
    clocks = np.empty((rows, width), dtype=narrow)
    order = np.argsort(numbers, kind="stable")
    found = _first_unknown(state.row_ends, state.parts, queries, order, column_of, clocks)
    return queries[found] if found < len(queries) else None


@kernel
def _first_unknown(
    row_ends: IntArray,
    parts: SmallArray,
    queries: SmallArray,
    order: IntArray,
    column_of: IntArray,
    clocks: ShortArray | SmallArray,
) -> int:
    """Work out clocks of (rows, columns) for some columns, then for the next ones.

    Shapes: `order` (queries,), by columns; `column_of` (processes,), -1 for none.
    """
    found, at, low = len(queries), 0, 0
    while at < len(order):
        begin = 0
        for row in range(len(clocks)):
            clock = clocks[row]
            clock[:] = 0
            for number in range(begin, row_ends[row]):
                other = parts[number, 0]
                if other >= 0:
                    known = clocks[other]
                    for column in range(len(clock)):
                        clock[column] = max(clock[column], known[column])
                for place in (1, 3):
                    if parts[number, place] >= 0:
                        column = column_of[parts[number, place]] - low
                        if 0 <= column < len(clock):
                            clock[column] = max(clock[column], parts[number, place + 1])
            begin = row_ends[row]
        low += clocks.shape[1]
        while at < len(order):
            query = queries[order[at]]
            column = column_of[query[1]] - low + clocks.shape[1]
            if column >= clocks.shape[1]:
                break
            if order[at] < found and (query[0] < 0 or clocks[query[0], column] < query[2]):
                found = order[at]
            at += 1
    return found
