"""FAST schedule for servers of unequal sizes, by partition into parts of equal size.

Every server is divided into parts of g GPUs, where g divides the sizes of all servers; what server i, of u parts, sends
to server j, of v parts, is distributed evenly over all u v pairs.  So the part with the largest load sends per GPU what
Theorem 1 of FAST requires of its server.  GPU a of i orders its bytes from GPU a modulo g on, as in `tile_balance`.
"""

from __future__ import annotations

import numpy as np

from ...support.arrays import IntArray
from ...support.compiling.kernels import kernel
from .stages import MAX_PLACES, TOO_MANY, Prices, capped_matchings, fault_of, number_of_stages, ordered_stages
from .tile_balance import copy_cells


@kernel
def unequal_exchange(
    traffic: IntArray, firsts: IntArray, gpus: int, way: int, cap: int, prices: Prices
) -> tuple[int, IntArray, IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Plan an all-to-allv on unequal servers. Shapes: `traffic` int64 (ranks, ranks); `firsts` (servers + 1,)."""
    nothing, no_rows = np.empty(0, dtype=np.int64), np.empty((0, 0), dtype=np.int64)
    fault = fault_of(traffic)
    if fault:
        return fault, nothing, no_rows, nothing, no_rows, no_rows, no_rows
    parts = len(traffic) // gpus
    totals = _totals(traffic, firsts)
    longest = _longest(totals, firsts, gpus, parts)
    found, weights, cap = capped_matchings(longest, np.diff(firsts).max(), way, cap, prices)
    stages = number_of_stages(weights, cap)
    if stages > MAX_PLACES // parts:
        return TOO_MANY, nothing, no_rows, nothing, no_rows, no_rows, no_rows
    sizes, partners, begins, ends = ordered_stages(longest, found, weights, stages, cap)
    starts, segments = _segments(traffic, totals, firsts, gpus, parts)
    return 0, starts, segments, sizes, partners, begins, ends


@kernel
def _totals(traffic: IntArray, firsts: IntArray) -> IntArray:
    """Return the bytes from each server to each other, int64 (servers, servers); 0 on the diagonal."""
    servers = len(firsts) - 1
    totals = np.zeros((servers, servers), dtype=np.int64)
    for server in range(servers):
        for other in range(servers):
            if other != server:
                rows = traffic[firsts[server] : firsts[server + 1]]
                totals[server, other] = rows[:, firsts[other] : firsts[other + 1]].sum()
    return totals


@kernel
def _longest(totals: IntArray, firsts: IntArray, gpus: int, parts: int) -> IntArray:
    """Return the longest stream of each pair of parts; the first GPUs and peers have one byte more."""
    longest = np.zeros((parts, parts), dtype=np.int64)
    for server in range(len(totals)):
        row, size = firsts[server] // gpus, (firsts[server + 1] - firsts[server])
        for other in range(len(totals)):
            column, peers = firsts[other] // gpus, (firsts[other + 1] - firsts[other]) // gpus
            share, longer = divmod(totals[server, other], size * peers)
            for part in range(size // gpus):
                for peer in range(peers):
                    longest[row + part, column + peer] = share + (1 if part * gpus * peers + peer < longer else 0)
    return longest


@kernel
def _segments(
    traffic: IntArray, totals: IntArray, firsts: IntArray, gpus: int, parts: int
) -> tuple[IntArray, IntArray]:
    """Fill all streams; return starts and segments sorted by stream, as `stream_segments` writes them."""
    most = 1
    for server in range(len(totals)):
        size = firsts[server + 1] - firsts[server]
        for other in range(len(totals)):
            # Segments end where cells, streams, or the bytes that a GPU keeps do.
            width = firsts[other + 1] - firsts[other]
            most += size * (width + width // gpus + 1)
    segments, streams = np.empty((most, 4), dtype=np.int64), np.empty(most, dtype=np.int64)
    count = 0
    for server in range(len(totals)):
        rows = firsts[server], firsts[server + 1]
        for other in range(len(totals)):
            total, columns = totals[server, other], (firsts[other], firsts[other + 1])
            if total:
                count, left, deficits = _keep(traffic, total, rows, columns, gpus, segments, streams, count)
                count = _fill(traffic, rows, columns, gpus, left, deficits, segments, streams, count)
    starts = np.zeros(parts * parts * gpus + 1, dtype=np.int64)
    for at in range(count):
        starts[streams[at] + 1] += 1
    # Stable, as a stream's segments were written in its own order.
    return np.cumsum(starts), segments[:count][np.argsort(streams[:count], kind="mergesort")]


@kernel
def _keep(
    traffic: IntArray,
    total: int,
    rows: tuple[int, int],
    columns: tuple[int, int],
    gpus: int,
    segments: IntArray,
    streams: IntArray,
    count: int,
) -> tuple[int, IntArray, IntArray]:
    """Write the own segments of GPUs from one server to another, and the stream number of each segment.

    Also returns each GPU's remaining bytes, first cell and byte, (GPUs, 3), and its streams' deficits, (GPUs, peers).
    """
    size, width = rows[1] - rows[0], columns[1] - columns[0]
    peers = width // gpus
    share, longer = divmod(total, size * peers)
    left, deficits = np.zeros((size, 3), dtype=np.int64), np.empty((size, peers), dtype=np.int64)
    for gpu in range(size):
        rank = rows[0] + gpu
        spare, place, first = traffic[rank, columns[0] : columns[1]].sum(), 0, 0
        for peer in range(peers):
            wanted = share + (1 if gpu * peers + peer < longer else 0)
            own, begin = min(spare, wanted), count
            count, place, first = copy_cells(
                traffic, rank, columns[0], width, gpu % gpus, place, first, own, segments, count
            )
            streams[begin:count] = _stream(rank, columns[0] + peer * gpus, gpus, len(traffic))
            spare -= own
            deficits[gpu, peer] = wanted - own
        left[gpu] = spare, place, first
    return count, left, deficits


@kernel
def _fill(
    traffic: IntArray,
    rows: tuple[int, int],
    columns: tuple[int, int],
    gpus: int,
    left: IntArray,
    deficits: IntArray,
    segments: IntArray,
    streams: IntArray,
    count: int,
) -> int:
    """Fill the deficits of streams from the surplus of GPUs, one after another, as `_keep` returns both."""
    giver = 0
    for gpu in range(len(left)):
        for peer in range(deficits.shape[1]):
            begin, wanted = count, deficits[gpu, peer]
            while wanted:
                while left[giver, 0] == 0:
                    giver += 1
                spare, place, first = left[giver]
                taken = min(wanted, spare)
                count, place, first = copy_cells(
                    traffic,
                    rows[0] + giver,
                    columns[0],
                    columns[1] - columns[0],
                    giver % gpus,
                    place,
                    first,
                    taken,
                    segments,
                    count,
                )
                left[giver] = spare - taken, place, first
                wanted -= taken
            streams[begin:count] = _stream(rows[0] + gpu, columns[0] + peer * gpus, gpus, len(traffic))
    return count


@kernel
def _stream(rank: int, other: int, gpus: int, ranks: int) -> int:
    """Number the stream from a rank to its peer in the part that begins with the rank `other`."""
    return (rank // gpus * (ranks // gpus) + other // gpus) * gpus + rank % gpus
