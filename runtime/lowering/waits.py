"""Transitive reduction of the dependencies of one rank's steps, by vector clocks (Fidge 1988, Mattern 1989)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Site = tuple[int, int]  # Thread block and step


class Waits:
    """The last step of each thread block that every step comes after, for steps that are written in the global order.

    A block's clock changes only at steps that wait, so it is kept for these: shape (blocks,), -1 for none.
    """

    def __init__(self, blocks: int) -> None:
        self._steps: list[list[int]] = [[] for _ in range(blocks)]
        self._clocks: list[list[npt.NDArray[np.int32]]] = [[] for _ in range(blocks)]
        self._start = np.full(blocks, -1, dtype=np.int32)

    def needed(self, here: Site, sites: Iterable[Site]) -> list[Site]:
        """Leave out of `sites`, one per block, what earlier steps of the block of `here` or other sites come after."""
        own = self._clocks[here[0]]
        clock = own[-1] if own else self._start
        missing = [site for site in sites if clock[site[0]] < site[1]]
        if not missing:
            return missing
        clock = clock.copy()
        for block, step in missing:
            if known := bisect_right(self._steps[block], step):
                np.maximum(clock, self._clocks[block][known - 1], out=clock)
        missing = [site for site in missing if clock[site[0]] < site[1]]
        for block, step in missing:
            clock[block] = step
        self._steps[here[0]].append(here[1])
        own.append(clock)
        return missing
