"""Lowering of flows and stages: chunk ranges of an all-to-all(v), joined transfers, and scratch.

What a rank sends another in one step, adjacent in memory, is one transfer.  What the receiver forwards gets a part of
its scratch, free again from the step after the one in which it is sent on.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from math import lcm
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import UnsupportedError
from ...schedules import AllToAllvSchedule, Collective, FlowSchedule, StagedFlow
from ...schedules.sizes import is_even
from ...schedules.stages.as_flow import as_flow
from ...schedules.steps.verify import check_flow, check_partners
from ...schedules.timing.message_order import message_rounds, sending_turns
from ...schedules.trees.tree_schedule import split_range
from ...support.arrays import IntArray
from ...topologies import Topology
from ...topologies.symmetry.rank_groups import RankGroups, one_group
from ..programs.layout import Layout
from ..programs.program import Buffer, ChunkRange, Instruction, Program
from .rank_writer import LoweringOptions, RankWriter, Site, write_program
from .trees import MAX_TRANSFERS

MAX_WEIGHT = 2**62

Turns = Callable[[int, int, int], int]
"""Of the transfers of a step, from a sender to a receiver, among those of the step."""
MAX_CHUNKS = 2**22  # Chunks of a program: every check, and every rank that runs it, looks at each of them
NONE = -1
BLOCK_SHIFT = 2**32  # A step's code is its thread block times this, plus its number


def round_turns(groups: RankGroups) -> Turns:
    """Turns by rounds."""
    ranks = len(groups.digits)
    rounds = message_rounds(groups, *np.divmod(np.arange(ranks**2), ranks)).reshape(ranks, ranks).tolist()
    return lambda _, sender, receiver: rounds[sender][receiver]


def flow_turns(schedule: FlowSchedule, topology: Topology | None, groups: RankGroups) -> Turns:
    """Turns as in simulations of the flow: those of the first of the transfers between two ranks."""
    if topology is None or is_even(schedule.traffic):
        return round_turns(groups)
    transfers = schedule.transfers(topology)
    first_turns: dict[tuple[int, int, int], int] = {}
    turns = sending_turns(schedule, transfers, topology, groups)
    columns = (transfers.levels, transfers.senders, transfers.receivers, turns)
    for step, sender, receiver, turn in zip(*(column.tolist() for column in columns), strict=True):
        first_turns[step, sender, receiver] = min(turn, first_turns.get((step, sender, receiver), turn))
    return lambda step, sender, receiver: first_turns[step, sender, receiver]


class PathChunks(NamedTuple):
    """Chunks ``first .. first + chunks - 1`` of the collective go from each of `ranks` to the next, in `steps`."""

    first: int
    chunks: int
    ranks: tuple[int, ...]
    steps: tuple[int, ...]


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


def flow_chunks(schedule: FlowSchedule, layout: Layout, max_count: int) -> list[PathChunks]:
    """Assign every path its chunks, in nearly equal ranges of at most `max_count`."""
    parts = -(-schedule.weights // max_count)
    transfers = int((parts * schedule.num_transfers).sum())
    if transfers > MAX_TRANSFERS:
        raise UnsupportedError(
            f"the paths divide the data into {layout.chunks} chunks, which takes {transfers} transfers of {max_count} "
            f"chunks each; expected at most {MAX_TRANSFERS}: plan with fewer chunks per unit"
        )
    used = [0] * schedule.num_ranks**2
    ranges = []
    for chunks, path, steps in schedule.paths():
        stops = [number for number, node in enumerate(path) if node < schedule.num_ranks]
        ranks, times = tuple(path[stop] for stop in stops), tuple(steps[stop] for stop in stops[:-1])
        pair = path[0] * schedule.num_ranks + path[-1]
        begin = layout.offsets[pair] + used[pair]
        used[pair] += chunks
        ranges += [PathChunks(*part, ranks, times) for part in split_range(begin, begin + chunks, max_count)]
    return ranges


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


class PlacedTransfer(NamedTuple):
    """Chunks ``first .. first + chunks - 1`` of the collective, from a buffer of one rank to one of another."""

    step: int
    sender: int
    receiver: int
    first: int
    chunks: int
    source: tuple[Buffer, int]
    target: tuple[Buffer, int]


class PlacedTransfers(NamedTuple):
    """All transfers, ordered by step and turn, and the chunks of scratch that each rank needs."""

    transfers: list[PlacedTransfer]
    scratch: list[int]


class _Hop(NamedTuple):
    """One hop of a chunk range; fields are in sorting order."""

    turn: int
    sender: int
    receiver: int
    arrives: bool
    buffer: Buffer
    place: int
    first: int
    chunks: int
    number: int

    def continues(self, other: _Hop) -> bool:
        """Whether another hop starts where this one ends, in memory and in the collective."""
        ends = self.place + self.chunks, self.first + self.chunks
        return self[:5] == other[:5] and ends == (other.place, other.first)


def merged_transfers(
    ranges: Sequence[PathChunks],
    layout: Layout,
    num_ranks: int,
    turns: Turns,
    max_count: int,
    borders: Collection[int] = (),
) -> PlacedTransfers:
    """Order all transfers by step and turn, merge adjacent ones and assign each its memory."""
    columns = [list(accumulate(layout.shards[rank::num_ranks], initial=0)) for rank in range(num_ranks)]
    inputs = [layout.input_range(rank)[0] for rank in range(num_ranks)]
    places: list[tuple[Buffer, int]] = [("input", item.first - inputs[item.ranks[0]]) for item in ranges]
    slots = [ScratchAllocator() for _ in range(num_ranks)]
    transfers: list[PlacedTransfer] = []
    steps: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, item in enumerate(ranges):
        for at, step in enumerate(item.steps):
            steps[step].append((number, at))
    for step, stops in sorted(steps.items()):
        left = []
        ready = sorted(_hop(ranges[number], at, places[number], number, turns) for number, at in stops)
        for joined in _merge(ready, max_count, borders):
            one, chunks = joined[0], sum(hop.chunks for hop in joined)
            target: tuple[Buffer, int]
            if one.arrives:
                origin = ranges[one.number].ranks[0]
                inside = one.first - layout.offsets[origin * num_ranks + one.receiver]
                target = "output", columns[one.receiver][origin] + inside
            else:
                target = "scratch", slots[one.receiver].allocate(chunks)
            transfers.append(
                PlacedTransfer(step, one.sender, one.receiver, one.first, chunks, (one.buffer, one.place), target)
            )
            if one.buffer == "scratch":
                left.append((one.sender, one.place, chunks))
            for hop in joined:
                places[hop.number] = target[0], target[1] + hop.first - one.first
        for rank, place, chunks in left:
            slots[rank].free(place, chunks)
    return PlacedTransfers(transfers, [item.size for item in slots])


def _hop(chunks: PathChunks, hop: int, place: tuple[Buffer, int], number: int, turns: Turns) -> _Hop:
    sender, receiver = chunks.ranks[hop : hop + 2]
    arrives, turn = hop + 2 == len(chunks.ranks), turns(chunks.steps[hop], sender, receiver)
    return _Hop(turn, sender, receiver, arrives, *place, chunks.first, chunks.chunks, number)


def _merge(hops: Sequence[_Hop], max_count: int, borders: Collection[int]) -> Iterator[list[_Hop]]:
    """Group hops that continue one another."""
    group: list[_Hop] = []
    for hop in hops:
        joins = bool(group) and group[-1].continues(hop) and hop.first not in borders
        if group and not (joins and hop.first + hop.chunks - group[0].first <= max_count):
            yield group
            group = []
        group.append(hop)
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
