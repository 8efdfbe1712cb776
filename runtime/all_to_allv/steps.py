"""Messages of one rank of an all-to-allv, in bytes of its own tensors.

Step t balances stage t, sends stage t - 1 between servers and redistributes stage t - 2.  Own bytes leave from the
input, bytes for the receiver land in the output, and bytes for others are in scratch, in two areas by turns each way.
"""

from fractions import Fraction
from functools import lru_cache
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...schedules.stages.segments import local_shares, part_of
from ...schedules.stages.two_tier_cost import H200, TwoTierModel
from ...support.arrays import IntArray
from ...support.kernels import kernel, runtime_kernel

MAX_OPERATIONS = 64  # NCCL is known to hang on batches of hundreds that it divides differently on different ranks
FINEST_UNIT = 512  # Bytes; data is cut at multiples of it where rows allow, so that pieces stay aligned
MAX_BYTES = 2**62
PEER, IS_SEND, MEMORY, PLACE, LENGTH, STEP, BATCH = range(7)  # Columns of messages
ORIGIN, FINAL, FIRST, BYTES = range(4)  # Columns of segments and pieces


def as_int64(number: int) -> int:
    """Return a constant as int64, not as a literal, for each of which numba would compile a function again."""
    return np.int64(number)  # type: ignore[return-value]


INPUT, OUTPUT, SCRATCH, LANDED = map(as_int64, (0, 1, 2, 4))  # Memories of a rank; while writing, areas from SCRATCH on
RECV, SEND = map(as_int64, range(2))  # Messages to this rank, and from it


class Exchange(NamedTuple):
    """An all-to-allv that all ranks agreed on: its traffic matrix in rows (int64, row by row) and its options."""

    traffic: bytes
    servers: int
    gpus_per_server: int | tuple[int, ...]
    row_bytes: int
    stages: str | None = None
    max_stage_bytes: int | None = None
    max_scratch_bytes: int | None = None
    model: TwoTierModel = H200
    nics: tuple[tuple[Fraction, ...], ...] = ()


class RankSteps(NamedTuple):
    """One rank's messages in order."""

    messages: IntArray  # int64 (messages, 5): peer, 1 for a send, memory (input, output, scratch), place and length
    batches: IntArray  # int64 (batches + 1,): batch b has the messages from ``batches[b]`` to ``batches[b + 1]``
    steps: IntArray  # int64 (batches,): the step of each batch,
    num_steps: int  # of so many
    scratch: int  # Bytes
    own: tuple[int, int, int]  # Where the rank's bytes for itself are in the input and the output, and their number

    def batch(self, number: int) -> list[list[int]]:
        """Return the messages of one batch."""
        rows: list[list[int]] = self.messages[slice(*self.batches[number : number + 2])].tolist()
        return rows


