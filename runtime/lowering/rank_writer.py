"""Thread blocks of all ranks from the transfers of a program in their global order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from ...schedules.trees.tree_schedule import TreeChunks, split_range
from ...support.arrays import BoolArray, IntArray, joined_rows, narrow
from ...topologies import Topology
from ...topologies.symmetry.rank_groups import RankGroups
from ..programs.channels import assign_channels
from ..programs.layout import Layout
from ..programs.program import Buffer, ChunkRange, Dependency, Instruction, Kind, Program, RankProgram, ThreadBlock

Site = tuple[int, int]  # Thread block and step


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


class RankWriter(ABC):
    """Writes the steps of one rank; `scratch`: chunks of scratch used so far."""

    scratch = 0

    @abstractmethod
    def step(self, number: int, here: Site) -> tuple[Instruction, Iterable[Site]]:
        """Write this rank's end of a transfer as step `here`, and say which steps come before, one a thread block."""

    @abstractmethod
    def copies(self) -> list[Instruction]:
        """Copy what the rank keeps from its input to its output."""

    def waiting(self, copies: list[Instruction]) -> list[Instruction]:
        """Let these copies wait for steps, when all of them are written; most wait for none."""
        return copies


def write_program(
    name: str,
    layout: Layout,
    ends: Sequence[tuple[int, int]],
    sizes: Sequence[int],
    options: LoweringOptions,
    writer: Callable[[int], RankWriter],
) -> Program:
    """Write the programs of all ranks from senders and receivers of all transfers, and chunks, in the global order."""
    connections = np.array(ends, dtype=np.int64).reshape(-1, 2)
    channels = assign_channels(connections, sizes, options.max_steps, options.channels)
    ranks = [
        _written_rank(layout, rank, own.tolist(), blocks, writer(rank), options.max_steps)
        for rank, (own, blocks) in enumerate(_events(connections, channels, layout.num_ranks))
    ]
    return _program(name, layout, ranks)


def _written_rank(
    layout: Layout, rank: int, events: list[int], blocks: _Blocks, writer: RankWriter, max_steps: int
) -> RankProgram:
    """Write one rank's thread blocks."""
    copies = writer.copies()
    parts = len(range(0, len(copies), max_steps))
    places = blocks.shifted(parts)
    numbers = _numbers_in_block(places)
    sites = list(zip(places.tolist(), numbers.tolist(), strict=True))
    event_of = {site: event for event, site in enumerate(sites)}
    entries = [writer.step(number, site) for number, site in zip(events, sites, strict=True)]
    starts, before = joined_rows([[event_of[site] for site in earlier] for _, earlier in entries])
    is_needed = _needed_waits(places, numbers, starts, before)
    steps: list[list[Instruction]] = [[] for _ in range(len(blocks.ends) + parts)]
    for (block, _), (instruction, _), (first, last) in zip(sites, entries, pairwise(starts.tolist()), strict=True):
        waits = tuple(Dependency(*sites[event]) for event in before[first:last][is_needed[first:last]].tolist())
        steps[block].append(replace(instruction, depends=waits) if waits else instruction)
    copying = _copying(writer.waiting(copies), max_steps)
    receiving = blocks.receiving
    transferring = map(tuple, (*steps[:receiving], *steps[receiving + parts :]))
    return _rank_program(layout, rank, writer.scratch, blocks, transferring, copying)


def _numbers_in_block(blocks: IntArray) -> IntArray:
    """Number the events of each thread block; `blocks`: that of each event, (events,)."""
    order = np.argsort(blocks, kind="stable")
    counts = np.bincount(blocks)
    numbers = np.empty(len(blocks), dtype=np.int64)
    numbers[order] = np.arange(len(blocks)) - np.repeat(np.cumsum(counts) - counts, counts)
    return numbers


