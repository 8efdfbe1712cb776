"""Finds places, in elements, for what a rank's scratch holds from round to round.

Chunks of scratch that some message treats as one piece of memory stay one.  Such a piece is needed from the first round
that has to do with it to the last one, for each slice by itself, and gives its place to another one after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...programs.program import ChunkRange
from ...programs.scratch_slots import ScratchSlots

if TYPE_CHECKING:
    from .rounds import Message, Round

__all__ = ["RoundScratch"]


class RoundScratch:
    """The scratch of one rank, in elements.

    Parameters
    ----------
    rounds : sequence of Round
        Of all ranks.
    rank : int
        Whose scratch it is.
    slices : int
        Slices of the data.
    elements : callable
        How many elements a chunk of the collective has in a slice, by the numbers of both.

    Attributes
    ----------
    size : int
        Elements of scratch that the rank needs.
    """

    def __init__(self, rounds: Sequence[Round], rank: int, slices: int, elements: Callable[[int, int], int]) -> None:
        places = list(_places(rounds, rank))
        chunks = max((place.start + message.chunks for _, message, place in places), default=0)
        self.held = np.full(chunks, -1, dtype=np.int64)
        self.goes_on = np.zeros(chunks, dtype=np.bool_)
        self.first = np.full((slices, chunks), len(rounds), dtype=np.int64)
        self.last = np.full((slices, chunks), -1, dtype=np.int64)
        for number, message, place in places:
            self._note(number, message, place.start)
        self.starts = np.zeros((slices, chunks), dtype=np.int64)
        self.size = self._find_places(elements)

    def start(self, slice_number: int, chunk: int) -> int:
        """Where a slice of a chunk of scratch begins."""
        return int(self.starts[slice_number, chunk])

    def _note(self, number: int, message: Message, start: int) -> None:
        """Take note of what a message reads or writes."""
        touched = slice(start, start + message.chunks)
        self.held[touched] = np.arange(message.first, message.first + message.chunks)
        self.goes_on[start : start + message.chunks - 1] = True
        first, last = self.first[message.slice_number], self.last[message.slice_number]
        np.minimum(first[touched], number, out=first[touched])
        np.maximum(last[touched], number, out=last[touched])

    def _find_places(self, elements: Callable[[int, int], int]) -> int:
        pieces = []
        for slice_number in range(len(self.starts)):
            for begin, end in self._pieces():
                sizes = [elements(chunk, slice_number) for chunk in self.held[begin:end].tolist()]
                self.starts[slice_number, begin:end] = np.cumsum([0, *sizes[:-1]])
                first, last = self.first[slice_number, begin:end].min(), self.last[slice_number, begin:end].max()
                pieces.append((int(first), int(last), slice_number, begin, end, sum(sizes)))
        slots = ScratchSlots()
        taken: list[tuple[int, int, int]] = []
        for first, last, slice_number, begin, end, size in sorted(pieces):
            if not size:
                continue
            for over in [each for each in taken if each[0] < first]:
                slots.give(*over[1:])
                taken.remove(over)
            place = slots.take(size)
            taken.append((last, place, size))
            self.starts[slice_number, begin:end] += place
        return slots.size

    def _pieces(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of chunks that are in use and hang together."""
        begin = 0
        for end in (np.flatnonzero(~self.goes_on) + 1).tolist():
            if self.held[begin] >= 0:
                yield begin, end
            begin = end


def _places(rounds: Sequence[Round], rank: int) -> Iterator[tuple[int, Message, ChunkRange]]:
    """Yield the places in a rank's scratch that messages read or write, with the number of the round."""
    for number, part in enumerate(rounds):
        for message in (*part.messages, *part.copies):
            ends = ((message.sender, message.source), (message.receiver, message.target))
            for where, place in (*ends, (message.receiver, message.operand)):
                if where == rank and place is not None and place.buffer == "scratch":
                    yield number, message, place
