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
from .flow_transfers import PathChunks


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
    """One chunk range on its way to the next rank; fields in the order in which those of one step are sorted."""

    sender: int
    receiver: int
    arrives: bool
    buffer: Buffer
    place: int
    first: int
    chunks: int
    number: int

    def continued_by(self, other: _Hop) -> bool:
        """Whether another hop goes on where this one ends, in memory and in the row of chunks."""
        ends = self.place + self.chunks, self.first + self.chunks
        return self[:4] == other[:4] and ends == (other.place, other.first)


def joined_moves(
    ranges: Sequence[PathChunks], layout: Layout, num_ranks: int, max_count: int, borders: Collection[int] = ()
) -> Routed:
    """Order all transfers by step, join adjacent ones and give each its place."""
    outputs = _output_places(layout, num_ranks)
    inputs = [layout.input_range(rank)[0] for rank in range(num_ranks)]
    places: list[tuple[Buffer, int]] = [("input", each.first - inputs[each.ranks[0]]) for each in ranges]
    slots = [ScratchSlots() for _ in range(num_ranks)]
    moves: list[Move] = []
    steps: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, each in enumerate(ranges):
        for hop, step in enumerate(each.steps):
            steps[step].append((number, hop))
    for step, found in sorted(steps.items()):
        left = []
        ready = sorted(_hop(ranges[number], at, places[number], number) for number, at in found)
        for joined in _joined(ready, max_count, borders):
            one, chunks = joined[0], sum(hop.chunks for hop in joined)
            target: tuple[Buffer, int]
            if one.arrives:
                pair = ranges[one.number].ranks[0] * num_ranks + one.receiver
                target = "output", outputs[pair] + one.first - layout.offsets[pair]
            else:
                target = "scratch", slots[one.receiver].take(chunks)
            moves.append(Move(step, one.sender, one.receiver, one.first, chunks, (one.buffer, one.place), target))
            if one.buffer == "scratch":
                left.append((one.sender, one.place, chunks))
            for hop in joined:
                places[hop.number] = target[0], target[1] + hop.first - one.first
        for rank, place, chunks in left:
            slots[rank].give(place, chunks)
    return Routed(moves, [each.size for each in slots])


def _output_places(layout: Layout, num_ranks: int) -> list[int]:
    """Where each shard begins in the output that it is for."""
    columns = [list(accumulate(layout.shards[rank::num_ranks], initial=0)) for rank in range(num_ranks)]
    return [columns[pair % num_ranks][pair // num_ranks] for pair in range(num_ranks**2)]


def _hop(chunks: PathChunks, hop: int, place: tuple[Buffer, int], number: int) -> _Hop:
    sender, receiver = chunks.ranks[hop : hop + 2]
    return _Hop(sender, receiver, hop + 2 == len(chunks.ranks), *place, chunks.first, chunks.chunks, number)


def _joined(hops: Sequence[_Hop], max_count: int, borders: Collection[int]) -> Iterator[list[_Hop]]:
    """Group hops that continue each other."""
    group: list[_Hop] = []
    for hop in hops:
        joins = bool(group) and group[-1].continued_by(hop) and hop.first not in borders
        if group and not (joins and hop.first + hop.chunks - group[0].first <= max_count):
            yield group
            group = []
        group.append(hop)
    if group:
        yield group


class ScratchSlots:
    """Best-fit allocator of one rank's scratch; `size`: places ever in use at the same time, gaps included.

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
