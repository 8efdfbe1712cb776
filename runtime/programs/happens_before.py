"""Happens-before: vector clocks over the events of programs and plans, and accesses that none orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...support.arrays import BoolArray, IntArray, SmallArray, joined_rows
from ...support.kernels import kernel_with
from .ordering import Order

MAX_CLOCKS = 2**23  # Numbers held at a time: more do not stay in a cache


@kernel_with(lambda clocks, _processes, _steps, _starts, before, _columns: 3 * len(before) + 3 * len(clocks))
def write_clocks(
    clocks: SmallArray, processes: IntArray, steps: IntArray, starts: IntArray, before: IntArray, column_of: IntArray
) -> None:
    """Write the last known step of some processes at each event, (events, columns), -1 for none.

    Shapes: `processes`, `steps`, `starts` and `before` as in `EventGraph`; `column_of` (processes + 1,), -1 for none.
    """
    for event in range(len(steps)):
        clock = clocks[event]
        clock[:] = -1
        for place in range(starts[event], starts[event + 1]):
            if before[place] >= 0:
                clock[:] = np.maximum(clock, clocks[before[place]])
        column = column_of[processes[event]]
        if column >= 0:
            clock[column] = max(clock[column], steps[event])


@kernel_with(lambda _processes, steps, *_: 15 * len(steps))
def needed_waits(processes: IntArray, steps: IntArray, starts: IntArray, before: IntArray, width: int) -> BoolArray:
    """Mark the waits that no other wait implies (transitive reduction), (waits,).

    Shapes: as in `EventGraph`, `width`: number of processes; an event waits for `before`, at most one of each process,
    and for the event before it of its own process.
    """
    is_needed = np.zeros(len(before), dtype=np.bool_)
    # A clock changes only at events that wait, so each of these has one; row 0 knows nothing.
    clocks = np.empty((len(steps) + 1, width), dtype=np.int32)
    clocks[0] = -1
    current, clock_of, used = np.zeros(width, dtype=np.int64), np.zeros(len(steps), dtype=np.int64), 1
    for event in range(len(steps)):
        process = processes[event]
        clock, joined, missing = clocks[current[process]], clocks[used], False
        # Leave out steps that the process knows already.
        for place in range(starts[event], starts[event + 1]):
            other = before[place]
            is_needed[place] = processes[other] != process and clock[processes[other]] < steps[other]
            if is_needed[place]:
                if not missing:
                    joined[:] = clock
                missing = True
                joined[:] = np.maximum(joined, clocks[clock_of[other]])
        if missing:
            # Leave out steps that come before other awaited ones.
            for place in range(starts[event], starts[event + 1]):
                other = before[place]
                is_needed[place] = is_needed[place] and joined[processes[other]] < steps[other]
            for place in range(starts[event], starts[event + 1]):
                if is_needed[place]:
                    joined[processes[before[place]]] = steps[before[place]]
            current[process] = used
            used += 1
        clock_of[event] = current[process]
    return is_needed


class EventGraph(NamedTuple):
    """Events in an order in which each comes after all that happen before it.

    Event ``e`` happens after the events ``before[starts[e]:starts[e + 1]]`` (-1: none), and it is step ``steps[e]`` of
    process ``processes[e]`` (-1: of none), which implies the smaller steps of that process.
    """

    processes: IntArray
    steps: IntArray
    starts: IntArray
    before: IntArray

    def knows(self, events: IntArray, processes: IntArray, steps: IntArray) -> BoolArray:
        """Whether each event happens after, or is, a step of a process; all (queries,)."""
        columns, numbers = np.unique(processes, return_inverse=True)
        answers = np.zeros(len(events), dtype=np.bool_)
        if not len(columns):
            return answers
        column_of = np.full(max(int(columns[-1]), int(self.processes.max(initial=0))) + 2, -1, dtype=np.int64)
        by_column = np.argsort(numbers, kind="stable")
        width = min(len(columns), max(8, MAX_CLOCKS // len(self.steps)))
        clocks = np.empty((len(self.steps), width), dtype=np.int32)
        for first in range(0, len(columns), width):
            column_of[:] = -1
            column_of[columns[first : first + width]] = np.arange(len(columns[first : first + width]))
            write_clocks(clocks, self.processes, self.steps, self.starts, self.before, column_of)
            low, high = np.searchsorted(numbers, (first, first + width), sorter=by_column)
            queries = by_column[low:high]
            answers[queries] = clocks[events[queries], numbers[queries] - first] >= steps[queries]
        return answers


class Steps(NamedTuple):
    """Steps of a program as events; `processes`, `steps`: thread block and number there of each, int64 (steps,)."""

    order: Order
    processes: IntArray
    steps: IntArray

    @classmethod
    def of(cls, order: Order) -> Steps:
        """Number the thread blocks of all ranks."""
        blocks: dict[tuple[int, int], int] = {}
        processes = [blocks.setdefault(site[:2], len(blocks)) for site in order.sites]
        steps = [site.step for site in order.sites]
        return cls(order, np.array(processes, dtype=np.int64), np.array(steps, dtype=np.int64))

    def events(self, numbers: Sequence[int]) -> EventGraph:
        """Return some steps in an order, without what other steps imply."""
        order = self.order
        event_of = np.full(len(order.sites), -1, dtype=np.int64)
        event_of[numbers] = np.arange(len(numbers))
        starts, before = joined_rows(
            [
                (*order.before[number], order.partners[number])
                if order.instructions[number].receives
                else order.before[number]
                for number in numbers
            ]
        )
        return EventGraph(self.processes[numbers], self.steps[numbers], starts, event_of[before])


class Accesses(NamedTuple):
    """Accesses to memory, one row for each segment that one touches, by segment and by time."""

    segments: IntArray
    firsts: IntArray  # Where each segment begins in memory
    numbers: IntArray  # Of the access
    writes: BoolArray

    @classmethod
    def of(cls, begins: IntArray, ends: IntArray, times: IntArray, writes: npt.NDArray[np.generic]) -> Accesses:
        """Cut memory into segments at the ends of all accesses; all (accesses,)."""
        borders = np.unique(np.concatenate([begins, ends]))
        first = np.searchsorted(borders, begins)
        lengths = np.searchsorted(borders, ends) - first
        numbers = np.repeat(np.arange(len(begins)), lengths)
        segments = first[numbers] + np.arange(len(numbers)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        is_write = writes.astype(np.bool_)
        # An access that reads and writes reads first.
        rows = np.lexsort((is_write[numbers], times[numbers], segments))
        numbers, segments = numbers[rows], segments[rows]
        return cls(segments, borders[segments], numbers, is_write[numbers])

    def last_writes(self) -> IntArray:
        """Row of the last write to the segment before each row, -1 for none."""
        writes = np.maximum.accumulate(np.where(self.writes, np.arange(len(self.writes)), -1))
        return self._in_segment(np.concatenate([[-1], writes])[:-1])

    def conflicts(self) -> tuple[IntArray, IntArray]:
        """Rows (earlier, later) of accesses that need an order: a write and what follows, a read and the next write."""
        rows, end = np.arange(len(self.writes)), len(self.writes)
        last = self.last_writes()
        writes = np.minimum.accumulate(np.where(self.writes, rows, end)[::-1])[::-1]
        following = np.concatenate([writes, [end]])[1:]
        following = self._in_segment(np.where(following == end, -1, following))
        later, reads = np.flatnonzero(last >= 0), np.flatnonzero((following >= 0) & ~self.writes)
        return np.concatenate([last[later], reads]), np.concatenate([later, following[reads]])

    def _in_segment(self, rows: IntArray) -> IntArray:
        """Replace rows of other segments by -1."""
        return np.where((rows >= 0) & (self.segments[rows] == self.segments), rows, -1)
