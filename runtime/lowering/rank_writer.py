"""Thread blocks of one rank: its ends of all transfers, in the global order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from ..programs.layout import Layout
from ..programs.program import Buffer, ChunkRange, Dependency, Instruction, Kind, RankProgram, ThreadBlock
from .tree_transfers import Hop, Strand

_Chunks = tuple[Buffer, int]
_Step = tuple[int, int]
"""`ChunkRange` and `Dependency` while they are worked with, because tuples are compared faster."""


class Known:
    """What the writers of all ranks share; equal steps are one object, since there are millions."""

    def __init__(
        self,
        layout: Layout,
        strands: Sequence[Strand],
        hops: Sequence[Hop],
        sizes: Sequence[int],
        lanes: Sequence[int],
        max_steps: int,
    ) -> None:
        self.layout = layout
        self.strands = strands
        self.hops = hops
        self.sizes = sizes
        self.lanes = lanes
        self.max_steps = max_steps
        self.instruction = cache(_instruction)


def _instruction(
    kind: Kind, source: _Chunks | None, target: _Chunks | None, count: int, after: _Step | None = None
) -> Instruction:
    return Instruction(
        kind,
        ChunkRange(*source) if source else None,
        ChunkRange(*target) if target else None,
        count,
        (Dependency(*after),) if after else (),
    )


def write_rank(known: Known, rank: int, events: Sequence[int], copies: Sequence[tuple[int, int]]) -> RankProgram:
    """Write blocks in the order receiving, copying, sending, since MSCCL can only wait for blocks 0 to 127."""
    return _RankWriter(known, rank).program(events, copies)


class _Place(NamedTuple):
    """Where a rank keeps a strand, and the step that has to come before anything else is done with it."""

    chunks: _Chunks
    after: _Step | None


class _RankWriter:
    """Writes the thread blocks of one rank."""

    def __init__(self, known: Known, rank: int) -> None:
        self.known = known
        self.rank = rank
        self.input_first, self.input_end = known.layout.input_range(rank)
        self.output_first, self.output_end = known.layout.output_range(rank)
        self.scratch = 0
        self.places: dict[int, _Place] = {}

    def program(self, events: Sequence[int], copies: Sequence[tuple[int, int]]) -> RankProgram:
        """Write all thread blocks; see `write_rank`."""
        ends = [self._end(number) for number in events]
        blocks = sorted(set(ends))
        own = self._copy_blocks(copies)
        receiving = sum(not sends for sends, _, _ in blocks)
        places = {end: number + len(own) * (number >= receiving) for number, end in enumerate(blocks)}
        steps: dict[int, list[Instruction]] = {number: [] for number in places.values()}
        waited: dict[int, dict[int, int]] = {number: {} for number in places.values()}
        for number, end in zip(events, ends, strict=True):
            block = places[end]
            here = block, len(steps[block])
            steps[block].append(self._step(number, here, waited[block]))
        written = [
            ThreadBlock(peer if sends else None, None if sends else peer, lane, tuple(steps[places[sends, peer, lane]]))
            for sends, peer, lane in blocks
        ]
        sizes = self.input_end - self.input_first, self.output_end - self.output_first, self.scratch
        return RankProgram(self.rank, *sizes, (*written[:receiving], *own, *written[receiving:]))

    def _end(self, number: int) -> tuple[bool, int, int]:
        """Whether this rank sends a hop, to or from whom, and on which channel."""
        hop, lane = self.known.hops[number], self.known.lanes[number]
        return (True, hop.receiver, lane) if hop.sender == self.rank else (False, hop.sender, lane)

    def _copy_blocks(self, copies: Sequence[tuple[int, int]]) -> list[ThreadBlock]:
        steps = [
            self.known.instruction("copy", ("input", first - self.input_first), self._kept(first), count)
            for first, count in copies
        ]
        return [
            ThreadBlock(None, None, 0, tuple(steps[start : start + self.known.max_steps]))
            for start in range(0, len(steps), self.known.max_steps)
        ]

    def _step(self, number: int, here: _Step, waited: dict[int, int]) -> Instruction:
        """Write this rank's end of a transfer and remember where its strands are now."""
        hop, count = self.known.hops[number], self.known.sizes[number]
        first = self.known.strands[hop.strand].first
        # Of joined strands the first one speaks for all.
        place = self.places.get(hop.strand)
        held, after = place or (("input", first - self.input_first), None)
        wait = None
        if after and waited.get(after[0], -1) < after[1]:
            # If not, an earlier step of this block already waited for that step or a later one of its block.
            waited[after[0]] = after[1]
            wait = after
        if hop.sender == self.rank:
            self._remember(hop, held, here if hop.adds else after)
            return self.known.instruction("send", held, None, count, wait)
        if not hop.adds:
            target = self._kept(first)
            self._remember(hop, target, here)
            return self.known.instruction("recv", None, target, count, wait)
        target = held if place else self._new_sum(first, count)
        self._remember(hop, target, here)
        return self.known.instruction("recv_reduce", held, target, count, wait)

    def _remember(self, hop: Hop, chunks: _Chunks, after: _Step | None) -> None:
        """Take note of where the strands of a hop are, one after the other, and what comes before their next use."""
        self.places[hop.strand] = _Place(chunks, after)
        if hop.strands > 1:
            before = self.known.strands[hop.strand].first
            for number in range(hop.strand + 1, hop.strand + hop.strands):
                distance = self.known.strands[number].first - before
                self.places[number] = _Place((chunks[0], chunks[1] + distance), after)

    def _kept(self, first: int) -> _Chunks:
        """Where a rank keeps a chunk of its output."""
        return "output", first - self.output_first

    def _new_sum(self, first: int, count: int) -> _Chunks:
        """Where a rank adds up chunks of the collective."""
        if self.output_first <= first < self.output_end:
            return self._kept(first)
        self.scratch += count
        return "scratch", self.scratch - count
