"""Hops of one rank's rows in a dispatch: numbers of rows to and from each peer, from counts alone.

A token goes from its rank to the proxy that sends it, then to the GPU of the proxy's number in the server that wants
it, and from there to all GPUs of that server which do.  These three hops of a stage are one step behind each other, so
that links inside servers are busy beside those between them.  The combine takes the hops backwards and adds up.

All ranks work out the same order: tokens of a rank for a server are sorted by the GPUs that want them, so that these
follow from the number of tokens of each kind.
"""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from ....schedules.fast.schedule import AllToAllvSchedule
from ....support.arrays import IntArray

OWN, ARRIVED = 0, 1
"""Areas of rows: those that a rank has, and what arrives; 2 s + 2 and 2 s + 3 are what it sends and gets in stage s."""


class HopList(NamedTuple):
    """Rows of an area that a peer gets in one step, or that come from it for another area."""

    source: int
    target: int
    is_send: int
    peer: int
    begin: int
    end: int

    @property
    def length(self) -> int:
        """Number of rows."""
        return self.end - max(self.begin, -1 - self.begin)

    def of(self, rows: Any) -> Any:
        """Index of the rows: some of all lists' `rows`, or the numbers from ``-1 - begin`` to the end."""
        return rows[self.begin : self.end] if self.begin >= 0 else slice(-1 - self.begin, self.end)


class RankHops(NamedTuple):
    """Hops of one rank: lists by step, int64 (lists, 7), with the rows of all, and the number of rows of each area."""

    lists: IntArray
    rows: IntArray
    sizes: IntArray

    def steps(self, backwards: bool = False) -> Iterator[tuple[int, list[HopList]]]:
        """Lists of each step; both ends of a message have it in the same order among those of a step."""
        by_step = groupby(self.lists.tolist(), key=itemgetter(0))
        steps = [(step, [HopList(*each[1:]) for each in some]) for step, some in by_step]
        return reversed(steps) if backwards else iter(steps)


class OwnTokens(NamedTuple):
    """Rows of a rank for each server, sorted by the GPUs that want them, and where each server's begin."""

    rows: IntArray
    begins: IntArray


def rank_hops(schedule: AllToAllvSchedule, rank: int, own: OwnTokens, kinds: IntArray) -> RankHops:
    """List the hops of a rank; `kinds` counts the tokens of each rank for its server by mask, (ranks, 2^GPUs)."""
    from .hop_kernel import hop_lists

    stages = schedule.partners, schedule.begins, schedule.ends
    streams = schedule.gpus_per_server, schedule.stream_starts, schedule.segments
    return RankHops(*hop_lists(rank, *streams, *stages, own.rows, own.begins, kinds))