def _needed_waits(blocks: IntArray, numbers: IntArray, starts: IntArray, before: IntArray) -> BoolArray:
    """Say which waits of a rank's events for earlier ones nothing else implies; shapes as in `EventGraph`."""
    from ..programs.happens_before import needed_waits

    return needed_waits(blocks, numbers, starts, before, int(blocks.max(initial=-1)) + 1)


def _copying(copies: Sequence[Instruction], max_steps: int) -> list[ThreadBlock]:
    """Thread blocks of local copies."""
    starts = range(0, len(copies), max_steps)
    return [ThreadBlock(None, None, 0, tuple(copies[start : start + max_steps])) for start in starts]


def _rank_program(
    layout: Layout,
    rank: int,
    scratch: int,
    block_ends: _Blocks,
    steps: Iterable[tuple[Instruction, ...]],
    copying: list[ThreadBlock],
) -> RankProgram:
    """Put thread blocks that receive, copy and send in this order, as MSCCL can only wait for blocks 0 to 127."""
    blocks = [
        ThreadBlock(peer if sends else None, None if sends else peer, channel, instructions)
        for (sends, peer, channel), instructions in zip(block_ends.ends, steps, strict=True)
    ]
    begin, stop = layout.input_range(rank)
    output = sum(last - first for first, last in layout.output_ranges(rank))
    thread_blocks = (*blocks[: block_ends.receiving], *copying, *blocks[block_ends.receiving :])
    return RankProgram(rank, stop - begin, output, scratch, thread_blocks)


def _program(name: str, layout: Layout, ranks: Sequence[RankProgram]) -> Program:
    uneven = () if layout.collective.has_two_phases or len(set(layout.shards)) == 1 else layout.shards
    return Program(name, layout.collective, len(ranks), layout.chunks, tuple(ranks), shards=uneven)


