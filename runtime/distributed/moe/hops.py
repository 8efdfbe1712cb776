"""Hops of one rank's rows in a dispatch: numbers of rows to and from each peer, from counts alone.

A token goes from its rank to the proxy that sends it, then to the GPU of the proxy's number in the server that wants
it, and from there to all GPUs of that server which do.  These three hops of a stage are one step behind each other, so
that links inside servers are busy beside those between them.  The combine takes the hops backwards and adds up.

All ranks work out the same order: tokens of a rank for a server are sorted by the GPUs that want them, so that these
follow from the number of tokens of each kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ....schedules.fast.schedule import AllToAllvSchedule
from ....schedules.fast.segments import pieces_of
from ....support.arrays import IntArray

OWN, ARRIVED = 0, 1
"""Areas of rows: a rank's own tokens, and what arrived; 2 s + 2 and 2 s + 3 are what it sends and gets in stage s."""

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
    kept: tuple[IntArray, IntArray]


class RankHops(NamedTuple):
    """Hops of one rank in the order of steps, the number of rows of each area, and whose tokens arrive, in order."""

    hops: list[Hop]
    sizes: dict[int, int]
    origins: IntArray


class OwnTokens(NamedTuple):
    """Tokens of a rank for each server, sorted by the GPUs that want them, and where each server's begin."""

    tokens: IntArray
    begins: IntArray

    def of(self, server: int) -> IntArray:
        """Return the tokens for one server."""
        return self.tokens[self.begins[server] : self.begins[server + 1]]


class _Landed(NamedTuple):
    """Rows that land on one server, in order; `mask` has the GPUs that want each."""

    stage: IntArray
    peer: IntArray
    slot: IntArray
    mask: IntArray
    origin: IntArray


def rank_hops(schedule: AllToAllvSchedule, rank: int, own: OwnTokens, kinds: IntArray) -> RankHops:
    """List the hops of a rank; `kinds` counts the tokens of each rank for its server by mask, (ranks, 2^GPUs)."""
    gpus = schedule.gpus_per_server
    server, gpu = divmod(rank, gpus)
    local, origins = _local_hop(rank, gpus, own.of(server), kinds)
    landed = _landed(schedule, server, kinds)
    sizes = {ARRIVED: len(origins)}
    hops = [local, *_to_proxies(schedule, rank, own, sizes)]
    for stage, begin, end in _runs(landed.stage):
        hops.append(_spread(stage, _Landed(*(each[begin:end] for each in landed)), rank, gpus, sizes))
    for stage, partners in enumerate(schedule.partners):
        source, target = 2 * stage + 2, 2 * stage + 3
        sends, receives = sizes.get(source, 0), sizes.get(target, 0)
        if sends or receives:
            to, sender = partners[server] * gpus + gpu, int(np.argmax(partners == server)) * gpus + gpu
            kept = NO_ROWS, NO_ROWS
            hops.append(Hop(stage + 1, source, target, _rows(to, sends), _rows(sender, receives), kept))
    origins = np.concatenate([origins, landed.origin[landed.mask >> gpu & 1 > 0]])
    return RankHops(sorted(hops, key=lambda hop: hop.step), sizes, origins)


def _rows(peer: int, count: int) -> dict[int, IntArray]:
    return {int(peer): np.arange(count)} if count else {}


def _runs(values: IntArray) -> Iterator[tuple[int, int, int]]:
    """Yield the runs of equal values: value, begin and end."""
    cuts = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    return ((int(values[begin]), begin, end) for begin, end in pairwise(cuts) if end > begin)


def _local_hop(rank: int, gpus: int, tokens: IntArray, kinds: IntArray) -> tuple[Hop, IntArray]:
    """Return the hop of tokens inside the server, and the origins of those that arrive."""
    server, gpu = divmod(rank, gpus)
    masks = np.arange(kinds.shape[1])
    mine = np.repeat(masks, kinds[rank])
    peers = range(server * gpus, (server + 1) * gpus)
    counts = kinds[peers.start : peers.stop] @ (masks >> gpu & 1)
    slots = _in_a_row(peers.start, counts, 0)
    sends = {peer: tokens[mine >> at & 1 > 0] for at, peer in enumerate(peers)}
    kept = sends.pop(rank), slots.pop(rank)
    return Hop(0, OWN, ARRIVED, _nonempty(sends), _nonempty(slots), kept), np.repeat(peers, counts)


