"""Memory and operations of an execution plan as arrays, for the kernels that run them, and the results expected."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import ProgramError, UnsupportedError
from ...schedules import Collective
from ...support.arrays import IntArray
from ..programs.interpret import GARBAGE_ALONE, column, expected_outputs, symbolic_inputs
from ..programs.layout import Layout
from ..programs.program import Buffer
from . import executor
from .check import same_memory
from .execution_plan import CHANNEL_TYPES, ExecutionPlan, Operation, Place, Signal, flat

Data = npt.NDArray[Any]


class Memory:
    """Allocations of one rank, and the buffers in them.

    `pads`: elements of the allocations in front of the input and the output; in place, the first of them.  `bounds`:
    begin and end of each buffer's allocation in the memory of all ranks, which that of this one follows `begin`.
    """

    def __init__(
        self, plan: ExecutionPlan, layout: Layout | None, rank: int, slices: int, begin: int, pads: tuple[int, int]
    ) -> None:
        gpu, in_place = plan.gpus[rank], plan.in_place
        self.slices, self.chunks = slices, gpu.chunks
        self.pads = {"input": pads[0], "output": pads[1], "scratch": 0, "shared": pads[0]}
        self.first = self.pads.copy()
        self.names: dict[str, str] = {buffer: buffer for buffer in gpu.chunks}
        if in_place:
            self.names |= {"input": "shared", "output": "shared"}
            self.first["output"] = pads[0]
            if layout is not None and layout.collective.is_sharded:
                smaller: Buffer = "input" if layout.collective.input == "shard" else "output"
                self.first[smaller] += layout.offsets[rank] * slices
        sizes: dict[str, int] = defaultdict(int)
        for buffer, chunks in gpu.chunks.items():
            allocation = self.names[buffer]
            sizes[allocation] = max(sizes[allocation], self.first[buffer] + chunks * slices)
        # Packets take twice the room, in each half of scratch.
        self.half = sizes["scratch"] * (1 + plan.packets)
        sizes["scratch"] = self.half * plan.halves
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
        if layout is None or any(operation.part[1] > 1 for operation in plan.operations()):
            what = "a plan for no collective that collopt knows" if layout is None else "parts of operations (tbg_info)"
            raise UnsupportedError(f"contents cannot be followed through {what}")
        for rank in range(plan.num_ranks):
            self._memory.append(Memory(plan, layout, rank, 1, begin, (0, 0)))
            begin = self._memory[-1].end
        self._elements = column([GARBAGE_ALONE] * begin)
        for own, contents in zip(self._memory, symbolic_inputs(layout), strict=True):
            own.bind(self._elements)
            own.arrays["input"][: len(contents)] = contents

    def run(self, rank: int, operation: Operation) -> list[Data]:
        """Run an operation of a rank; return what it reads, place by place."""
        from_base = operation.from_base or operation.name == "get"
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
        step = 1 + place.packed
        begin = self._memory[place.rank].bounds[place.buffer][0] + place.start * step
        begin += 0 if from_base else self._memory[rank].first[place.buffer]
        return self._elements[begin : begin + place.count * step : step]


def layout_of(plan: ExecutionPlan) -> Layout | None:
    """Layout of the plan's collective; the root is the rank that reads its input, or writes its output."""
    first = plan.gpus[0]
    if plan.collective is None:
        return None
    chunks = max(first.input_chunks, first.output_chunks)
    if plan.collective.in_pairs:
        chunks *= plan.num_ranks
    shards: tuple[int, ...] = ()
    if plan.collective.has_one_root:
        root = _root(plan, plan.collective)
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


def _root(plan: ExecutionPlan, collective: Collective) -> int:
    """Return the only rank whose input is read, in a broadcast, or whose output is written, in a reduce."""
    roots = set()
    for operation in plan.operations():
        if collective.reduces:
            roots |= {place.rank for place in operation.targets if place.buffer == "output"}
        else:
            roots |= {place.rank for place in operation.sources if place.buffer == "input"}
    if not roots and plan.in_place and plan.num_ranks == 1:
        return 0
    if len(roots) != 1:
        what = "have their output written" if collective.reduces else "read their input"
        raise ProgramError(f"{len(roots)} ranks of the {collective} {what}; expected one, the root")
    return roots.pop()


