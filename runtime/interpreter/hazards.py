"""Finds reads and writes of the same chunk that nothing keeps in order.

Every thread block is a sequential process, so vector clocks decide "happens before": the clock of a step says, for
each block of the rank, up to which step that block is known to have finished (Fidge 1988, Mattern 1989).  Step a
happens before step b exactly if b's clock for a's block has reached a.  Clocks are first computed with the edges inside
the rank alone, which settles everything in programs that carry their own dependencies; only if a pair stays open are
they computed again along paths through other ranks.

Chunks that always appear together are treated as one segment, and in each segment only neighbouring pairs are
compared: each access with the last write before it, each read with the next write after it.  If all those are ordered,
so is every other conflicting pair.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import ProgramError
from ...support.arrays import IntArray
from ..programs.ordering import Order
from ..programs.program import Instruction, Program, RankProgram


class _Accesses(NamedTuple):
    """Accesses of one buffer of one rank, one row per segment touched, sorted by segment and then by time."""

    segments: IntArray
    steps: IntArray
    writes: npt.NDArray[np.bool_]
    chunks: IntArray  # First chunk of each segment.


def check_hazards(program: Program, order: Order) -> None:
    """Refuse races, reads of chunks that nobody wrote, and output chunks that stay unwritten."""
    position = np.empty(len(order.sequence), dtype=np.int64)
    position[order.sequence] = np.arange(len(order.sequence))
    mine: list[list[int]] = [[] for _ in program.ranks]
    for number in order.sequence:
        mine[order.sites[number].rank].append(number)
    for rank in program.ranks:
        steps = mine[rank.rank]
        found = _accesses(order, steps)
        places = _in_one_memory(found, order, program, rank.rank) if program.in_place else found
        for buffer, rows in places.items():
            accesses = _by_segment(rows, position)
            for earlier, later in _unordered(accesses, order, rank, steps):
                raise ProgramError(_describe_race(order, accesses, buffer, earlier, later))
        for buffer, rows in found.items():
            if buffer != "input":
                _check_written_before_read(order, _by_segment(rows, position), buffer)
        _check_output_written(order, rank, steps)


def _accesses(order: Order, steps: Sequence[int]) -> dict[str, IntArray]:
    """Rows (first chunk, chunks, step, whether it writes) of one rank's accesses to each buffer."""
    found: dict[str, list[tuple[int, int, int, bool]]] = defaultdict(list)
    for number in steps:
        step = order.instructions[number]
        if step.source:
            found[step.source.buffer].append((step.source.start, step.count, number, False))
        if step.target:
            if step.kind == "reduce":
                found[step.target.buffer].append((step.target.start, step.count, number, False))
            found[step.target.buffer].append((step.target.start, step.count, number, True))
    return {buffer: np.array(rows, dtype=np.int64) for buffer, rows in sorted(found.items())}


def _in_one_memory(found: dict[str, IntArray], order: Order, program: Program, rank: int) -> dict[str, IntArray]:
    """Name chunks of input and output by their number in the collective, as one buffer.

    A copy of a chunk onto itself changes nothing, so it is no access.
    """
    firsts = {"input": program.layout.input_range(rank)[0], "output": program.layout.output_range(rank)[0]}
    shared = [rows + np.array([firsts[buffer], 0, 0, 0]) for buffer, rows in found.items() if buffer in firsts]
    others = {buffer: rows for buffer, rows in found.items() if buffer not in firsts}
    if not shared:
        return others
    together = np.concatenate(shared)
    idle = [_stays(order.instructions[number], firsts) for number in together[:, 2].tolist()]
    kept = together[~np.array(idle)]
    return {"in-place": kept, **others} if len(kept) else others


def _stays(step: Instruction, firsts: dict[str, int]) -> bool:
    """Whether a step copies from the input to the output what is already there."""
    if step.kind != "copy" or step.source is None or step.target is None:
        return False
    buffers = step.source.buffer, step.target.buffer
    if buffers != ("input", "output"):
        return False
    return firsts["input"] + step.source.start == firsts["output"] + step.target.start


def _by_segment(rows: IntArray, position: IntArray) -> _Accesses:
    starts, ends, steps, writes = rows[:, 0], rows[:, 0] + rows[:, 1], rows[:, 2], rows[:, 3].astype(np.bool_)
    boundaries = np.unique(np.concatenate([starts, ends]))
    first = np.searchsorted(boundaries, starts)
    length = np.searchsorted(boundaries, ends) - first
    row = np.repeat(np.arange(len(rows)), length)
    offset = np.arange(len(row)) - np.repeat(np.cumsum(length) - length, length)
    segments = first[row] + offset
    # What a step both reads and writes it reads first.
    ranking = np.lexsort((writes[row], position[steps[row]], segments))
    row, segments = row[ranking], segments[ranking]
    return _Accesses(segments, steps[row], writes[row], boundaries[segments])


