"""Memory and processes of the MSCCL++ interpreter, their conflicting accesses, and the results expected of them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ....errors import ProgramError
from ...interpreter.interpret import expected_outputs
from ...programs.layout import Layout
from ...programs.program import Buffer, Program
from ..format.execution_plan import ExecutionPlan, Gpu, Operation, Place

Site = tuple[Place, int]
"""A place, and the element of its allocation at which the executor takes its buffer to begin."""


class Accesses:
    """Detects races: conflicting accesses that are not ordered by happens-before."""

    def __init__(self, memory: Sequence[Memory], names: Mapping[int, str], starts: int) -> None:
        self.memory = memory
        self.names = names
        self.starts = starts

    def add(self, site: Site, part: int | None, clock: Clock, index: int, count: int, *, writes: bool) -> None:
        """Check an access against earlier conflicting ones, and record it."""
        place = site[0]
        memory = self.memory[place.rank]
        if not clock[self.starts + place.rank]:
            way = "writes to" if writes else "reads"
            raise ProgramError(
                f"race: {self.names[index]} {way} {place.buffer} chunk {place.start} of rank {place.rank}, which may "
                "not have started yet; let it wait for a signal"
            )
        for cell in memory.cells(site, part):
            last = memory.writes.get(cell)
            if last is not None and clock[last[0]] < last[1] and (last[0], last[1]) != (index, count):
                self._refuse(site, cell, last[0], index, ("writes", "writes" if writes else "reads"))
            if not writes:
                memory.reads[cell][index] = count
                continue
            for reader, at in memory.reads.pop(cell, {}).items():
                if clock[reader] < at and (reader, at) != (index, count):
                    self._refuse(site, cell, reader, index, ("reads", "writes"))
            memory.writes[cell] = index, count

    def check_end(self, rank: int, clock: Clock) -> None:
        """Check that all accesses to a rank's memory happen before its end."""
        memory = self.memory[rank]
        accesses = [(cell, *last) for cell, last in memory.writes.items()]
        accesses += [(cell, index, count) for cell, found in memory.reads.items() for index, count in found.items()]
        for (buffer, element), index, count in accesses:
            if clock[index] < count:
                raise ProgramError(
                    f"race: rank {rank} may end before {self.names[index]} has finished with {buffer} chunk "
                    f"{(element - memory.pads[buffer]) // memory.slices}; let it wait for that"
                )

    def _refuse(self, site: Site, cell: tuple[str, int], earlier: int, later: int, ways: tuple[str, str]) -> None:
        place, first = site
        chunk = (cell[1] - first) // self.memory[place.rank].slices
        raise ProgramError(
            f"race: {self.names[earlier]} {ways[0]} {place.buffer} chunk {chunk} of rank {place.rank} and "
            f"{self.names[later]} {ways[1]} it, but nothing keeps them in order"
        )


Data = npt.NDArray[Any]
Clock = npt.NDArray[np.signedinteger[Any]]
"""Last step of each process that is known to have finished; shared, so never changed once it has been passed on."""


@dataclass
class Process:
    """A thread block."""

    rank: int
    number: int
    index: int
    steps: list[tuple[Operation, int | None]]
    clock: Clock  # what all of its threads know
    waited: dict[int, Clock] = field(default_factory=dict)  # what single threads know on top of that, by thread
    at: int = 0

    def thread_clock(self, thread: int) -> Clock:
        """Return the clock of one of its threads."""
        waited = self.waited.get(thread)
        return self.clock if waited is None else np.maximum(self.clock, waited)

    def joint_clock(self) -> Clock:
        """Return the join of its threads' clocks."""
        waited = [*self.waited.values()]
        clock = np.maximum(self.clock, waited[0]) if waited else self.clock.copy()
        for each in waited[1:]:
            np.maximum(clock, each, out=clock)
        clock[self.index] = self.at
        return clock

    def __str__(self) -> str:
        return f"rank {self.rank} thread block {self.number}"


class Job(NamedTuple):
    """A request to a proxy: a copy, a signal, or both."""

    clock: Clock
    source: Site | None
    target: Site | None
    signals: bool
    part: int | None


@dataclass
class Proxy:
    """Executes the requests of one port channel in order."""

    rank: int
    channel: int
    index: int
    jobs: deque[Job] = field(default_factory=deque)
    done: int = 0

    def __str__(self) -> str:
        return f"port channel {self.channel} of rank {self.rank}"


