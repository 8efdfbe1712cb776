"""FAST's schedules as flows in stages: every piece's path by proxy and peer, over routes of a network."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...support.arrays import IntArray
from ..steps.flow import StagedFlow
from .segments import Pieces, StagedArrays, local_bytes, pieces_of

LOCAL_STEP = 1  # that of the first stage between servers


class Routes(NamedTuple):
    """Ways between ranks: that from s to d has number ``numbers[s, d]`` in compressed rows of nodes without the first.

    Shapes: int64 (ranks, ranks), -1 where there is none; (routes + 1,); (nodes,).
    """

    numbers: IntArray
    starts: IntArray
    nodes: IntArray

    @classmethod
    def direct(cls, ranks: int) -> Routes:
        """Without switches."""
        every = np.arange(ranks**2)
        return cls(every.reshape(ranks, ranks), np.arange(ranks**2 + 1), every % ranks)


class LocalParts(NamedTuple):
    """Runs of bytes that stay in a server, int64 (parts,) each, those of two ranks in the order of bytes."""

    source: IntArray
    destination: IntArray
    length: IntArray
    step: IntArray  # With `LOCAL_STEP` for the first stage


def at_once(schedule: StagedArrays) -> LocalParts:
    """Let all local bytes move beside the first stage."""
    source, destination, length = local_bytes(schedule)
    return LocalParts(source, destination, length, np.full_like(source, LOCAL_STEP))


def all_pieces(schedule: StagedArrays) -> Pieces:
    """Cut all streams between servers; see `pieces_of`."""
    parts = [pieces_of(schedule, server) for server in range(schedule.servers)]
    return Pieces(*(np.concatenate(columns).astype(np.int64) for columns in zip(*parts, strict=True)))


def as_flow(
    schedule: StagedArrays, local: LocalParts | None = None, ranks: IntArray | None = None, routes: Routes | None = None
) -> StagedFlow:
    """Let stage s be balanced in step s, sent in step s + 1 and redistributed in step s + 2.

    Traffic is in lowest terms, and a chunk as large as all parts allow.  The flow is not verified.
    All local bytes are `local`, as of `at_once`; `ranks`, (ranks,), are the schedule's ranks in the network.  Without
    `routes` of the network paths name ranks only, so that the flow can be lowered and not verified.
    """
    unit = int(np.gcd.reduce(schedule.traffic, axis=None))
    if not unit:
        raise UnsupportedError(
            "the schedule's traffic is 0 everywhere, so there is nothing to send; expected some traffic"
        )
    pieces, inside = all_pieces(schedule), at_once(schedule) if local is None else local
    ranks = np.arange(schedule.num_ranks) if ranks is None else ranks
    routes = Routes.direct(schedule.num_ranks) if routes is None else routes
    ends = np.stack([pieces.origin, pieces.proxy, pieces.peer, pieces.final], axis=1)
    ends = np.concatenate(
        [ends, np.column_stack([inside.source, inside.source, inside.destination, inside.destination])]
    )
    stages = np.concatenate([pieces.stage, inside.step - 1])
    lengths = np.concatenate([pieces.length, inside.length])
    # The chunks of two ranks are counted through their paths.
    order = np.lexsort((np.concatenate([pieces.first, np.arange(len(inside.step))]), ends[:, 3], ends[:, 0]))
    ends, stages, lengths = ranks[ends[order]], stages[order], lengths[order]
    moves = ends[:, :-1] != ends[:, 1:]
    numbers = routes.numbers[ends[:, :-1][moves], ends[:, 1:][moves]]
    links = np.diff(routes.starts)[numbers]
    passed = np.repeat(routes.starts[numbers] - np.cumsum(links) + links, links) + np.arange(links.sum())
    steps = np.repeat((stages[:, None] + np.arange(3))[moves], links)
    path = np.repeat(np.nonzero(moves)[0], links)
    starts = np.cumsum([0, *(np.bincount(path, minlength=len(ends)) + 1)])
    nodes = np.insert(routes.nodes[passed], starts[:-1] - np.arange(len(ends)), ends[:, 0])
    chunk = int(np.gcd.reduce(np.append(lengths, unit)))
    traffic, servers = np.zeros_like(schedule.traffic), np.zeros_like(schedule.homes)
    traffic[np.ix_(ranks, ranks)], servers[ranks] = schedule.traffic // unit, schedule.homes
    steps = np.unique(steps, return_inverse=True)[1]  # without gaps
    return StagedFlow(
        len(ranks), unit // chunk, traffic, lengths // chunk, starts, nodes, steps.astype(np.int64), servers
    )
