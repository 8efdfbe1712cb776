"""What one rank does in each step of an all-to-allv, in bytes of its own tensors.

Step 0 balances: GPUs hand to the proxies of their server what those will send.  Step k + 1 has stage k, and with it
what the stage before it left to redistribute; the first one also has what stays inside servers.  The last step
redistributes the last stage.  This is FAST's pipeline (section 4.3): redistribution runs beside the next stage.

Between two ranks there are at most two messages each way in a step, so what goes together is packed first.  Messages
inside a server are ordered by the distance of the two GPUs, which both ends know, so that batches can be cut alike.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import gcd
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import UnsupportedError
from ..schedules.all_to_allv import AllToAllvSchedule
from ..schedules.all_to_allv_pieces import Pieces
from .batches import Copy, Memory, Operation, Piece

__all__ = ["Exchange", "OwnStep", "OwnSteps", "own_steps"]

IntArray = npt.NDArray[np.int64]

MOST_OPERATIONS = 64
"""NCCL is known to hang on batches of hundreds of operations that it divides differently on different ranks."""
SHIFTS_PER_BATCH = MOST_OPERATIONS // 4
"""GPUs at one distance have two messages each way at most."""
FINEST_UNIT = 512
"""Bytes; data is cut at multiples of it where rows allow, so that pieces stay aligned."""
MOST_BYTES = 2**62


class Exchange(NamedTuple):
    """What all ranks know of an all-to-allv: rows from each rank to each (int64, row by row), and how to send them."""

    rows: bytes
    servers: int
    gpus_per_server: int
    row_bytes: int
    max_stage_bytes: int | None


class OwnStep(NamedTuple):
    """One rank's part of a step: copies, then batches one after another, then copies of what has come."""

    before: tuple[Copy, ...]
    batches: tuple[tuple[Operation, ...], ...]
    after: tuple[Copy, ...]


class OwnSteps(NamedTuple):
    """One rank's steps and the bytes of scratch that they need."""

    steps: tuple[OwnStep, ...]
    scratch: int


