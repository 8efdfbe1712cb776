"""Finds the first round in which a message can go.

A round begins with its sends and local copies, which read memory; in the course of it receives and copies fill memory;
and at its end sums are made, stage by stage.  So moments are ordered like ``round * STAGES + stage``, with stage 0 for
what sends read and receives fill and stages from 1 on for sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...programs.program import ChunkRange, Program

if TYPE_CHECKING:
    from .rounds import Message

__all__ = ["RoundPlanner"]

Moments = npt.NDArray[np.int64]

STAGES = 2**20
"""More than the contributions to one chunk, which are at most as many as ranks."""


class RoundPlanner:
    """Remembers when each chunk of memory was last written and read, and how full the rounds are.

    Parameters
    ----------
    program : Program
        If it is `in_place`, a chunk of the input and the same chunk of the output count as one.
    scratch : sequence of int
        Chunks of scratch that each rank has.
    max_operations : int
        Sends and receives that a rank may have in one round.
    """

    def __init__(self, program: Program, scratch: Sequence[int], max_operations: int) -> None:
        self.program = program
        self.scratch = scratch
        self.max_operations = max_operations
        self.operations: Counter[tuple[int, int]] = Counter()
        self.forget_memory()

    def forget_memory(self) -> None:
        """Start a new slice, which shares no memory with the ones before."""
        self.written = [self._never(rank) for rank in range(self.program.num_ranks)]
        self.read = [self._never(rank) for rank in range(self.program.num_ranks)]

    def _never(self, rank: int) -> dict[str, Moments]:
        sizes = self.program.ranks[rank]
        chunks = {"input": sizes.input_chunks, "output": sizes.output_chunks, "scratch": self.scratch[rank]}
        if self.program.in_place:
            chunks["both"] = self.program.layout.chunks
        return {buffer: np.full(count, -1, dtype=np.int64) for buffer, count in chunks.items()}

    def place(self, message: Message, at_least: int) -> tuple[int, int]:
        """Put a message into the first round that takes it and return that round, and the stage."""
        adds, stays = message.operand is not None, message.sender == message.receiver
        read = list(self._held(self.written, message.sender, message.source, message))
        touched = [
            *self._held(self.written, message.receiver, message.target, message),
            *self._held(self.read, message.receiver, message.target, message),
        ]
        if message.operand is not None:
            touched += self._held(self.written, message.receiver, message.operand, message)
        soonest = -1
        if not adds:
            at_least = max(at_least, _next_round(read), _next_round(touched))
        elif stays:
            soonest = _latest(touched + read) + 1
        else:
            at_least = max(at_least, _next_round(read))
            soonest = _latest(touched) + 1
        number = self._free_round(message, max(at_least, soonest // STAGES))
        stage = int(adds)
        if adds and number == soonest // STAGES:
            stage = max(1, soonest % STAGES)
        self._note(message, number, stage)
        return number, stage

    def _free_round(self, message: Message, number: int) -> int:
        """Return the first round from `number` on in which both ends have room, and take it."""
        sender, receiver = message.sender, message.receiver
        if sender == receiver:
            return number
        while max(self.operations[sender, number], self.operations[receiver, number]) >= self.max_operations:
            number += 1
        self.operations[sender, number] += 1
        self.operations[receiver, number] += 1
        return number

    def _note(self, message: Message, number: int, stage: int) -> None:
        moment = number * STAGES + stage
        reading = moment if message.sender == message.receiver else number * STAGES
        for held in self._held(self.read, message.sender, message.source, message):
            np.maximum(held, reading, out=held)
        if message.operand is not None:
            for held in self._held(self.read, message.receiver, message.operand, message):
                np.maximum(held, moment, out=held)
        for held in self._held(self.written, message.receiver, message.target, message):
            held[...] = moment

    def _held(
        self, moments: list[dict[str, Moments]], rank: int, place: ChunkRange, message: Message
    ) -> Iterator[Moments]:
        """Yield what is known about a place: as such, and as part of memory that input and output share."""
        yield moments[rank][place.buffer][place.start : place.start + message.chunks]
        if self.program.in_place and place.buffer != "scratch" and not _stays_where_it_is(message):
            yield moments[rank]["both"][message.first : message.first + message.chunks]


def _stays_where_it_is(message: Message) -> bool:
    """Whether a message is a copy that does nothing where input and output are the same memory."""
    return message.sender == message.receiver and (message.source.buffer, message.target.buffer) == ("input", "output")


def _latest(moments: list[Moments]) -> int:
    return max(int(held.max()) for held in moments)


def _next_round(moments: list[Moments]) -> int:
    return _latest(moments) // STAGES + 1
