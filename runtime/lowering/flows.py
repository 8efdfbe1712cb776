"""Lowering of a `FlowSchedule` or an `AllToAllvSchedule` to per-rank programs; see docs/explanation/programs.md.

A send from scratch waits for the receives that brought its chunks, a receive into scratch for the sends that emptied
its place; in stages, each transfer between servers also waits for those of the stage before.  MSCCL has one wait per
step, so each further one costs a nop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from ...schedules import AllToAllvSchedule, Collective, FlowSchedule
from ..programs.layout import Layout
from ..programs.program import ChunkRange, Dependency, Instruction, Program
from .flow_transfers import PathChunks, Routed, flow_chunks, flow_layout, joined_moves, staged_chunks, staged_layout
from .rank_writer import LoweringOptions, RankWriter, Site, written_program
from .tree_transfers import split_range

NOWHERE = -1
WIDTH = 2**32  # A step is kept as its thread block times this, and its number


def lower_flow(schedule: FlowSchedule, collective: Collective, options: LoweringOptions, name: str) -> Program:
    """Lower a flow; see `collopt.runtime.lowering.lower.lower`, which has checked everything but the schedule."""
    layout = flow_layout(schedule, collective)
    return _program(name, layout, flow_chunks(schedule, layout, options.max_count), [0] * schedule.num_ranks, options)


def lower_stages(schedule: AllToAllvSchedule, collective: Collective, options: LoweringOptions, name: str) -> Program:
    """Lower a schedule in stages in the same way."""
    schedule.verify()
    layout, chunk = staged_layout(schedule, collective)
    ranges = staged_chunks(schedule, layout, chunk, options.max_count)
    return _program(name, layout, ranges, schedule.homes.tolist(), options)


def _program(
    name: str, layout: Layout, ranges: Sequence[PathChunks], homes: Sequence[int], options: LoweringOptions
) -> Program:
    """Write the programs of all ranks; what goes from home to home is in stages."""
    routed = joined_moves(ranges, layout, len(homes), options.max_count, options.borders(layout))
    sizes = [move.chunks for move in routed.moves]
    writer = partial(_FlowRankWriter, layout, routed, homes, options.max_count)
    return written_program(name, layout.collective, layout, len(homes), routed.moves, sizes, options, writer)


class _Stages:
    """What one rank sends, or receives, in stages: each block's last step in the current one, and in that before."""

    def __init__(self) -> None:
        self.stage = NOWHERE
        self.steps: dict[int, int] = {}
        self.before: dict[int, int] = {}

    def add(self, stage: int, here: int) -> list[int]:
        """Add a step to a stage, not to an earlier one than last time, and return those that it comes after."""
        if stage > self.stage:
            self.stage, self.steps, self.before = stage, {}, self.steps
        self.steps[here // WIDTH] = here
        # A block's own steps come one after the other anyway.
        return [step for block, step in self.before.items() if block != here // WIDTH]


class _FlowRankWriter(RankWriter):
    """Writes one rank's ends of moves; `written`, `read`: last step that wrote, and read, each chunk of scratch."""

    def __init__(self, layout: Layout, routed: Routed, homes: Sequence[int], max_count: int, rank: int) -> None:
        self.layout = layout
        self.moves = routed.moves
        self.homes = homes
        self.max_count = max_count
        self.rank = rank
        self.stages = {True: _Stages(), False: _Stages()}
        self.scratch = routed.scratch[rank]
        self.written: npt.NDArray[np.int64] = np.full(self.scratch, NOWHERE, dtype=np.int64)
        self.read = self.written.copy()

    def copies(self) -> list[Instruction]:
        """Copy the own shard."""
        ranks = len(self.homes)
        own = self.rank * ranks + self.rank
        source = self.layout.offsets[own] - self.layout.input_range(self.rank)[0]
        target = sum(self.layout.shards[pair] for pair in range(self.rank, own, ranks))
        return [
            Instruction("copy", ChunkRange("input", source + first), ChunkRange("output", target + first), count)
            for first, count in split_range(0, self.layout.shards[own], self.max_count)
        ]

    def step(self, number: int, here: Site, waited: dict[int, int]) -> Instruction:
        """Write this rank's end of a move."""
        move, code = self.moves[number], here[0] * WIDTH + here[1]
        sends = move.sender == self.rank
        buffer, place = move.source if sends else move.target
        sites: list[int] = []
        if self.homes[move.sender] != self.homes[move.receiver]:
            sites = self.stages[sends].add(move.step, code)
        if buffer == "scratch":
            touched = slice(place, place + move.chunks)
            sites += np.unique((self.written if sends else self.read)[touched]).tolist()
            (self.read if sends else self.written)[touched] = code
        waits, chunks = _waits(sites, waited), ChunkRange(buffer, place)
        if sends:
            return Instruction("send", chunks, None, move.chunks, waits)
        return Instruction("recv", None, chunks, move.chunks, waits)


def _waits(sites: Iterable[int], waited: dict[int, int]) -> tuple[Dependency, ...]:
    """The last step of each thread block among `sites`, but those that the block at hand has waited for already."""
    last = dict(divmod(site, WIDTH) for site in sorted(sites) if site != NOWHERE)
    needed = {block: step for block, step in last.items() if waited.get(block, -1) < step}
    waited.update(needed)
    return tuple(Dependency(block, step) for block, step in needed.items())
