"""Rows of one rank's hops in a dispatch, stage by stage, in one compiled call; `collopt.runtime.distributed.moe.hops`.

Tokens of a rank for a server are sorted by mask, the GPUs that want them, so runs of equal masks follow from counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....support.arrays import IntArray
from ....support.compiling.kernels import kernel
from ..all_to_allv.step_kernel import BYTES, FIRST, ORIGIN, as_int64, next_pieces

OWN, ARRIVED = map(as_int64, range(2))  # Areas of rows, as those of hops
SENDS, TAKES, KEPT_FROM, KEPT_AT = map(as_int64, range(4))  # Kinds of lists
FEW = 4  # Lists of a hop besides those of each GPU


class Streams(NamedTuple):
    """The streams of a schedule, how far they have come, and the pieces of one in a stage."""

    starts: IntArray
    segments: IntArray
    at: IntArray
    done: IntArray
    pieces: IntArray


class Lists(NamedTuple):
    """Lists of rows as they are found.

    Each is `step`, source, target, kind, peer, and begin and end in `rows`; where begin is negative, it is the numbers
    from ``-1 - begin`` to the end.
    """

    rank: int
    entries: IntArray
    rows: IntArray
    origins: IntArray
    filled: IntArray  # how much of these three there is


@kernel
def hop_lists(
    rank: int,
    gpus: int,
    starts: IntArray,
    segments: IntArray,
    partners: IntArray,
    begins: IntArray,
    ends: IntArray,
    tokens: IntArray,
    token_begins: IntArray,
    kinds: IntArray,
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return the lists of a rank, as in `Lists`, their rows, the origins of rows that arrive, and the sizes of areas.

    Shapes: `tokens` for each server by mask, from ``token_begins[server]`` on; `kinds`, the tokens of each rank for
    this server by mask, (ranks, 2^GPUs).
    """
    (stages, servers), server = partners.shape, rank // gpus
    marks = np.zeros((kinds.shape[0], kinds.shape[1] + 1), dtype=np.int64)  # Where the tokens of each mask begin
    for origin in range(len(kinds)):
        marks[origin, 1:] = np.cumsum(kinds[origin])
    longest = np.diff(starts).max()
    pieces = np.empty((longest + 1, 4), dtype=np.int64)
    streams = Streams(starts, segments, starts[:-1].copy(), np.zeros(len(starts) - 1, dtype=np.int64), pieces)
    lasting = (ends - begins)[:, server].sum() + marks[:, -1].sum()
    lists = Lists(
        rank,
        np.empty(((3 * stages + 1) * (2 * gpus + FEW), 7), dtype=np.int64),
        np.empty(len(tokens) * (gpus + 1) + (gpus + 1) * lasting, dtype=np.int64),
        np.empty(marks[:, -1].sum(), dtype=np.int64),
        np.zeros(3, dtype=np.int64),
    )
    sizes = np.zeros(2 * stages + 2, dtype=np.int64)
    _stay(lists, gpus, tokens[token_begins[server] :], marks)
    for stage in range(stages):
        other, leaving, landing = partners[stage, server], 2 * stage + 2, 2 * stage + 3
        if other >= 0:
            left, first = ends[stage, server] - begins[stage, server], (server * servers + other) * gpus
            sizes[leaving] = _to_proxies(lists, streams, stage, first, gpus, left, tokens[token_begins[other] :])
            if sizes[leaving]:
                _list(lists, stage + 1, leaving, landing, SENDS, other * gpus + rank % gpus, -1, sizes[leaving])
        for sender in range(servers):
            if partners[stage, sender] == server:
                left, first = ends[stage, sender] - begins[stage, sender], (sender * servers + server) * gpus
                sizes[landing] = _spread(lists, streams, stage, first, gpus, left, marks)
                if sizes[landing]:
                    _list(lists, stage + 1, leaving, landing, TAKES, sender * gpus + rank % gpus, -1, sizes[landing])
    sizes[ARRIVED] = lists.filled[2]
    return lists.entries[: lists.filled[0]], lists.rows, lists.origins[: lists.filled[2]], sizes


@kernel
def _list(lists: Lists, step: int, source: int, target: int, kind: int, peer: int, begin: int, end: int) -> None:
    """Add a list if it has rows; what a rank has for itself is kept."""
    if end > max(begin, -1 - begin):
        if peer == lists.rank:
            kind += KEPT_FROM
        entry = lists.entries[lists.filled[0]]
        entry[0], entry[1], entry[2], entry[3], entry[4], entry[5], entry[6] = (
            step,
            source,
            target,
            kind,
            peer,
            begin,
            end,
        )
        lists.filled[0] += 1


