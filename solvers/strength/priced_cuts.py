"""Minimum cuts around one rank of a network of two-way links, where having a rank inside costs its price.

Without prices below 0 this is the narrowest cut around the rank.  A price below 0 pays for taking a rank along: with
`collopt.solvers.strength.strength` the ranks that have enough to spare.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from ...support.arrays import BoolArray, IntArray
from ..flow.max_flow import CAPACITY_LIMIT, augment, flow_network, mark_reaching

__all__ = ["PricedCuts", "add_switches", "least_cut", "priced_cuts"]


class PricedCuts(NamedTuple):
    """A network for such cuts: after the links come, node by node, an arc to a sink and an arc from a source.

    `first`, `following`, `heads`, `capacities`: As in `FlowNetwork`; the sink is the last node but one, the source the
        last.
    `num_links`: Link ``i`` is the arcs ``2 i`` and ``2 i + 1``.
    `num_ranks`: Ranks are the first nodes; then come switches.
    """

    first: IntArray
    following: IntArray
    heads: IntArray
    capacities: IntArray
    num_links: int
    num_ranks: int


def priced_cuts(num_nodes: int, num_ranks: int, tails: IntArray, heads: IntArray, capacities: IntArray) -> PricedCuts:
    """Prepare a network for cuts.

    Shapes: `tails`, `heads`, `capacities` int64 (links,).
    """
    nodes, nothing = np.arange(num_nodes), np.zeros(num_nodes, dtype=np.int64)
    network = flow_network(
        num_nodes + 2,
        np.concatenate([tails, nodes, np.full(num_nodes, num_nodes + 1)]),
        np.concatenate([heads, np.full(num_nodes, num_nodes), nodes]),
        np.concatenate([capacities, nothing, nothing]),
        np.concatenate([capacities, nothing, nothing]),
    )
    return PricedCuts(*network, len(tails), num_ranks)


@numba.njit(cache=True, nogil=True)
def least_cut(
    cuts: PricedCuts,
    factor: int,
    prices: IntArray,
    rank: int,
    active: BoolArray,
    residual: IntArray,
    scratch: IntArray,
) -> int:
    """Smallest ``factor c(S) + price(S without rank)`` over sets S with `rank` inside and inactive ranks outside.

    Prices are per rank, `active` is per node.  `residual` has the shape of the capacities, `scratch` (4, nodes); both
    are written to, and the largest set that attains the minimum is left where ``scratch[0] < 0``.
    """
    heads, capacities, num_links = cuts.heads, cuts.capacities, cuts.num_links
    sink = len(cuts.first) - 2
    costs = np.zeros(sink, dtype=np.int64)  # of having a node inside
    costs[: cuts.num_ranks] = prices
    costs[rank] = 0
    residual[:] = 0
    for arc in range(0, 2 * num_links, 2):
        head, tail = heads[arc], heads[arc + 1]
        amount = factor * capacities[arc]
        if active[tail] and active[head]:
            residual[arc] = residual[arc + 1] = amount
        elif active[tail]:
            costs[tail] += amount
        elif active[head]:
            costs[head] += amount
    least: int = 0
    for node in range(sink):
        out = 2 * (num_links + node)
        if active[node] and costs[node] >= 0:
            residual[out] = costs[node]
        elif active[node]:
            residual[out + 2 * sink] = -costs[node]
            least += costs[node]
    residual[2 * (num_links + rank + sink)] = CAPACITY_LIMIT
    least += _push(cuts, residual, scratch)
    return least


@numba.njit(cache=True, nogil=True)
def add_switches(cuts: PricedCuts, parts: int, sets: IntArray) -> None:
    """Label switches by the part, numbered from 0, whose ranks have them in their smallest narrowest cut.

    `sets` holds the labels of the ranks; switches in no such set keep what they have there.  The sets are disjoint: of
    two that shared switches, each would be no wider without them.
    """
    nodes, sink = len(cuts.first), len(cuts.first) - 2
    scratch = np.empty((4, nodes), dtype=np.int64)
    for part in range(parts):
        residual = cuts.capacities.copy()
        # The part is the sink: what still reaches it is the smallest set.
        for rank in range(cuts.num_ranks):
            out = 2 * (cuts.num_links + rank)
            residual[out if sets[rank] == part else out + 2 * sink] = CAPACITY_LIMIT
        _push(cuts, residual, scratch)
        mark_reaching(cuts.first, cuts.following, cuts.heads, residual, sink, -1, scratch[0], scratch[2])
        for node in range(cuts.num_ranks, sink):
            if scratch[0, node] >= 0:
                sets[node] = part


@numba.njit(cache=True, nogil=True)
def _push(cuts: PricedCuts, residual: IntArray, scratch: IntArray) -> int:
    """Push all that goes from source to sink; ``scratch[0]`` is negative where no more can reach the sink."""
    sink = len(cuts.first) - 2
    pushed: int = augment(
        cuts.first,
        cuts.following,
        cuts.heads,
        residual,
        sink + 1,
        sink,
        CAPACITY_LIMIT,
        scratch[0],
        scratch[1],
        scratch[2],
        scratch[3],
    )
    return pushed
