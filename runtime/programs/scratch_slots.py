"""Gives out places in scratch, and takes them back."""

from __future__ import annotations

from bisect import bisect_left, insort


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