@kernel
def _with_bit(lists: Lists, marks: IntArray, origin: int, first: int, length: int, bit: int, values: IntArray) -> None:
    """Append those of an origin's tokens whose masks have a bit: of ``values[first:first + length]``, from 0 on."""
    mask, at = np.searchsorted(marks[origin], first, side="right") - 1, 0
    while at < length:
        end = min(length, marks[origin, mask + 1] - first)
        if mask >> bit & 1:
            for place in range(at, end):
                lists.rows[lists.filled[1]] = values[place]
                lists.filled[1] += 1
        at, mask = end, mask + 1


@kernel
def _arrive(lists: Lists, marks: IntArray, origin: int, first: int, length: int, bit: int) -> None:
    """Note the origin of those tokens that this rank wants."""
    mask, at = np.searchsorted(marks[origin], first, side="right") - 1, 0
    while at < length:
        end = min(length, marks[origin, mask + 1] - first)
        if mask >> bit & 1:
            lists.origins[lists.filled[2] : lists.filled[2] + end - at] = origin
            lists.filled[2] += end - at
        at, mask = end, mask + 1


@kernel
def _stay(lists: Lists, gpus: int, tokens: IntArray, marks: IntArray) -> None:
    """List what moves inside the server without a stage."""
    gpu, first = lists.rank % gpus, lists.rank - lists.rank % gpus
    for at in range(gpus):
        before, peer = lists.filled.copy(), first + at
        _with_bit(lists, marks, lists.rank, 0, marks[lists.rank, -1], at, tokens)
        _list(lists, 0, OWN, ARRIVED, SENDS, peer, before[1], lists.filled[1])
        _arrive(lists, marks, peer, 0, marks[peer, -1], gpu)
        _list(lists, 0, OWN, ARRIVED, TAKES, peer, -1 - before[2], lists.filled[2])


@kernel
def _to_proxies(lists: Lists, streams: Streams, stage: int, stream: int, gpus: int, left: int, tokens: IntArray) -> int:
    """List own tokens that go to proxies, and what others hand to this rank; return how many it then has."""
    area, first, size = 2 * stage + 2, lists.rank - lists.rank % gpus, 0
    for lane in range(gpus):
        proxy, count = first + lane, next_pieces(streams, stream + lane, left)
        begin = lists.filled[1]
        for piece in streams.pieces[:count]:
            if piece[ORIGIN] == lists.rank:
                _append(lists, tokens[piece[FIRST] : piece[FIRST] + piece[BYTES]])
        _list(lists, stage, OWN, area, SENDS, proxy, begin, lists.filled[1])
        if proxy == lists.rank:
            size = streams.pieces[:count, BYTES].sum()
            for origin in range(first, first + gpus):
                begin, place = lists.filled[1], 0
                for piece in streams.pieces[:count]:
                    if piece[ORIGIN] == origin:
                        _append(lists, np.arange(place, place + piece[BYTES]))
                    place += piece[BYTES]
                _list(lists, stage, OWN, area, TAKES, origin, begin, lists.filled[1])
    return size


@kernel
def _append(lists: Lists, values: IntArray) -> None:
    lists.rows[lists.filled[1] : lists.filled[1] + len(values)] = values
    lists.filled[1] += len(values)


@kernel
def _spread(lists: Lists, streams: Streams, stage: int, stream: int, gpus: int, left: int, marks: IntArray) -> int:
    """List what this rank got for others in a stage, and what they got for it; return how much it got."""
    area, first, size = 2 * stage + 3, lists.rank - lists.rank % gpus, 0
    for lane in range(gpus):
        holder, count = first + lane, next_pieces(streams, stream + lane, left)
        if holder == lists.rank:
            size = streams.pieces[:count, BYTES].sum()
            slots = np.arange(size)
            for at in range(gpus):
                begin, place = lists.filled[1], 0
                for piece in streams.pieces[:count]:
                    _with_bit(lists, marks, piece[ORIGIN], piece[FIRST], piece[BYTES], at, slots[place:])
                    place += piece[BYTES]
                _list(lists, stage + 2, area, ARRIVED, SENDS, first + at, begin, lists.filled[1])
        arrived = lists.filled[2]
        for piece in streams.pieces[:count]:
            _arrive(lists, marks, piece[ORIGIN], piece[FIRST], piece[BYTES], lists.rank - first)
        _list(lists, stage + 2, area, ARRIVED, TAKES, holder, -1 - arrived, lists.filled[2])
    return size
