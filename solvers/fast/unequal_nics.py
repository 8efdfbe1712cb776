"""FAST schedule for servers of unequal numbers or rates of NICs, by lanes of equal rate.

A server is one part with all of its lanes, of which two servers use as many as the one with fewer has; or it is cut
into parts of g lanes, where g divides the lanes of all servers, and what server i, of u parts, sends to server j, of v
parts, is distributed evenly over all u v pairs.  Then the part with the largest load sends per lane what Theorem 1 of
FAST requires of its server; whole servers need fewer stages.  A GPU orders its bytes from its first lane's peer on, as
in `stages`.
"""

from math import gcd
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...schedules.stages.segments import lanes_in_parts
from ...support.arrays import IntArray
from ...support.kernels import kernel, runtime_kernel
from .stages import (
    MAX_PLACES,
    ROTATIONS,
    TOO_MANY,
    Prices,
    capped_matchings,
    copy_cells,
    fault_of,
    number_of_stages,
    ordered_stages,
    predicted,
)

CLOSE = 1.02  # Stages between whole servers that are so near to the bound are not compared with those between parts
MAX_PARTS = 2**10


class _Layout(NamedTuple):
    """Lanes of servers in parts, as `lanes_in_parts` returns them, and the stages between these."""

    lanes: IntArray
    firsts: IntArray
    longest: IntArray
    permutations: npt.NDArray[np.int16]
    weights: IntArray
    cap: int


