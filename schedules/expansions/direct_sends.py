"""Sends from rank to rank as columns, which expansions of schedules on direct links read and write."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import CapacityOverflowError, UnsupportedError
from ...support.arrays import IntArray
from ...support.validation import as_kind, shown
from ...topologies import DirectGraph
from ...topologies.network.direct_graph import as_direct_graph
from ..steps.schedule import StepSchedule
from ..traffic.collective import Direction

MAX_SENDS = 2**25  # sends of an expanded schedule; they take up to ten gigabytes while they are put together
MAX_STEPS = 2**20
CHUNK_LIMIT = 2**62  # chunks per shard times sends, as for the check of a schedule


class DirectSends(NamedTuple):
    """Columns of equal length, one entry for each send."""

    steps: IntArray  # int64 (sends,); as those of `StepSchedule`
    sources: IntArray  # int64 (sends,); as those of `StepSchedule`
    lower: IntArray  # int64 (sends,); as those of `StepSchedule`
    upper: IntArray  # int64 (sends,); as those of `StepSchedule`
    tails: IntArray  # int64 (sends,); the first rank of the path
    heads: IntArray  # int64 (sends,); the last rank of the path

    @classmethod
    def joined(cls, parts: list[DirectSends]) -> DirectSends:
        """Concatenate sends."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    @classmethod
    def broadcast(cls, *columns: IntArray) -> DirectSends:
        """Flatten columns after broadcasting them to their common shape."""
        return cls(*(column.reshape(-1) for column in np.broadcast_arrays(*columns)))

    def only(self, chosen: npt.NDArray[np.bool_]) -> DirectSends:
        """Keep the chosen sends."""
        return self if chosen.all() else DirectSends(*(column[chosen] for column in self))

    def schedule(self, num_ranks: int, chunks_per_shard: int, direction: Direction) -> StepSchedule:
        """Make a schedule of the sends, without steps in which nothing is sent, in as few chunks as they allow."""
        coarse = int(np.gcd.reduce(np.concatenate([[chunks_per_shard], self.lower, self.upper])))
        paths, routes = np.unique(self.tails * num_ranks + self.heads, return_inverse=True)
        nodes = np.stack([paths // num_ranks, paths % num_ranks], axis=1).reshape(-1)
        used = np.flatnonzero(np.bincount(self.steps))
        steps = np.searchsorted(used, self.steps)
        lower, upper = self.lower // coarse, self.upper // coarse
        starts = np.arange(0, len(nodes) + 1, 2)
        chunks = chunks_per_shard // coarse
        return StepSchedule(num_ranks, chunks, steps, self.sources, lower, upper, routes, starts, nodes, direction)


def direct_sends(graph: DirectGraph, schedule: StepSchedule) -> DirectSends:
    """Read a schedule, having checked that it is made of links of the graph."""
    as_kind(schedule, StepSchedule, "the schedule")
    if schedule.num_ranks != as_direct_graph(graph).num_nodes:
        raise UnsupportedError(
            f"the schedule is for {schedule.num_ranks} ranks; expected one for the {graph.num_nodes} of {graph.name}"
        )
    columns = (schedule.steps, schedule.sources, schedule.lower, schedule.upper, schedule.routes)
    paths, odd = len(schedule.path_starts) - 1, np.flatnonzero(np.diff(schedule.path_starts) != 2)
    if len(odd):
        raise UnsupportedError(
            f"the schedule has the path {shown(schedule.path(int(odd[0])))}; expected two ranks of {graph.name} each"
        )
    if any(column.shape != (schedule.num_sends,) for column in columns) or len(schedule.path_nodes) != 2 * paths:
        raise UnsupportedError("the schedule's arrays do not fit together; expected one that a planner made")
    for name, column, least, most in (
        ("steps", schedule.steps, 0, MAX_STEPS),
        ("sources", schedule.sources, 0, graph.num_nodes - 1),
        ("lower", schedule.lower, 0, schedule.chunks_per_shard),
        ("upper", schedule.upper, 0, schedule.chunks_per_shard),
        ("routes", schedule.routes, 0, paths - 1),
    ):
        if len(column) and not least <= int(column.min()) <= int(column.max()) <= most:
            raise UnsupportedError(f"the schedule's {name} are not all from {least} to {most}")
    ends = schedule.path_nodes.reshape(-1, 2)
    _check_links(graph, schedule, ends)
    tails, heads = ends[schedule.routes].T
    return DirectSends(*columns[:4], tails, heads).only(heads != schedule.sources)


def _check_links(graph: DirectGraph, schedule: StepSchedule, ends: IntArray) -> None:
    """Check that every path is a link of the graph, reversed where data runs towards the sources."""
    links = ends if schedule.direction == "broadcast" else ends[:, ::-1]
    known = graph.adjacency.tails * graph.num_nodes + graph.adjacency.heads
    inside = ((links >= 0) & (links < graph.num_nodes)).all(axis=1)
    strange = np.flatnonzero(~(inside & np.isin(links[:, 0] * graph.num_nodes + links[:, 1], known)))
    if len(strange):
        tail, head = links[strange[0]].tolist()
        raise UnsupportedError(
            f"the schedule sends from rank {tail} to rank {head}, which is no link of {graph.name}; expected a "
            "schedule for that graph"
        )


def check_sends(sends: int, chunks_per_shard: int, what: str) -> None:
    """Refuse a schedule that would be too large, before it is built."""
    if sends > MAX_SENDS:
        raise UnsupportedError(
            f"the schedule of {what} would have {sends} sends; expected at most {MAX_SENDS}, expand it less"
        )
    if chunks_per_shard * sends >= CHUNK_LIMIT:
        raise CapacityOverflowError(
            f"the schedule of {what} would need {chunks_per_shard} chunks per shard, which could overflow 64-bit sums; "
            "start from a schedule with fewer chunks"
        )