@lru_cache(maxsize=32)
def rank_steps(exchange: Exchange, rank: int) -> RankSteps:
    """Plan an exchange and return one rank's part of it."""
    from ...planners.all_to_all.fast import schedule_all_to_allv

    servers, gpus = exchange.servers, exchange.gpus_per_server
    firsts = np.cumsum((0, *((gpus,) * servers if isinstance(gpus, int) else gpus)))
    rows = np.frombuffer(exchange.traffic, dtype=np.int64).reshape(firsts[-1], firsts[-1])
    total = sum(rows.sum(axis=1).tolist()) * exchange.row_bytes
    if total >= MAX_BYTES:
        raise UnsupportedError(f"the traffic adds up to {total} bytes; expected less than 2^62")
    # Coarser than bytes, finer than rows where these are long.
    unit = gcd(exchange.row_bytes, FINEST_UNIT)
    plan = schedule_all_to_allv(
        rows * (exchange.row_bytes // unit),
        servers=servers,
        gpus_per_server=gpus,
        nics=exchange.nics or None,
        stages=exchange.stages,
        max_stage_bytes=exchange.max_stage_bytes,
        max_scratch_bytes=exchange.max_scratch_bytes,
        unit_bytes=unit,
        model=exchange.model,
    )
    streams = plan.stream_starts, plan.segments, plan.stage_bytes, plan.partners, plan.begins, plan.ends
    messages, scratch = rank_messages(rank, plan.traffic, firsts, plan.lanes, *streams, MAX_OPERATIONS // 2)
    messages[:, PLACE : LENGTH + 1] *= unit
    begins = np.flatnonzero(np.diff(messages[:, STEP : BATCH + 1], axis=0, prepend=-1).any(axis=1))
    own = plan.traffic[rank, :rank].sum(), plan.traffic[:rank, rank].sum(), plan.traffic[rank, rank]
    return RankSteps(
        messages[:, : LENGTH + 1].copy(),
        np.append(begins, len(messages)),
        messages[begins, STEP],
        plan.num_stages + 2,
        scratch * unit,
        (int(own[0]) * unit, int(own[1]) * unit, int(own[2]) * unit),
    )


class Rank(NamedTuple):
    """One rank, the schedule, and where it is in it."""

    rank: int
    first: int  # rank of its server,
    size: int  # and how many there are
    per_batch: int  # Messages that one batch may have each way
    peers: int  # Most peers of a rank in one step,
    outside_peers: int  # and those among them in other servers
    traffic: IntArray
    starts: IntArray
    segments: IntArray
    input_begins: IntArray  # Begin of each rank's part of the input
    output_begins: IntArray  # Begin of each rank's part of the output
    at: IntArray  # Which segment of each stream comes next,
    done: IntArray  # and how much of it is in earlier stages
    pieces: IntArray  # The pieces of a stage that one stream has
    rows: IntArray  # Messages, (most, 7)
    num_rows: IntArray  # How many of them are in use, int64 (1,)
    counted: IntArray  # Messages of a step modulo 3, each way, with each rank
    fill: IntArray  # Bytes that a stage's earlier lanes have in scratch, to send and received
    areas: IntArray  # Bytes of the four areas of scratch


@runtime_kernel
def rank_messages(
    rank: int, traffic: IntArray, firsts: IntArray, lanes: IntArray, starts: IntArray, segments: IntArray,
    stage_bytes: IntArray, partners: IntArray, begins: IntArray, ends: IntArray, per_batch: int,
) -> tuple[IntArray, int]:  # fmt: skip
    """Return one rank's messages, int64 (messages, 7), in the order of steps and batches, and the bytes of scratch.

    Shapes: `firsts`, int64 (servers + 1,), has GPU 0 of each server; `lanes`, int64 (parts, lanes of a part).
    """
    stages, (parts, width) = len(partners), lanes.shape
    own, part, after = _rank(rank, traffic, firsts, lanes, starts, segments, stages, per_batch)
    shares = local_shares(stage_bytes)
    for step in range(stages + 2):
        if step < stages:
            own.fill[:] = 0
            # Streams from this server's parts: balance them over proxies, then send them to the other server.
            for mine in range(part, after):
                other = partners[step, mine]
                if other >= 0:
                    left = ends[step, mine] - begins[step, mine]
                    for lane in range(width):
                        proxy = lanes[mine, lane]
                        count = next_pieces(own, (mine * parts + other) * width + lane, left)
                        _balance(own, step, proxy, count)
                        if proxy == rank:
                            _exchange(own, step, rank, lanes[other, lane], count)
            # Streams to this server's parts: receive them, and redistribute them to their final ranks.
            for other in range(parts):
                mine = partners[step, other]
                if part <= mine < after:
                    left = ends[step, other] - begins[step, other]
                    for lane in range(width):
                        peer = lanes[mine, lane]
                        count = next_pieces(own, (other * parts + mine) * width + lane, left)
                        _redistribute(own, step, peer, count)
                        if peer == rank:
                            _exchange(own, step, lanes[other, lane], rank, count)
        # Bytes inside the server fill the time of the step.
        if shares[step] < shares[step + 1]:
            _send_local(own, step, shares[step], shares[step + 1])
        own.counted[step % 3] = 0
    return _sorted(own)


@kernel
def _rank(
    rank: int, traffic: IntArray, firsts: IntArray, lanes: IntArray, starts: IntArray, segments: IntArray,
    stages: int, per_batch: int,
) -> tuple[Rank, int, int]:  # fmt: skip
    """Allocate rows for all that a rank may have to do; return its server's first part and the one after, too."""
    ranks, (parts, width) = len(traffic), lanes.shape
    input_begins, output_begins = np.zeros(ranks, dtype=np.int64), np.zeros(ranks, dtype=np.int64)
    for other in range(1, ranks):
        input_begins[other] = input_begins[other - 1] + traffic[rank, other - 1]
        output_begins[other] = output_begins[other - 1] + traffic[other - 1, rank]
    # The rank's server, and the parts of the schedule that it has.
    server = np.searchsorted(firsts, rank, side="right") - 1
    first, size = firsts[server], firsts[server + 1] - firsts[server]
    part, after = np.searchsorted(lanes[:, 0], np.array([first, first + size]))
    # Bounds of the numbers of messages and of pieces in a stage.
    runs, longest = 0, 0
    for mine in range(part, after):
        for other in range(parts):
            for tile in (mine * parts + other, other * parts + mine):
                runs += starts[(tile + 1) * width] - starts[tile * width]
                for stream in range(tile * width, (tile + 1) * width):
                    longest = max(longest, starts[stream + 1] - starts[stream])
    max_messages = 2 * (runs + 2 * stages * (after - part) * width + (stages + 2) * size)
    outside_peers = np.bincount(lanes.ravel() + 1)[1:].max()
    at, done = starts[:-1].copy(), np.zeros(len(starts) - 1, dtype=np.int64)
    pieces, rows = np.empty((longest + 1, 4), dtype=np.int64), np.empty((max_messages, 7), dtype=np.int64)
    num_rows, counted = np.zeros(1, dtype=np.int64), np.zeros((3, 2, ranks), dtype=np.int64)
    fill, areas = np.zeros(2, dtype=np.int64), np.zeros(4, dtype=np.int64)
    own = Rank(
        rank, first, size, per_batch, outside_peers + np.diff(firsts).max() - 1, outside_peers, traffic, starts,
        segments, input_begins, output_begins, at, done, pieces, rows, num_rows, counted, fill, areas,
    )  # fmt: skip
    return own, part, after


@kernel
def next_pieces(own: Any, stream: int, left: int) -> int:
    """Write the next pieces of a stream, of `left` bytes if it is so long, and return their number."""
    count = 0
    while left and own.at[stream] < own.starts[stream + 1]:
        segment, done = own.segments[own.at[stream]], own.done[stream]
        length = min(left, segment[BYTES] - done)
        piece = own.pieces[count]
        piece[:] = segment
        piece[FIRST], piece[BYTES] = segment[FIRST] + done, length
        left -= length
        count += 1
        own.done[stream] += length
        if done + length == segment[BYTES]:
            own.at[stream] += 1
            own.done[stream] = 0
    return count


@kernel
def _joins(cells: IntArray, place: int, end: int, other: int, first: int) -> bool:
    """Whether byte `first` of cell `other` comes right after byte `end` of cell `place`, in the order of `cells`."""
    if place == other:
        return end == first
    return place < other and first == 0 and end == cells[place] and not cells[place + 1 : other].any()


@kernel
def _input_joins(own: Rank, at: int) -> bool:
    """Whether a piece follows the one before in the input of the same origin."""
    one, two = own.pieces[at - 1], own.pieces[at]
    if at == 0 or one[ORIGIN] != two[ORIGIN]:
        return False
    return _joins(own.traffic[one[ORIGIN]], one[FINAL], one[FIRST] + one[BYTES], two[FINAL], two[FIRST])


@kernel
def _output_joins(own: Rank, at: int) -> bool:
    """Whether a piece follows the one before in the output of the same rank."""
    one, two = own.pieces[at - 1], own.pieces[at]
    if at == 0 or one[FINAL] != two[FINAL]:
        return False
    return _joins(own.traffic[:, one[FINAL]], one[ORIGIN], one[FIRST] + one[BYTES], two[ORIGIN], two[FIRST])


@kernel
def _input_place(own: Rank, piece: IntArray) -> int:
    return int(own.input_begins[piece[FINAL]] + piece[FIRST])


@kernel
def _output_place(own: Rank, piece: IntArray) -> int:
    return int(own.output_begins[piece[ORIGIN]] + piece[FIRST])


@kernel
def _balance(own: Rank, stage: int, proxy: int, count: int) -> None:
    """Hand this rank's bytes in a proxy's stream to the proxy, or take bytes of others as the proxy."""
    area, place = SCRATCH + stage % 2, own.fill[0]
    for at in range(count):
        piece = own.pieces[at]
        origin, length = piece[ORIGIN], piece[BYTES]
        if origin != proxy:
            if proxy == own.rank:
                _post(own, stage, origin, RECV, area, place, length, _input_joins(own, at))
            elif origin == own.rank:
                _post(own, stage, proxy, SEND, INPUT, _input_place(own, piece), length, _input_joins(own, at))
            place += length


@kernel
def _exchange(own: Rank, stage: int, proxy: int, peer: int, count: int) -> None:
    """Send this rank's stream to its peer, or receive the peer's; its scratch is taken until the stage ends."""
    sent, landed, joins = own.fill[0], own.fill[1], False
    for at in range(count):
        piece = own.pieces[at]
        length, is_own, stays = piece[BYTES], piece[ORIGIN] == proxy, piece[FINAL] == peer
        if at:
            before = own.pieces[at - 1]
            joins = (before[ORIGIN] == proxy) == is_own and (before[FINAL] == peer) == stays
            joins = joins and (not is_own or _input_joins(own, at)) and (not stays or _output_joins(own, at))
        if proxy == own.rank:
            memory, place = (INPUT, _input_place(own, piece)) if is_own else (SCRATCH + stage % 2, sent)
            _post(own, stage + 1, peer, SEND, memory, place, length, joins)
        else:
            memory, place = (OUTPUT, _output_place(own, piece)) if stays else (LANDED + stage % 2, landed)
            _post(own, stage + 1, proxy, RECV, memory, place, length, joins)
        sent += 0 if is_own else length
        landed += 0 if stays else length
    if proxy == own.rank:
        own.fill[0] = sent
    else:
        own.fill[1] = landed


@kernel
def _redistribute(own: Rank, stage: int, peer: int, count: int) -> None:
    """Hand on bytes that this rank received for others, or take bytes that a peer received for it."""
    area, place = LANDED + stage % 2, own.fill[1]
    for at in range(count):
        piece = own.pieces[at]
        final, length = piece[FINAL], piece[BYTES]
        if final != peer:
            if peer == own.rank:
                _post(own, stage + 2, final, SEND, area, place, length, _output_joins(own, at))
            elif final == own.rank:
                place_there = _output_place(own, piece)
                _post(own, stage + 2, peer, RECV, OUTPUT, place_there, length, _output_joins(own, at))
            place += length


@kernel
def _send_local(own: Rank, step: int, begin: int, end: int) -> None:
    """Exchange parts of the bytes that stay inside the server."""
    rank, gpu = own.rank, own.rank - own.first
    for shift in range(1, own.size):
        ahead, behind = own.first + (gpu + shift) % own.size, own.first + (gpu - shift) % own.size
        first, length = part_of(own.traffic[rank, ahead], begin), part_of(own.traffic[rank, ahead], end)
        _post(own, step, ahead, SEND, INPUT, own.input_begins[ahead] + first, length - first, False)
        first, length = part_of(own.traffic[behind, rank], begin), part_of(own.traffic[behind, rank], end)
        _post(own, step, behind, RECV, OUTPUT, own.output_begins[behind] + first, length - first, False)


@kernel
def _post(own: Rank, step: int, peer: int, is_send: int, memory: int, place: int, length: int, joins: bool) -> None:
    """Add a message, or make the last one longer; its batch follows from numbers that both ends know."""
    if length == 0:
        return
    if memory >= SCRATCH:
        own.areas[memory - SCRATCH] = max(own.areas[memory - SCRATCH], place + length)
    count = own.num_rows[0]
    if joins:
        own.rows[count - 1, LENGTH] += length
        return
    # Both ends count their messages in a step alike, so both give a message the same batch.
    number = own.counted[step % 3, is_send, peer]
    own.counted[step % 3, is_send, peer] += 1
    place_of_peer = 0
    if own.first <= peer < own.first + own.size:
        distance = ((peer - own.rank) if is_send else (own.rank - peer)) % own.size
        place_of_peer = own.outside_peers - 1 + distance
    groups = (own.peers - 1) // own.per_batch + 1
    batch = number // max(1, own.per_batch // own.peers) * groups + place_of_peer // own.per_batch
    for column, value in enumerate((peer, is_send, memory, place, length, step, batch)):
        own.rows[count, column] = value
    own.num_rows[0] = count + 1


@kernel
def _sorted(own: Rank) -> tuple[IntArray, int]:
    """Sort messages by step and batch, and lay out scratch."""
    rows = own.rows[: own.num_rows[0]]
    begins = np.cumsum(own.areas) - own.areas
    for row in rows:
        if row[MEMORY] >= SCRATCH:
            row[PLACE] += begins[row[MEMORY] - SCRATCH]
            row[MEMORY] = SCRATCH
    # Stable: messages between two ranks stay in the order that both know.
    by_batch = np.argsort((rows[:, STEP] << 32) + rows[:, BATCH], kind="mergesort")
    return rows[by_batch], int(own.areas.sum())
