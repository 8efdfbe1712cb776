"""Interpreter of MSCCL++ execution plans on numpy arrays, with race detection by vector clocks.

Thread blocks, and the proxies of port channels, take turns at random; pipelines run in several slices.  See
docs/explanation/programs.md.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ....errors import ProgramError, TooLargeError
from ...programs.checks import check_counts
from ...programs.layout import Layout
from ..format.execution_plan import (
    MAX_CHANNELS_PER_OPERATION,
    SIGNALLING,
    SWITCH_OPERATIONS,
    WAITING,
    ExecutionPlan,
    Operation,
    Place,
    Signal,
    channel_pairs,
    copies,
)
from ..format.reader import read_mscclpp
from ..format.switch_channels import same_memory
from .memory import Accesses, Clock, Data, Job, Memory, Process, Proxy, Site, check_data, layout_of, unroll

INT64 = np.iinfo(np.int64)
PADS = 1, 2
"""A part of a chunk: a plan that is right with input and output there is right wherever they begin."""
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
    plan: ExecutionPlan,
    *,
    interleavings: int = 8,
    seed: int = 0,
    slices: int = 3,
    pads: tuple[int, int] = PADS,
) -> ExecutionReport:
    """Run a plan under several random interleavings, check the results and detect races.

    `pads`: elements in front of input and output in their allocations; those of calls in place share the first one.
    """
    check_counts({"interleavings": interleavings, "slices": slices})
    check_counts({"seed": seed}, least=0)
    chunks = sum(sum(gpu.chunks.values()) for gpu in plan.gpus)
    if chunks * slices > MAX_NUMBERS:
        raise TooLargeError(
            f"{chunks} chunks in {slices} slices are {chunks * slices} numbers; expected {MAX_NUMBERS} at most: run "
            "fewer slices, or a smaller plan"
        )
    processes = sum(1 + len(gpu.thread_blocks) + len(gpu.peers["port"]) for gpu in plan.gpus)
    if processes > MAX_PROCESSES:
        raise TooLargeError(
            f"there are {processes} GPUs, thread blocks and port channels; expected {MAX_PROCESSES} at most: run a "
            "smaller plan"
        )
    layout = layout_of(plan)
    machine = None
    for number in range(interleavings):
        machine = _Machine(plan, layout, slices, seed * 1_000_003 + number, pads)
        machine.run()
    assert machine is not None
    return ExecutionReport(plan.name, interleavings, machine.operations, machine.puts, machine.chunks_put)


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
    """One run of the interpreter."""

    def __init__(
        self, plan: ExecutionPlan, layout: Layout, slices: int, seed: int, pads: tuple[int, int] = PADS
    ) -> None:
        self.plan = plan
        self.layout = layout
        self.slices = slices
        self.turns = random.Random(seed)
        self.operations = self.puts = self.chunks_put = 0
        generator = np.random.default_rng(seed)

        def random_elements(elements: int) -> Data:
            return generator.integers(INT64.min, INT64.max, elements, endpoint=True)

        self.memory = [
            Memory(gpu, layout, rank, plan.in_place, slices, random_elements, pads)
            for rank, gpu in enumerate(plan.gpus)
        ]
        self.inputs = [memory.arrays["input"].copy() for memory in self.memory]
        self.pairs = channel_pairs(plan.gpus)
        self._make_processes()
        self.tokens: dict[Signal, deque[Clock | None]] = defaultdict(deque)
        for rank, gpu in enumerate(plan.gpus):
            for number, value in enumerate(gpu.semaphores):
                self.tokens["semaphore", rank, number].extend([None] * value)
        self.sleepers: dict[Signal, list[int]] = defaultdict(list)
        self.runnable: list[int] = list(range(len(self.blocks)))

    def _make_processes(self) -> None:
        blocks = [(rank, number) for rank, gpu in enumerate(self.plan.gpus) for number in range(len(gpu.thread_blocks))]
        ports = [(rank, at) for rank, gpu in enumerate(self.plan.gpus) for at in range(len(gpu.peers["port"]))]
        self.starts = len(blocks) + len(ports)
        self.width = self.starts + self.plan.num_ranks
        steps = [unroll(self.plan.gpus[rank].thread_blocks[number], self.slices) for rank, number in blocks]
        # Clocks take most of the time and memory: the narrower, the better.  A step makes few requests of a proxy.
        longest = MAX_CHANNELS_PER_OPERATION * max(map(len, steps))
        self.clock_type = np.dtype(np.int16 if longest < np.iinfo(np.int16).max else np.int32)
        self.start_clocks = [self._start_clock(rank) for rank in range(self.plan.num_ranks)]
        self.blocks = [
            Process(rank, number, index, own, self.start_clocks[rank])
            for index, ((rank, number), own) in enumerate(zip(blocks, steps, strict=True))
        ]
        self.proxies = {(rank, at): Proxy(rank, at, len(blocks) + index) for index, (rank, at) in enumerate(ports)}
        self.proxy_of = {proxy.index: proxy for proxy in self.proxies.values()}
        processes: list[Process | Proxy] = [*self.blocks, *self.proxies.values()]
        names = {process.index: str(process) for process in processes}
        self.accesses = Accesses(self.memory, names, self.starts)

    def _start_clock(self, rank: int) -> Clock:
        """Return the initial clock of a GPU."""
        clock = np.zeros(self.width, dtype=self.clock_type)
        clock[self.starts + rank] = 1
        return clock

    def run(self) -> None:
        """Run all processes in random order, then check that nothing is left."""
        while self.runnable:
            turn = self.turns.randrange(len(self.runnable))
            index = self.runnable[turn]
            if index in self.proxy_of:
                goes_on = self._proxy_turn(self.proxy_of[index])
            else:
                goes_on = self._block_turn(self.blocks[index])
            if not goes_on:
                # Its own turn may have added others at the end, so look it up again.
                self.runnable[turn] = self.runnable[-1]
                self.runnable.pop()
        self._check_finished()
        self._check_final_clocks()
        check_data(self.plan, self.layout, self.memory, self.inputs)

    def _block_turn(self, block: Process) -> bool:
        """Run the next operation of a block; False if there is none, or it has to wait."""
        if block.at == len(block.steps):
            return False
        operation, part = block.steps[block.at]
        resource = self._missing(block, operation)
        if resource is not None:
            self.sleepers[resource].append(block.index)
            return False
        block.at += 1
        self.operations += 1
        if operation.name == "nop":
            block.clock = block.joint_clock()
            block.waited.clear()
        elif operation.name in WAITING or operation.name == "sem_acquire":
            self._wait(block, operation)
        elif operation.name in SIGNALLING or operation.name == "sem_release":
            self._signal(block, operation, part)
        else:
            self._work(block, operation, part)
        return True

    def _missing(self, block: Process, operation: Operation) -> Signal | None:
        return next((each for each in operation.awaited(block.rank) if not self.tokens[each]), None)

    def _wait(self, block: Process, operation: Operation) -> None:
        for thread, resource in enumerate(operation.awaited(block.rank)):
            clock = self.tokens[resource].popleft()
            if clock is None:
                continue
            known = block.waited.get(thread)
            block.waited[thread] = clock if known is None else np.maximum(known, clock)

    def _signal(self, block: Process, operation: Operation, part: int | None) -> None:
        if operation.name == "sem_release":
            for thread, number in enumerate(operation.semaphores):
                self._release(("semaphore", block.rank, number), block.thread_clock(thread))
            return
        for thread, channel in enumerate(operation.channels):
            clock = block.thread_clock(thread)
            if operation.name == "rlxsignal":
                # It keeps no memory accesses in order; its arrival alone shows that this GPU has started.
                clock = self.start_clocks[block.rank]
            if operation.channel_type == "port":
                self._enqueue(block, channel, Job(clock.copy(), None, None, True, part))
            else:
                self._release(self._other_end("memory", block.rank, channel), clock)

    def _other_end(self, kind: Any, rank: int, channel: int) -> Signal:
        other = self.pairs.get((rank, kind, channel))
        if other is None:
            raise ProgramError(f"rank {rank} signals on {kind} channel {channel}, which has no other end")
        return other[1], other[0], other[2]

    def _release(self, resource: Signal, clock: Clock) -> None:
        self.tokens[resource].append(clock)
        self.runnable.extend(self.sleepers.pop(resource, ()))

    def _enqueue(self, block: Process, channel: int, job: Job) -> None:
        proxy = self.proxies[block.rank, channel]
        proxy.jobs.append(job)
        if len(proxy.jobs) == 1:
            self.runnable.append(proxy.index)

    def _work(self, block: Process, operation: Operation, part: int | None) -> None:
        if operation.name in ("put", "pws"):
            self.puts += len(operation.sources)
            self.chunks_put += sum(place.count for place in operation.sources)
        if operation.channel_type == "port":
            sites = zip(
                self._sites(block, operation.sources, from_base=operation.from_base),
                self._sites(block, operation.targets),
                strict=True,
            )
            for thread, (source, target) in enumerate(sites):
                job = Job(block.thread_clock(thread).copy(), source, target, operation.name == "pws", part)
                self._enqueue(block, operation.channels[thread], job)
            return
        sources, targets = (self._sites(block, places) for places in copies(self.plan.gpus[block.rank], operation))
        # What all threads know, and not what the first one does: each of them does its share.
        for source in sources:
            self.accesses.add(source, part, block.clock, block.index, block.at, writes=False)
        for target in targets:
            # A store of what is there already changes nothing for others who read it.
            if operation.name != "gstore" or not same_memory(self.plan, sources[0][0], target[0]):
                self.accesses.add(target, part, block.clock, block.index, block.at, writes=True)
        if operation.name in ("re", *SWITCH_OPERATIONS):
            total = sum(self._view(source, part) for source in sources)
            for target in targets:
                self._store(target, part, total)
        else:
            for source, target in zip(sources, targets, strict=True):
                self._store(target, part, self._view(source, part).copy())

    def _sites(self, block: Process, places: Iterable[Place], *, from_base: bool = False) -> list[Site]:
        """Places where a GPU finds them: it takes the buffers of all GPUs to begin where its own do."""
        first = self.memory[block.rank].first
        return [(place, 0 if from_base else first[place.buffer]) for place in places]

    def _view(self, site: Site, part: int | None) -> Any:
        return self.memory[site[0].rank].view(site, part)

    def _store(self, target: Site, part: int | None, data: Any) -> None:
        self._view(target, part)[...] = data

    def _proxy_turn(self, proxy: Proxy) -> bool:
        job = proxy.jobs.popleft()
        proxy.done += 1
        clock = job.clock
        clock[proxy.index] = proxy.done - 1
        if job.source is not None and job.target is not None:
            self.accesses.add(job.source, job.part, clock, proxy.index, proxy.done, writes=False)
            self.accesses.add(job.target, job.part, clock, proxy.index, proxy.done, writes=True)
            self._store(job.target, job.part, self._view(job.source, job.part).copy())
        if job.signals:
            clock[proxy.index] = proxy.done
            self._release(self._other_end("port", proxy.rank, proxy.channel), clock)
        return bool(proxy.jobs)

    def _check_finished(self) -> None:
        for block in self.blocks:
            if block.at < len(block.steps):
                operation, _ = block.steps[block.at]
                kind, _, number = self._missing(block, operation) or ("", 0, 0)
                what = f"semaphore {number}" if kind == "semaphore" else f"{kind} channel {number}"
                raise ProgramError(
                    f"the plan deadlocks: {block} waits at operation {block.at} ({operation.name}) for {what}, "
                    "which receives no further signal"
                )
        for (kind, rank, number), tokens in self.tokens.items():
            gpu = self.plan.gpus[rank]
            initial = gpu.semaphores[number] if kind == "semaphore" else 0
            if len(tokens) != initial:
                what = f"{len(tokens)} signals on {kind} channel {number} not waited for"
                if kind == "semaphore":
                    what = f"semaphore {number} at {len(tokens)}"
                raise ProgramError(f"rank {rank} ends with {what}, so the next call would fail")

    def _check_final_clocks(self) -> None:
        """Check that all accesses to a GPU's memory happen before the end of its kernel."""
        for rank in range(self.plan.num_ranks):
            clock = self.start_clocks[rank].copy()
            for block in self.blocks:
                if block.rank == rank:
                    np.maximum(clock, block.joint_clock(), out=clock)
            self.accesses.check_end(rank, clock)
