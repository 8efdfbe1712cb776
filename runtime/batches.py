"""What one rank posts in each round, in elements of its own tensors.

Shards need not divide evenly: with C chunks in a shard, chunk c of a slice of m elements has the elements
``c * m // C`` to ``(c + 1) * m // C - 1``.  A message that comes out empty is left out, at both ends alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from .interpreter import run_program
from .program import Program
from .rounds import Message, Round, rounds_of

__all__ = ["Copy", "Operation", "OwnRound", "checked_rounds", "own_rounds"]


class Operation(NamedTuple):
    """One send or receive of this rank: elements ``begin .. end - 1`` of the input or output."""

    peer: int
    is_send: bool
    from_input: bool
    begin: int
    end: int


class Copy(NamedTuple):
    """Elements that stay on this rank: ``input[begin:end]`` or ``output[begin:end]`` goes to ``output[target:]``."""

    from_input: bool
    begin: int
    end: int
    target: int


class OwnRound(NamedTuple):
    """One rank's part of a round."""

    operations: tuple[Operation, ...]
    copies: tuple[Copy, ...]


@lru_cache(maxsize=32)
def checked_rounds(program: Program, slices: int) -> tuple[Round, ...]:
    """Check a program once and for all and cut it into rounds."""
    run_program(program, interleavings=1)
    return rounds_of(program, slices=slices)


@lru_cache(maxsize=128)
def own_rounds(program: Program, slices: int, rank: int, elements: int) -> tuple[OwnRound, ...]:
    """Return one rank's operations on shards of so many elements; empty messages are left out at both ends."""
    shard = program.chunks_per_loop // program.num_ranks
    parts = []
    for part in checked_rounds(program, slices):
        operations = tuple(_operations(part.messages, shard, elements, slices, rank))
        moves = []
        for copy in part.copies:
            if copy.sender == rank:
                begin, end = _extent(copy.source.start, copy, shard, elements, slices)
                target, _ = _extent(copy.target.start, copy, shard, elements, slices)
                moves.append(Copy(copy.source.buffer == "input", begin, end, target))
        if operations or moves:
            parts.append(OwnRound(operations, tuple(moves)))
    return tuple(parts)


def _operations(
    messages: tuple[Message, ...], shard: int, elements: int, slices: int, rank: int
) -> Iterator[Operation]:
    for message in messages:
        is_send = message.sender == rank
        if not is_send and message.receiver != rank:
            continue
        place = message.source if is_send else message.target
        begin, end = _extent(place.start, message, shard, elements, slices)
        if begin < end:
            yield Operation(
                message.receiver if is_send else message.sender, is_send, place.buffer == "input", begin, end
            )


def _extent(start: int, message: Message, shard: int, elements: int, slices: int) -> tuple[int, int]:
    """Elements of a message at one end: chunk c of a slice of m elements is ``c * m // C .. (c + 1) * m // C - 1``."""
    owner, chunk = divmod(start, shard)
    first = elements * message.slice_number // slices
    size = elements * (message.slice_number + 1) // slices - first
    base = owner * elements + first
    return base + chunk * size // shard, base + (chunk + message.chunks) * size // shard
