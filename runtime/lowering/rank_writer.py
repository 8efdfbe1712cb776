"""Thread blocks of all ranks from the transfers of a program in their global order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import NamedTuple, Protocol

from ...schedules import Collective
from ...schedules.trees.tree_chunks import TreeChunks, split_range
from ...topologies import Topology
from ...topologies.graphs.rank_groups import RankGroups
from ..programs.channels import assign_channels
from ..programs.layout import Layout
from ..programs.program import Buffer, ChunkRange, Dependency, Instruction, Kind, Program, RankProgram, ThreadBlock
from .tree_transfers import Hop
from .waits import Site, Waits

_Chunks = tuple[Buffer, int]
# `_Chunks` and `Site` are `ChunkRange` and `Dependency` while they are worked with, as tuples are compared faster.


class LoweringOptions(NamedTuple):
    """Options of `collopt.runtime.lowering.lower.lower`."""

    max_steps: int
    max_count: int
    channels: int
    instances: int
    topology: Topology | None
    groups: RankGroups  # Whose rounds order transfers of one level

    def borders(self, layout: Layout) -> frozenset[int]:
        """Chunks that no step may cross: begins of shards, if instances divide them."""
        return frozenset(layout.blocks) if self.instances > 1 else frozenset()


class _Transfer(Protocol):
    """Protocol of a transfer."""

    @property
    def sender(self) -> int: ...
    @property
    def receiver(self) -> int: ...


class _Endpoint(NamedTuple):
    """One end of a connection."""

    sends: bool
    peer: int
    channel: int


class RankWriter(ABC):
    """Writes the steps of one rank; `scratch`: chunks of scratch used so far."""

    scratch = 0

    @abstractmethod
    def step(self, number: int, here: Site, waits: Waits) -> Instruction:
        """Write this rank's end of a transfer as step `here`; `waits` are those of the rank so far."""

    @abstractmethod
    def copies(self) -> list[Instruction]:
        """Copy what the rank keeps from its input to its output."""

    def waiting(self, copies: list[Instruction]) -> list[Instruction]:
        """Let these copies wait for steps, when all of them are written; most wait for none."""
        return copies


def write_program(
    name: str,
    collective: Collective,
    layout: Layout,
    num_ranks: int,
    transfers: Sequence[_Transfer],
    sizes: Sequence[int],
    options: LoweringOptions,
    writer: Callable[[int], RankWriter],
    copies: Sequence[int] = (),
) -> Program:
    """Write the programs of all ranks from all transfers, and their chunks, in the global order.

    `copies` numbers those that are copies of the same data for several receivers, -1 for all others; see
    `assign_channels`.
    """
    connections = [(transfer.sender, transfer.receiver) for transfer in transfers]
    channels = assign_channels(connections, sizes, options.max_steps, options.channels, copies)
    # Numbers of transfers and not transfers with their channels: there are millions.
    events: list[list[int]] = [[] for _ in range(num_ranks)]
    for number, (sender, receiver) in enumerate(connections):
        events[sender].append(number)
        events[receiver].append(number)
    ranks = []
    for rank, own in enumerate(events):
        ends = [
            _Endpoint(True, connections[number][1], channels[number])
            if connections[number][0] == rank
            else _Endpoint(False, connections[number][0], channels[number])
            for number in own
        ]
        steps = writer(rank)
        blocks = _thread_blocks(own, ends, steps, options.max_steps)
        begin, end = layout.input_range(rank)
        output = sum(last - first for first, last in layout.output_ranges(rank))
        ranks.append(RankProgram(rank, end - begin, output, steps.scratch, blocks))
    given = () if collective.has_two_phases or len(set(layout.shards)) == 1 else layout.shards
    return Program(name, collective, num_ranks, layout.chunks, tuple(ranks), shards=given)


