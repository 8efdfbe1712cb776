"""Interpreter of MSCCL++ execution plans on numpy arrays, with race detection by vector clocks.

Thread blocks, and the proxies of port channels, take turns at random; pipelines run in several slices.  See
docs/explanation/programs.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from ...errors import ProgramError, TooLargeError
from ...support.arrays import IntArray
from ..programs.layout import Layout
from ..programs.program import check_counts
from .code import (
    BEGIN,
    END,
    FIRST_PACKET,
    LAST,
    LAST_PACKET,
    RELAXED,
    SPLIT,
    START,
    STRIDE,
    Encoder,
    Memory,
    check_data,
    layout_of,
)
from .execution_plan import CHANNEL_TYPES, ExecutionPlan
from .reader import read_mscclpp

if TYPE_CHECKING:
    from .races import Race
    from .turns import Run

INT64 = np.iinfo(np.int64)
PADS = 1, 2
"""A part of a chunk: a plan that is right with input and output there is right wherever they begin."""
RELAXED_CAUSE = "rlxsignal and rlxwait, which only show arrival, keep no accesses in order; use signal and wait"
MAX_NUMBERS = 2**26  # In the memory of all GPUs
MAX_PROCESSES = 2**14  # Thread blocks, port channels and GPUs together; each keeps a clock of every other one


class ExecutionReport(NamedTuple):
    """Statistics of `run_execution_plan`, which raises on any error."""

    plan: str  # Name of the plan
    interleavings: int
    operations: int  # In one run, every slice counted
    puts: int
    chunks_put: int


def run_execution_plan(
    plan: ExecutionPlan, *, interleavings: int = 8, seed: int = 0, slices: int = 3, pads: tuple[int, int] = PADS
) -> ExecutionReport:
    """Run a plan in random interleavings, with races detected; `pads`: elements in front of input and output."""
    check_counts({"interleavings": interleavings, "slices": slices})
    check_counts({"seed": seed}, minimum=0)
    chunks = sum(sum(gpu.chunks.values()) for gpu in plan.gpus)
    if chunks * slices > MAX_NUMBERS:
        raise TooLargeError(
            f"{chunks} chunks in {slices} slices are more than {MAX_NUMBERS} numbers; run a smaller plan"
        )
    processes = sum(1 + len(gpu.thread_blocks) + len(gpu.peers["port"]) for gpu in plan.gpus)
    if processes > MAX_PROCESSES:
        raise TooLargeError(f"{processes} GPUs, blocks and port channels are over {MAX_PROCESSES}; run a smaller plan")
    layout = layout_of(plan)
    machine = _Machine(plan, layout, slices, seed * 1_000_003, pads)
    if machine.run():
        # What others do to scratch before a call or after it must not meet the calls beside it.
        _Machine(plan, layout, slices, seed * 1_000_003, pads, calls=1 + plan.halves).run_calls()
    for number in range(1, interleavings):
        machine.reset(seed * 1_000_003 + number)
        machine.run()
    code = machine.code
    executions = code.executions
    moves = code.operations[:, END] > code.operations[:, SPLIT]
    puts = [
        (int(times), place.count)
        for times, operation, does_move in zip(executions, machine.encoder.operations, moves, strict=True)
        if does_move
        for place in operation.remote_places
    ]
    chunks_put = sum(times * count for times, count in puts)
    return ExecutionReport(plan.name, interleavings, int(executions.sum()), sum(times for times, _ in puts), chunks_put)


def interpret_mscclpp(
    path: str | os.PathLike[str], *, interleavings: int = 8, seed: int = 0, slices: int = 3
) -> ExecutionReport:
    """Read an MSCCL++ plan file and run it under random interleavings.

    Raises `FileFormatError` if the file is not a plan that the executor runs; `ProgramError` if the plan is wrong.

    Parameters
    ----------
    path : str or path
        A plan in JSON.
    interleavings : int
        Number of runs, each with its own order of thread blocks.
    seed : int
        0 or more.
    slices : int
        Slices per chunk.
    """
    return run_execution_plan(read_mscclpp(path), interleavings=interleavings, seed=seed, slices=slices)


class _Machine:
    """A plan encoded for runs, and the memory of all GPUs for the next one."""

    def __init__(
        self,
        plan: ExecutionPlan,
        layout: Layout | None,
        slices: int,
        seed: int,
        pads: tuple[int, int] = PADS,
        calls: int = 1,
    ) -> None:
        self.plan, self.layout = plan, layout
        self.memory: list[Memory] = []
        self.bounds = [0]
        for rank in range(plan.num_ranks):
            self.memory.append(Memory(plan, layout, rank, slices, self.bounds[-1], pads))
            self.bounds.append(self.memory[-1].end)
        self.encoder = Encoder(plan, self.memory, slices, calls)
        self.code = self.encoder.code()
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """Fill the memory with random numbers."""
        self.seed = seed
        generator = np.random.default_rng(seed)
        self.elements = generator.integers(INT64.min, INT64.max, self.bounds[-1], endpoint=True)
        for memory in self.memory:
            memory.bind(self.elements)
        self.inputs = [memory.arrays["input"].copy() for memory in self.memory]

    def run_calls(self) -> None:
        """Run several calls in a row, and check that none disturbs another one in scratch."""
        from .races import RunOrder
        from .turns import TURNS, Run, run_turns

        run = Run.of(self.code, self.encoder.initial)
        run_turns(self.code, run, self.seed)
        self._check_finished(run)
        if race := RunOrder(self.code, run.turns[: run.counts[TURNS]], self.encoder.initial).first_race(starts=False):
            self._refuse_race(race, lambda cause: f"they may be of two calls in a row, and {cause}")

    def run(self) -> bool:
        """Run all processes in random order, check that their accesses are ordered, and that nothing is left.

        Return whether scratch of a GPU is accessed while its call is not running.
        """
        from .races import RunOrder
        from .turns import NO_END, TURNS, Run, move_data, run_turns

        initial = self.encoder.initial
        run = Run.of(self.code, initial)
        run_turns(self.code, run, self.seed)
        turns = run.turns[: run.counts[TURNS]]
        moved, place = move_data(self.code, turns, self.elements)
        order = RunOrder(self.code, turns[: moved + 1], initial)

        def cause(is_gone: Callable[[RunOrder], bool], otherwise: str) -> str:
            """Blame relaxed signals for what is gone if they kept accesses in order."""
            operations = self.code.operations.copy()
            operations[:, RELAXED] = 0
            ordered = RunOrder(self.code._replace(operations=operations), turns[: moved + 1], initial)
            return RELAXED_CAUSE if is_gone(ordered) else otherwise

        # What comes first in the run is told first.
        if race := order.first_race():
            self._refuse_race(race, partial(cause, lambda other: other.first_race() != race))
        if place >= 0:
            self._refuse_place(place)
        if run.counts[NO_END] >= 0:
            kind, rank, channel = self.encoder.resources[run.counts[NO_END]]
            raise ProgramError(f"rank {rank} signals on {kind} channel {channel}, which has no other end")
        self._check_finished(run)
        bounds = np.array(self.bounds)
        if unfinished := order.first_unfinished(bounds):
            buffer, chunk = self.memory[unfinished.rank].place(unfinished.element)
            cure = cause(lambda other: other.first_unfinished(bounds) != unfinished, "let it wait for that")
            raise ProgramError(
                f"race: rank {unfinished.rank} may end before {self._name(unfinished.process)} has finished with "
                f"{buffer} chunk {chunk}; {cure}"
            )
        if self.layout is not None:
            check_data(self.plan, self.layout, self.memory, self.inputs)
        return order.outlives_calls(bounds)

    def _name(self, process: int) -> str:
        if process < len(self.encoder.blocks):
            rank, number = self.encoder.blocks[process]
            return f"rank {rank} thread block {number}"
        _, rank, number = self.encoder.resources[process - len(self.encoder.blocks)]
        return f"port channel {number} of rank {rank}"

    def _refuse_race(self, race: Race, cause: Callable[[str], str]) -> NoReturn:
        """Name two accesses without an order, and the cause or else the usual one."""
        place = self.encoder.places[race.place]
        if race.earlier < 0:
            raise ProgramError(
                f"race: {self._name(race.later)} {'writes to' if race.writes else 'reads'} {place.buffer} chunk "
                f"{place.start} of rank {place.rank}, which may not have started yet; "
                f"{cause('let it wait for a signal')}"
            )
        first, stride = (int(value) for value in self.code.places[race.place, (START, STRIDE)])
        chunk = place.start + (race.element - first) // (self.code.slices * stride)
        before, after = ("writes" if writes else "reads" for writes in (race.earlier_writes, race.writes))
        raise ProgramError(
            f"race: {self._name(race.earlier)} {before} {place.buffer} chunk {chunk} of rank {place.rank} and "
            f"{self._name(race.later)} {after} it, but {cause('nothing keeps them in order')}"
        )

    def _refuse_place(self, number: int) -> NoReturn:
        place = self.encoder.places[number]
        raise ProgramError(
            f"{place.buffer} chunk {place.start} of rank {place.rank} is looked for beyond the end of its allocation, "
            "as another rank has it elsewhere"
        )

    def _check_finished(self, run: Run) -> None:
        """Refuse blocks that wait for ever, and signals that nobody waits for."""
        for block, at in enumerate(run.at.tolist()):
            if at < self.code.firsts[block + 1]:
                row, operation = self.code.operations[at], self.encoder.operations[at]
                what = self._awaited(run, at, row)
                count = np.count_nonzero(run.turns[: run.counts[1], 0] == block)
                raise ProgramError(
                    f"the plan deadlocks: {self._name(block)} waits at operation {count} ({operation.name}) for {what}"
                )
        for resource in np.flatnonzero(run.signals != self.encoder.initial).tolist():
            kind, rank, number = self.encoder.resources[resource]
            what = f"{run.signals[resource]} signals on {kind} channel {number} not waited for"
            if kind == "semaphore":
                what = f"semaphore {number} at {run.signals[resource]}"
            raise ProgramError(f"rank {rank} ends with {what}, so the next call would fail")

    def _awaited(self, run: Run, at: int, row: IntArray) -> str:
        """Say what a block waits for at an operation."""
        arguments = self.code.arguments
        for number in arguments[row[BEGIN] : row[SPLIT]].tolist():
            first, last = self.code.places[number, (FIRST_PACKET, LAST_PACKET)]
            if (run.flags[first:last] != self.code.calls[at]).any():
                return f"packets in scratch chunk {self.encoder.places[number].start}, which nobody writes"
        awaited = arguments[row[END] : row[LAST]].tolist()
        kind, _, number = next(self.encoder.resources[resource] for resource in awaited if not run.signals[resource])
        what = f"{kind} channel {number}" if kind in CHANNEL_TYPES else f"{kind} {number}"
        return f"{what}, which gets no further signal"