NOP, WAIT, SIGNAL, COPY, SUM, JOB, CALL = range(7)
"""Codes of operations; a CALL is a NOP with which the next call of the plan begins on a GPU."""
CODE, BEGIN, SPLIT, END, LAST, RELAXED, SIGNALS, LOOP, PIPED = range(9)
"""Columns of operations; SIGNALS: 1 where a job signals at the other end, 2 where it wakes its block too."""
START, SIZE, UNIT, RANK, SILENT, BEYOND, SCRATCH, WITH_PACKETS, STRIDE, FIRST_PACKET, LAST_PACKET = range(11)
"""Columns of places."""
CODES: dict[str, int] = {
    **dict.fromkeys(("nop", "flush"), NOP),
    **dict.fromkeys((*executor.WAITING, "sem_acquire"), WAIT),
    **dict.fromkeys((*executor.SIGNALLING, "sem_release"), SIGNAL),
    **dict.fromkeys(executor.DATA_OPERATIONS, SUM),
    **dict.fromkeys((*executor.PAIRED, "copy"), COPY),
}


class Code(NamedTuple):
    """Operations, what they refer to, and the processes: thread blocks, then the proxies of port channels.

    `operations`: (operations, 9); of its `arguments`, those from BEGIN to SPLIT are places read, to END places written,
    to LAST resources, or proxies of a job; at the end of a pipeline LOOP is its first operation, elsewhere -1.
    `firsts`: (blocks + 1,), first operations of blocks.  `places`: (places, 11), first element, size in all and of a
    slice, the rank, whether the place is SILENT, BEYOND the end of its allocation, in SCRATCH, or of an operation with
    packets, each of which one thread looks after, how far apart its elements are, which is 2 for packets, and their
    range in the row of all packets.  `ranks`: (processes,).  `other_ends`: (port channels,), the resource at the other
    end; number n that has none is -1 - n.  `flushes`: (port channels,), the resource that tells a block of the end of
    its request.  `calls` (operations,): the call of each, from 1.
    """

    operations: IntArray
    firsts: IntArray
    arguments: IntArray
    places: IntArray
    slices: int
    ranks: IntArray
    num_ranks: int
    other_ends: IntArray
    flushes: IntArray
    calls: IntArray
    packets: int

    @property
    def executions(self) -> IntArray:
        """How often each operation runs, (operations,)."""
        return np.where(self.operations[:, PIPED] == 1, self.slices, 1)


Row = tuple[int, ...]


