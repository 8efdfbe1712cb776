"""Kernels that note what processes know, and what they have to know when they access memory; see `state`."""

from __future__ import annotations

from ....support.arrays import SmallArray
from ....support.compiling.kernels import kernel
from .code import RANK, Code
from .state import (
    COUNT,
    EARLIER,
    FREE,
    KNOWN,
    LATER,
    NODES,
    PARTS,
    PLACE,
    QUERIES,
    REACHED,
    READ_WRITE,
    READERS,
    ROW,
    ROWS,
    SEGMENT,
    START_READ,
    START_WRITE,
    SYNCED,
    TOKENS,
    WAITED,
    WAY,
    WRITE_READ,
    WRITE_WRITE,
    State,
)


@kernel
def part(state: State, row: int, process: int, step: int, other: int, other_step: int) -> None:
    """Add a part to the row that is being made."""
    found = state.parts[state.counts[PARTS]]
    found[0], found[1], found[2], found[3], found[4] = row, process, step, other, other_step
    state.counts[PARTS] += 1


@kernel
def closed_row(state: State) -> int:
    """Return the number of the row that has been made."""
    state.row_ends[state.counts[ROWS]] = state.counts[PARTS]
    state.counts[ROWS] += 1
    return int(state.counts[ROWS] - 1)


@kernel
def token(state: State, row: int, process: int, step: int, other: int, other_step: int) -> int:
    """Return the number of a new token."""
    found = state.tokens[state.counts[TOKENS]]
    found[0], found[1], found[2], found[3], found[4] = row, process, step, other, other_step
    state.counts[TOKENS] += 1
    return int(state.counts[TOKENS] - 1)


@kernel
def wait_for(state: State, block: int, thread: int, found: int) -> None:
    """Let a thread of a block know of a token."""
    node = state.counts[NODES]
    state.nodes[node, 0], state.nodes[node, 1] = thread, found
    state.nodes[node, 2] = state.processes[block, WAITED]
    state.processes[block, WAITED] = node
    state.counts[NODES] += 1


@kernel
def joined_row(state: State, block: int, thread: int) -> int:
    """Return a row of what a thread of a block, or all of them (-1), know together, and forget what they waited for."""
    process, nodes = state.processes[block], state.nodes
    node, before, found = process[WAITED], -1, False
    while node >= 0:
        following = nodes[node, 2]
        if thread < 0 or nodes[node, 0] == thread:
            if not found:
                part(state, process[ROW], -1, 0, -1, 0)
            found = True
            each = state.tokens[nodes[node, 1]]
            part(state, each[0], each[1], each[2], each[3], each[4])
            if before < 0:
                process[WAITED] = following
            else:
                nodes[before, 2] = following
        else:
            before = node
        node = following
    return closed_row(state) if found else int(process[ROW])


@kernel
def thread_token(state: State, block: int, thread: int) -> int:
    """Return a token of what a thread of a block knows."""
    process = state.processes[block]
    row = joined_row(state, block, thread)
    if row != process[ROW]:
        wait_for(state, block, thread, token(state, row, -1, 0, -1, 0))
    return token(state, row, block, process[SYNCED], -1, 0)


@kernel
def access(code: Code, state: State, process: int, found: SmallArray, place: int, slice_of: int, writes: bool) -> None:
    """Ask for all earlier accesses that one conflicts with, and note it; `found`: the process' token, (5,)."""
    if code.places[place, RANK] != code.ranks[process]:
        start = len(code.ranks) + code.places[place, RANK]
        _ask(state, found[0], start, 1, place, process, START_WRITE if writes else START_READ, 0)
    step, readers = state.processes[process, COUNT], state.readers
    first, last = segments(code, place, slice_of)
    for segment in range(first, last):
        writer = state.writers[segment]
        _need(state, process, step, found, writer[0], writer[1], place, WRITE_WRITE if writes else WRITE_READ, segment)
        node = state.reader_heads[segment]
        if not writes:
            while node >= 0 and readers[node, 0] != process:
                node = readers[node, 2]
            if node < 0:
                node = state.counts[FREE]
                if node < 0:
                    node = state.counts[READERS]
                    state.counts[READERS] += 1
                else:
                    state.counts[FREE] = readers[node, 2]
                readers[node, 0], readers[node, 2] = process, state.reader_heads[segment]
                state.reader_heads[segment] = node
            readers[node, 1] = step
            continue
        while node >= 0:
            _need(state, process, step, found, readers[node, 0], readers[node, 1], place, READ_WRITE, segment)
            following = readers[node, 2]
            readers[node, 2] = state.counts[FREE]
            state.counts[FREE] = node
            node = following
        state.reader_heads[segment] = -1
        writer[0], writer[1] = process, step


@kernel
def segments(code: Code, place: int, slice_of: int) -> tuple[int, int]:
    """First segment, and the one after the last, of a place or of one of its slices."""
    if slice_of < 0:
        return code.segments[place, 0], code.segments[place, -1]
    return code.segments[place, slice_of], code.segments[place, slice_of + 1]


@kernel
def _need(
    state: State,
    process: int,
    step: int,
    found: SmallArray,
    earlier: int,
    reached: int,
    place: int,
    way: int,
    segment: int,
) -> None:
    """Ask for an earlier access, unless the token says by itself whether it is known."""
    if earlier < 0 or (earlier == process and reached == step):
        return
    row = found[0]
    if earlier == found[1]:
        if reached <= found[2]:
            return
        row = -1
    elif earlier == process:
        return  # Proxies do one job after the other.
    _ask(state, row, earlier, reached, place, process, way, segment)


@kernel
def _ask(state: State, row: int, earlier: int, reached: int, place: int, process: int, way: int, segment: int) -> None:
    at = state.counts[QUERIES]
    query = state.queries[at]
    if at > 0:
        last = state.queries[at - 1]
        if (
            last[KNOWN] == row
            and last[EARLIER] == earlier
            and last[REACHED] == reached
            and last[PLACE] == place
            and last[WAY] == way
        ):
            return
    query[KNOWN], query[EARLIER], query[REACHED], query[PLACE] = row, earlier, reached, place
    query[LATER], query[WAY], query[SEGMENT] = process, way, segment
    state.counts[QUERIES] += 1
