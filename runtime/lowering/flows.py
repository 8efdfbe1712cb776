"""Lowering of a `FlowSchedule` or an `AllToAllvSchedule` to per-rank programs; see docs/explanation/programs.md.

A send from scratch waits for the receives that brought its chunks, a receive into scratch for the sends that emptied
its place; in stages, each transfer between servers also waits for those of the stage before.  MSCCL has one wait per
step, so each further one costs a nop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...schedules import AllToAllvSchedule, Collective, FlowSchedule
from ..programs.channels import assign_channels
from ..programs.layout import Layout
from ..programs.program import ChunkRange, Dependency, Instruction, Program, RankProgram, ThreadBlock
from .fitting import LoweringOptions
from .flow_scratch import Move, Routed, joined_moves
from .flow_transfers import FlowStrand, flow_layout, flow_strands, staged_layout, staged_strands
from .tree_transfers import pieces

Sites = npt.NDArray[np.int64]

NOWHERE = -1
WIDTH = 2**32
"""A step is kept as its thread block times this, and its number."""


def lower_flow(schedule: FlowSchedule, collective: Collective, options: LoweringOptions, name: str) -> Program:
    """Lower a flow; see `collopt.runtime.lowering.lower.lower`, which has looked at everything but the schedule."""
    layout = flow_layout(schedule, collective)
    strands = flow_strands(schedule, layout, options.max_count)
    return _program(name, layout, strands, [0] * schedule.num_ranks, options)


def lower_stages(schedule: AllToAllvSchedule, collective: Collective, options: LoweringOptions, name: str) -> Program:
    """Lower a schedule in stages in the same way."""
    schedule.verify()
    layout, chunk = staged_layout(schedule, collective)
    strands = staged_strands(schedule, layout, chunk, options.max_count)
    return _program(name, layout, strands, schedule.homes.tolist(), options)


def _program(
    name: str, layout: Layout, strands: Sequence[FlowStrand], homes: Sequence[int], options: LoweringOptions
) -> Program:
    """Write the programs of all ranks; what goes from home to home is in stages."""
    max_steps, max_count, channels, _ = options
    ranks = len(homes)
    routed = joined_moves(strands, layout, ranks, max_count, options.borders(layout))
    lanes = assign_channels(
        [(move.sender, move.receiver) for move in routed.moves],
        [move.chunks for move in routed.moves],
        max_steps,
        channels,
    )
    events: list[list[int]] = [[] for _ in range(ranks)]
    for number, move in enumerate(routed.moves):
        events[move.sender].append(number)
        events[move.receiver].append(number)
    written = tuple(
        _Writer(rank, layout, routed, lanes, homes).program(own, _copies(rank, layout, ranks, max_count), max_steps)
        for rank, own in enumerate(events)
    )
    shards = layout.shards if len(set(layout.shards)) > 1 else ()
    return Program(name, layout.collective, ranks, layout.chunks, written, shards=shards)


def _copies(rank: int, layout: Layout, num_ranks: int, max_count: int) -> list[Instruction]:
    """Bring what a rank has for itself from its input to its output."""
    own = rank * num_ranks + rank
    source = layout.offsets[own] - layout.input_range(rank)[0]
    target = sum(layout.shards[pair] for pair in range(rank, own, num_ranks))
    return [
        Instruction("copy", ChunkRange("input", source + first), ChunkRange("output", target + first), count)
        for first, count in pieces(0, layout.shards[own], max_count)
    ]


class _End(NamedTuple):
    """A rank's end of a connection."""

    sends: bool
    peer: int
    lane: int


class _Turns:
    """What one rank sends, or receives, in stages: each block's last step in the current one, and in that before."""

    def __init__(self) -> None:
        self.stage = NOWHERE
        self.steps: dict[int, int] = {}
        self.before: dict[int, int] = {}

    def take(self, stage: int, here: int) -> list[int]:
        """Add a step to a stage, not to an earlier one than last time, and return those that it comes after."""
        if stage > self.stage:
            self.stage, self.steps, self.before = stage, {}, self.steps
        self.steps[here // WIDTH] = here
        # A block's own steps come one after the other anyway.
        return [step for block, step in self.before.items() if block != here // WIDTH]


class _Writer:
    """Writes the thread blocks of one rank."""

    def __init__(self, rank: int, layout: Layout, routed: Routed, lanes: Sequence[int], homes: Sequence[int]) -> None:
        self.rank = rank
        self.homes = homes
        self.turns = {True: _Turns(), False: _Turns()}
        self.layout = layout
        self.moves = routed.moves
        self.lanes = lanes
        # The last step that wrote to, and that read, each chunk of scratch.
        self.written: Sites = np.full(routed.scratch[rank], NOWHERE, dtype=np.int64)
        self.read: Sites = np.full(routed.scratch[rank], NOWHERE, dtype=np.int64)

    def program(self, events: Sequence[int], copies: Sequence[Instruction], max_steps: int) -> RankProgram:
        """Write receiving, copying and sending blocks in this order, as MSCCL can only wait for blocks 0 to 127."""
        ends = [self._end(number) for number in events]
        blocks = sorted(set(ends))
        own = [
            ThreadBlock(None, None, 0, tuple(copies[start : start + max_steps]))
            for start in range(0, len(copies), max_steps)
        ]
        receiving = sum(not end.sends for end in blocks)
        places = {end: number + len(own) * (number >= receiving) for number, end in enumerate(blocks)}
        steps: dict[_End, list[Instruction]] = {end: [] for end in blocks}
        waited: dict[_End, dict[int, int]] = {end: {} for end in blocks}
        for number, end in zip(events, ends, strict=True):
            here = places[end] * WIDTH + len(steps[end])
            steps[end].append(self._step(self.moves[number], here, waited[end]))
        written = [
            ThreadBlock(end.peer if end.sends else None, None if end.sends else end.peer, end.lane, tuple(steps[end]))
            for end in blocks
        ]
        begin, after = self.layout.input_range(self.rank)
        output = sum(last - first for first, last in self.layout.output_ranges(self.rank))
        sizes = after - begin, output, len(self.written)
        return RankProgram(self.rank, *sizes, (*written[:receiving], *own, *written[receiving:]))

    def _end(self, number: int) -> _End:
        move, lane = self.moves[number], self.lanes[number]
        return _End(True, move.receiver, lane) if move.sender == self.rank else _End(False, move.sender, lane)

    def _step(self, move: Move, here: int, waited: dict[int, int]) -> Instruction:
        """Write this rank's end of a move."""
        sends = move.sender == self.rank
        buffer, place = move.source if sends else move.target
        sites: list[int] = []
        if self.homes[move.sender] != self.homes[move.receiver]:
            sites = self.turns[sends].take(move.step, here)
        if buffer == "scratch":
            touched = slice(place, place + move.chunks)
            sites += np.unique((self.written if sends else self.read)[touched]).tolist()
            (self.read if sends else self.written)[touched] = here
        waits = _waits(sites, waited)
        chunks = ChunkRange(buffer, place)
        return Instruction(
            "send" if sends else "recv", chunks if sends else None, None if sends else chunks, move.chunks, waits
        )


def _waits(sites: Sequence[int], waited: dict[int, int]) -> tuple[Dependency, ...]:
    """The last step of each thread block among `sites`, but those that the block at hand has waited for already."""
    last: dict[int, int] = {}
    for site in sorted(sites):
        if site != NOWHERE:
            block, step = divmod(site, WIDTH)
            last[block] = step
    needed = {block: step for block, step in last.items() if waited.get(block, -1) < step}
    waited.update(needed)
    return tuple(Dependency(block, step) for block, step in needed.items())