class Memory:
    """Allocations of one rank, and the buffers in them.

    `pads`: elements of the allocations in front of the input and the output; in place, the first of them.
    """

    def __init__(
        self,
        gpu: Gpu,
        layout: Layout,
        rank: int,
        in_place: bool,
        slices: int,
        random_elements: Any,
        pads: tuple[int, int] = (0, 0),
    ) -> None:
        self.slices = slices
        self.pads = {"input": pads[0], "output": pads[1], "scratch": 0, "shared": pads[0]}
        self.first = self.pads.copy()
        self.names: dict[str, str] = {buffer: buffer for buffer in gpu.chunks}
        if in_place:
            self.names |= {"input": "shared", "output": "shared"}
            self.first["output"] = pads[0]
            if layout.collective.is_sharded:
                smaller: Buffer = "input" if layout.collective.input == "shard" else "output"
                self.first[smaller] += layout.offsets[rank] * slices
        ends: dict[str, int] = defaultdict(int)
        for buffer, chunks in gpu.chunks.items():
            allocation = self.names[buffer]
            ends[allocation] = max(ends[allocation], self.first[buffer] + chunks * slices)
        self.allocations: dict[str, Data] = {name: random_elements(end) for name, end in ends.items()}
        self.arrays: dict[str, Data] = {
            buffer: self.allocations[self.names[buffer]][self.first[buffer] :][: chunks * slices]
            for buffer, chunks in gpu.chunks.items()
        }
        self.writes: dict[tuple[str, int], tuple[int, int]] = {}
        self.reads: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)

    def span(self, site: Site, part: int | None) -> tuple[int, int]:
        """Elements in its allocation of a place, or of one slice of it."""
        place, first = site
        begin = first + place.start * self.slices
        if part is None:
            return begin, begin + place.count * self.slices
        return begin + part * place.count, begin + (part + 1) * place.count

    def view(self, site: Site, part: int | None) -> Data:
        """Return a view of the data."""
        (begin, end), place = self.span(site, part), site[0]
        found: Data = self.allocations[self.names[place.buffer]][begin:end]
        if len(found) < end - begin:
            raise ProgramError(
                f"{place.buffer} chunk {place.start} of rank {place.rank} is looked for beyond the end of its "
                "allocation, as another rank has it elsewhere"
            )
        return found

    def cells(self, site: Site, part: int | None) -> list[tuple[str, int]]:
        """Keys of the elements; aliased elements have the same key."""
        begin, end = self.span(site, part)
        return [(self.names[site[0].buffer], element) for element in range(begin, end)]


def unroll(operations: Sequence[Operation], slices: int) -> list[tuple[Operation, int | None]]:
    """Operations in execution order, each with its slice; None for all of the data."""
    steps: list[tuple[Operation, int | None]] = []
    for operation in operations:
        if operation.name == "pipeline":
            steps += [(inner, part) for part in range(slices) for inner in operation.body]
        else:
            steps.append((operation, None))
    return steps


def layout_of(plan: ExecutionPlan) -> Layout:
    """Layout of the plan's collective; the root is the rank that reads its input, or writes its output."""
    first = plan.gpus[0]
    chunks = max(first.input_chunks, first.output_chunks)
    if plan.collective.in_pairs:
        chunks *= plan.num_ranks
    shards: tuple[int, ...] = ()
    if plan.collective.has_one_root:
        root = _root(plan)
        shards = tuple(chunks * (rank == root) for rank in range(plan.num_ranks))
    return Layout.of(plan.collective, plan.num_ranks, chunks, shards)


def check_data(plan: ExecutionPlan, layout: Layout, memory: Sequence[Memory], inputs: Sequence[Data]) -> None:
    """Compare the results of all ranks with the expected ones, slice by slice."""
    slices = memory[0].slices
    given = []
    for rank, held in enumerate(inputs):
        begin, end = layout.input_range(rank)
        given.append(held.reshape(-1, slices)[: end - begin])
    shards = layout.shards if layout.collective.has_one_root else ()
    program = Program(plan.name, plan.collective, plan.num_ranks, layout.chunks, (), shards=shards)
    for rank, expected in enumerate(expected_outputs(program, given)):
        arrays = memory[rank].arrays
        if not plan.in_place and not np.array_equal(arrays["input"], inputs[rank]):
            raise ProgramError(f"rank {rank} ends with a changed input")
        wrong = np.argwhere(arrays["output"].reshape(-1, slices)[: len(expected)] != expected)
        if len(wrong):
            raise ProgramError(f"rank {rank} ends with wrong data in output chunk {wrong[0][0]}, slice {wrong[0][1]}")


def _root(plan: ExecutionPlan) -> int:
    """Return the only rank whose input is read, in a broadcast, or whose output is written, in a reduce."""
    found = set()
    for gpu in plan.gpus:
        for block in gpu.thread_blocks:
            for operation in (inner for outer in block for inner in (outer, *outer.body)):
                if plan.collective.reduces:
                    found |= {place.rank for place in operation.targets if place.buffer == "output"}
                else:
                    found |= {place.rank for place in operation.sources if place.buffer == "input"}
    if not found and plan.in_place and plan.num_ranks == 1:
        return 0
    if len(found) != 1:
        what = "have their output written" if plan.collective.reduces else "read their input"
        raise ProgramError(f"{len(found)} ranks of the {plan.collective} {what}; expected one, the root")
    return found.pop()