class Encoder:
    """Encodes a plan for calls in a row; `resources`, `operations` and `places` are what their numbers stand for."""

    def __init__(self, plan: ExecutionPlan, memory: Sequence[Memory], slices: int, calls: int = 1) -> None:
        self.plan, self.memory, self.slices, self.calls = plan, memory, slices, calls
        self.blocks = [(rank, at) for rank, gpu in enumerate(plan.gpus) for at in range(len(gpu.thread_blocks))]
        sizes = {
            "port": [len(gpu.peers["port"]) for gpu in plan.gpus],
            "memory": [len(gpu.peers["memory"]) for gpu in plan.gpus],
            "semaphore": [len(gpu.semaphores) for gpu in plan.gpus],
            "flush": [len(gpu.peers["port"]) for gpu in plan.gpus],
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
        self._barriers: dict[tuple[int, int], tuple[int, dict[int, tuple[int, int]]]] = {}
        for rank, gpu in enumerate(plan.gpus):
            members: dict[int, set[int]] = {}
            for number, block in enumerate(gpu.thread_blocks):
                for operation in flat(block):
                    if operation.name == "barrier":
                        members.setdefault(operation.barrier[0], set()).add(number)
            if calls > 1 and gpu.thread_blocks:
                members[-1] = set(range(len(gpu.thread_blocks)))  # Between two calls
            for barrier, blocks in members.items():
                self._barriers[rank, barrier] = self._barrier(rank, barrier, sorted(blocks))
        self.operations: list[Operation] = []
        self.places: list[Place] = []
        self._arguments: list[int] = []
        self._place_rows: list[Row] = []

    def _barrier(self, rank: int, number: int, blocks: list[int]) -> tuple[int, dict[int, tuple[int, int]]]:
        """The first block of a barrier, and what each other signals to it and waits for."""
        pairs = {}
        for block in blocks[1:]:
            pairs[block] = (len(self.resources), len(self.resources) + 1)
            self.resources += [("barrier", rank, number)] * 2
        return blocks[0], pairs

    @property
    def initial(self) -> IntArray:
        """Signals of each resource at the start, (resources,)."""
        initial = np.zeros(len(self.resources), dtype=np.int64)
        for rank, gpu in enumerate(self.plan.gpus):
            initial[self._first["semaphore"][rank] :][: len(gpu.semaphores)] = gpu.semaphores
        return initial

    def code(self) -> Code:
        """Encode all operations."""
        rows: list[Row] = []
        calls: list[int] = []
        firsts = [0]
        for rank, gpu in enumerate(self.plan.gpus):
            for number, block in enumerate(gpu.thread_blocks):
                for call in range(1, self.calls + 1):
                    if call > 1:
                        rows += [(*row, -1, 0) for row in self._meeting(rank, number, Operation("call"))]
                    for operation in block:
                        begin, piped = len(rows), operation.name == "pipeline"
                        for inner in operation.body if piped else (operation,):
                            rows += [(*row, -1, piped) for row in self._rows(rank, number, inner, call)]
                        if len(rows) > begin and piped:
                            rows[-1] = (*rows[-1][:LOOP], begin, piped)
                    calls += [call] * (len(rows) - len(calls))
                firsts.append(len(rows))
        ports = [rank for kind, rank, _ in self.resources[: self.num_ports]]
        places = np.array(self._place_rows, dtype=np.int64).reshape(-1, STRIDE + 1)
        packets, count = _packets(places)
        flush = self._first["flush"][0] if self.plan.gpus else 0
        return Code(
            np.array(rows, dtype=np.int64).reshape(-1, PIPED + 1),
            np.array(firsts),
            np.array(self._arguments, dtype=np.int64),
            np.concatenate([places, packets], axis=1),
            self.slices,
            np.array([rank for rank, _ in self.blocks] + ports),
            len(self.plan.gpus),
            np.array(self._other_ends[: self.num_ports], dtype=np.int64),
            flush + np.arange(self.num_ports),
            np.array(calls, dtype=np.int64),
            count,
        )

    def _row(
        self,
        operation: Operation,
        code: int,
        begin: int,
        split: int,
        end: int,
        numbers: Sequence[int],
        signals: int = 0,
    ) -> Row:
        """Columns of an operation, without those of pipelines; `numbers`: of resources."""
        self.operations.append(operation)
        self._arguments += numbers
        return code, begin, split, end, len(self._arguments), operation.name == "rlxsignal", signals

    def _sync(self, operation: Operation, code: int, numbers: Sequence[int] = ()) -> Row:
        at = len(self._arguments)
        return self._row(operation, code, at, at, at, numbers)

    def _meeting(self, rank: int, block: int, operation: Operation) -> list[Row]:
        """Rows of a barrier: the first block waits for all pairs, and then signals to them."""
        begins_call = operation.name == "call"
        first, pairs = self._barriers[rank, -1 if begins_call else operation.barrier[0]]
        rows = [self._sync(operation, NOP)]
        if block == first:
            rows.append(self._sync(operation, WAIT, [to for to, _ in pairs.values()]))
            rows.append(self._sync(operation, CALL if begins_call else NOP))
            rows.append(self._sync(operation, SIGNAL, [back for _, back in pairs.values()]))
        else:
            to, back = pairs[block]
            rows += [self._sync(operation, SIGNAL, [to]), self._sync(operation, WAIT, [back])]
            rows.append(self._sync(operation, NOP))
        return rows

    def _rows(self, rank: int, block: int, operation: Operation, call: int) -> list[Row]:
        """Rows of an operation."""
        name, kind = operation.name, operation.channel_type
        if name == "barrier":
            return self._meeting(rank, block, operation)
        code, numbers = CODES[name], operation.channels or operation.semaphores
        if code == NOP:
            return [self._sync(operation, NOP)] if name == "nop" else []
        own = self._first[kind if kind in CHANNEL_TYPES else "semaphore"][rank]
        resources = [own + number for number in numbers]
        if code == WAIT or (code == SIGNAL and kind != "port"):
            ends = [self._other_ends[end] for end in resources] if code == SIGNAL and kind else resources
            return [self._sync(operation, code, ends)]
        first = self.memory[rank].first
        read, targets = operation.copies(self.plan.gpus[rank])
        rows, begin = list[Row](), len(self._arguments)
        if kind == "port" and name == "rppkt":
            # All threads wait for the packets, and meet, before one asks for copies.
            self._add_places(operation, read, first, call)
            rows = [self._row(operation, COPY, begin, len(self._arguments), len(self._arguments), ())]
            rows.append(self._sync(operation, NOP))
            read, begin = read * len(targets), len(self._arguments)
        bases = dict.fromkeys(first, 0)
        self._add_places(operation, read, bases if operation.from_base or name == "get" else first, call)
        split = len(self._arguments)
        if name == "get":  # Its offsets are those of the other end (line 139).
            for source, target in zip(read, targets, strict=True):
                shift = first[source.buffer]
                self._add_places(operation, [target], {name: begin + shift for name, begin in first.items()}, call)
        else:
            self._add_places(
                operation, targets, first, call, read[0] if name in executor.SWITCH_OPERATIONS[1:] else None
            )
        end = len(self._arguments)
        if kind != "port":
            return [*rows, self._row(operation, code, begin, split, end, ())]
        flushed = 2 if name == "pwsf" else int(operation.signals)
        rows.append(
            self._row(operation, JOB, begin, split, end, [number + len(self.blocks) for number in resources], flushed)
        )
        if flushed == 2:
            flush = self._first["flush"][rank]
            rows.append(self._sync(operation, WAIT, [flush + number for number in numbers]))
        return rows

    def _add_places(
        self,
        operation: Operation,
        places: Sequence[Place],
        first: Mapping[str, int],
        call: int,
        stored: Place | None = None,
    ) -> None:
        """Number places where a GPU finds them: it takes the buffers of all GPUs to begin where its own do."""
        with_packets = any(place.packed for place in (*operation.sources, *operation.targets))
        for place in places:
            memory, stride = self.memory[place.rank], 1 + place.packed
            begin, end = memory.bounds[place.buffer]
            if place.buffer == "scratch":
                begin += memory.half * ((call - 1) % self.plan.halves)
                end = begin + memory.half
            # The executor divides sizes in units of its alignment, which are elements here (``calcOffset``).
            number, parts = operation.part
            share, remainder = divmod(place.count * self.slices, parts)
            offset, size = number * share + min(number, remainder), share + (number < remainder)
            begin += first[place.buffer] + (place.start * self.slices + offset) * stride
            # A store of what is there already changes nothing for whoever reads it.
            silent = stored is not None and same_memory(self.plan, stored, place)
            self._arguments.append(len(self.places))
            self.places.append(place)
            overflows = begin + size * stride > end
            in_scratch = place.buffer == "scratch"
            self._place_rows.append(
                (begin, size, place.count, place.rank, silent, overflows, in_scratch, with_packets, stride)
            )


def _packets(places: IntArray) -> tuple[IntArray, int]:
    """First and last packet of each place, (places, 2), and how many there are: cut at the ends of all places."""
    packed = places[:, STRIDE] == 2
    begins, ends = places[:, START], places[:, START] + 2 * places[:, SIZE]
    borders = np.unique(np.concatenate([begins[packed], ends[packed]]))
    ranges = np.stack([np.searchsorted(borders, begins), np.searchsorted(borders, ends)], axis=1)
    return np.where(packed[:, None], ranges, 0), len(borders)