def _in_a_row(first: int, counts: IntArray, begin: int) -> dict[int, IntArray]:
    """Places of so many rows from each GPU of a server, one after another."""
    ends = begin + np.cumsum(counts)
    return {first + at: np.arange(end - count, end) for at, (end, count) in enumerate(zip(ends, counts, strict=True))}


def _nonempty(rows: dict[int, IntArray]) -> dict[int, IntArray]:
    return {peer: each for peer, each in rows.items() if len(each)}


def _to_proxies(schedule: AllToAllvSchedule, rank: int, own: OwnTokens, sizes: dict[int, int]) -> Iterator[Hop]:
    """Yield the hops of own tokens to proxies, by stage, and fill in how much the rank sends in each."""
    gpus = schedule.gpus_per_server
    pieces = pieces_of(schedule, rank // gpus)
    chosen = np.flatnonzero((pieces.proxy == rank) | (pieces.origin == rank))
    chosen = chosen[np.argsort(pieces.stage[chosen], kind="stable")]  # In each stage in the order of streams.
    rows = np.column_stack(pieces)[chosen].tolist()
    for stage, begin, end in _runs(pieces.stage[chosen]):
        sends: dict[int, list[IntArray]] = {}
        receives: dict[int, list[IntArray]] = {}
        size = 0
        for _, origin, proxy, peer, _, first, length, _ in rows[begin:end]:
            if origin == rank:
                sends.setdefault(proxy, []).append(own.of(peer // gpus)[first : first + length])
            if proxy == rank:
                receives.setdefault(origin, []).append(np.arange(size, size + length))
                size += length
        given, taken = ({peer: np.concatenate(parts) for peer, parts in each.items()} for each in (sends, receives))
        kept = given.pop(rank, NO_ROWS), taken.pop(rank, NO_ROWS)
        sizes[2 * stage + 2] = size
        yield Hop(stage, OWN, 2 * stage + 2, given, taken, kept)


def _landed(schedule: AllToAllvSchedule, server: int, kinds: IntArray) -> _Landed:
    """List the rows that land on a server, stage by stage, then by GPU and in the order of streams."""
    gpus = schedule.gpus_per_server
    columns = []
    for other in range(schedule.servers):
        pieces = pieces_of(schedule, other)
        here = pieces.peer // gpus == server
        slot = pieces.offset - schedule.begins[pieces.stage, other]
        names = (pieces.stage, pieces.peer, pieces.origin, pieces.first, pieces.length, slot)
        columns.append(np.array([column[here] for column in names]))
    stage, peer, origin, first, length, slot = (joined := np.concatenate(columns, axis=1))[
        :, np.lexsort((joined[5], joined[1], joined[0]))
    ]
    within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    row_origin, place = np.repeat(origin, length), np.repeat(first, length) + within
    # Masks of all ranks' tokens for this server, rank by rank.
    masks = np.repeat(np.tile(np.arange(kinds.shape[1]), len(kinds)), kinds.ravel())
    counts = kinds.sum(axis=1)
    mask = masks[(np.cumsum(counts) - counts)[row_origin] + place]
    return _Landed(
        np.repeat(stage, length), np.repeat(peer, length), np.repeat(slot, length) + within, mask, row_origin
    )


def _spread(stage: int, landed: _Landed, rank: int, gpus: int, sizes: dict[int, int]) -> Hop:
    """Return the hop of one stage's rows to the GPUs of the server that want them, and fill in sizes."""
    first, gpu = rank - rank % gpus, rank % gpus
    mine = landed.peer == rank
    slots, masks = landed.slot[mine], landed.mask[mine]
    sizes[2 * stage + 3] = len(slots)
    sends = {first + at: slots[masks >> at & 1 > 0] for at in range(gpus)}
    holders = landed.peer[landed.mask >> gpu & 1 > 0]
    receives = _in_a_row(first, np.bincount(holders - first, minlength=gpus), sizes[ARRIVED])
    sizes[ARRIVED] += len(holders)
    kept = sends.pop(rank), receives.pop(rank)
    return Hop(stage + 2, 2 * stage + 3, ARRIVED, _nonempty(sends), _nonempty(receives), kept)
