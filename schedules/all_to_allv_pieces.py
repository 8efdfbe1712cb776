"""What the parts of an all-to-allv schedule move between which GPUs, worked out from its streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from .all_to_allv import AllToAllvSchedule

__all__ = ["Pieces", "handed_over", "local_bytes", "moved_by_stage", "pieces_of", "shift_loads"]

IntArray = npt.NDArray[np.int64]


class Pieces(NamedTuple):
    """Runs of bytes, each of one cell and one stage, in the order of streams and then of bytes in them.

    All arrays have the shape (pieces,); `origin`, `proxy`, `peer` and `final` are ranks.

    Attributes
    ----------
    stage : ndarray of int64
        In which stage it goes from server to server.
    origin, final : ndarray of int64
        The cell of the traffic matrix.
    proxy, peer : ndarray of int64
        The ranks that send and receive it in its stage.
    first, length : ndarray of int64
        Which bytes of the cell it is.
    offset : ndarray of int64
        Where in the stream it starts.
    """

    stage: IntArray
    origin: IntArray
    proxy: IntArray
    peer: IntArray
    final: IntArray
    first: IntArray
    length: IntArray
    offset: IntArray


def pieces_of(schedule: AllToAllvSchedule, server: int) -> Pieces:
    """Cut the streams that leave `server` at the ends of segments and of stages' intervals."""
    n, m = schedule.servers, schedule.gpus_per_server
    starts = schedule.stream_starts[server * n * m : (server + 1) * n * m + 1]
    segments = schedule.segments[starts[0] : starts[-1]]
    # One line of bytes: all streams of the server, one after another.
    segment_ends = np.cumsum(segments[:, 3])
    base = np.concatenate([[0], segment_ends])[starts - starts[0]]
    others = schedule.partners[:, server]
    stages = np.flatnonzero(others >= 0)
    order = np.argsort(others[stages], kind="stable")
    stages = np.repeat(stages[order], m)
    streams = (others[stages].reshape(-1, m) * m + np.arange(m)).ravel()
    cuts = base[streams] + np.minimum(schedule.ends[stages, server], np.diff(base)[streams])
    by_place = np.lexsort((stages, streams))
    stages, cuts = stages[by_place], cuts[by_place]
    ends = np.union1d(segment_ends, cuts)
    ends = ends[ends > 0]
    begins = np.concatenate([[0], ends])[:-1]
    segment = np.searchsorted(segment_ends, begins, side="right")
    stream = np.searchsorted(base, begins, side="right") - 1
    origin, final, first, length = segments[segment].T
    return Pieces(
        stage=stages[np.searchsorted(cuts, begins, side="right")],
        origin=origin,
        proxy=server * m + stream % m,
        peer=stream,
        final=final,
        first=first + begins - (segment_ends[segment] - length),
        length=ends - begins,
        offset=begins - base[stream],
    )


def handed_over(schedule: AllToAllvSchedule) -> IntArray:
    """Bytes that GPUs hand to each other before the first stage; shape (servers, m, m), from and to."""
    n, m = schedule.servers, schedule.gpus_per_server
    proxies = np.repeat(np.arange(n * n * m) % m, np.diff(schedule.stream_starts))
    server, origin = np.divmod(schedule.segments[:, 0], m)
    moved = np.zeros((n, m, m), dtype=np.int64)
    np.add.at(moved, (server, origin, proxies), schedule.segments[:, 3])
    moved[:, np.arange(m), np.arange(m)] = 0
    return moved


def local_bytes(schedule: AllToAllvSchedule) -> IntArray:
    """Bytes of the all-to-allv that stay inside servers; shape (servers, m, m), from and to, without copies to self."""
    n, m = schedule.servers, schedule.gpus_per_server
    tiles = schedule.traffic.reshape(n, m, n, m)[np.arange(n), :, np.arange(n), :].copy()
    tiles[:, np.arange(m), np.arange(m)] = 0
    return tiles


def shift_loads(moved: IntArray) -> IntArray:
    """Order matrices from GPU to GPU by distance: entry (d - 1, a) is what a sends to a + d modulo m."""
    m = moved.shape[-1]
    gpus = np.arange(m)
    shifts = np.arange(1, max(m, 2))[:, None]
    return moved[..., gpus, (gpus + shifts) % m] if m > 1 else np.zeros((*moved.shape[:-2], 1, 1), dtype=np.int64)


def moved_by_stage(schedule: AllToAllvSchedule, server: int) -> tuple[IntArray, IntArray]:
    """What GPUs hand to each other for what leaves one server: its own before each stage, the receivers' after it.

    In a stage a server receives from one server only, so the second is all that its receiver redistributes.

    Returns
    -------
    handed, redistributed : ndarray of int64, shape (stages, max(1, m - 1), m)
        As `shift_loads` orders them.
    """
    m = schedule.gpus_per_server
    pieces = pieces_of(schedule, server)
    loads = np.zeros((2, schedule.num_stages, m, m), dtype=np.int64)
    np.add.at(loads[0], (pieces.stage, (pieces.proxy - pieces.origin) % m, pieces.origin % m), pieces.length)
    np.add.at(loads[1], (pieces.stage, (pieces.final - pieces.peer) % m, pieces.peer % m), pieces.length)
    handed, redistributed = loads[:, :, 1:] if m > 1 else np.zeros_like(loads)
    return handed, redistributed