def _thread_blocks(
    events: Sequence[int], ends: Sequence[_Endpoint], writer: RankWriter, max_steps: int
) -> tuple[ThreadBlock, ...]:
    """Write thread blocks that receive, copy and send, in this order, as MSCCL can only wait for blocks 0 to 127.

    Those that receive, and those that send, are in the order of their first transfers.
    """
    copies, blocks = writer.copies(), sorted(dict.fromkeys(ends), key=attrgetter("sends"))
    parts, receiving = range(0, len(copies), max_steps), sum(not end.sends for end in blocks)
    places = {end: number + len(parts) * (number >= receiving) for number, end in enumerate(blocks)}
    steps: dict[_Endpoint, list[Instruction]] = {end: [] for end in blocks}
    waits = Waits(len(blocks) + len(parts))
    for number, end in zip(events, ends, strict=True):
        mine = steps[end]
        mine.append(writer.step(number, (places[end], len(mine)), waits))
    copies = writer.waiting(copies)
    copying = [ThreadBlock(None, None, 0, tuple(copies[start : start + max_steps])) for start in parts]
    written = [
        ThreadBlock(end.peer if end.sends else None, None if end.sends else end.peer, end.channel, tuple(steps[end]))
        for end in blocks
    ]
    return (*written[:receiving], *copying, *written[receiving:])


class TreeTransfers:
    """State shared by the writers of all ranks; equal steps are one object, as there may be millions."""

    def __init__(self, layout: Layout, ranges: Sequence[TreeChunks], hops: Sequence[Hop], max_count: int) -> None:
        self.layout = layout
        self.ranges = ranges
        self.hops = hops
        self.max_count = max_count
        self.sizes = [ranges[hop.first_range].chunks if hop.ranges == 1 else self._merged_size(hop) for hop in hops]
        self.instruction = cache(_instruction)

    def _merged_size(self, hop: Hop) -> int:
        last = self.ranges[hop.first_range + hop.ranges - 1]
        return last.first + last.chunks - self.ranges[hop.first_range].first


def _instruction(
    kind: Kind, source: _Chunks | None, target: _Chunks | None, count: int, after: Site | None = None
) -> Instruction:
    return Instruction(
        kind,
        ChunkRange(*source) if source else None,
        ChunkRange(*target) if target else None,
        count,
        (Dependency(*after),) if after else (),
    )


class TreeRankWriter(RankWriter):
    """Writes one rank's ends of hops; `places`: memory of each range, and the step that its next use waits for."""

    def __init__(self, shared: TreeTransfers, rank: int) -> None:
        self.shared = shared
        self.rank = rank
        self.input_first, self.input_end = shared.layout.input_range(rank)
        self.output_first, self.output_end = shared.layout.output_range(rank)
        self.places: dict[int, tuple[_Chunks, Site | None]] = {}

    def copies(self) -> list[Instruction]:
        """Copy the rank's own part of the result, if nothing is reduced."""
        if self.shared.layout.reduces and len(self.shared.layout.shards) > 1:
            return []
        return [
            self.shared.instruction("copy", ("input", first - self.input_first), self._location(first), count)
            for first, count in split_range(self.input_first, self.input_end, self.shared.max_count)
        ]

    def step(self, number: int, here: Site, waits: Waits) -> Instruction:
        """Write this rank's end of a hop, and record the memory of its ranges."""
        hop, count = self.shared.hops[number], self.shared.sizes[number]
        first = self.shared.ranges[hop.first_range].first
        # Of joined ranges the first one speaks for all.
        place = self.places.get(hop.first_range)
        held, after = place or (("input", first - self.input_first), None)
        wait = after if after and waits.needed(here, (after,)) else None
        if hop.sender == self.rank:
            self._remember(hop, held, here if hop.reduces else after)
            return self.shared.instruction("send", held, None, count, wait)
        if not hop.reduces:
            target = self._location(first)
            self._remember(hop, target, here)
            return self.shared.instruction("recv", None, target, count, wait)
        target = held if place else self._reduction_target(first, count)
        self._remember(hop, target, here)
        return self.shared.instruction("recv_reduce", held, target, count, wait)

    def _remember(self, hop: Hop, chunks: _Chunks, after: Site | None) -> None:
        """Record the memory of the ranges of a hop, and the step before their next use."""
        self.places[hop.first_range] = chunks, after
        if hop.ranges > 1:
            before = self.shared.ranges[hop.first_range].first
            for number in range(hop.first_range + 1, hop.first_range + hop.ranges):
                self.places[number] = (chunks[0], chunks[1] + self.shared.ranges[number].first - before), after

    def _location(self, first: int) -> _Chunks:
        """Location of a chunk in the rank's output."""
        return "output", first - self.output_first

    def _reduction_target(self, first: int, count: int) -> _Chunks:
        """Location in which the rank reduces chunks of the collective."""
        if self.output_first <= first < self.output_end:
            return self._location(first)
        self.scratch += count
        return "scratch", self.scratch - count
