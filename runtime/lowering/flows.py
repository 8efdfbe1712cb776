"""Lowering of flows and stages: chunk ranges of an all-to-all(v), joined transfers, and scratch.

What a rank sends another in one step, adjacent in memory, is one transfer.  What the receiver forwards gets a part of
its scratch, free again from the step after the one in which it is sent on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, groupby
from math import lcm
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import UnsupportedError
from ...schedules import AllToAllvSchedule, Collective, FlowSchedule, StagedFlow
from ...schedules.collective import is_even
from ...schedules.message_order import message_rounds, sending_turns
from ...schedules.stages.as_flow import as_flow
from ...schedules.steps.verify import check_flow, check_partners
from ...schedules.trees.tree_schedule import split_range
from ...support.arrays import IntArray
from ...topologies.symmetry.rank_groups import RankGroups, one_group
from ..programs.layout import Layout
from ..programs.program import Buffer, ChunkRange, Instruction, Program
from .rank_writer import LoweringOptions, RankWriter, Site, write_program
from .trees import MAX_TRANSFERS

MAX_WEIGHT = 2**62
MAX_CHUNKS = 2**22  # Chunks of a program: every check, and every rank that runs it, looks at each of them
NONE = -1
BLOCK_SHIFT = 2**32  # A step's code is its thread block times this, plus its number


class Transfer(NamedTuple):
    """Chunks ``first .. first + chunks - 1`` of the collective, from one rank to another; fields in sorting order."""

    step: int
    turn: int
    sender: int
    receiver: int
    arrives: bool
    source: tuple[Buffer, int]
    first: int
    chunks: int
    target: tuple[Buffer, int] = ("output", 0)

    def continues(self, other: Transfer) -> bool:
        """Whether it starts where another one ends, in memory and in the collective."""
        ends = (other.source[0], other.source[1] + other.chunks), other.first + other.chunks
        return self[:5] == other[:5] and (self.source, self.first) == ends


def lower_flow(schedule: FlowSchedule, collective: Collective, options: LoweringOptions, name: str) -> Program:
    """Lower a flow; see `collopt.runtime.lowering.lower.lower`, which has checked everything but the schedule."""
    check_flow(schedule)
    return _program(schedule, collective, options, name, [0] * schedule.num_ranks, _flow_turns(schedule, options))


def lower_staged_flow(schedule: StagedFlow, collective: Collective, options: LoweringOptions, name: str) -> Program:
    """Lower a flow in stages; see `lower_flow`."""
    check_flow(schedule)
    check_partners(schedule)
    servers = np.unique(schedule.servers, return_inverse=True)[1]
    turns = message_rounds(_server_groups(servers), *schedule.columns.ends)
    return _program(schedule, collective, options, name, servers.tolist(), turns)


def lower_stages(schedule: AllToAllvSchedule, collective: Collective, options: LoweringOptions, name: str) -> Program:
    """Lower a schedule of FAST; see `lower_flow`."""
    schedule.verify()
    flow = as_flow(schedule)
    check_fineness(schedule, flow)
    return lower_staged_flow(flow, collective, options, name)


def _flow_turns(schedule: FlowSchedule, options: LoweringOptions) -> IntArray:
    """Turns of sends among those of their step, (sends,); in simulations of the flow, those of the first between ranks.

    Without a network, or if all parts are equal, they are rounds.
    """
    sends = schedule.columns
    if options.topology is None or is_even(schedule.traffic):
        return message_rounds(options.groups, *sends.ends)
    transfers = schedule.transfers(options.topology)
    turns = sending_turns(schedule, transfers, options.topology, options.groups)
    _, message = np.unique(np.stack([sends.steps, *sends.ends]), axis=1, return_inverse=True)
    earliest = np.full(len(turns), turns.max(initial=0))
    np.minimum.at(earliest, message.reshape(-1), turns)
    return earliest[message.reshape(-1)]


def _server_groups(servers: IntArray) -> RankGroups:
    """Servers, int64 (ranks,), as groups, and the places of their ranks, if all servers have as many."""
    sizes = np.bincount(servers)
    if (sizes != sizes[0]).any():
        return one_group(len(servers))
    places = np.empty(len(servers), dtype=np.int64)
    places[np.argsort(servers, kind="stable")] = np.arange(len(servers)) % sizes[0]
    return RankGroups(np.column_stack([servers, places]), (len(sizes), int(sizes[0])))


def flow_layout(schedule: FlowSchedule, collective: Collective) -> Layout:
    """Lay out the chunks of a flow, including those that ranks keep."""
    # Python's integers do not overflow.
    shards = [schedule.chunks_per_unit * amount for amount in schedule.traffic.ravel().tolist()]
    equal = len(set(shards)) == 1
    if not (collective.parts_differ or equal):
        raise UnsupportedError(
            "all_to_all was requested, but the schedule's traffic is not the same everywhere; expected all_to_allv"
        )
    if not 0 < sum(shards) < MAX_WEIGHT:
        raise UnsupportedError(f"the schedule divides the data into {sum(shards)} chunks; expected 1 to 2^62 - 1")
    return Layout.of(collective, schedule.num_ranks, sum(shards), () if equal else shards)


def check_fineness(schedule: AllToAllvSchedule, flow: StagedFlow) -> None:
    """Refuse more chunks than a program can have; `flow` is that of the schedule."""
    chunks = flow.chunks_per_unit * sum(flow.traffic.ravel().tolist())
    if chunks > MAX_CHUNKS:
        total = sum(schedule.traffic.ravel().tolist())
        m, lanes = schedule.gpus_per_server, schedule.server_lanes.tolist()
        # Multiples that pairs of parts, and the lanes that both have, share evenly.
        shares = lcm(*(min(one, other, m) * -(-one // m) * -(-other // m) for one in lanes for other in lanes))
        raise UnsupportedError(
            f"parts of the schedule are multiples of {total // chunks}, of {total} in all, which makes {chunks} "
            f"chunks; expected at most {MAX_CHUNKS}: schedule larger units, such as tokens for bytes, or traffic "
            f"rounded up to multiples of {-(-2 * total // MAX_CHUNKS) * shares}"
        )


def _program(
    schedule: FlowSchedule,
    collective: Collective,
    options: LoweringOptions,
    name: str,
    servers: Sequence[int],
    turns: IntArray,
) -> Program:
    """Write the programs of all ranks; transfers between servers are ordered by stage."""
    layout = flow_layout(schedule, collective)
    singles = _single_transfers(schedule, layout, turns, options.max_count)
    transfers, scratch = _placed_transfers(singles, layout, options.max_count, options.borders(layout))
    writer = partial(_FlowRankWriter, layout, transfers, scratch, servers, options.max_count)
    ends = [(transfer.sender, transfer.receiver) for transfer in transfers]
    return write_program(name, layout, ends, [transfer.chunks for transfer in transfers], options, writer)


def _single_transfers(schedule: FlowSchedule, layout: Layout, turns: IntArray, max_count: int) -> list[Transfer]:
    """Cut all sends into nearly equal ranges of at most `max_count` chunks, by step; sources are those at origins."""
    sends = schedule.columns
    count = int((-(-(sends.upper - sends.lower) // max_count)).sum())
    if count > MAX_TRANSFERS:
        raise UnsupportedError(
            f"the paths divide the data into {layout.chunks} chunks, which takes {count} transfers of {max_count} "
            f"chunks each; expected at most {MAX_TRANSFERS}: plan with fewer chunks per unit"
        )
    inputs = [layout.input_range(rank)[0] for rank in range(sends.num_ranks)]
    columns = (sends.steps, turns, *sends.ends, sends.items, sends.lower, sends.upper)
    transfers = []
    for step, turn, sender, receiver, pair, lower, upper in zip(*(column.tolist() for column in columns), strict=True):
        origin, destination = divmod(pair, sends.num_ranks)
        begin, ends = layout.offsets[pair], (step, turn, sender, receiver, receiver == destination)
        for first, chunks in split_range(begin + lower, begin + upper, max_count):
            transfers.append(Transfer(*ends, ("input", first - inputs[origin]), first, chunks))
    return sorted(transfers, key=lambda transfer: transfer.step)


def _placed_transfers(
    transfers: Sequence[Transfer], layout: Layout, max_count: int, borders: Collection[int]
) -> tuple[list[Transfer], list[int]]:
    """Order all transfers by step and turn, join adjacent ones, and assign memory; return the scratch of each rank."""
    ranks = layout.num_ranks
    # Where the output of each rank has the part of each other.
    outputs = [list(accumulate(layout.shards[rank::ranks], initial=0)) for rank in range(ranks)]
    slots = [ScratchAllocator() for _ in range(ranks)]
    scratch: dict[tuple[int, int], tuple[Buffer, int]] = {}  # Of a rank, where it has the chunks from this one on
    placed: list[Transfer] = []
    for _, group in groupby(transfers, key=lambda transfer: transfer.step):
        ready = [one._replace(source=scratch.pop((one.sender, one.first), one.source)) for one in group]
        sent_on = []
        for parts in _joined(sorted(ready), max_count, borders):
            one, chunks = parts[0], sum(part.chunks for part in parts)
            target: tuple[Buffer, int]
            if one.arrives:
                pair = bisect_right(layout.offsets, one.first) - 1
                target = "output", outputs[one.receiver][pair // ranks] + one.first - layout.offsets[pair]
            else:
                target = "scratch", slots[one.receiver].allocate(chunks)
                for part in parts:
                    scratch[one.receiver, part.first] = "scratch", target[1] + part.first - one.first
            if one.source[0] == "scratch":
                sent_on.append((one.sender, one.source[1], chunks))
            placed.append(one._replace(chunks=chunks, target=target))
        for rank, place, chunks in sent_on:
            slots[rank].free(place, chunks)
    return placed, [rank_slots.size for rank_slots in slots]


def _joined(transfers: Sequence[Transfer], max_count: int, borders: Collection[int]) -> Iterator[list[Transfer]]:
    """Group transfers that continue one another."""
    group: list[Transfer] = []
    for one in transfers:
        joins = bool(group) and one.continues(group[-1]) and one.first not in borders
        if group and not (joins and one.first + one.chunks - group[0].first <= max_count):
            yield group
            group = []
        group.append(one)
    if group:
        yield group


class ScratchAllocator:
    """Best-fit allocator of one rank's scratch; `size` is its high-water mark."""

    def __init__(self) -> None:
        self.size = 0
        self._gaps: list[tuple[int, int]] = []

    def allocate(self, count: int) -> int:
        """Return the begin of a free range of `count` chunks."""
        fitting = [gap for gap in self._gaps if gap[1] - gap[0] >= count]
        if not fitting:
            # The last gap grows if it is at the end.
            begin = self.size
            if self._gaps and self._gaps[-1][1] == self.size:
                begin, _ = self._gaps.pop()
            self.size = begin + count
            return begin
        begin, end = min(fitting, key=lambda gap: gap[1] - gap[0])
        self._gaps.remove((begin, end))
        if begin + count < end:
            insort(self._gaps, (begin + count, end))
        return begin

    def free(self, begin: int, count: int) -> None:
        """Free a range that `allocate` returned."""
        end = begin + count
        number = bisect_left(self._gaps, (begin, end))
        if number < len(self._gaps) and self._gaps[number][0] == end:
            end = self._gaps.pop(number)[1]
        if number and self._gaps[number - 1][1] == begin:
            begin = self._gaps.pop(number - 1)[0]
        insort(self._gaps, (begin, end))


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
        self,
        layout: Layout,
        transfers: Sequence[Transfer],
        scratch: Sequence[int],
        servers: Sequence[int],
        max_count: int,
        rank: int,
    ) -> None:
        self.layout = layout
        self.transfers = transfers
        self.servers = servers
        self.max_count = max_count
        self.rank = rank
        self.stages = {True: _StageSteps(), False: _StageSteps()}
        self.scratch = scratch[rank]
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