class _SharedSteps:
    """Instructions of rows as in `tree_steps`; equal steps are one object, as there may be millions."""

    def __init__(self, limit: int) -> None:
        self.rows = np.empty((limit, 8), dtype=np.int64)
        self.slots = np.zeros(1 << (3 * limit // 2).bit_length(), dtype=np.int32)
        self.instructions = np.empty(limit, dtype=np.object_)
        self.count = 0

    def of(self, rows: IntArray) -> list[Instruction]:
        """Return the instructions of some rows."""
        from .trees import step_numbers

        numbers, count = step_numbers(rows, self.rows, self.count, self.slots)
        self.instructions[self.count : count] = [_instruction(*row) for row in self.rows[self.count : count].tolist()]
        self.count = count
        return self.instructions[numbers].tolist()  # type: ignore[no-any-return]


def _instruction(
    kind: int, source: int, source_start: int, target: int, target_start: int, count: int, block: int, step: int
) -> Instruction:
    return Instruction(
        KINDS[kind],
        _chunks(source, source_start) if source else None,
        _chunks(target, target_start) if target else None,
        count,
        _waits(block, step) if block >= 0 else (),
    )


KINDS: tuple[Kind, ...] = ("send", "recv", "recv_reduce")
BUFFERS: tuple[Buffer, ...] = ("input", "input", "output", "scratch")  # The first stands for none


@cache
def _chunks(buffer: int, start: int) -> ChunkRange:
    return ChunkRange(BUFFERS[buffer], start)


@cache
def _waits(block: int, step: int) -> tuple[Dependency]:
    return (Dependency(block, step),)


def write_trees(
    name: str, layout: Layout, ranges: Sequence[TreeChunks], hops: IntArray, options: LoweringOptions
) -> Program:
    """Write the programs of all ranks from the hops, int64 (hops, 6), in the global order."""
    from .trees import tree_steps

    firsts = np.array([part.first for part in ranges], dtype=np.int64)
    last = hops[:, 0] + hops[:, 4] - 1
    sizes = firsts[last] + np.array([part.chunks for part in ranges], dtype=np.int64)[last] - firsts[hops[:, 0]]
    channels = assign_channels(hops[:, 1:3], sizes, options.max_steps, options.channels, hops[:, 5])
    places = np.full((len(ranges), 4), -1, dtype=np.int64)
    shared = _SharedSteps(2 * len(hops))
    ranks = []
    for rank, (own, blocks) in enumerate(_events(hops[:, 1:3], channels, layout.num_ranks)):
        copying = _copying(_copies(layout, rank, options.max_count), options.max_steps)
        borders = layout.input_range(rank)[0], *layout.output_range(rank)
        rows, after, scratch = tree_steps(rank, own, hops, sizes, firsts, borders, places)
        # Steps of thread blocks that copy wait for nothing, so the others are numbered without them.
        numbers, waiting = _numbers_in_block(blocks.of_events), np.flatnonzero(after >= 0)
        starts = np.searchsorted(waiting, np.arange(len(own) + 1))
        waiting = waiting[_needed_waits(blocks.of_events, numbers, starts, after[waiting])]
        rows[waiting, 6] = blocks.shifted(len(copying))[after[waiting]]
        rows[waiting, 7] = numbers[after[waiting]]
        steps = shared.of(rows[np.argsort(blocks.of_events, kind="stable")])
        steps_of = (tuple(steps[first:last]) for first, last in pairwise([0, *accumulate(blocks.counts)]))
        ranks.append(_rank_program(layout, rank, scratch, blocks, steps_of, copying))
    return _program(name, layout, ranks)


def _events(connections: IntArray, channels: IntArray, num_ranks: int) -> Iterator[tuple[IntArray, _Blocks]]:
    """Yield, for each rank, the numbers of its transfers, int64 (events,), and their thread blocks."""
    ends = connections.ravel()
    order = np.argsort(narrow(ends), kind="stable")  # The two ends of transfer t are numbers 2 t and 2 t + 1.
    limits = np.cumsum(np.bincount(ends, minlength=num_ranks)).tolist()
    for begin, end in pairwise([0, *limits]):
        own, sends = order[begin:end] // 2, order[begin:end] % 2 == 0
        yield own, _Blocks.of(sends, ends[order[begin:end] ^ 1], channels[own])


class _Blocks(NamedTuple):
    """Blocks that receive, then those that send, by their first transfers; `of_events`, int64 (events,), by number."""

    of_events: IntArray
    ends: list[tuple[bool, int, int]]  # Whether it sends, its peer and channel
    counts: list[int]

    @property
    def receiving(self) -> int:
        """How many receive."""
        return sum(not sends for sends, _, _ in self.ends)

    def shifted(self, copying: int) -> IntArray:
        """Return the blocks of events if so many that copy come before those that send."""
        return self.of_events + copying * (self.of_events >= self.receiving)

    @classmethod
    def of(cls, sends: BoolArray, peers: IntArray, channels: IntArray) -> _Blocks:
        """Number the blocks of events in their global order; all (events,)."""
        keys = (sends * (peers.max(initial=0) + 1) + peers) * (channels.max(initial=0) + 1) + channels
        _, first, which = np.unique(narrow(keys), return_index=True, return_inverse=True)
        order = np.lexsort((first, sends[first]))
        numbers = np.argsort(order)[which]
        ends = zip(*(column[first[order]].tolist() for column in (sends, peers, channels)), strict=True)
        return cls(numbers, list(ends), np.bincount(numbers, minlength=len(first)).tolist())


def _copies(layout: Layout, rank: int, max_count: int) -> tuple[Instruction, ...]:
    """Copy the rank's own part of the result, if nothing is reduced."""
    if layout.reduces and len(layout.shards) > 1:
        return ()
    (begin, end), output = layout.input_range(rank), layout.output_range(rank)[0]
    return tuple(
        Instruction("copy", ChunkRange("input", first - begin), ChunkRange("output", first - output), count)
        for first, count in split_range(begin, end, max_count)
    )
