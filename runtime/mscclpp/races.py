"""Races in a run of an execution plan: accesses to memory that its events leave without an order."""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...support.arrays import BoolArray, IntArray, SmallArray
from ..programs.happens_before import Accesses, EventGraph
from .code import (
    BEGIN,
    CODE,
    COPY,
    END,
    JOB,
    RANK,
    SCRATCH,
    SILENT,
    SIZE,
    SPLIT,
    START,
    STRIDE,
    SUM,
    UNIT,
    WITH_PACKETS,
    Code,
)
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


class _Order(NamedTuple):
    """Events of a run, and the event and the step of each turn."""

    graph: EventGraph
    of_turns: IntArray
    steps: IntArray

    @classmethod
    def of(cls, code: Code, turns: SmallArray, initial: IntArray, executed: int) -> "_Order":
        """Write the events; see `write_events`."""
        events = Events.of(code, turns, initial)
        write_events(code, turns, initial, events, executed)
        size, links = events.used.tolist()
        graph = EventGraph(
            events.processes[:size], events.steps[:size], events.starts[: size + 1], events.before[:links]
        )
        return cls(graph, events.of_turns, events.steps_of_turns)

    def knows(self, turns: IntArray, processes: IntArray, steps: IntArray) -> BoolArray:
        """Whether turns, or ends of GPUs counted from -1 on, come after steps of processes."""
        events = np.where(turns < 0, len(self.graph.steps) + turns, self.of_turns[turns])
        return self.graph.knows(events, processes, steps)


class RunOrder:
    """Order of the events of a run, and their accesses to memory."""

    def __init__(self, code: Code, turns: SmallArray, initial: IntArray) -> None:
        self._run = code, turns, initial
        self._seen = _Order.of(code, turns, initial, 0)
        self._step_of = self._seen.steps
        self._code, self._processes = code, turns[:, PROCESS].astype(np.int64)
        self._turns, self._places, self._writes = _accesses(code, turns)
        # Elements of the slices that are accessed
        at, columns = turns[self._turns, SLICE], code.places[self._places]
        begins = columns[:, START] + columns[:, UNIT] * np.maximum(at, 0)
        sizes = np.where(at < 0, columns[:, SIZE] * columns[:, STRIDE], columns[:, UNIT])
        self._segments = Accesses.of(begins, begins + sizes, self._turns, self._writes)
        # Packets are written by a process of their own.
        packs = self._writes & (columns[:, STRIDE] == 2)
        self._writers = self._processes[self._turns] + packs * (len(code.ranks) + code.num_ranks)
        self._in_scratch = columns[:, SCRATCH] == 1
        self._own = code.ranks[self._processes[self._turns]] == columns[:, RANK]

    def first_race(self, *, starts: bool = True) -> Race | None:
        """Return the race whose later access comes first; `starts`: those with what comes before a GPU's start too."""
        segments = self._segments
        earlier, later = (segments.numbers[rows] for rows in segments.conflicts())
        rows = segments.conflicts()[1]
        turns = self._turns[later]
        inside = self._own[earlier] & self._own[later]
        columns = self._code.places[self._places]
        # The is_own thread looks after the is_own packets of each operation of its block.
        is_own = self._processes[self._turns[earlier]] == self._processes[turns]
        for column in (START, SIZE):
            is_own &= columns[earlier, column] == columns[later, column]
        is_own &= (columns[earlier, WITH_PACKETS] & columns[later, WITH_PACKETS]) == 1
        is_own |= self._turns[earlier] == turns
        unordered = np.flatnonzero(~(is_own | self._know(turns, earlier, inside)))
        numbers = later[unordered]
        unstarted = self._before_starts() if starts else np.empty(0, dtype=np.int64)
        if len(unstarted) and (not len(unordered) or unstarted[0] <= numbers.min()):
            number = int(unstarted[0])
            return Race(*self._access(number))
        if not len(unordered):
            return None
        pair = unordered[np.lexsort((rows[unordered], numbers))[0]]
        process, _, writes = self._access(int(earlier[pair]))
        element = int(segments.firsts[rows[pair]])
        return Race(*self._access(int(later[pair])), process, element, writes)

    def first_unfinished(self, bounds: IntArray) -> Unfinished | None:
        """Return an access that the end of a kernel does not wait for; `bounds`: elements of GPUs, (ranks + 1,)."""
        segments, ranks = self._segments, self._code.num_ranks
        owners = np.searchsorted(bounds, segments.firsts, side="right") - 1
        is_known = self._know(owners - ranks, segments.numbers)
        unordered = np.flatnonzero(~is_known & ~self._in_scratch[segments.numbers])
        if not len(unordered):
            return None
        turns = self._turns[segments.numbers]
        processes = self._processes[turns[unordered]]
        row = unordered[np.lexsort((-self._step_of[turns[unordered]], processes, owners[unordered]))[0]]
        return Unfinished(int(owners[row]), int(self._processes[turns[row]]), int(segments.firsts[row]))

    def outlives_calls(self, bounds: IntArray) -> bool:
        """Whether scratch is accessed by others before a GPU starts, or after it has ended; `bounds` as above."""
        if len(self._before_starts(in_scratch=True)):
            return True
        segments = self._segments
        owners = np.searchsorted(bounds, segments.firsts, side="right") - 1
        return not bool(self._know(owners - self._code.num_ranks, segments.numbers).all())

    def _access(self, number: int) -> tuple[int, int, bool]:
        """Process and place of an access, and whether it writes."""
        return int(self._processes[self._turns[number]]), int(self._places[number]), bool(self._writes[number])

    def _before_starts(self, *, in_scratch: bool = False) -> IntArray:
        """Accesses to the buffers, or the scratch, of GPUs that need not have started."""
        ranks, turns, code = self._code.places[self._places, RANK], self._turns, self._code
        starts = np.full(len(turns), 1)
        has_started = self._seen.graph.knows(self._seen.of_turns[turns], len(code.ranks) + ranks, starts)
        elsewhere = ranks != code.ranks[self._processes[turns]]
        return np.flatnonzero(elsewhere & ~has_started & (self._in_scratch == in_scratch))

    @cached_property
    def _executed(self) -> "_Order":
        return _Order.of(*self._run, 1)

    def _know(self, turns: IntArray, accesses: IntArray, inside: BoolArray | None = None) -> BoolArray:
        """Whether turns, or ends of GPUs counted from -1 on, come after accesses: have seen writes, or reads are done.

        Writes are seen at once `inside` a GPU, by its own processes.
        """
        is_known = self._seen.knows(turns, self._writers[accesses], self._step_of[self._turns[accesses]])
        at_once = ~self._writes[accesses] if inside is None else ~self._writes[accesses] | inside
        unseen = np.flatnonzero(~is_known & at_once)
        if len(unseen):
            reads = accesses[unseen]
            is_known[unseen] = self._executed.knows(
                turns[unseen], self._writers[reads], self._step_of[self._turns[reads]]
            )
        return is_known


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
