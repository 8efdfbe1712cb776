"""Thread blocks of all ranks from the transfers of a program in their global order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice, pairwise
from operator import attrgetter
from struct import unpack
from typing import NamedTuple, Protocol

import numpy as np

from ...schedules import Collective
from ...schedules.trees.tree_chunks import TreeChunks, split_range
from ...support.arrays import IntArray
from ...topologies import Topology
from ...topologies.graphs.rank_groups import RankGroups
from ..programs.channels import assign_channels
from ..programs.layout import Layout
from ..programs.program import Buffer, ChunkRange, Dependency, Instruction, Kind, Program, RankProgram, ThreadBlock
from .waits import Site, Waits


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
) -> Program:
    """Write the programs of all ranks from all transfers, and their chunks, in the global order."""
    connections = [(transfer.sender, transfer.receiver) for transfer in transfers]
    channels = assign_channels(connections, sizes, options.max_steps, options.channels).tolist()
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


class _SharedSteps(dict[bytes, Instruction]):
    """Instructions by their rows as in `tree_steps`; equal steps are one object, as there may be millions."""

    def __missing__(self, row: bytes) -> Instruction:
        kind, source, source_start, target, target_start, count, block, step = unpack("8q", row)
        self[row] = found = Instruction(
            KINDS[kind],
            _chunks(source, source_start) if source else None,
            _chunks(target, target_start) if target else None,
            count,
            (_dependency(block, step),) if block >= 0 else (),
        )
        return found


KINDS: tuple[Kind, ...] = ("send", "recv", "recv_reduce")
BUFFERS: tuple[Buffer, ...] = ("input", "input", "output", "scratch")  # The first stands for none


@cache
def _chunks(buffer: int, start: int) -> ChunkRange:
    return ChunkRange(BUFFERS[buffer], start)


@cache
def _dependency(block: int, step: int) -> Dependency:
    return Dependency(block, step)


def write_trees(
    name: str, layout: Layout, ranges: Sequence[TreeChunks], hops: IntArray, options: LoweringOptions
) -> Program:
    """Write the programs of all ranks from the hops, int64 (hops, 6), in the global order."""
    from .tree_steps import tree_steps

    firsts = np.array([each.first for each in ranges], dtype=np.int64)
    last = hops[:, 0] + hops[:, 4] - 1
    sizes = firsts[last] + np.array([each.chunks for each in ranges], dtype=np.int64)[last] - firsts[hops[:, 0]]
    channels = assign_channels(hops[:, 1:3], sizes, options.max_steps, options.channels, hops[:, 5])
    num_ranks, num_channels, shared = len(layout.shards), int(channels.max(initial=0)) + 1, _SharedSteps()
    places = np.full((len(ranges), 4), -1, dtype=np.int64)
    ends = hops[:, 1:3].ravel()
    events = np.argsort(ends, kind="stable") // 2
    limits = np.cumsum(np.bincount(ends, minlength=num_ranks)).tolist()
    ranks = []
    for rank, (begin, end) in enumerate(pairwise([0, *limits])):
        own = events[begin:end]
        (input_first, input_end), (output_first, output_end) = layout.input_range(rank), layout.output_range(rank)
        copies = _copies(layout, rank, options.max_count)
        copying = [
            ThreadBlock(None, None, 0, copies[start : start + options.max_steps])
            for start in range(0, len(copies), options.max_steps)
        ]
        # Those that receive, and those that send, in the order of their first transfers; see `_thread_blocks`.
        sends = hops[own, 1] == rank
        peers = np.where(sends, hops[own, 2], hops[own, 1])
        codes, first, which = np.unique(
            (sends * num_ranks + peers) * num_channels + channels[own], return_index=True, return_inverse=True
        )
        order = np.lexsort((first, codes >= num_ranks * num_channels))
        receiving = int((codes < num_ranks * num_channels).sum())
        numbers = np.empty(len(codes), dtype=np.int64)
        numbers[order] = np.arange(len(codes)) + len(copying) * (np.arange(len(codes)) >= receiving)
        blocks = numbers[which]
        borders = input_first, output_first, output_end
        rows, scratch = tree_steps(rank, own, blocks, len(codes) + len(copying), hops, sizes, firsts, borders, places)
        by_block = rows[np.argsort(blocks, kind="stable")].view("V64").ravel().tolist()
        steps = map(shared.__getitem__, by_block)
        counts = np.bincount(which, minlength=len(codes))[order].tolist()
        written = []
        for code, count in zip(codes[order].tolist(), counts, strict=True):
            (way, peer), channel = divmod(code // num_channels, num_ranks), code % num_channels
            instructions = tuple(islice(steps, count))
            written.append(ThreadBlock(peer if way else None, None if way else peer, channel, instructions))
        found = (*written[:receiving], *copying, *written[receiving:])
        ranks.append(RankProgram(rank, input_end - input_first, output_end - output_first, scratch, found))
    given = () if layout.collective.has_two_phases or len(set(layout.shards)) == 1 else layout.shards
    return Program(name, layout.collective, num_ranks, layout.chunks, tuple(ranks), shards=given)


def _copies(layout: Layout, rank: int, max_count: int) -> tuple[Instruction, ...]:
    """Copy the rank's own part of the result, if nothing is reduced."""
    if layout.reduces and len(layout.shards) > 1:
        return ()
    (begin, end), output = layout.input_range(rank), layout.output_range(rank)[0]
    return tuple(
        Instruction("copy", ChunkRange("input", first - begin), ChunkRange("output", first - output), count)
        for first, count in split_range(begin, end, max_count)
    )