def laned_exchange(
    traffic: IntArray, sizes: tuple[int, ...], counts: IntArray, way: int, cap: int, prices: Prices
) -> tuple[int, IntArray, IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Plan an all-to-allv on GPUs with `counts` lanes each, int64 (ranks,), in servers of `sizes` GPUs.

    "plain" and "fewest" take parts of equally many lanes; otherwise the predicted time decides.
    """
    nothing, no_rows = np.empty(0, dtype=np.int64), np.empty((0, 0), dtype=np.int64)
    fault = fault_of(traffic)
    if fault:
        return fault, nothing, no_rows, nothing, no_rows, no_rows, no_rows
    firsts, homes = np.append(0, np.cumsum(sizes)), np.repeat(np.arange(len(sizes)), sizes)
    totals, lanes = _totals(traffic, firsts), np.bincount(homes, counts).astype(np.int64)
    widest, equal = int(lanes.max()), gcd(*lanes.tolist())

    def laid_out(width: int) -> _Layout:
        at, parts = lanes_in_parts(counts, homes, width)
        longest = _longest(totals, lanes, parts, width)
        return _Layout(at, parts, longest, *capped_matchings(longest, widest, way, cap, prices))

    def time(layout: _Layout) -> float:
        return predicted(layout.weights, widest, layout.cap, prices)

    is_small = lanes.sum() <= MAX_PARTS * equal
    best = laid_out(equal if is_small and way < ROTATIONS else widest)
    bound = (np.maximum(totals.sum(axis=0), totals.sum(axis=1)) / lanes).max()
    if is_small and way >= ROTATIONS and best.weights.sum() > CLOSE * bound + len(lanes):
        best = min(best, laid_out(equal), key=time)
    stages = number_of_stages(best.weights, best.cap)
    if stages > MAX_PLACES // len(best.lanes):
        return TOO_MANY, nothing, no_rows, nothing, no_rows, no_rows, no_rows
    arranged = ordered_stages(best.longest, best.permutations, best.weights, stages, best.cap)
    return 0, *_segments(traffic, totals, firsts, lanes, best.lanes, best.firsts), *arranged


@runtime_kernel
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
def _shares(total: int, lanes: int, peer_lanes: int, peers: int, width: int) -> tuple[int, int, int]:
    """Divide bytes among streams: of each lane that is used, those to each part; the first ones have a byte more.

    A lane is used if the parts of the other server have the same one.
    """
    used = lanes if peer_lanes >= width else min(lanes, peer_lanes)
    share, longer = divmod(total, used * peers)
    return used, share, longer


@runtime_kernel
def _longest(totals: IntArray, lanes: IntArray, firsts: IntArray, width: int) -> IntArray:
    """Return the longest stream of each pair of parts."""
    longest = np.zeros((firsts[-1], firsts[-1]), dtype=np.int64)
    for server in range(len(totals)):
        for other in range(len(totals)):
            peers = firsts[other + 1] - firsts[other]
            _, share, longer = _shares(totals[server, other], lanes[server], lanes[other], peers, width)
            for part in range(firsts[server + 1] - firsts[server]):
                for peer in range(peers):
                    extra = part * width * peers + peer < longer
                    longest[firsts[server] + part, firsts[other] + peer] = share + extra
    return longest


@runtime_kernel
def _segments(
    traffic: IntArray, totals: IntArray, firsts: IntArray, counts: IntArray, lanes: IntArray, parts: IntArray
) -> tuple[IntArray, IntArray]:
    """Fill all streams; return starts and segments sorted by stream, as `stream_segments` writes them."""
    limit = 1
    for server in range(len(totals)):
        size = firsts[server + 1] - firsts[server]
        for other in range(len(totals)):
            # Segments end where cells, streams, or the bytes that a GPU keeps do.
            width, peers = firsts[other + 1] - firsts[other], parts[other + 1] - parts[other]
            limit += size * width + counts[server] * peers + size
    segments, streams = np.empty((limit, 4), dtype=np.int64), np.empty(limit, dtype=np.int64)
    count, width = 0, lanes.shape[1]
    for server in range(len(totals)):
        rows = firsts[server], firsts[server + 1]
        for other in range(len(totals)):
            total, columns = totals[server, other], (firsts[other], firsts[other + 1])
            if total:
                ends = parts[server], parts[other], parts[other + 1] - parts[other]
                divided = _shares(total, counts[server], counts[other], ends[2], width)
                count = _server_tile(traffic, divided, rows, columns, ends, lanes, segments, streams, count)
    starts = np.zeros(lanes.shape[0] ** 2 * width + 1, dtype=np.int64)
    for at in range(count):
        starts[streams[at] + 1] += 1
    # Stable, as a stream's segments were written in its own order.
    return np.cumsum(starts), segments[:count][np.argsort(streams[:count], kind="mergesort")]


@kernel
def _server_tile(
    traffic: IntArray,
    divided: tuple[int, int, int],
    rows: tuple[int, int],
    columns: tuple[int, int],
    parts: tuple[int, int, int],
    lanes: IntArray,
    segments: IntArray,
    streams: IntArray,
    count: int,
) -> int:
    """Write the segments from one server to another, and the stream number of each: first GPUs' own, then the others.

    `parts` are the first part of the one, that of the other, and how many this has.
    """
    used, share, longer = divided
    width, size = lanes.shape[1], columns[1] - columns[0]
    # Of each GPU: bytes left, the next cell, and the next byte in it.
    left = np.zeros((rows[1] - rows[0], 3), dtype=np.int64)
    for gpu in range(len(left)):
        left[gpu, 0] = traffic[rows[0] + gpu, columns[0] : columns[1]].sum()
        left[gpu, 1] = columns[0] + gpu % size
    for lane in range(used - 1, -1, -1):
        left[lanes[parts[0] + lane // width, lane % width] - rows[0], 1] = lanes[parts[1], lane % width]
    deficits = np.empty((used, parts[2]), dtype=np.int64)
    for fills in range(2):
        giver = 0
        for lane in range(used):
            part = parts[0] + lane // width
            for peer in range(parts[2]):
                begin = count
                deficit = deficits[lane, peer] if fills else share + (lane * parts[2] + peer < longer)
                while deficit:
                    if not fills:
                        giver = lanes[part, lane % width] - rows[0]
                    while fills and left[giver, 0] == 0:
                        giver += 1
                    spare, target, first = left[giver]
                    part_bytes = min(deficit, spare)
                    count, target, first = copy_cells(
                        traffic, rows[0] + giver, columns[0], size, target, first, part_bytes, segments, count
                    )
                    left[giver] = spare - part_bytes, target, first
                    deficit -= part_bytes
                    if not fills:
                        break
                deficits[lane, peer] = deficit
                streams[begin:count] = (part * len(lanes) + parts[1] + peer) * width + lane % width
    return count
