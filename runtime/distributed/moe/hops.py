"""Hops of one rank's rows in a dispatch: numbers of rows to and from each peer, from counts alone.

A token goes from its rank to the proxy that sends it, then to the GPU of the proxy's number in the server that wants
it, and from there to all GPUs of that server which do.  These three hops of a stage are one step behind each other, so
that links inside servers are busy beside those between them.  The combine takes the hops backwards and adds up.

All ranks work out the same order: tokens of a rank for a server are sorted by the GPUs that want them, so that these
follow from the number of tokens of each kind.
"""

from typing import NamedTuple

import numpy as np

from ....schedules.fast.schedule import AllToAllvSchedule
from ....support.arrays import IntArray

OWN, ARRIVED = 0, 1
"""Areas of rows: a rank's own tokens, and what arrived; 2 s + 2 and 2 s + 3 are what it sends and gets in stage s."""

KEPT = 2  # the first code of lists of rows that a rank keeps
NO_ROWS = np.empty(0, dtype=np.int64)


class Hop(NamedTuple):
    """Rows of one rank that move from one area to another in one step.

    `sends` has rows of the source by peer, `receives` rows of the target, and `kept` rows of both for the rank itself.
    """

    step: int
    source: int
    target: int
    sends: dict[int, IntArray]
    receives: dict[int, IntArray]
    kept: list[IntArray]


class RankHops(NamedTuple):
    """Hops of one rank in the order of steps, the number of rows of each area, and whose tokens arrive, in order."""

    hops: list[Hop]
    sizes: dict[int, int]
    origins: IntArray


class OwnTokens(NamedTuple):
    """Tokens of a rank for each server, sorted by the GPUs that want them, and where each server's begin."""

    tokens: IntArray
    begins: IntArray


def rank_hops(schedule: AllToAllvSchedule, rank: int, own: OwnTokens, kinds: IntArray) -> RankHops:
    """List the hops of a rank; `kinds` counts the tokens of each rank for its server by mask, (ranks, 2^GPUs)."""
    from .hop_kernel import hop_lists

    stages = schedule.partners, schedule.begins, schedule.ends
    streams = schedule.gpus_per_server, schedule.stream_starts, schedule.segments
    lists, rows, origins, sizes = hop_lists(rank, *streams, *stages, own.tokens, own.begins, kinds)
    numbers, hops = np.arange(sizes.max()), dict[tuple[int, int, int], Hop]()
    for step, source, target, kind, peer, begin, end in lists.tolist():
        hop = hops.get((step, source, target))
        if hop is None:
            hop = hops[step, source, target] = Hop(step, source, target, {}, {}, [NO_ROWS, NO_ROWS])
        found = rows[begin:end] if begin >= 0 else numbers[-1 - begin : end]
        if kind >= KEPT:
            hop.kept[kind - KEPT] = found
        else:
            (hop.sends, hop.receives)[kind][peer] = found
    return RankHops(sorted(hops.values(), key=lambda hop: hop.step), dict(enumerate(sizes.tolist())), origins)
