"""Which chunks of an all-to-all(v) follow which path, as transfers from rank to rank.

A path of a `FlowSchedule` carries consecutive chunks of what its first rank has for its last one; the paths of two
ranks share those out in the order in which the schedule lists them.  What passes switches on the way from one rank to
the next is one transfer.  A *strand* is a range of chunks that stays together on its path; paths are cut into several
where they carry more than one step may move.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...errors import ProgramError, UnsupportedError
from ...schedules import Collective, FlowSchedule
from ..programs.layout import Layout
from .tree_transfers import MAX_TRANSFERS, pieces

LIMIT = 2**62


class FlowStrand(NamedTuple):
    """Chunks ``first .. first + chunks - 1`` of the collective go from each of `ranks` to the next, in `steps`."""

    first: int
    chunks: int
    ranks: tuple[int, ...]
    steps: tuple[int, ...]


def flow_layout(schedule: FlowSchedule, collective: Collective) -> Layout:
    """Lay out the chunks of a flow, what ranks keep for themselves included."""
    traffic = schedule.traffic
    if traffic.shape != (schedule.num_ranks, schedule.num_ranks) or traffic.min() < 0 or schedule.chunks_per_unit < 1:
        raise ProgramError(
            f"the schedule has traffic of shape {traffic.shape} and at least {traffic.min()}, and "
            f"{schedule.chunks_per_unit} chunks per unit; expected one row and column per rank, and no negative numbers"
        )
    # Python's integers do not overflow.
    return pair_layout(
        collective, schedule.num_ranks, [schedule.chunks_per_unit * amount for amount in traffic.ravel().tolist()]
    )


def pair_layout(collective: Collective, num_ranks: int, shards: list[int]) -> Layout:
    """Lay out chunks from each rank to each, row by row."""
    equal = len(set(shards)) == 1
    if not (collective.takes_traffic or equal):
        raise UnsupportedError(
            "all_to_all was requested, but the schedule's traffic is not the same everywhere; expected all_to_allv"
        )
    if not 0 < sum(shards) < LIMIT:
        raise UnsupportedError(f"the schedule divides the data into {sum(shards)} chunks; expected 1 to 2^62 - 1")
    return Layout.of(collective, num_ranks, sum(shards), () if equal else shards)


def flow_strands(schedule: FlowSchedule, layout: Layout, max_count: int) -> list[FlowStrand]:
    """Give every path its chunks, in strands of at most `max_count`, as equal as can be."""
    _check_paths(schedule)
    _check_amounts(schedule, layout)
    parts = -(-schedule.weights // max_count)
    transfers = int((parts * schedule.transfers).sum())
    if transfers > MAX_TRANSFERS:
        raise UnsupportedError(
            f"the paths divide the data into {layout.chunks} chunks, which takes {transfers} transfers of {max_count} "
            f"chunks each; expected at most {MAX_TRANSFERS}: plan with fewer chunks per unit"
        )
    used = [0] * schedule.num_ranks**2
    strands = []
    for chunks, path, steps in schedule.paths():
        stops = [number for number, node in enumerate(path) if node < schedule.num_ranks]
        ranks, times = tuple(path[stop] for stop in stops), tuple(steps[stop] for stop in stops[:-1])
        pair = path[0] * schedule.num_ranks + path[-1]
        begin = layout.offsets[pair] + used[pair]
        used[pair] += chunks
        strands += [FlowStrand(*piece, ranks, times) for piece in pieces(begin, begin + chunks, max_count)]
    return strands


def _check_paths(schedule: FlowSchedule) -> None:
    starts, nodes, steps = schedule.path_starts, schedule.path_nodes, schedule.steps
    if not schedule.num_paths:
        return
    hops = np.diff(starts) - 1
    if starts[0] != 0 or starts[-1] != len(nodes) or hops.min() < 1 or len(steps) != len(nodes) - len(hops):
        raise ProgramError(
            "the schedule's arrays do not fit together; expected nodes for each path, and a step per hop"
        )
    ends = np.stack([schedule.sources, schedule.destinations])
    wrong = (ends[0] == ends[1]) | (ends >= schedule.num_ranks).any(axis=0) | (ends < 0).any(axis=0)
    wrong |= schedule.weights < 1
    numbers = np.repeat(np.arange(len(hops)), hops)
    inside = np.flatnonzero(np.diff(numbers) == 0)
    # The first hop of path p is p less than its first node, so the node after hop h of it is h + p + 1.
    at_rank = nodes[inside + numbers[inside] + 1] < schedule.num_ranks
    rises = np.diff(steps)[inside]
    wrong[numbers[inside[np.where(at_rank, rises <= 0, rises != 0)]]] = True
    for number in np.flatnonzero(wrong).tolist():
        raise ProgramError(
            f"path {number} of the schedule, {schedule.path(number)} with {schedule.weights[number]} chunks, does not "
            "lead from a rank to another in steps that rise at every rank, and only there"
        )


def _check_amounts(schedule: FlowSchedule, layout: Layout) -> None:
    carried = np.zeros(schedule.num_ranks**2, dtype=np.int64)
    if int(schedule.weights.sum(dtype=np.float64)) < LIMIT:
        np.add.at(carried, schedule.sources * schedule.num_ranks + schedule.destinations, schedule.weights)
    wanted = np.array(layout.shards, dtype=np.int64)
    wanted[:: schedule.num_ranks + 1] = 0
    for pair in np.flatnonzero(carried != wanted).tolist():
        source, destination = divmod(pair, schedule.num_ranks)
        raise ProgramError(
            f"the paths from rank {source} to rank {destination} carry {carried[pair]} chunks; expected {wanted[pair]}"
        )
