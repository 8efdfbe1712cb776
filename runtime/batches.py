"""What one rank posts in each round, in elements of its own tensors.

Shards need not divide evenly: with C chunks in a shard, chunk c of a slice of m elements has the elements
``c * m // C`` to ``(c + 1) * m // C - 1``.  A message that comes out empty is left out, at both ends alike.  Shards of
weights w_0, w_1, ... themselves share out the T elements of the whole collective in the same way.

Besides the caller's tensors there is scratch, as the program has it, and a staging area for what is received to be
added at the end of the round.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

from ..errors import ProgramError
from .interpreter import run_program
from .layout import Layout
from .program import ChunkRange, Program
from .rounds import Message, Round, rounds_of

__all__ = [
    "Copy",
    "Operation",
    "OwnRound",
    "OwnRounds",
    "Piece",
    "Sum",
    "checked_rounds",
    "own_rounds",
    "shard_elements",
    "works_in_place",
]

Memory = Literal["input", "output", "scratch", "staging"]


class Piece(NamedTuple):
    """Elements ``begin .. end - 1`` of one of the rank's memories."""

    memory: Memory
    begin: int
    end: int


class Operation(NamedTuple):
    """One send or receive of this rank."""

    peer: int
    is_send: bool
    piece: Piece


class Copy(NamedTuple):
    """Elements that stay on this rank."""

    source: Piece
    target: Piece


class Sum(NamedTuple):
    """``target = one + other``, element by element, or whatever operation the caller asked for."""

    one: Piece
    other: Piece
    target: Piece


class OwnRound(NamedTuple):
    """One rank's part of a round; sums come last, in this order."""

    operations: tuple[Operation, ...]
    copies: tuple[Copy, ...]
    sums: tuple[Sum, ...]


class OwnRounds(NamedTuple):
    """One rank's rounds and the elements that its scratch and its staging area need."""

    rounds: tuple[OwnRound, ...]
    scratch: int
    staging: int


def shard_elements(layout: Layout, elements: int) -> tuple[int, ...]:
    """Elements of each rank's shard if there are `elements` in all."""
    ends = [elements * offset // layout.chunks for offset in layout.offsets]
    return tuple(end - begin for begin, end in pairwise(ends))


@lru_cache(maxsize=32)
def checked_rounds(program: Program, slices: int) -> tuple[Round, ...]:
    """Check a program once and for all and cut it into rounds, for calls in place too if it can have them."""
    run_program(program, interleavings=1)
    return rounds_of(replace(program, in_place=works_in_place(program)), slices=slices)


@lru_cache(maxsize=32)
def works_in_place(program: Program) -> bool:
    """Whether a program is right if input and output are the same memory."""
    try:
        run_program(replace(program, in_place=True), interleavings=1)
    except ProgramError:
        return False
    return True


@lru_cache(maxsize=128)
def own_rounds(program: Program, slices: int, rank: int, elements: int) -> OwnRounds:
    """Return one rank's part of a collective on so many elements in all."""
    rounds = checked_rounds(program, slices)
    map_ = _Map(program, rank, elements, slices, rounds)
    parts = [part for part in map(map_.own_round, rounds) if any(part)]
    staging = [each.one.end for part in parts for each in part.sums if each.one.memory == "staging"]
    return OwnRounds(tuple(parts), map_.scratch_size, max(staging, default=0))


class _Map:
    """Says which elements of one rank's memories a message is about."""

    def __init__(self, program: Program, rank: int, elements: int, slices: int, rounds: Sequence[Round]) -> None:
        self.layout = program.layout
        self.rank = rank
        self.slices = slices
        self.ends = [elements * block // self.layout.chunks for block in self.layout.blocks]
        firsts = self.layout.input_range(rank)[0], self.layout.output_range(rank)[0]
        self.starts = dict(
            zip(("input", "output"), (elements * first // self.layout.chunks for first in firsts), strict=True)
        )
        # Scratch has the slices one after the other, and in each its chunks.
        held = _scratch_contents(rounds, rank, program.ranks[rank].scratch_chunks)
        sizes = [
            end - begin for number in range(slices) for begin, end in (self._extent(chunk, 1, number) for chunk in held)
        ]
        self.scratch_starts = list(accumulate(sizes, initial=0))
        self.scratch_chunks = len(held)

    @property
    def scratch_size(self) -> int:
        """Elements of scratch."""
        return self.scratch_starts[-1]

    def own_round(self, part: Round) -> OwnRound:
        """Translate what this rank has to do with a round."""
        operations, sums, staged = [], [], 0
        for message in part.messages:
            begin, end = self._extent(message.first, message.chunks, message.slice_number)
            if begin == end:
                continue
            if message.sender == self.rank:
                operations.append(Operation(message.receiver, True, self._piece(message, message.source)))
            elif message.receiver == self.rank and message.operand is None:
                operations.append(Operation(message.sender, False, self._piece(message, message.target)))
            elif message.receiver == self.rank:
                arrival = Piece("staging", staged, staged + end - begin)
                staged = arrival.end
                operations.append(Operation(message.sender, False, arrival))
                sums.append((message.stage, self._sum(message, arrival)))
        copies = []
        for message in part.copies:
            if message.sender == self.rank and message.operand is None:
                copies.append(Copy(self._piece(message, message.source), self._piece(message, message.target)))
            elif message.sender == self.rank:
                sums.append((message.stage, self._sum(message, self._piece(message, message.source))))
        in_order = sorted(sums, key=lambda each: each[0])
        return OwnRound(tuple(operations), tuple(copies), tuple(each for _, each in in_order))

    def _sum(self, message: Message, arrival: Piece) -> Sum:
        assert message.operand is not None  # That is what makes it a sum.
        return Sum(arrival, self._piece(message, message.operand), self._piece(message, message.target))

    def _piece(self, message: Message, place: ChunkRange) -> Piece:
        begin, end = self._extent(message.first, message.chunks, message.slice_number)
        if place.buffer == "scratch":
            start = self.scratch_starts[message.slice_number * self.scratch_chunks + place.start]
            return Piece("scratch", start, start + end - begin)
        return Piece(place.buffer, begin - self.starts[place.buffer], end - self.starts[place.buffer])

    def _extent(self, first: int, chunks: int, slice_number: int) -> tuple[int, int]:
        """Elements of some chunks of one shard, counted in the whole collective."""
        if first < 0:
            return 0, 0
        blocks = self.layout.blocks
        block = bisect_right(blocks, first) - 1
        base, elements = self.ends[block], self.ends[block + 1] - self.ends[block]
        start = elements * slice_number // self.slices
        size = elements * (slice_number + 1) // self.slices - start
        inside, of = first - blocks[block], blocks[block + 1] - blocks[block]
        return base + start + inside * size // of, base + start + (inside + chunks) * size // of


def _scratch_contents(rounds: Sequence[Round], rank: int, chunks: int) -> list[int]:
    """Which chunk of the collective each scratch chunk is for; -1 if it is never used."""
    held = [-1] * chunks
    for part in rounds:
        for message in (*part.messages, *part.copies):
            if message.receiver == rank and message.target.buffer == "scratch":
                start = message.target.start
                held[start : start + message.chunks] = range(message.first, message.first + message.chunks)
    return held
