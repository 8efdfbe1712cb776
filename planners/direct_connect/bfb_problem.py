"""Validated input of breadth-first broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import BoundError, UnsupportedError
from ...schedules import StepSchedule
from ...schedules.collective import Direction
from ...support.arrays import IntArray
from ...support.validation import as_whole, shown
from ...topologies import DirectGraph, Topology

if TYPE_CHECKING:
    from ...solvers.bfb.link_masks import Intake
    from ...solvers.bfb.load_balancing import Shares

MAX_CHUNKS = 2**20
MAX_RANKS = 2**13  # distances of all pairs take 6 bytes each, a schedule 40 bytes per send


class BfbProblem(NamedTuple):
    """Input of breadth-first broadcast: links in the direction from sources."""

    tails: IntArray  # int64 (links,); for a reduce-scatter, links are turned around
    heads: IntArray  # int64 (links,); for a reduce-scatter, links are turned around
    unit: Fraction  # bandwidth that counts as 1 in `intake`: GB/s of a topology, arcs of a graph
    intake: Intake  # links by the rank that they lead to, and distances


def read_network(network: DirectGraph | Topology, direction: Direction = "broadcast") -> BfbProblem:
    """Convert a network to a `BfbProblem`; raise if it is unsuitable."""
    from ...solvers.bfb.link_masks import intake

    if not isinstance(direction, str) or direction not in ("broadcast", "reduce"):
        raise UnsupportedError(f"direction is {shown(direction)}; expected 'broadcast' or 'reduce'")
    if isinstance(network, DirectGraph):
        names: Sequence[Any] = range(network.num_nodes)
        (tails, heads, widths), unit = network.adjacency, Fraction(1)
    else:
        if not isinstance(network, Topology):
            raise UnsupportedError(f"the network is {shown(network)}; expected a DirectGraph or a Topology")
        if network.switch_nodes:
            raise UnsupportedError(
                f"{network} has switches, such as {network.switch_nodes[0]!r}; expected direct links between ranks"
            )
        names, (tails, heads, widths, unit) = network.compute_nodes, network.arrays
    if len(names) > MAX_RANKS:
        raise UnsupportedError(
            f"there are {len(names)} ranks in {network.name}; expected at most {MAX_RANKS} for breadth-first broadcast"
        )
    if direction == "reduce":
        tails, heads = heads, tails
    arranged = intake(len(names), tails, heads, widths)
    if (arranged.hops < 0).any():
        pair = np.argwhere(arranged.hops < 0)[0]
        source, rank = (names[end] for end in (pair if direction == "reduce" else pair[::-1]))
        raise BoundError(
            f"there is no path from rank {source!r} to rank {rank!r} in {network.name}; add links or leave ranks out"
        )
    return BfbProblem(tails, heads, unit * arranged.divisor, arranged)


def as_graph(network: DirectGraph | Topology) -> DirectGraph:
    """Return a graph, or that of a topology with equal ports; else raise `UnsupportedError`."""
    if not isinstance(network, DirectGraph | Topology):
        raise UnsupportedError(f"the topology is {shown(network)}; expected a Topology without switches")
    return network if isinstance(network, DirectGraph) else network.direct_graph()


def as_chunks(value: object) -> int:
    """Read a number of chunks per shard, or raise `UnsupportedError`."""
    return as_whole(value, "chunks", high=MAX_CHUNKS)


def schedule_of(problem: BfbProblem, chunks: int, shares: Shares, direction: Direction) -> StepSchedule:
    """Turn intervals of shards into a schedule whose paths are the links of the network."""
    sends = shares.steps, shares.sources, shares.lower, shares.upper, shares.links
    starts = 2 * np.arange(len(problem.tails) + 1)
    ends = np.stack([problem.tails, problem.heads], axis=1).ravel()
    return StepSchedule(problem.intake.num_ranks, chunks, *sends, starts, ends, direction)
