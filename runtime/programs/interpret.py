"""Reference interpreter of programs on random 64-bit integers, under random interleavings of the thread blocks.

Connections hold a bounded number of transfers; outputs and scratch start as noise.  A run with wrong results is
repeated with symbolic sums, to say which contributions a chunk holds; see docs/explanation/programs.md.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import ProgramError
from .check import check_program
from .layout import Layout
from .ordering import CYCLE_SHOWN, Site, sites
from .program import ChunkRange, Program, ThreadBlock, check_counts

Data = npt.NDArray[Any]

INT64 = np.iinfo(np.int64)


class InterpreterReport(NamedTuple):
    """Statistics of `run_program`, which raises on any error."""

    program: str  # name of the program
    interleavings: int
    steps: int  # in one run, as those below
    transfers: int
    chunks_sent: int


def run_program(program: Program, *, interleavings: int = 8, seed: int = 0, fifo_depth: int = 2) -> InterpreterReport:
    """Check a program, then run it under several random interleavings and compare the results with the collective's.

    Raises `ProgramError` if `check_program` refuses the program, or a run deadlocks or leaves wrong data behind.

    Parameters
    ----------
    program : Program
        Checked or not.
    interleavings : int
        Number of runs; after `check_program` all give the same data, so they test the machine against the proof.
    seed : int
        0 or more.
    fifo_depth : int
        Transfers that a connection holds before its sender has to wait.

    Examples
    --------
    >>> from collopt.schedules import Forest
    >>> from collopt.runtime.lowering.lower import lower
    >>> forest = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])
    >>> run_program(lower(forest, "allgather")).transfers
    2
    """
    check_counts({"interleavings": interleavings, "fifo_depth": fifo_depth})
    check_counts({"seed": seed}, minimum=0)
    check_program(program)
    for number in range(interleavings):
        run_interleaving(program, seed=seed * 1_000_003 + number, fifo_depth=fifo_depth)
    sends = [step.count for _, step in sites(program) if step.kind == "send"]
    return InterpreterReport(program.name, interleavings, program.num_instructions, len(sends), sum(sends))


def run_interleaving(program: Program, *, seed: int, fifo_depth: int = 2) -> None:
    """Run a program once without checking it first."""
    generator, layout = np.random.default_rng(seed), program.layout

    def random_chunks(chunks: int) -> Data:
        return generator.integers(INT64.min, INT64.max, chunks, endpoint=True)

    inputs = [random_chunks(end - begin) for begin, end in map(layout.input_range, range(program.num_ranks))]
    machine = _Machine(program, fifo_depth, inputs, random_chunks)
    machine.run(seed)
    for rank, expected in enumerate(expected_outputs(layout, inputs)):
        memory = machine.memory[rank]
        if not program.in_place and not np.array_equal(memory["input"], inputs[rank]):
            raise ProgramError(f"rank {rank} ends with a changed input")
        mistakes = np.flatnonzero(memory["output"] != expected)
        if len(mistakes):
            chunk, symbols = int(mistakes[0]), symbolic_inputs(layout)
            machine = symbolic_machine(program, fifo_depth)
            machine.run(seed)
            contents = describe_contents(machine.memory[rank]["output"][chunk], layout)
            expectation = describe_contents(expected_outputs(layout, symbols)[rank][chunk], layout)
            raise ProgramError(f"rank {rank} ends with {contents} in output chunk {chunk}; expected {expectation}")


def symbolic_machine(program: Program, fifo_depth: int = 2) -> _Machine:
    """Return a machine whose memory holds `Contents`; what nobody has written is garbage."""
    inputs = symbolic_inputs(program.layout)
    return _Machine(program, fifo_depth, inputs, lambda chunks: column([GARBAGE_ALONE] * chunks))


READY = -1
NOBODY = -2


class _Block:
    """A running thread block; `sends_to` and `recvs_from` are its connections."""

    def __init__(self, rank: int, number: int, code: ThreadBlock) -> None:
        self.rank, self.number, self.code = rank, number, code
        self.next_step = 0
        self.sends_to = None if code.send_peer is None else (rank, code.send_peer, code.channel)
        self.recvs_from = None if code.recv_peer is None else (code.recv_peer, rank, code.channel)

    @property
    def site(self) -> Site:
        """Position of the next step."""
        return Site(self.rank, self.number, self.next_step)

    @property
    def is_finished(self) -> bool:
        """Whether it has run all its steps."""
        return self.next_step == len(self.code.instructions)


class _Machine:
    """Memory, connections and thread blocks of all ranks."""

    def __init__(self, program: Program, fifo_depth: int, inputs: list[Data], poison: Callable[[int], Data]) -> None:
        self.program = program
        self.fifo_depth = fifo_depth
        self.memory = [
            self._buffers(rank.rank, inputs[rank.rank].copy(), poison(rank.output_chunks), poison(rank.scratch_chunks))
            for rank in program.ranks
        ]
        self.blocks = [
            _Block(rank.rank, number, code) for rank in program.ranks for number, code in enumerate(rank.thread_blocks)
        ]
        self.first_block = np.cumsum([0, *(len(rank.thread_blocks) for rank in program.ranks)]).tolist()
        self.senders = {block.sends_to: index for index, block in enumerate(self.blocks) if block.sends_to}
        self.receivers = {block.recvs_from: index for index, block in enumerate(self.blocks) if block.recvs_from}
        self.fifos: dict[tuple[int, int, int], deque[Data]] = {
            connection: deque() for connection in (*self.senders, *self.receivers)
        }

    def _buffers(self, rank: int, own: Data, output: Data, scratch: Data) -> dict[str, Data]:
        if self.program.in_place:
            # The smaller of the two becomes its own part of the larger.
            begin, end = self.program.layout.input_range(rank)
            first, last = self.program.layout.output_range(rank)
            if end - begin >= last - first:
                output = own[first - begin : last - begin]
            else:
                output[begin - first : end - first] = own
                own = output[begin - first : end - first]
        return {"input": own, "output": output, "scratch": scratch}

    def run(self, seed: int) -> None:
        """Run blocks in random order until all have finished, or none can proceed."""
        generator = random.Random(seed)
        runnable = list(range(len(self.blocks)))
        generator.shuffle(runnable)
        sleepers: dict[int, list[int]] = {}
        while runnable:
            turn = generator.randrange(len(runnable))
            index = runnable[turn]
            is_finished = self.blocks[index].is_finished
            if not is_finished and (blocker := self._blocker(index)) == READY:
                self._execute(self.blocks[index])
                runnable.extend(sleepers.pop(index, ()))
                continue
            runnable[turn] = runnable[-1]
            runnable.pop()
            if not is_finished:
                sleepers.setdefault(blocker, []).append(index)
        stuck = next((index for index, block in enumerate(self.blocks) if not block.is_finished), None)
        if stuck is not None:
            raise ProgramError(self._describe_deadlock(stuck))
        for (sender, receiver, channel), fifo in self.fifos.items():
            if fifo:
                raise ProgramError(
                    f"rank {receiver} never receives {len(fifo)} transfers of rank {sender} on channel {channel}"
                )

    def _blocker(self, index: int) -> int:
        """Return the block that this one has to wait for, `READY` or `NOBODY`."""
        block = self.blocks[index]
        step = block.code.instructions[block.next_step]
        for wait in step.depends:
            other = self.first_block[block.rank] + wait.thread_block
            if other >= self.first_block[block.rank + 1]:
                return NOBODY
            if self.blocks[other].next_step <= wait.step:
                return self._if_unfinished(other)
        if step.kind == "send" and block.sends_to and len(self.fifos[block.sends_to]) >= self.fifo_depth:
            return self._if_unfinished(self.receivers.get(block.sends_to))
        if step.receives and block.recvs_from and not self.fifos[block.recvs_from]:
            return self._if_unfinished(self.senders.get(block.recvs_from))
        return READY

    def _if_unfinished(self, index: int | None) -> int:
        return NOBODY if index is None or self.blocks[index].is_finished else index

    def execute(self, site: Site) -> Data:
        """Run the next step of a thread block, which is ready; return what it read, or took in."""
        return self._execute(self.blocks[self.first_block[site.rank] + site.thread_block])

    def _execute(self, block: _Block) -> Data:
        """Run the next step of a block that is ready; return its data."""
        step = block.code.instructions[block.next_step]
        if step.receives:
            data = self.fifos[block.recvs_from].popleft()  # type: ignore[index]
            if len(data) != step.count:
                raise ProgramError(f"{block.site} receives {step.count} chunks but {len(data)} were sent")
        else:
            data = self._range(block, step.source, step.count).copy()
        if step.kind == "send":
            self.fifos[block.sends_to].append(data)  # type: ignore[index]
        else:
            target = self._range(block, step.target, step.count)
            if step.kind == "recv_reduce":
                data = data + self._range(block, step.source, step.count)
            target[...] = target + data if step.kind == "reduce" else data
        block.next_step += 1
        return data

    def _range(self, block: _Block, place: ChunkRange | None, count: int) -> Data:
        assert place is not None  # The checks know which kinds have which ends.
        return self.memory[block.rank][place.buffer][place.start : place.start + count]

    def _describe_deadlock(self, index: int) -> str:
        trail: list[int] = []
        while index not in trail and index != NOBODY:
            trail.append(index)
            index = self._blocker(index)
        if index == NOBODY:
            return f"the program deadlocks: {self._step(trail[-1])} waits for something that never happens"
        cycle = [self._step(member) for member in trail[trail.index(index) :]]
        shown = cycle[:CYCLE_SHOWN] + ([f"... ({len(cycle)} in all)"] if len(cycle) > CYCLE_SHOWN else [])
        return f"the program deadlocks: {' waits for '.join([*shown, cycle[0]])}"

    def _step(self, index: int) -> str:
        block = self.blocks[index]
        step = block.code.instructions[block.next_step]
        peer = f" from rank {block.code.recv_peer}" if step.receives else ""
        if step.kind == "send":
            peer = f" to rank {block.code.send_peer}"
        return f"{block.site} ({step.kind}{peer})"


def expected_outputs(layout: Layout, inputs: list[Data]) -> list[Data]:
    """Expected output of every rank by the definition of the collective."""
    if not layout.reduces:
        # In rank order the inputs are all chunks in order; ranks without data have none.
        chunks = np.concatenate(inputs)
        parts = [[chunks[begin:end] for begin, end in layout.output_ranges(rank)] for rank in range(layout.num_ranks)]
        return [part[0] if len(part) == 1 else np.concatenate(part) for part in parts]
    total = inputs[0].copy()
    for other in inputs[1:]:
        total = total + other
    return [total[slice(*layout.output_range(rank))] for rank in range(layout.num_ranks)]


RANKS_SHOWN = 6
Contents = Counter[tuple[int, int]]
"""Contributions to a chunk: how often each (chunk, rank whose input has it) is part of the sum."""
GARBAGE = (-1, -1)  # Contribution of memory that nobody has written to
GARBAGE_ALONE: Contents = Counter({GARBAGE: 1})


def symbolic_inputs(layout: Layout) -> list[npt.NDArray[np.object_]]:
    """Return each rank's input as symbolic chunks, (chunks,) of `Contents`."""
    return [
        column([Counter({(chunk, rank): 1}) for chunk in range(*layout.input_range(rank))])
        for rank in range(layout.num_ranks)
    ]


