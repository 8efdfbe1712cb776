"""FAST schedule: balance tiles, decompose, split matchings into stages, sort; one compiled call if servers are equal.

Tile balancing decides the bytes that each GPU sends to its peer in another server (FAST, section 4.1): a sequence of
segments, each a range of bytes of one cell of the tile.  Servers of unequal NICs are balanced by lanes of equal rate,
whole or in parts.
"""

from math import gcd
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...schedules.stages.segments import lanes_in_parts
from ...support.arrays import IntArray
from ...support.kernels import kernel, runtime_kernel
from .birkhoff import matchings, max_matchings


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
        deficit = share + (1 if gpu < longer else 0)
        own = min(sums[rank + gpu, other], deficit)
        deficit -= own
        count, _, _ = copy_cells(traffic, rank + gpu, column, gpus, column + gpu, 0, own, segments, count)
        while deficit:
            while spare == 0:
                giver += 1
                kept = share + (1 if giver < longer else 0)
                spare = max(0, sums[rank + giver, other] - kept)
                target, first = column + giver, kept
            part = min(deficit, spare)
            count, target, first = copy_cells(traffic, rank + giver, column, gpus, target, first, part, segments, count)
            spare -= part
            deficit -= part
    return count


@kernel
def copy_cells(
    traffic: IntArray,
    rank: int,
    column: int,
    gpus: int,
    target: int,
    first: int,
    amount: int,
    segments: IntArray,
    count: int,
) -> tuple[int, int, int]:
    """Write segments, int64 (n, 4), of `amount` bytes of a rank for a server, whose first cell is `column`.

    They begin `first` bytes after the beginning of cell `target`, and cell `column` follows the server's last.
    """
    cells = traffic[rank]
    while amount:
        there = cells[target] - first
        if there > 0:
            part = min(there, amount)
            segment = segments[count]
            segment[0], segment[1], segment[2], segment[3] = rank, target, first, part
            count += 1
            amount -= part
            if part < there:
                return count, target, first + part
            first = 0
        else:
            first = -there
        target += 1
        if target == column + gpus:
            target = column
    return count, target, first


Prices = tuple[float, float, float, float]
"""ns per byte inside servers and between them, and per wake-up; and the shortest stages that scratch is worth."""
Stages = tuple[IntArray, IntArray, IntArray, IntArray]

LIMIT = 2**62  # upper limit of the total number of bytes
MAX_PLACES = 2**27  # limit of stages times servers: 1 GiB each for partners, begins and ends
NEGATIVE, TOO_LARGE, TOO_MANY = 1, 2, 3
"""Faults: an entry below 0, a total beyond `LIMIT`, stages times servers beyond `MAX_PLACES`."""
ROTATIONS, CHOSEN = 2, 3  # codes of ways to find stages, besides those of decompositions
MAX_CUTS = 1024  # stages of which a bound consists at most, where matchings do not make more
SHARE = 16  # stages are at most this part of what a GPU sends on average, so that scratch is at most a quarter of it
NEAR = 1.005  # rotations that are so near to the bound are not compared with matchings
MANY = 1.01  # nor are plain matchings looked for that may cost so much more than the bound
SEARCH_NS = 40.0  # the fewest take so many ns to find, times the cube of the servers


