"""Happens-before among events by vector clocks (Fidge 1988, Mattern 1989), and the accesses that it has to order.

Events are steps of programs or turns of MSCCL++ plans.  A process numbers its events; a clock says up to which of them
each process is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...support.arrays import BoolArray, IntArray, joined_rows
from ..programs.ordering import Order

MAX_CLOCKS = 2**23  # Numbers held at a time: more do not stay in a cache


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
        from .clock_kernels import write_clocks

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
