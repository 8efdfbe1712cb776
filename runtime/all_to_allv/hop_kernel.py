"""Rows of one rank's hops in a dispatch, stage by stage, in one compiled call; see `rounds`.

Tokens of a rank for a server are sorted by mask, the GPUs that want them, so runs of equal masks follow from counts.
"""

from typing import NamedTuple

import numpy as np

from ...support.arrays import IntArray
from ...support.kernels import kernel, runtime_kernel
from .step_kernel import BYTES, FIRST, ORIGIN, as_int64, next_pieces

OWN, ARRIVED = map(as_int64, range(2))  # Areas of rows, as in `rounds`
TAKES, SENDS = map(as_int64, range(2))  # Kinds of lists
ENTRIES, ROWS, ARRIVALS = map(as_int64, range(3))  # Counters in `filled`
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

    Each is `step`, source, target, whether it is sent, peer, and begin and end in `rows`; where begin is negative, it
    is the numbers from ``-1 - begin`` to the end.
    """

    rank: int
    entries: IntArray
    rows: IntArray
    filled: IntArray  # how much of these two there is, and how many rows arrive


@runtime_kernel
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
) -> tuple[IntArray, IntArray, IntArray]:
    """Return the lists of a rank, as in `Lists`, by step, then as both ends have them; their rows; the sizes of areas.

    Shapes: `tokens` for each server by mask, from ``token_begins[server]`` on; `kinds`, the tokens of each rank for
    this server by mask, (ranks, 2^GPUs).
    """
    (stages, servers), server = partners.shape, rank // gpus
    marks = np.zeros((kinds.shape[0], kinds.shape[1] + 1), dtype=np.int64)  # Where the tokens of each mask begin
    for origin in range(len(kinds)):
        marks[origin, 1:] = np.cumsum(kinds[origin])
    # Room for all lists: rows of own tokens for each GPU, and rows of each stage for each GPU of the server.
    longest = np.diff(starts).max()
    pieces = np.empty((longest + 1, 4), dtype=np.int64)
    streams = Streams(starts, segments, starts[:-1].copy(), np.zeros(len(starts) - 1, dtype=np.int64), pieces)
    lasting = (ends - begins)[:, server].sum() + marks[:, -1].sum()
    lists = Lists(
        rank,
        np.empty(((3 * stages + 1) * (2 * gpus + FEW), 7), dtype=np.int64),
        np.empty(len(tokens) * (gpus + 1) + (gpus + 1) * lasting, dtype=np.int64),
        np.zeros(3, dtype=np.int64),
    )
    sizes = np.zeros(2 * stages + 2, dtype=np.int64)
    # Hops inside the server without a stage, then the three hops of each stage: to proxies, between servers, to GPUs.
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
    sizes[ARRIVED] = lists.filled[ARRIVALS]
    entries = lists.entries[: lists.filled[ENTRIES]]
    return entries[np.argsort(entries[:, 0], kind="mergesort")], lists.rows[: lists.filled[ROWS]], sizes


@kernel
def _list(lists: Lists, step: int, source: int, target: int, kind: int, peer: int, begin: int, end: int) -> None:
    """Add a list if it has rows."""
    if end > max(begin, -1 - begin):
        for column, value in enumerate((step, source, target, kind, peer, begin, end)):
            lists.entries[lists.filled[ENTRIES], column] = value
        lists.filled[ENTRIES] += 1


@kernel
def _append(lists: Lists, marks: IntArray, first: int, values: IntArray, bit: int) -> None:
    """Append, to the rows, the values of those tokens of an origin from the first on whose masks have a bit."""
    mask, at = np.searchsorted(marks, first, side="right") - 1, 0
    while at < len(values):
        end = min(len(values), marks[mask + 1] - first)
        if mask >> bit & 1:
            lists.rows[lists.filled[ROWS] : lists.filled[ROWS] + end - at] = values[at:end]
            lists.filled[ROWS] += end - at
        at, mask = end, mask + 1


@kernel
def _arrive(lists: Lists, marks: IntArray, first: int, after: int, bit: int) -> None:
    """Count those tokens of an origin from the first on whose masks have a bit."""
    mask = np.searchsorted(marks, first, side="right") - 1
    while first < after:
        end = min(after, marks[mask + 1])
        if mask >> bit & 1:
            lists.filled[ARRIVALS] += end - first
        first, mask = end, mask + 1


@kernel
def _stay(lists: Lists, gpus: int, tokens: IntArray, marks: IntArray) -> None:
    """List the rows that move inside the server without a stage."""
    gpu, first = lists.rank % gpus, lists.rank - lists.rank % gpus
    for at in range(gpus):
        before, peer = lists.filled.copy(), first + at
        _append(lists, marks[lists.rank], 0, tokens[: marks[lists.rank, -1]], at)
        _list(lists, 0, OWN, ARRIVED, SENDS, peer, before[ROWS], lists.filled[ROWS])
        _arrive(lists, marks[peer], 0, marks[peer, -1], gpu)
        _list(lists, 0, OWN, ARRIVED, TAKES, peer, -1 - before[ARRIVALS], lists.filled[ARRIVALS])


@kernel
def _to_proxies(lists: Lists, streams: Streams, stage: int, stream: int, gpus: int, left: int, tokens: IntArray) -> int:
    """List own tokens for proxies, and tokens that others hand to this rank; return how many it then has."""
    area, first, size = 2 * stage + 2, lists.rank - lists.rank % gpus, 0
    for lane in range(gpus):
        proxy, count = first + lane, next_pieces(streams, stream + lane, left)
        begin = lists.filled[ROWS]
        for piece in streams.pieces[:count]:
            if piece[ORIGIN] == lists.rank:
                _append_all(lists, tokens[piece[FIRST] : piece[FIRST] + piece[BYTES]])
        _list(lists, stage, OWN, area, SENDS, proxy, begin, lists.filled[ROWS])
        if proxy == lists.rank:
            size = streams.pieces[:count, BYTES].sum()
            for origin in range(first, first + gpus):
                begin, place = lists.filled[ROWS], 0
                for piece in streams.pieces[:count]:
                    if piece[ORIGIN] == origin:
                        _append_all(lists, np.arange(place, place + piece[BYTES]))
                    place += piece[BYTES]
                _list(lists, stage, OWN, area, TAKES, origin, begin, lists.filled[ROWS])
    return size


@kernel
def _append_all(lists: Lists, values: IntArray) -> None:
    lists.rows[lists.filled[ROWS] : lists.filled[ROWS] + len(values)] = values
    lists.filled[ROWS] += len(values)


@kernel
def _spread(lists: Lists, streams: Streams, stage: int, stream: int, gpus: int, left: int, marks: IntArray) -> int:
    """List rows that this rank received for others in a stage, and rows of peers for it; return their number here."""
    area, first, size = 2 * stage + 3, lists.rank - lists.rank % gpus, 0
    for lane in range(gpus):
        holder, count = first + lane, next_pieces(streams, stream + lane, left)
        if holder == lists.rank:
            size = streams.pieces[:count, BYTES].sum()
            slots = np.arange(size)
            for at in range(gpus):
                begin, place = lists.filled[ROWS], 0
                for piece in streams.pieces[:count]:
                    _append(lists, marks[piece[ORIGIN]], piece[FIRST], slots[place : place + piece[BYTES]], at)
                    place += piece[BYTES]
                _list(lists, stage + 2, area, ARRIVED, SENDS, first + at, begin, lists.filled[ROWS])
        arrived = lists.filled[ARRIVALS]
        for piece in streams.pieces[:count]:
            _arrive(lists, marks[piece[ORIGIN]], piece[FIRST], piece[FIRST] + piece[BYTES], lists.rank - first)
        _list(lists, stage + 2, area, ARRIVED, TAKES, holder, -1 - arrived, lists.filled[ARRIVALS])
    return size
