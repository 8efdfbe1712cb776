"""Races in a run of an execution plan: accesses to memory that its events leave without an order."""

from typing import NamedTuple

import numpy as np

from ...support.arrays import BoolArray, IntArray, SmallArray
from ..programs.happens_before import Accesses, EventGraph
from .code import BEGIN, CODE, COPY, END, JOB, RANK, SILENT, SIZE, SPLIT, START, SUM, Code
from .turns import OPERATION, PROCESS, SLICE, THREAD, Events, write_events


class Race(NamedTuple):
    """An access by the process `later` to a place, and an earlier one by `earlier` to an element of it."""

    later: int
    place: int
    writes: bool
    earlier: int = -1  # -1: the GPU may not have started
    element: int = -1
    earlier_writes: bool = False


class Unfinished(NamedTuple):
    """An access by a process to an element of a GPU, whose kernel may end before it."""

    rank: int
    process: int
    element: int


class RunOrder:
    """Order of the events of a run, and their accesses to memory."""

    def __init__(self, code: Code, turns: SmallArray, initial: IntArray) -> None:
        events = Events.of(code, turns, initial)
        write_events(code, turns, initial, events)
        size, links = events.used.tolist()
        self._events = EventGraph(
            events.processes[:size], events.steps[:size], events.starts[: size + 1], events.before[:links]
        )
        self._event_of, self._step_of = events.of_turns, events.steps_of_turns
        self._code, self._processes = code, turns[:, PROCESS].astype(np.int64)
        self._turns, self._places, self._writes = _accesses(code, turns)
        # Elements of the slices that are accessed
        at, start, size_of = turns[self._turns, SLICE], *code.places[self._places][:, (START, SIZE)].T
        begins = start + size_of * np.maximum(at, 0)
        self._segments = Accesses.of(
            begins, begins + np.where(at < 0, size_of * code.slices, size_of), self._turns, self._writes
        )

    def first_race(self) -> Race | None:
        """Return the race whose later access comes first."""
        segments = self._segments
        earlier, later = segments.conflicts()
        turns = self._turns[segments.numbers[earlier]], self._turns[segments.numbers[later]]
        unordered = np.flatnonzero(~(self._know(self._event_of[turns[1]], turns[0]) | (turns[0] == turns[1])))
        numbers = segments.numbers[later[unordered]]
        unstarted = self._before_starts()
        if len(unstarted) and (not len(unordered) or unstarted[0] <= numbers.min()):
            number = int(unstarted[0])
            return Race(*self._access(number))
        if not len(unordered):
            return None
        pair = unordered[np.lexsort((later[unordered], numbers))[0]]
        before = int(segments.numbers[earlier[pair]])
        process, _, writes = self._access(before)
        element = int(segments.firsts[later[pair]])
        return Race(*self._access(int(segments.numbers[later[pair]])), process, element, writes)

    def first_unfinished(self, bounds: IntArray) -> Unfinished | None:
        """Return an access that the end of a kernel does not wait for; `bounds`: elements of GPUs, (ranks + 1,)."""
        segments, ranks = self._segments, self._code.num_ranks
        turns = self._turns[segments.numbers]
        owners = np.searchsorted(bounds, segments.firsts, side="right") - 1
        ends = len(self._events.steps) - ranks + owners
        unordered = np.flatnonzero(~self._know(ends, turns))
        if not len(unordered):
            return None
        processes = self._processes[turns[unordered]]
        row = unordered[np.lexsort((-self._step_of[turns[unordered]], processes, owners[unordered]))[0]]
        return Unfinished(int(owners[row]), int(self._processes[turns[row]]), int(segments.firsts[row]))

    def _access(self, number: int) -> tuple[int, int, bool]:
        """Process and place of an access, and whether it writes."""
        return int(self._processes[self._turns[number]]), int(self._places[number]), bool(self._writes[number])

    def _before_starts(self) -> IntArray:
        """Accesses to the memory of GPUs that need not have started."""
        ranks, turns, code = self._code.places[self._places, RANK], self._turns, self._code
        starts = np.full(len(turns), 1)
        has_started = self._events.knows(self._event_of[turns], len(code.ranks) + ranks, starts)
        return np.flatnonzero((ranks != code.ranks[self._processes[turns]]) & ~has_started)

    def _know(self, events: IntArray, turns: IntArray) -> BoolArray:
        """Whether events come after turns."""
        return self._events.knows(events, self._processes[turns], self._step_of[turns])


def _accesses(code: Code, turns: SmallArray) -> tuple[IntArray, IntArray, BoolArray]:
    """Turn and place of each access, and whether it writes, in the order of a run."""
    operations = code.operations[turns[:, OPERATION]]
    begins, splits, ends = operations[:, BEGIN], operations[:, SPLIT], operations[:, END]
    threads = turns[:, THREAD]
    works = np.isin(operations[:, CODE], (COPY, SUM))
    copies = (operations[:, CODE] == JOB) & (threads >= 0) & (threads < splits - begins)
    lengths = np.where(works, ends - begins, 2 * copies)
    of_turn = np.repeat(np.arange(len(turns)), lengths)
    at = np.arange(len(of_turn)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    # A proxy reads one place of the requesting thread, and writes the other.
    copied = threads[of_turn] + np.where(at == 0, begins[of_turn], splits[of_turn])
    arguments = np.where(works[of_turn], begins[of_turn] + at, copied)
    places, writes = code.arguments[arguments], arguments >= splits[of_turn]
    noted = ~(writes & (code.places[places, SILENT] == 1))
    return of_turn[noted], places[noted], writes[noted]
