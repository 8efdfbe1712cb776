"""Joining of an all-to-all(v)'s transfers and allocation of scratch for forwarded chunks, step by step.

What a rank sends another in one step, adjacent in memory, is one transfer.  What the receiver forwards gets a part of
its scratch, free again from the step after the one in which it is sent on.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from ..programs.layout import Layout
from ..programs.program import Buffer
from .flow_transfers import FlowStrand


class Move(NamedTuple):
    """Chunks ``first .. first + chunks - 1`` of the collective go from a place at one rank to one at another."""

    step: int
    sender: int
    receiver: int
    first: int
    chunks: int
    source: tuple[Buffer, int]
    target: tuple[Buffer, int]


class Routed(NamedTuple):
    """All moves, ordered by step, and the chunks of scratch that each rank needs."""

    moves: list[Move]
    scratch: list[int]


class _Hop(NamedTuple):
    """One strand on its way to the next rank; fields in the order in which those of one step are sorted."""

    sender: int
    receiver: int
    arrives: bool
    buffer: Buffer
    place: int
    first: int
    chunks: int
    strand: int


def joined_moves(
    strands: Sequence[FlowStrand], layout: Layout, num_ranks: int, max_count: int, borders: Collection[int] = ()
) -> Routed:
    """Put everything in order and in its place."""
    outputs = _output_places(layout, num_ranks)
    inputs = [layout.input_range(rank)[0] for rank in range(num_ranks)]
    places: list[tuple[Buffer, int]] = [("input", strand.first - inputs[strand.ranks[0]]) for strand in strands]
    slots = [ScratchSlots() for _ in range(num_ranks)]
    moves: list[Move] = []
    for step, hops in _hops_by_step(strands):
        left = []
        ready = [_hop(strands[number], hop, places[number], number) for number, hop in hops]
        for joined in _joined(sorted(ready), max_count, borders):
            one, chunks = joined[0], sum(hop.chunks for hop in joined)
            if one.arrives:
                pair = strands[one.strand].ranks[0] * num_ranks + one.receiver
                target: tuple[Buffer, int] = "output", outputs[pair] + one.first - layout.offsets[pair]
            else:
                target = "scratch", slots[one.receiver].take(chunks)
            moves.append(Move(step, one.sender, one.receiver, one.first, chunks, (one.buffer, one.place), target))
            if one.buffer == "scratch":
                left.append((one.sender, one.place, chunks))
            for hop in joined:
                places[hop.strand] = target[0], target[1] + hop.first - one.first
        for rank, place, chunks in left:
            slots[rank].give(place, chunks)
    return Routed(moves, [each.size for each in slots])


def _output_places(layout: Layout, num_ranks: int) -> list[int]:
    """Where each shard begins in the output that it is for."""
    columns = [list(accumulate(layout.shards[rank::num_ranks], initial=0)) for rank in range(num_ranks)]
    return [columns[pair % num_ranks][pair // num_ranks] for pair in range(num_ranks**2)]


def _hop(strand: FlowStrand, hop: int, place: tuple[Buffer, int], number: int) -> _Hop:
    sender, receiver = strand.ranks[hop : hop + 2]
    arrives = hop + 2 == len(strand.ranks)
    return _Hop(sender, receiver, arrives, *place, strand.first, strand.chunks, number)


def _hops_by_step(strands: Sequence[FlowStrand]) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Yield each step, with the numbers of its strands and of their hops."""
    steps: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, strand in enumerate(strands):
        for hop, step in enumerate(strand.steps):
            steps[step].append((number, hop))
    yield from sorted(steps.items())


def _joined(hops: Sequence[_Hop], max_count: int, borders: Collection[int]) -> Iterator[list[_Hop]]:
    """Group hops that continue each other."""
    group: list[_Hop] = []
    total = 0
    for hop in hops:
        joins = bool(group) and _continues(group[-1], hop) and hop.first not in borders
        if group and not (joins and total + hop.chunks <= max_count):
            yield group
            group, total = [], 0
        group.append(hop)
        total += hop.chunks
    if group:
        yield group


def _continues(one: _Hop, other: _Hop) -> bool:
    """Whether one hop goes on where the other ends, in memory and in the row of chunks."""
    return one[:4] == other[:4] and one.place + one.chunks == other.place and one.first + one.chunks == other.first


class ScratchSlots:
    """The scratch of one rank while its program is written.

    A request gets the smallest gap that it fits into, or new places at the end.

    `size`: Places that were ever in use at the same time, and gaps between them.

    >>> slots = ScratchSlots()
    >>> slots.take(2), slots.take(3)
    (0, 2)
    >>> slots.give(0, 2)
    >>> slots.take(1), slots.take(2), slots.size
    (0, 5, 7)
    """

    def __init__(self) -> None:
        self.size = 0
        self._gaps: list[tuple[int, int]] = []

    def take(self, count: int) -> int:
        """Return the first of `count` places in a row."""
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

    def give(self, begin: int, count: int) -> None:
        """Take places back; they have been given out."""
        end = begin + count
        number = bisect_left(self._gaps, (begin, end))
        if number < len(self._gaps) and self._gaps[number][0] == end:
            end = self._gaps.pop(number)[1]
        if number and self._gaps[number - 1][1] == begin:
            begin = self._gaps.pop(number - 1)[0]
        insort(self._gaps, (begin, end))
