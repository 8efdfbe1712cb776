"""Lowering of flows and of an `AllToAllvSchedule` to per-rank programs; see docs/explanation/programs.md.

A send from scratch waits for the receives that brought its chunks, a receive into scratch for the sends that emptied
its place; in stages, each transfer between servers also waits for those of the stage before.  MSCCL has one wait per
step, so each further one costs a nop.
"""

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from ...schedules import AllToAllvSchedule, Collective, FlowSchedule, StagedFlow
from ...schedules.stages.as_flow import as_flow
from ...schedules.steps.flow_verify import check_flow, check_partners
from ...schedules.trees.tree_schedule import split_range
from ...support.arrays import IntArray
from ...topologies.symmetry.rank_groups import RankGroups, one_group
from ..programs.layout import Layout
from ..programs.program import ChunkRange, Instruction, Program
from .flow_transfers import (
    PathChunks,
    PlacedTransfers,
    Turns,
    check_fineness,
    flow_chunks,
    flow_layout,
    flow_turns,
    merged_transfers,
    round_turns,
)
from .rank_writer import LoweringOptions, RankWriter, Site, write_program

NONE = -1
BLOCK_SHIFT = 2**32  # A step's code is its thread block times this, plus its number


def lower_flow(schedule: FlowSchedule, collective: Collective, options: LoweringOptions, name: str) -> Program:
    """Lower a flow; see `collopt.runtime.lowering.lower.lower`, which has checked everything but the schedule."""
    check_flow(schedule)
    layout = flow_layout(schedule, collective)
    ranges = flow_chunks(schedule, layout, options.max_count)
    turns = flow_turns(schedule, options.topology, options.groups)
    return _write_program(name, layout, ranges, [0] * schedule.num_ranks, turns, options)


def lower_staged_flow(schedule: StagedFlow, collective: Collective, options: LoweringOptions, name: str) -> Program:
    """Lower a flow in stages; see `lower_flow`."""
    check_flow(schedule)
    check_partners(schedule)
    layout = flow_layout(schedule, collective)
    ranges = flow_chunks(schedule, layout, options.max_count)
    servers = np.unique(schedule.servers, return_inverse=True)[1]
    return _write_program(name, layout, ranges, servers.tolist(), round_turns(_server_groups(servers)), options)


def lower_stages(schedule: AllToAllvSchedule, collective: Collective, options: LoweringOptions, name: str) -> Program:
    """Lower a schedule of FAST; see `lower_flow`."""
    schedule.verify()
    flow = as_flow(schedule)
    check_fineness(schedule, flow)
    return lower_staged_flow(flow, collective, options, name)


def _server_groups(servers: IntArray) -> RankGroups:
    """Servers, int64 (ranks,), as groups, and the places of their ranks, if all servers have as many."""
    sizes = np.bincount(servers)
    if (sizes != sizes[0]).any():
        return one_group(len(servers))
    places = np.empty(len(servers), dtype=np.int64)
    places[np.argsort(servers, kind="stable")] = np.arange(len(servers)) % sizes[0]
    return RankGroups(np.column_stack([servers, places]), (len(sizes), int(sizes[0])))


def _write_program(
    name: str,
    layout: Layout,
    ranges: Sequence[PathChunks],
    servers: Sequence[int],
    turns: Turns,
    options: LoweringOptions,
) -> Program:
    """Write the programs of all ranks; transfers between servers are ordered by stage."""
    placed = merged_transfers(ranges, layout, len(servers), turns, options.max_count, options.borders(layout))
    sizes = [transfer.chunks for transfer in placed.transfers]
    writer = partial(_FlowRankWriter, layout, placed, servers, options.max_count)
    ends = [(sent.sender, sent.receiver) for sent in placed.transfers]
    return write_program(name, layout, ends, sizes, options, writer)


class _StageSteps:
    """Last steps of each thread block in the current stage and in the previous one, of one rank's sends or receives."""

    def __init__(self) -> None:
        self.stage = NONE
        self.steps: dict[int, int] = {}
        self.before: dict[int, int] = {}

    def add(self, stage: int, here: int) -> list[int]:
        """Add a step to a stage, no earlier than the last one, and return the steps that it waits for."""
        if stage > self.stage:
            self.stage, self.steps, self.before = stage, {}, self.steps
        self.steps[here // BLOCK_SHIFT] = here
        # A block's own steps come one after the other anyway.
        return [step for block, step in self.before.items() if block != here // BLOCK_SHIFT]


class _FlowRankWriter(RankWriter):
    """Writes one rank's ends of transfers; `written`, `read`: last step that wrote, and read, each chunk of scratch."""

    def __init__(
        self, layout: Layout, placed: PlacedTransfers, servers: Sequence[int], max_count: int, rank: int
    ) -> None:
        self.layout = layout
        self.transfers = placed.transfers
        self.servers = servers
        self.max_count = max_count
        self.rank = rank
        self.stages = {True: _StageSteps(), False: _StageSteps()}
        self.scratch = placed.scratch[rank]
        self.written: npt.NDArray[np.int64] = np.full(self.scratch, NONE, dtype=np.int64)
        self.read = self.written.copy()

    def copies(self) -> list[Instruction]:
        """Copy the rank's own shard."""
        ranks = len(self.servers)
        own = self.rank * ranks + self.rank
        source = self.layout.offsets[own] - self.layout.input_range(self.rank)[0]
        target = sum(self.layout.shards[pair] for pair in range(self.rank, own, ranks))
        return [
            Instruction("copy", ChunkRange("input", source + first), ChunkRange("output", target + first), count)
            for first, count in split_range(0, self.layout.shards[own], self.max_count)
        ]

    def step(self, number: int, here: Site) -> tuple[Instruction, Iterable[Site]]:
        """Write this rank's end of a transfer, and what it waits for."""
        transfer, code = self.transfers[number], here[0] * BLOCK_SHIFT + here[1]
        sends = transfer.sender == self.rank
        buffer, place = transfer.source if sends else transfer.target
        sites: list[int] = []
        if self.servers[transfer.sender] != self.servers[transfer.receiver]:
            sites = self.stages[sends].add(transfer.step, code)
        if buffer == "scratch":
            touched = slice(place, place + transfer.chunks)
            sites += np.unique((self.written if sends else self.read)[touched]).tolist()
            (self.read if sends else self.written)[touched] = code
        last = dict(divmod(site, BLOCK_SHIFT) for site in sorted(sites) if site != NONE)  # of each thread block
        chunks = ChunkRange(buffer, place)
        source, target = (chunks, None) if sends else (None, chunks)
        return Instruction("send" if sends else "recv", source, target, transfer.chunks), last.items()
