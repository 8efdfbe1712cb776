"""Who read and wrote what last in the memory of all GPUs, and whether later accesses know of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....errors import ProgramError
from ..format.execution_plan import Place
from .processes import Clock, Memory

__all__ = ["Accesses"]


class Accesses:
    """Refuses an access that does not know of an earlier one with which it conflicts.

    Parameters
    ----------
    memory : sequence of Memory
        Of each rank.
    names : mapping of int to str
        Of the processes, by their places in clocks.
    starts : int
        Place in clocks of the first rank's start; those of the others follow.
    """

    def __init__(self, memory: Sequence[Memory], names: Mapping[int, str], starts: int) -> None:
        self.memory = memory
        self.names = names
        self.starts = starts

    def add(self, place: Place, part: int | None, clock: Clock, index: int, count: int, *, writes: bool) -> None:
        """Look whether an access knows of all that it conflicts with, and remember it."""
        memory = self.memory[place.rank]
        if not clock[self.starts + place.rank]:
            raise ProgramError(
                f"race: {self.names[index]} writes to {place.buffer} chunk {place.start} of rank {place.rank}, which "
                "may not have started yet; let it wait for a signal"
            )
        for cell in memory.cells(place, part):
            last = memory.writes.get(cell)
            if last is not None and clock[last[0]] < last[1] and (last[0], last[1]) != (index, count):
                self._refuse(place, cell, last[0], index, ("writes", "writes" if writes else "reads"))
            if not writes:
                memory.reads[cell][index] = count
                continue
            for reader, at in memory.reads.pop(cell, {}).items():
                if clock[reader] < at and (reader, at) != (index, count):
                    self._refuse(place, cell, reader, index, ("reads", "writes"))
            memory.writes[cell] = index, count

    def check_end(self, rank: int, clock: Clock) -> None:
        """Refuse to let a rank end that does not know of all accesses to its memory."""
        memory = self.memory[rank]
        accesses = [(cell, *last) for cell, last in memory.writes.items()]
        accesses += [(cell, index, count) for cell, found in memory.reads.items() for index, count in found.items()]
        for (buffer, element), index, count in accesses:
            if clock[index] < count:
                raise ProgramError(
                    f"race: rank {rank} may end before {self.names[index]} is through with {buffer} chunk "
                    f"{element // memory.slices}; let it wait for that"
                )

    def _refuse(self, place: Place, cell: tuple[str, int], earlier: int, later: int, ways: tuple[str, str]) -> None:
        memory = self.memory[place.rank]
        chunk = (cell[1] - memory.first[place.buffer]) // memory.slices
        raise ProgramError(
            f"race: {self.names[earlier]} {ways[0]} {place.buffer} chunk {chunk} of rank {place.rank} and "
            f"{self.names[later]} {ways[1]} it, but nothing keeps them in order"
        )