@lru_cache(maxsize=32)
def own_steps(exchange: Exchange, rank: int) -> OwnSteps:
    """Plan an exchange and return one rank's part of it.

    Raises
    ------
    UnsupportedError
        If the bytes add up to 2^62 or more, or there are too many stages; on all ranks alike.
    """
    from ..planners.fast import schedule_all_to_allv

    ranks = exchange.servers * exchange.gpus_per_server
    rows = np.frombuffer(exchange.rows, dtype=np.int64).reshape(ranks, ranks)
    total = sum(rows.sum(axis=1).tolist()) * exchange.row_bytes
    if total >= MOST_BYTES:
        raise UnsupportedError(f"the traffic adds up to {total} bytes; expected less than 2^62")
    # Coarser than bytes, finer than rows where these are long.
    unit = gcd(exchange.row_bytes, FINEST_UNIT)
    schedule = schedule_all_to_allv(
        rows * (exchange.row_bytes // unit),
        servers=exchange.servers,
        gpus_per_server=exchange.gpus_per_server,
        max_stage_bytes=None if exchange.max_stage_bytes is None else max(1, exchange.max_stage_bytes // unit),
    )
    return _Planner(schedule, rank, unit).steps()


class _Draft:
    """A step in the making.  `area` is where its packed messages begin in scratch; they are forgotten after it."""

    def __init__(self, area: int) -> None:
        self.end = area
        self.before: list[Copy] = []
        self.after: list[Copy] = []
        self.operations: list[tuple[int, Operation]] = []

    def area(self, length: int) -> int:
        """Reserve scratch for one message."""
        self.end += length
        return self.end - length

    def post(self, shift: int, operation: Operation) -> None:
        """Add a send or receive of the given distance, unless it is of no bytes."""
        if operation.piece.begin < operation.piece.end:
            self.operations.append((shift, operation))

    def finished(self) -> OwnStep:
        """Cut the operations into batches, at the same distances on all ranks."""
        batches: dict[int, list[Operation]] = {}
        for shift, operation in sorted(self.operations, key=lambda each: each[0]):
            batches.setdefault(shift // SHIFTS_PER_BATCH, []).append(operation)
        return OwnStep(tuple(self.before), tuple(map(tuple, batches.values())), tuple(self.after))


class _Planner:
    """Works out one rank's steps.  Scratch has its streams, then what a stage brings, then packed messages."""

    def __init__(self, schedule: AllToAllvSchedule, rank: int, unit: int) -> None:
        self.schedule, self.rank = schedule, rank
        self.gpus = schedule.gpus_per_server
        self.server, self.gpu = divmod(rank, self.gpus)
        # Distance, who is so far ahead, and who is so far behind, for all other GPUs of the server.
        first = rank - self.gpu
        self.neighbours = [
            (shift, first + (self.gpu + shift) % self.gpus, first + (self.gpu - shift) % self.gpus)
            for shift in range(1, self.gpus)
        ]
        self.traffic = schedule.traffic * unit
        self.sent_from = _starts(self.traffic[rank])
        self.kept_at = _starts(self.traffic[:, rank])
        self.leaving = self._in_bytes(schedule.pieces(self.server), unit)
        arriving = self._arrivals(unit)
        self.proxied = _where(self.leaving, self.leaving.proxy == rank)
        self.own_arrivals = [_where(part, part.peer == rank) for part in arriving]
        self.wanted = [_where(part, part.final == rank) for part in arriving]
        self.landing = int(self.proxied.length.sum())
        self.packing = self.landing + max((int(part.length.sum()) for part in self.own_arrivals), default=0)

    def steps(self) -> OwnSteps:
        """All of them, without those that have nothing to do."""
        drafts = [_Draft(self.packing) for _ in range(self.schedule.num_stages + 2)]
        self._balance(drafts[0])
        self._stay_inside(drafts[1])
        for stage in range(self.schedule.num_stages):
            self._send_stage(drafts[stage + 1], stage)
            self._redistribute(drafts[stage + 2], stage)
        steps = tuple(step for step in (draft.finished() for draft in drafts) if any(step))
        return OwnSteps(steps, max(draft.end for draft in drafts))

    def _in_bytes(self, pieces: Pieces, unit: int) -> Pieces:
        return pieces._replace(first=pieces.first * unit, length=pieces.length * unit, offset=pieces.offset * unit)

    def _arrivals(self, unit: int) -> list[Pieces]:
        """What comes to this server, by stage; in one stage it comes from one server."""
        if not self.schedule.num_stages:
            return []
        parts = []
        for sender in range(self.schedule.servers):
            if (self.schedule.partners[:, sender] == self.server).any():
                pieces = self.schedule.pieces(sender)
                parts.append(_where(pieces, pieces.peer // self.gpus == self.server))
        parts.append(_where(self.leaving, np.zeros(len(self.leaving.stage), dtype=bool)))
        whole = self._in_bytes(Pieces(*(np.concatenate(column) for column in zip(*parts, strict=True))), unit)
        order = np.argsort(whole.stage, kind="stable")
        bounds = np.searchsorted(whole.stage[order], np.arange(self.schedule.num_stages + 1))
        return [_where(whole, order[begin:end]) for begin, end in pairwise(bounds.tolist())]

    def _balance(self, draft: _Draft) -> None:
        """Give proxies what they are to send, take what this rank is to send, and put both in the order of streams."""
        places = _starts(self.proxied.length)
        mine = self.leaving.origin == self.rank
        for shift, ahead, behind in self.neighbours:
            given = _where(self.leaving, mine & (self.leaving.proxy == ahead))
            self._send_packed(draft, shift, ahead, "input", self.sent_from[given.final] + given.first, given.length)
            taken = self.proxied.origin == behind
            self._receive_packed(draft, shift, behind, "scratch", places[:-1][taken], self.proxied.length[taken])
        own = self.proxied.origin == self.rank
        kept = _where(self.proxied, own)
        sources = self.sent_from[kept.final] + kept.first
        draft.before += _copies("input", sources, "scratch", places[:-1][own], kept.length)

    def _stay_inside(self, draft: _Draft) -> None:
        """Send what is for GPUs of the same server directly."""
        for shift, ahead, behind in self.neighbours:
            begin = int(self.sent_from[ahead])
            outward = Piece("input", begin, begin + int(self.traffic[self.rank, ahead]))
            draft.post(shift, Operation(ahead, True, outward))
            begin = int(self.kept_at[behind])
            draft.post(
                shift, Operation(behind, False, Piece("output", begin, begin + int(self.traffic[behind, self.rank])))
            )
        places = self.sent_from[[self.rank]], self.kept_at[[self.rank]]
        draft.before += _copies("input", places[0], "output", places[1], self.traffic[[self.rank], [self.rank]])

    def _send_stage(self, draft: _Draft, stage: int) -> None:
        """Exchange with peers; what comes for this rank itself goes to its place at once."""
        mine = np.flatnonzero(self.proxied.stage == stage)
        if mine.size:
            # One server's part of one stream: its pieces follow each other.
            begin = int(self.proxied.length[: mine[0]].sum())
            end = begin + int(self.proxied.length[mine].sum())
            draft.post(0, Operation(int(self.proxied.peer[mine[0]]), True, Piece("scratch", begin, end)))
        come = self.own_arrivals[stage]
        if len(come.proxy):
            places = self.landing + _starts(come.length)
            piece = Piece("scratch", self.landing, int(places[-1]))
            draft.post(0, Operation(int(come.proxy[0]), False, piece))
            own = come.final == self.rank
            targets = self.kept_at[come.origin[own]] + come.first[own]
            draft.after += _copies("scratch", places[:-1][own], "output", targets, come.length[own])

    def _redistribute(self, draft: _Draft, stage: int) -> None:
        """Hand on what a stage brought for others, and take what it brought to others for this rank."""
        come, wanted = self.own_arrivals[stage], self.wanted[stage]
        places = self.landing + _starts(come.length)[:-1]
        targets = self.kept_at[wanted.origin] + wanted.first
        for shift, ahead, behind in self.neighbours:
            given, taken = come.final == ahead, wanted.peer == behind
            self._send_packed(draft, shift, ahead, "scratch", places[given], come.length[given])
            self._receive_packed(draft, shift, behind, "output", targets[taken], wanted.length[taken])

    def _send_packed(
        self, draft: _Draft, shift: int, peer: int, memory: Memory, sources: IntArray, lengths: IntArray
    ) -> None:
        if not len(lengths):
            return
        places = draft.area(int(lengths.sum())) + _starts(lengths)
        draft.before += _copies(memory, sources, "scratch", places[:-1], lengths)
        draft.post(shift, Operation(peer, True, Piece("scratch", int(places[0]), int(places[-1]))))

    def _receive_packed(
        self, draft: _Draft, shift: int, peer: int, memory: Memory, targets: IntArray, lengths: IntArray
    ) -> None:
        if not len(lengths):
            return
        places = draft.area(int(lengths.sum())) + _starts(lengths)
        draft.post(shift, Operation(peer, False, Piece("scratch", int(places[0]), int(places[-1]))))
        draft.after += _copies("scratch", places[:-1], memory, targets, lengths)


def _where(pieces: Pieces, chosen: npt.NDArray[np.bool_] | IntArray) -> Pieces:
    return Pieces(*(column[chosen] for column in pieces))


def _starts(lengths: IntArray) -> IntArray:
    """Where each of some parts begins, and where the last ends."""
    starts: IntArray = np.concatenate([[0], np.cumsum(lengths)])
    return starts


def _copies(source: Memory, sources: IntArray, target: Memory, targets: IntArray, lengths: IntArray) -> list[Copy]:
    """Copy runs of bytes, those that follow each other on both sides in one."""
    if not lengths.sum():
        return []
    joined = (sources[1:] == (sources + lengths)[:-1]) & (targets[1:] == (targets + lengths)[:-1])
    heads = np.flatnonzero(np.concatenate([[True], ~joined]))
    merged = zip(
        sources[heads].tolist(), targets[heads].tolist(), np.add.reduceat(lengths, heads).tolist(), strict=True
    )
    return [
        Copy(Piece(source, begin, begin + length), Piece(target, end, end + length)) for begin, end, length in merged
    ]
