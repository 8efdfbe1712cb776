"""Runs programs on numpy arrays: the reference machine for everything that `collopt.runtime` writes.

Inputs are random 64-bit integers, which add up exactly, modulo 2^64: a sum that misses a contribution or has one twice
comes out right with probability 2^-64.  Thread blocks take turns at random, connections hold a bounded number of
transfers, outputs start out as noise; at the end every rank must hold what the collective promises.  If one does not,
the same run is made again with symbols, to say what it holds instead.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import ProgramError
from ..programs.checks import check_counts
from ..programs.program import Program
from .check import check_program
from .machine import READY, Machine, described, expected_outputs, symbolic_inputs, unwritten

Data = npt.NDArray[Any]

INT64 = np.iinfo(np.int64)


class InterpreterReport(NamedTuple):
    """What `run_program` did, for people: it has raised if anything was wrong.

    `program`: Name of the program.
    `steps`, `transfers`, `chunks_sent`: In one run.
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
        Checked or not.
    interleavings : int
        Number of runs.
    seed : int
        0 or more; the same seed gives the same runs.
    fifo_depth : int
        Transfers that a connection holds before its sender has to wait.
    elements_per_chunk : int
        Numbers that stand for one chunk.

    Returns
    -------
    InterpreterReport

    Raises
    ------
    ProgramError
        If `check_program` refuses the program, or a run deadlocks or leaves wrong data behind.
    UnsupportedError
        For a collective that programs cannot be written for, or parameters that are not positive.

    Notes
    -----
    `check_program` proves that there are neither deadlocks nor races, so all runs give the same data; several are made
    because the machine and the proof should not have to trust each other.

    Examples
    --------
    >>> from collopt.schedules import Forest
    >>> from collopt.runtime.lowering.lower import lower
    >>> forest = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])
    >>> run_program(lower(forest, "allgather")).transfers
    2
    """
    check_counts({"interleavings": interleavings, "fifo_depth": fifo_depth, "elements_per_chunk": elements_per_chunk})
    check_counts({"seed": seed}, least=0)
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


def run_interleaving(program: Program, *, seed: int, fifo_depth: int = 2, elements_per_chunk: int = 1) -> None:
    """Run a program once without checking it first."""
    chance = np.random.default_rng(seed)

    def noise(chunks: int) -> Data:
        return chance.integers(INT64.min, INT64.max, (chunks, elements_per_chunk), endpoint=True)

    inputs = [noise(end - begin) for begin, end in map(program.layout.input_range, range(program.num_ranks))]
    machine = Machine(program, fifo_depth, inputs, noise)
    _take_turns(machine, seed)
    wrong = _first_wrong(program, machine, inputs)
    if wrong is None:
        return
    symbols = symbolic_inputs(program)
    machine = Machine(program, fifo_depth, symbols, unwritten)
    _take_turns(machine, seed)
    raise ProgramError(_describe_wrong(program, machine, symbols, *wrong))


def _take_turns(machine: Machine, seed: int) -> None:
    """Run blocks in random order until all are through, or none can go on."""
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


def _first_wrong(program: Program, machine: Machine, inputs: list[Data]) -> tuple[int, str, int] | None:
    """Rank, buffer and chunk of the first data that are not what the collective promises."""
    for rank, (memory, expected) in enumerate(zip(machine.memory, expected_outputs(program, inputs), strict=True)):
        if not program.in_place and not np.array_equal(memory["input"], inputs[rank]):
            return rank, "input", 0
        wrong = np.argwhere(memory["output"] != expected)
        if len(wrong):
            return rank, "output", int(wrong[0][0])
    return None


def _describe_wrong(program: Program, machine: Machine, symbols: list[Data], rank: int, buffer: str, chunk: int) -> str:
    if buffer == "input":
        return f"rank {rank} ends with a changed input"
    held = described(machine.memory[rank]["output"][chunk, 0], program)
    wanted = described(expected_outputs(program, symbols)[rank][chunk, 0], program)
    return f"rank {rank} ends with {held} in output chunk {chunk}; expected {wanted}"
