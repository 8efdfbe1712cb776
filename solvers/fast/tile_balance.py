"""Tile balancing inside servers: the bytes that each GPU sends to its peer in another server (FAST, section 4.1).

The tile of servers i and j has m x m cells, cell (a, b) from GPU a of i to GPU b of j.  GPU p of i sends GPU p of j one
stream, the m-th part of the tile: a sequence of segments, each a range of bytes of one cell.  GPU p orders its bytes by
b = p, p + 1, ..., p - 1 modulo m and gives away the end; surpluses fill the deficits of other streams in order.
"""

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
    for server in range(servers):
        for other in range(servers):
            stream = (server * servers + other) * gpus
            if server == other:
                starts[stream : stream + gpus] = count
            else:
                count = _tile(traffic, server, other, gpus, sums, starts[stream : stream + gpus], segments, count)
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
) -> int:
    """Write the streams of one tile; surpluses are given away by one GPU after another, cell by cell."""
    rank, column = server * gpus, other * gpus
    total = 0
    for gpu in range(gpus):
        total += sums[rank + gpu, other]
    share, longer = total // gpus, total % gpus
    giver, spare, target, first = -1, 0, column, 0
    for gpu in range(gpus):
        starts[gpu] = count
        wanted = share + (1 if gpu < longer else 0)
        own = min(sums[rank + gpu, other], wanted)
        wanted -= own
        count, _, _ = copy_cells(traffic, rank + gpu, column, gpus, column + gpu, 0, own, segments, count)
        while wanted:
            while spare == 0:
                giver += 1
                kept = share + (1 if giver < longer else 0)
                spare = max(0, sums[rank + giver, other] - kept)
                target, first = column + giver, kept
            taken = min(wanted, spare)
            count, target, first = copy_cells(
                traffic, rank + giver, column, gpus, target, first, taken, segments, count
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
    target: int,
    first: int,
    wanted: int,
    segments: IntArray,
    count: int,
) -> tuple[int, int, int]:
    """Write segments, int64 (n, 4), of `wanted` bytes of a rank for a server, whose first cell is `column`.

    They begin `first` bytes after the beginning of cell `target`, and cell `column` follows the server's last.
    """
    cells = traffic[rank]
    while wanted:
        there = cells[target] - first
        if there > 0:
            taken = min(there, wanted)
            segment = segments[count]
            segment[0], segment[1], segment[2], segment[3] = rank, target, first, taken
            count += 1
            wanted -= taken
            if taken < there:
                return count, target, first + taken
            first = 0
        else:
            first = -there
        target += 1
        if target == column + gpus:
            target = column
    return count, target, first
