"""Runs programs on numpy arrays: the reference machine for everything that `collopt.runtime` writes.

Every chunk of every input carries its own tag.  Thread blocks take turns at random, connections hold a bounded number
of transfers, outputs start out poisoned; at the end every rank must hold what the collective promises.
"""

from __future__ import annotations

import os
import random
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import ProgramError, UnsupportedError
from .checks import check_program
from .ordering import Site
from .program import Instruction, Program, ThreadBlock

__all__ = ["InterpreterReport", "interpret_file", "run_interleaving", "run_program"]

IntArray = npt.NDArray[np.int64]

POISON = -1
READY = -1
NOBODY = -2
CYCLE_SHOWN = 12


class InterpreterReport(NamedTuple):
    """What `run_program` did, for people: it has raised if anything was wrong.

    Attributes
    ----------
    program : str
        Name of the program.
    interleavings : int
    steps, transfers, chunks_sent : int
        In one run.
    """

    program: str
    interleavings: int
    steps: int
    transfers: int
    chunks_sent: int


def run_program(
    program: Program, *, interleavings: int = 8, seed: int = 0, fifo_depth: int = 2, elements_per_chunk: int = 1
) -> InterpreterReport:
    """Check a program, then run it under several random interleavings and look at the data.

    Parameters
    ----------
    program : Program
        An out-of-place allgather, checked or not.
    interleavings : int
        Number of runs.
    seed : int
        The same seed gives the same runs.
    fifo_depth : int
        Transfers that a connection holds before its sender has to wait.
    elements_per_chunk : int
        Numbers that stand for one chunk, each with a tag of its own.

    Returns
    -------
    InterpreterReport

    Raises
    ------
    ProgramError
        If `check_program` refuses the program, or a run deadlocks or leaves wrong data behind.
    UnsupportedError
        For a collective that has no interpreter yet, or parameters that are not positive.

    Notes
    -----
    `check_program` proves that there are neither deadlocks nor races, so all runs give the same data; several are made
    because the machine and the proof should not have to trust each other.

    Examples
    --------
    >>> from collopt.schedules import Forest
    >>> from collopt.runtime.lowering import lower_allgather
    >>> forest = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])
    >>> run_program(lower_allgather(forest)).transfers
    2
    """
    for name, value in (
        ("interleavings", interleavings),
        ("fifo_depth", fifo_depth),
        ("elements_per_chunk", elements_per_chunk),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UnsupportedError(f"{name} is {value!r}; expected a whole number of at least 1")
    check_program(program)
    for number in range(interleavings):
        run_interleaving(
            program, seed=seed * 1_000_003 + number, fifo_depth=fifo_depth, elements_per_chunk=elements_per_chunk
        )
    sends = [
        step.count
        for rank in program.ranks
        for block in rank.thread_blocks
        for step in block.instructions
        if step.kind == "send"
    ]
    return InterpreterReport(program.name, interleavings, program.num_instructions, len(sends), sum(sends))


def interpret_file(
    path: str | os.PathLike[str], *, interleavings: int = 8, seed: int = 0, fifo_depth: int = 2
) -> InterpreterReport:
    """Read an MSCCL XML file and run it as `run_program` does.

    Raises
    ------
    FileFormatError
        If the file is not an MSCCL algorithm that the runtimes would accept.
    ProgramError
        If the algorithm is wrong.
    UnsupportedError
        For step types or collectives that the interpreter does not know.
    """
    from .msccl import read_xml

    return run_program(read_xml(path), interleavings=interleavings, seed=seed, fifo_depth=fifo_depth)


def run_interleaving(program: Program, *, seed: int, fifo_depth: int = 2, elements_per_chunk: int = 1) -> None:
    """Run a program once without checking it first.

    Raises
    ------
    ProgramError
        If the run deadlocks, leaves transfers unread or leaves wrong data behind.
    """
    machine = _Machine(program, fifo_depth, elements_per_chunk)
    generator = random.Random(seed)
    runnable = list(range(len(machine.blocks)))
    generator.shuffle(runnable)
    sleepers: dict[int, list[int]] = {}
    while runnable:
        turn = generator.randrange(len(runnable))
        block = runnable[turn]
        blocker = READY if machine.finished(block) else machine.blocker(block)
        if machine.finished(block) or blocker != READY:
            runnable[turn] = runnable[-1]
            runnable.pop()
            if blocker != READY:
                sleepers.setdefault(blocker, []).append(block)
            continue
        machine.execute(block)
        runnable.extend(sleepers.pop(block, ()))
    machine.check_finished()
    machine.check_data()


@dataclass
class _Block:
    """A thread block at work; `key` names its send and receive connections."""

    rank: int
    number: int
    code: ThreadBlock
    next_step: int = 0
    sends_to: tuple[int, int, int] | None = field(init=False)
    recvs_from: tuple[int, int, int] | None = field(init=False)

    def __post_init__(self) -> None:
        peer, channel = self.code.send_peer, self.code.channel
        self.sends_to = None if peer is None else (self.rank, peer, channel)
        peer = self.code.recv_peer
        self.recvs_from = None if peer is None else (peer, self.rank, channel)


class _Machine:
    """Memory, connections and thread blocks of all ranks."""

    def __init__(self, program: Program, fifo_depth: int, elements: int) -> None:
        self.program = program
        self.fifo_depth = fifo_depth
        self.elements = elements
        self.shard = program.chunks_per_loop // program.num_ranks
        self.memory = [
            {
                "input": self._tags(rank.rank * self.shard, rank.input_chunks),
                "output": np.full((rank.output_chunks, elements), POISON, dtype=np.int64),
                "scratch": np.full((rank.scratch_chunks, elements), POISON, dtype=np.int64),
            }
            for rank in program.ranks
        ]
        self.blocks = [
            _Block(rank.rank, number, code) for rank in program.ranks for number, code in enumerate(rank.thread_blocks)
        ]
        self.first_block = np.cumsum([0, *(len(rank.thread_blocks) for rank in program.ranks)]).tolist()
        self.senders = {block.sends_to: index for index, block in enumerate(self.blocks) if block.sends_to}
        self.receivers = {block.recvs_from: index for index, block in enumerate(self.blocks) if block.recvs_from}
        self.fifos: dict[tuple[int, int, int], deque[IntArray]] = {
            connection: deque() for connection in (*self.senders, *self.receivers)
        }

    def _tags(self, first: int, chunks: int) -> IntArray:
        """Return the data of chunks ``first, first + 1, ...`` of the whole collective, every element its own."""
        return np.arange(first * self.elements, (first + chunks) * self.elements, dtype=np.int64).reshape(
            chunks, self.elements
        )

    def finished(self, index: int) -> bool:
        """Whether a block has run all its steps."""
        block = self.blocks[index]
        return block.next_step == len(block.code.instructions)

    def blocker(self, index: int) -> int:
        """Return the block that this one has to wait for, `READY` or `NOBODY`."""
        block = self.blocks[index]
        step = block.code.instructions[block.next_step]
        for wait in step.depends:
            other = self.first_block[block.rank] + wait.thread_block
            if other >= self.first_block[block.rank + 1]:
                return NOBODY
            if self.blocks[other].next_step <= wait.step:
                return NOBODY if self.finished(other) else other
        if step.kind == "send" and block.sends_to and len(self.fifos[block.sends_to]) >= self.fifo_depth:
            return self._unless_finished(self.receivers.get(block.sends_to))
        if step.kind == "recv" and block.recvs_from and not self.fifos[block.recvs_from]:
            return self._unless_finished(self.senders.get(block.recvs_from))
        return READY

    def _unless_finished(self, index: int | None) -> int:
        return NOBODY if index is None or self.finished(index) else index

    def execute(self, index: int) -> None:
        """Run the next step of a block that nothing holds back."""
        block = self.blocks[index]
        step = block.code.instructions[block.next_step]
        data = self._read(block, step)
        if step.kind == "send":
            self.fifos[block.sends_to].append(data)  # type: ignore[index]
        elif step.target is not None:
            start = step.target.start
            self.memory[block.rank][step.target.buffer][start : start + step.count] = data
        block.next_step += 1

    def _read(self, block: _Block, step: Instruction) -> IntArray:
        if step.kind == "recv":
            data = self.fifos[block.recvs_from].popleft()  # type: ignore[index]
            if len(data) != step.count:
                raise ProgramError(
                    f"{Site(block.rank, block.number, block.next_step)} receives {step.count} chunks but "
                    f"{len(data)} were sent"
                )
            return data
        assert step.source is not None  # A send or a copy.
        start = step.source.start
        return self.memory[block.rank][step.source.buffer][start : start + step.count].copy()

    def check_finished(self) -> None:
        """Refuse unfinished blocks, telling who waits for whom, and data that nobody took."""
        stuck = [index for index in range(len(self.blocks)) if not self.finished(index)]
        if stuck:
            raise ProgramError(self._describe_deadlock(stuck[0]))
        for (sender, receiver, channel), fifo in self.fifos.items():
            if fifo:
                raise ProgramError(
                    f"{len(fifo)} transfers from rank {sender} to rank {receiver} on channel {channel} are never "
                    "received"
                )

    def _describe_deadlock(self, index: int) -> str:
        trail: list[int] = []
        while index not in trail and index != NOBODY:
            trail.append(index)
            index = self.blocker(index)
        if index == NOBODY:
            return f"the program deadlocks: {self._site(trail[-1])} waits for something that never happens"
        cycle = [self._site(member) for member in trail[trail.index(index) :]]
        shown = cycle[:CYCLE_SHOWN] + ([f"... ({len(cycle)} in all)"] if len(cycle) > CYCLE_SHOWN else [])
        return f"the program deadlocks: {' waits for '.join([*shown, cycle[0]])}"

    def _site(self, index: int) -> str:
        block = self.blocks[index]
        step = block.code.instructions[block.next_step]
        peer = {"send": f" to rank {block.code.send_peer}", "recv": f" from rank {block.code.recv_peer}"}
        return f"{Site(block.rank, block.number, block.next_step)} ({step.kind}{peer.get(step.kind, '')})"

    def check_data(self) -> None:
        """Compare every rank's output with what an allgather promises."""
        expected = self._tags(0, self.program.chunks_per_loop)
        for rank, memory in enumerate(self.memory):
            if not np.array_equal(memory["input"], expected[rank * self.shard : (rank + 1) * self.shard]):
                raise ProgramError(f"rank {rank} ends with a changed input")
            wrong = np.argwhere(memory["output"] != expected)
            if len(wrong):
                chunk, element = wrong[0].tolist()
                held = self._describe_tag(int(memory["output"][chunk, element]))
                wanted = self._describe_tag(int(expected[chunk, element]))
                raise ProgramError(f"rank {rank} ends with {held} in output chunk {chunk}; expected {wanted}")

    def _describe_tag(self, tag: int) -> str:
        if tag == POISON:
            return "nothing"
        rank, chunk = divmod(tag // self.elements, self.shard)
        return f"chunk {chunk} of rank {rank}"