def _neighbours(accesses: _Accesses) -> tuple[IntArray, IntArray]:
    """Row numbers (last write before, next write after) of each row within its segment; -1 for none."""
    rows = np.arange(len(accesses.segments))
    last = np.concatenate([[-1], np.maximum.accumulate(np.where(accesses.writes, rows, -1))[:-1]])
    last[(last < 0) | (accesses.segments[last] != accesses.segments)] = -1
    beyond = len(rows)
    following = np.minimum.accumulate(np.where(accesses.writes, rows, beyond)[::-1])[::-1]
    after = np.concatenate([following[1:], [beyond]])
    after[after == beyond] = -1
    after[(after < 0) | (accesses.segments[after] != accesses.segments)] = -1
    return last, after


def _unordered(accesses: _Accesses, order: Order, rank: RankProgram, steps: Sequence[int]) -> list[tuple[int, int]]:
    """Rows (earlier, later) of conflicting accesses with no path between them."""
    last, after = _neighbours(accesses)
    has_last = np.flatnonzero(last >= 0)
    reads = np.flatnonzero((after >= 0) & ~accesses.writes)
    earlier = np.concatenate([last[has_last], reads])
    later = np.concatenate([has_last, after[reads]])
    if not len(earlier):
        return []
    width = len(rank.thread_blocks)
    for scope in (steps, order.sequence):
        clocks, row_of = _clocks(order, scope, rank.rank, width)
        blocks = np.array([order.sites[number].thread_block for number in accesses.steps])
        done = np.array([order.sites[number].step for number in accesses.steps])
        rows = np.array([row_of[int(number)] for number in accesses.steps[later]])
        open_pairs = clocks[rows, blocks[earlier]] < done[earlier]
        earlier, later = earlier[open_pairs], later[open_pairs]
        if not len(earlier):
            return []
    return list(zip(earlier.tolist(), later.tolist(), strict=True))


def _clocks(order: Order, scope: Sequence[int], rank: int, width: int) -> tuple[npt.NDArray[np.int32], dict[int, int]]:
    """Vector clocks over the thread blocks of one rank, following only the steps in `scope` (in order)."""
    row_of = {number: row for row, number in enumerate(scope)}
    clocks = np.full((len(scope), width), -1, dtype=np.int32)
    for row, number in enumerate(scope):
        clock = clocks[row]
        for earlier in order.before[number]:
            np.maximum(clock, clocks[row_of[earlier]], out=clock)
        if order.instructions[number].receives and (send := row_of.get(order.partners[number])) is not None:
            np.maximum(clock, clocks[send], out=clock)
        site = order.sites[number]
        if site.rank == rank:
            clock[site.thread_block] = site.step
    return clocks, row_of


def _describe_race(order: Order, accesses: _Accesses, buffer: str, earlier: int, later: int) -> str:
    ways = ["writes" if accesses.writes[row] else "reads" for row in (earlier, later)]
    first, second = (order.sites[int(accesses.steps[row])] for row in (earlier, later))
    return (
        f"race: {first} {ways[0]} {buffer} chunk {accesses.chunks[earlier]} and {second} {ways[1]} it, but nothing "
        "makes one wait for the other; add a dependency"
    )


def _check_written_before_read(order: Order, accesses: _Accesses, buffer: str) -> None:
    last, _ = _neighbours(accesses)
    for row in np.flatnonzero((last < 0) & ~accesses.writes)[:1]:
        raise ProgramError(
            f"{order.sites[int(accesses.steps[row])]} reads {buffer} chunk {accesses.chunks[row]}, which nothing has "
            "written by then"
        )


def _check_output_written(order: Order, rank: RankProgram, steps: Sequence[int]) -> None:
    """Refuse an output chunk that no step writes."""
    targets = [(order.instructions[number].target, order.instructions[number].count) for number in steps]
    covered = 0
    for start, count in sorted(
        (target.start, count) for target, count in targets if target and target.buffer == "output"
    ):
        if start > covered:
            break
        covered = max(covered, start + count)
    if covered < rank.output_chunks:
        raise ProgramError(f"rank {rank.rank} never writes output chunk {covered} of {rank.output_chunks}")