def column(contents: list[Contents]) -> npt.NDArray[np.object_]:
    """Make an array of contents, (chunks,)."""
    array = np.empty(len(contents), dtype=np.object_)
    array[:] = contents
    return array


def describe_contents(contents: Contents, layout: Layout) -> str:
    """Spell it out: ``"chunk 0 of rank 2"``, or ``"chunk 5 of ranks 0, 1, 3"``, the same rank listed once per time."""
    terms = Counter({term: times for term, times in contents.items() if term != GARBAGE})
    if not terms:
        return "nothing"
    if layout.reduces:
        parts = [_summed(chunk, terms, layout.num_ranks) for chunk in sorted({chunk for chunk, _ in terms})]
    else:
        parts = [layout.chunk_name(chunk) for chunk, _ in sorted(terms.elements())]
    return " plus ".join([*parts, *["garbage"] * (GARBAGE in contents)])


def _summed(chunk: int, terms: Contents, num_ranks: int) -> str:
    """Say which ranks have contributed to a chunk."""
    times = [terms[chunk, rank] for rank in range(num_ranks)]
    if set(times) == {1}:
        return f"chunk {chunk} of all ranks"
    ranks = [f"{rank}" if count == 1 else f"{rank} ({count} times)" for rank, count in enumerate(times) if count]
    missing = [str(rank) for rank, count in enumerate(times) if not count]
    text = ", ".join(_shortened(ranks))
    return f"chunk {chunk} of ranks {text}" + (f" without {', '.join(_shortened(missing))}" if missing else "")


def _shortened(names: list[str]) -> list[str]:
    return names if len(names) <= RANKS_SHOWN else [*names[:RANKS_SHOWN], f"... ({len(names)} in all)"]
