"""Tile balancing inside servers: the bytes that each GPU sends to its peer in another server (FAST, section 4.1).

The tile of servers i and j has m x m cells, cell (a, b) from GPU a of i to GPU b of j.  GPU p of i sends GPU p of j one
stream, the m-th part of the tile: a sequence of segments, each a range of bytes of one cell.  GPU p orders its bytes by
b = p, p + 1, ..., p - 1 modulo m and gives away the end; surpluses fill the deficits of other streams in order.
"""

from __future__ import annotations

import numpy as np

from ...support.arrays import IntArray
from ...support.compiling.kernels import kernel


@kernel
def peer_bytes(traffic: IntArray, servers: int, gpus: int, sums: IntArray, longest: IntArray) -> int:
    """Sum the bytes of each GPU for each server, and find the longest stream of each pair of servers.

    Returns all entries combined by or, which is below 0 if one of them is, and else no less than any.

    Shapes: `traffic` int64 (ranks, ranks); `sums` int64 (ranks, servers); `longest` int64 (servers, servers).
    """
    every = 0
    for server in range(servers):
        totals = longest[server]
        totals[:] = gpus - 1
        for rank in range(server * gpus, (server + 1) * gpus):
            cells = traffic[rank]
            for other in range(servers):
                row = 0
                for cell in cells[other * gpus : (other + 1) * gpus]:
                    row += cell
                    every |= cell
                sums[rank, other] = row
                totals[other] += row
        totals[server] = 0
        for other in range(servers):
            totals[other] //= gpus
    return every


@kernel
def stream_segments(
    traffic: IntArray, servers: int, gpus: int, sums: IntArray, starts: IntArray, segments: IntArray
) -> int:
    """Write the segments of all streams, and return their number.

    Shapes: `starts` int64 (servers * servers * gpus + 1,); `segments` int64 (enough, 4).
    """
    count = 0
    at = np.zeros(3, dtype=np.int64)
    for server in range(servers):
        for other in range(servers):
            stream = (server * servers + other) * gpus
            starts[stream : stream + gpus] = count
            if server != other:
                count = _tile(traffic, server, other, gpus, sums, starts[stream : stream + gpus], segments, count, at)
    starts[-1] = count
    return count


@kernel
def _tile(
    traffic: IntArray,
    server: int,
    other: int,
    gpus: int,
    sums: IntArray,
    starts: IntArray,
    segments: IntArray,
    count: int,
    at: IntArray,
) -> int:
    """Write the streams of one tile; `at` is the giving GPU, the cell in its order, and the byte in that cell."""
    rank, column = server * gpus, other * gpus
    total = 0
    for gpu in range(gpus):
        total += sums[rank + gpu, other]
    if total == 0:
        return count
    share, longer = total // gpus, total % gpus
    at[0] = -1
    spare = 0
    for gpu in range(gpus):
        starts[gpu] = count
        wanted = share + (1 if gpu < longer else 0)
        own = min(sums[rank + gpu, other], wanted)
        place, first = 0, 0
        wanted -= own
        count, place, first = copy_cells(traffic, rank + gpu, column, gpus, gpu, place, first, own, segments, count)
        while wanted:
            while spare == 0:
                at[0] += 1
                kept = share + (1 if at[0] < longer else 0)
                spare = max(0, sums[rank + at[0], other] - kept)
                if spare:
                    at[1], at[2] = _cell_at(traffic, rank + at[0], column, gpus, at[0], kept)
            taken = min(wanted, spare)
            count, at[1], at[2] = copy_cells(
                traffic, rank + at[0], column, gpus, at[0], at[1], at[2], taken, segments, count
            )
            spare -= taken
            wanted -= taken
    return count


@kernel
def copy_cells(
    traffic: IntArray,
    rank: int,
    column: int,
    gpus: int,
    start: int,
    place: int,
    first: int,
    wanted: int,
    segments: IntArray,
    count: int,
) -> tuple[int, int, int]:
    """Write segments of `wanted` bytes of a rank from byte `first` of cell `place` on; `segments` is int64 (n, 4)."""
    cells = traffic[rank]
    while wanted:
        target = column + start + place
        if target >= column + gpus:
            target -= gpus
        there = cells[target] - first
        taken = min(there, wanted)
        segment = segments[count]
        segment[0], segment[1], segment[2], segment[3] = rank, target, first, taken
        # The segment of an empty cell is overwritten by the next one.
        count += taken > 0
        wanted -= taken
        if taken < there:
            return count, place, first + taken
        place += 1
        first = 0
    return count, place, first


@kernel
def _cell_at(traffic: IntArray, rank: int, column: int, gpus: int, start: int, kept: int) -> tuple[int, int]:
    """Return the cell, and the byte in it, after the first `kept` bytes of a rank for a server."""
    place = 0
    while True:
        target = start + place
        if target >= gpus:
            target -= gpus
        there = traffic[rank, column + target]
        if kept < there:
            return place, kept
        kept -= there
        place += 1
