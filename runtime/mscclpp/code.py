"""Memory and operations of an execution plan as arrays, for the kernels that run them, and the results expected."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import ProgramError
from ...support.arrays import IntArray
from ..programs.interpret import GARBAGE_ALONE, column, expected_outputs, symbolic_inputs
from ..programs.layout import Layout
from ..programs.program import Buffer
from . import executor
from .check import same_memory
from .execution_plan import ExecutionPlan, Gpu, Operation, Place, Signal

Data = npt.NDArray[Any]


class Memory:
    """Allocations of one rank, and the buffers in them.

    `pads`: elements of the allocations in front of the input and the output; in place, the first of them.  `bounds`:
    begin and end of each buffer's allocation in the memory of all ranks, which that of this one follows `begin`.
    """

    def __init__(
        self, gpu: Gpu, layout: Layout, rank: int, in_place: bool, slices: int, begin: int, pads: tuple[int, int]
    ) -> None:
        self.slices, self.chunks = slices, gpu.chunks
        self.pads = {"input": pads[0], "output": pads[1], "scratch": 0, "shared": pads[0]}
        self.first = self.pads.copy()
        self.names: dict[str, str] = {buffer: buffer for buffer in gpu.chunks}
        if in_place:
            self.names |= {"input": "shared", "output": "shared"}
            self.first["output"] = pads[0]
            if layout.collective.is_sharded:
                smaller: Buffer = "input" if layout.collective.input == "shard" else "output"
                self.first[smaller] += layout.offsets[rank] * slices
        sizes: dict[str, int] = defaultdict(int)
        for buffer, chunks in gpu.chunks.items():
            allocation = self.names[buffer]
            sizes[allocation] = max(sizes[allocation], self.first[buffer] + chunks * slices)
        ends = dict(zip(sizes, accumulate(sizes.values(), initial=begin), strict=False))
        self.bounds = {buffer: (ends[name], ends[name] + sizes[name]) for buffer, name in self.names.items()}
        self.end = begin + sum(sizes.values())

    def bind(self, memory: Data) -> None:
        """Make `arrays` of the buffers, views of the memory of all ranks."""
        begins = {buffer: self.bounds[buffer][0] + self.first[buffer] for buffer in self.chunks}
        self.arrays: dict[str, Data] = {
            buffer: memory[begins[buffer] :][: chunks * self.slices] for buffer, chunks in self.chunks.items()
        }

    def place(self, element: int) -> tuple[str, int]:
        """Allocation that an element of the memory of all ranks is in, and the chunk."""
        for buffer, (begin, end) in self.bounds.items():
            if begin <= element < end:
                name = self.names[buffer]
                return name, (element - begin - self.pads[name]) // self.slices
        raise AssertionError


class SymbolicMemory:
    """Memory of all ranks that holds `Contents`; operations run in any order that their signals allow."""

    def __init__(self, plan: ExecutionPlan) -> None:
        self._plan, self._memory, begin = plan, list[Memory](), 0
        layout = layout_of(plan)
        for rank, gpu in enumerate(plan.gpus):
            self._memory.append(Memory(gpu, layout, rank, plan.in_place, 1, begin, (0, 0)))
            begin = self._memory[-1].end
        self._elements = column([GARBAGE_ALONE] * begin)
        for own, contents in zip(self._memory, symbolic_inputs(layout), strict=True):
            own.bind(self._elements)
            own.arrays["input"][: len(contents)] = contents

    def run(self, rank: int, operation: Operation) -> list[Data]:
        """Run an operation of a rank; return what it reads, place by place."""
        from_base = operation.from_base and operation.channel_type == "port"
        read, targets = operation.copies(self._plan.gpus[rank])
        data = [self._at(rank, place, from_base).copy() for place in read]
        if targets and CODES[operation.name] == SUM:
            for place in targets:
                self._at(rank, place)[...] = sum(data[1:], data[0])
        elif CODES[operation.name] == COPY:
            for place, copied in zip(targets, data, strict=True):
                self._at(rank, place)[...] = copied
        return data

    def _at(self, rank: int, place: Place, from_base: bool = False) -> Data:
        """Contents of a place where a GPU finds it: it takes the buffers of all GPUs to begin where its own do."""
        begin = self._memory[place.rank].bounds[place.buffer][0] + place.start
        begin += 0 if from_base else self._memory[rank].first[place.buffer]
        return self._elements[begin : begin + place.count]


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
    chunks = []
    for rank, own in enumerate(inputs):
        begin, end = layout.input_range(rank)
        chunks.append(own.reshape(-1, slices)[: end - begin])
    for rank, expected in enumerate(expected_outputs(layout, chunks)):
        arrays = memory[rank].arrays
        if not plan.in_place and not np.array_equal(arrays["input"], inputs[rank]):
            raise ProgramError(f"rank {rank} ends with a changed input")
        mistakes = np.argwhere(arrays["output"].reshape(-1, slices)[: len(expected)] != expected)
        if len(mistakes):
            raise ProgramError(
                f"rank {rank} ends with wrong data in output chunk {mistakes[0][0]}, slice {mistakes[0][1]}"
            )


def _root(plan: ExecutionPlan) -> int:
    """Return the only rank whose input is read, in a broadcast, or whose output is written, in a reduce."""
    roots = set()
    for operation in plan.operations():
        if plan.collective.reduces:
            roots |= {place.rank for place in operation.targets if place.buffer == "output"}
        else:
            roots |= {place.rank for place in operation.sources if place.buffer == "input"}
    if not roots and plan.in_place and plan.num_ranks == 1:
        return 0
    if len(roots) != 1:
        what = "have their output written" if plan.collective.reduces else "read their input"
        raise ProgramError(f"{len(roots)} ranks of the {plan.collective} {what}; expected one, the root")
    return roots.pop()


NOP, WAIT, SIGNAL, COPY, SUM, JOB = range(6)
"""Codes of operations."""
CODE, BEGIN, SPLIT, END, LAST, RELAXED, SIGNALS, LOOP, PIPED = range(9)
"""Columns of operations."""
START, SIZE, RANK, SILENT, BEYOND = range(5)
"""Columns of places."""
CODES: dict[str, int] = {
    "nop": NOP,
    **dict.fromkeys((*executor.WAITING, "sem_acquire"), WAIT),
    **dict.fromkeys((*executor.SIGNALLING, "sem_release"), SIGNAL),
    **dict.fromkeys(executor.DATA_OPERATIONS, COPY),
    **dict.fromkeys(("re", *executor.SWITCH_OPERATIONS), SUM),
}


class Code(NamedTuple):
    """Operations, what they refer to, and the processes: thread blocks, then the proxies of port channels.

    `operations`: (operations, 9); of its `arguments`, those from BEGIN to SPLIT are places read, to END places written,
    to LAST resources, or proxies of a job; at the end of a pipeline LOOP is its first operation, elsewhere -1.
    `firsts`: (blocks + 1,), first operations of blocks.  `places`: (places, 5), first element and size of a slice, the
    rank, and whether the place is SILENT or BEYOND the end of its allocation; it has `slices` slices.  `ranks`:
    (processes,).  `other_ends`: (port channels,), the resource at the other end; number n that has none is -1 - n.
    """

    operations: IntArray
    firsts: IntArray
    arguments: IntArray
    places: IntArray
    slices: int
    ranks: IntArray
    num_ranks: int
    other_ends: IntArray

    @property
    def executions(self) -> IntArray:
        """How often each operation runs, (operations,)."""
        return np.where(self.operations[:, PIPED] == 1, self.slices, 1)


class Encoder:
    """Encodes a plan; `resources`, `operations` and `places` are what their numbers stand for."""

    def __init__(self, plan: ExecutionPlan, memory: Sequence[Memory], slices: int) -> None:
        self.plan, self.memory, self.slices = plan, memory, slices
        self.blocks = [(rank, at) for rank, gpu in enumerate(plan.gpus) for at in range(len(gpu.thread_blocks))]
        sizes = {
            "port": [len(gpu.peers["port"]) for gpu in plan.gpus],
            "memory": [len(gpu.peers["memory"]) for gpu in plan.gpus],
            "semaphore": [len(gpu.semaphores) for gpu in plan.gpus],
        }
        self.resources: list[Signal] = [
            (kind, rank, at) for kind, counts in sizes.items() for rank, size in enumerate(counts) for at in range(size)
        ]
        firsts = accumulate((size for counts in sizes.values() for size in counts), initial=0)
        self._first = {kind: [next(firsts) for _ in counts] for kind, counts in sizes.items()}
        self.num_ports = sum(sizes["port"])
        self._other_ends = [-1 - number for number in range(len(self.resources))]
        for (rank, kind, number), (peer, _, other) in plan.channel_pairs().items():
            self._other_ends[self._first[kind][rank] + number] = self._first[kind][peer] + other
        self.operations: list[Operation] = []
        self.places: list[Place] = []
        self._arguments: list[int] = []
        self._place_rows: list[tuple[int, int, int, bool, bool]] = []

    @property
    def initial(self) -> IntArray:
        """Signals of each resource at the start, (resources,)."""
        values = [value for gpu in self.plan.gpus for value in gpu.semaphores]
        return np.array([0] * (len(self.resources) - len(values)) + values, dtype=np.int64)

    def code(self) -> Code:
        """Encode all operations."""
        rows: list[int] = []
        firsts = [0]
        for rank, gpu in enumerate(self.plan.gpus):
            for block in gpu.thread_blocks:
                for operation in block:
                    begin, piped = len(self.operations), operation.name == "pipeline"
                    body = operation.body if piped else (operation,)
                    self.operations += body
                    for inner in body:
                        rows += self._row(rank, inner)
                        rows += -1, piped
                    if piped and body:
                        rows[LOOP - PIPED - 1] = begin
                firsts.append(len(self.operations))
        ports = [rank for kind, rank, _ in self.resources[: self.num_ports]]
        return Code(
            np.array(rows, dtype=np.int64).reshape(-1, PIPED + 1),
            np.array(firsts),
            np.array(self._arguments, dtype=np.int64),
            np.array(self._place_rows, dtype=np.int64).reshape(-1, BEYOND + 1),
            self.slices,
            np.array([rank for rank, _ in self.blocks] + ports),
            len(self.plan.gpus),
            np.array(self._other_ends[: self.num_ports], dtype=np.int64),
        )

    def _row(self, rank: int, operation: Operation) -> tuple[int, ...]:
        """Columns of an operation, without those of pipelines."""
        name, kind, arguments = operation.name, operation.channel_type, self._arguments
        code, begin, numbers = CODES[name], len(arguments), operation.channels or operation.semaphores
        if code == NOP:
            return NOP, begin, begin, begin, begin, 0, 0
        read, targets = operation.copies(self.plan.gpus[rank])
        first = self.memory[rank].first
        self._add_places(read, dict.fromkeys(first, 0) if operation.from_base and kind == "port" else first)
        split = len(arguments)
        self._add_places(targets, first, read[0] if name == "gstore" else None)
        end = len(arguments)
        if code in (WAIT, SIGNAL) or kind == "port":
            number = self._first[kind or "semaphore"][rank]
            if kind == "port" and code != WAIT:
                code, number = JOB, number + len(self.blocks)
            arguments += [number + channel for channel in numbers]
            if code == SIGNAL and kind == "memory":
                arguments[end:] = [self._other_ends[channel] for channel in arguments[end:]]
        return code, begin, split, end, len(arguments), name == "rlxsignal", name != "put"

    def _add_places(self, places: Sequence[Place], first: Mapping[str, int], stored: Place | None = None) -> None:
        """Number places where a GPU finds them: it takes the buffers of all GPUs to begin where its own do."""
        for place in places:
            begin, end = self.memory[place.rank].bounds[place.buffer]
            begin += first[place.buffer] + place.start * self.slices
            # A store of what is there already changes nothing for whoever reads it.
            silent = stored is not None and same_memory(self.plan, stored, place)
            self._arguments.append(len(self.places))
            self.places.append(place)
            self._place_rows.append((begin, place.count, place.rank, silent, begin + place.count * self.slices > end))