@runtime_kernel
def staged_exchange(
    traffic: IntArray, servers: int, gpus: int, way: int, cap: int, prices: Prices
) -> tuple[int, IntArray, IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Plan an all-to-allv on servers of equally many GPUs, in stages of `cap` bytes; `traffic` int64 (ranks, ranks).

    A `cap` of 0, and the way `CHOSEN`, are decided by predicted time.
    """
    nothing, no_rows = np.empty(0, dtype=np.int64), np.empty((0, 0), dtype=np.int64)
    sums = np.empty((servers * gpus, servers), dtype=np.int64)
    longest = np.empty((servers, servers), dtype=np.int64)
    every = peer_bytes(traffic, servers, gpus, sums, longest)
    fault = fault_of(traffic) if every < 0 or every >= LIMIT // traffic.size else 0
    if fault:
        return fault, nothing, no_rows, nothing, no_rows, no_rows, no_rows
    permutations, weights, cap = capped_matchings(longest, gpus, way, cap, prices)
    pieces = number_of_stages(weights, cap)
    if pieces > MAX_PLACES // servers:
        return TOO_MANY, nothing, no_rows, nothing, no_rows, no_rows, no_rows
    sizes, partners, begins, ends = ordered_stages(longest, permutations, weights, pieces, cap)
    starts = np.empty(servers * servers * gpus + 1, dtype=np.int64)
    segments = np.empty((servers * (servers - 1) * gpus * (gpus + 2), 4), dtype=np.int64)
    count = stream_segments(traffic, servers, gpus, sums, starts, segments)
    return 0, starts, segments[:count], sizes, partners, begins, ends


@runtime_kernel
def fault_of(traffic: IntArray) -> int:
    """Return `NEGATIVE` or `TOO_LARGE` for such traffic, else 0; small entries need no sum."""
    entries = traffic.ravel()
    every = 0
    for entry in entries:
        every |= int(entry)
    if every < 0:
        return NEGATIVE
    if every >= LIMIT // max(1, traffic.size):
        total = 0
        for entry in entries:
            if entry > LIMIT - 1 - total:
                return TOO_LARGE
            total += int(entry)
    return 0


@runtime_kernel
def capped_matchings(
    longest: IntArray, gpus: int, way: int, cap: int, prices: Prices
) -> tuple[npt.NDArray[np.int16], IntArray, int]:
    """Find weighted matchings that cover the longest streams, in a way or the best one, and the cap of their stages.

    `gpus` is the size of the largest server.  Plain matchings are looked for only if even the most that there can be
    cost little; otherwise the fewest, unless rotations lose less time than these take to find.
    """
    if way < ROTATIONS:
        permutations, weights = matchings(longest, way)
        return permutations, weights, stage_cap(longest, weights.sum(), gpus, cap, prices)
    turns, lengths = rotations(longest)
    total = lengths.sum()
    turn_cap = stage_cap(longest, total, gpus, cap, prices)
    if way == ROTATIONS or total == 0:
        return turns, lengths, turn_cap
    cost = predicted(lengths, gpus, turn_cap, prices)
    bound = np.array([max(longest.sum(axis=0).max(), longest.sum(axis=1).max())])
    cap = stage_cap(longest, bound[0], gpus, cap, prices)
    floor = predicted(bound, gpus, cap, prices)
    if cost <= NEAR * floor:
        return turns, lengths, turn_cap
    are_many = max_matchings(len(longest)) * prices[2] > (MANY - 1) * floor
    if are_many and cost - floor <= SEARCH_NS * len(longest) ** 3:
        return turns, lengths, turn_cap
    permutations, weights = matchings(longest, int(are_many))
    if cost <= predicted(weights, gpus, cap, prices):
        return turns, lengths, turn_cap
    return permutations, weights, cap


@kernel
def stage_cap(longest: IntArray, total: int, gpus: int, cap: int, prices: Prices) -> int:
    """Bytes of a stage at most: as given, or such that shorter ones cost as many wake-ups as the last one saves."""
    if cap:
        return cap
    cuts: int = MAX_CUTS
    if prices[2] > 0:
        cuts = min(cuts, int(np.sqrt((gpus - 1) * prices[0] * total / prices[2])))
    limit = max(int(longest.sum()) // len(longest) // SHARE, int(prices[3])) if gpus > 1 else total
    return max(1, min(limit, -(-total // max(1, cuts))))


@runtime_kernel
def predicted(weights: IntArray, gpus: int, cap: int, prices: Prices) -> float:
    """Predict the time of stages, in ns, by the upper bound of docs/explanation/fast.md."""
    last = min(cap, weights.max())
    steps = number_of_stages(weights, cap) + 2
    return steps * prices[2] + float(weights.sum()) * prices[1] + 2 * (gpus - 1) * float(last) * prices[0]


@kernel
def rotations(longest: IntArray) -> tuple[npt.NDArray[np.int16], IntArray]:
    """Cover streams by shifts: every server sends to the one so far ahead, for as long as the longest stream takes."""
    servers = len(longest)
    permutations, weights = np.empty((servers, servers), dtype=np.int16), np.empty(servers, dtype=np.int64)
    count = 0
    for shift in range(1, servers):
        weights[count] = 0
        for server in range(servers):
            other = (server + shift) % servers
            permutations[count, server] = other
            weights[count] = max(weights[count], longest[server, other])
        count += weights[count] > 0
    return permutations[:count], weights[:count]


@runtime_kernel
def number_of_stages(weights: IntArray, cap: int) -> int:
    """Count the stages of at most `cap` bytes that matchings are split into."""
    stages = 0
    for weight in weights:
        stages += (weight - 1) // cap + 1
    return stages


@runtime_kernel
def ordered_stages(
    longest: IntArray, permutations: npt.NDArray[np.int16], weights: IntArray, pieces: int, cap: int
) -> Stages:
    """Split matchings into stages of at most `cap` bytes, sorted by size, and assign each stream's bytes in order."""
    servers, runs = len(longest), 0
    # Runs of stages of equal size, at most two for each matching.
    lengths, counts = np.empty(2 * len(weights), dtype=np.int64), np.empty(2 * len(weights), dtype=np.int64)
    origin = np.empty(2 * len(weights), dtype=np.int64)
    for number, weight in enumerate(weights):
        parts = (weight - 1) // cap + 1
        shorter, longer = divmod(weight, parts)
        for size, count in ((shorter, parts - longer), (shorter + 1, longer)):
            if count:
                lengths[runs], counts[runs], origin[runs] = size, count, number
                runs += 1
    # Stages ascend in size, and take the next bytes of each stream.
    sizes = np.empty(pieces, dtype=np.int64)
    partners = np.empty((pieces, servers), dtype=np.int64)
    begins, ends = np.empty((pieces, servers), dtype=np.int64), np.empty((pieces, servers), dtype=np.int64)
    done = np.zeros((servers, servers), dtype=np.int64)
    stage = 0
    for run in np.argsort(lengths[:runs], kind="mergesort"):
        columns, size = permutations[origin[run]], lengths[run]
        for _ in range(counts[run]):
            sizes[stage] = size
            for server in range(servers):
                other = np.int64(columns[server])
                begin = done[server, other]
                end = min(begin + size, longest[server, other])
                done[server, other] = end
                partners[stage, server] = other if end > begin else -1
                begins[stage, server] = begin
                ends[stage, server] = end
            stage += 1
    return sizes, partners, begins, ends


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
