"""Exact bounds on the rate of an all-to-all from a flow and prices in floats, such as an interior-point method leaves.

A flow is rounded down to whole units; what a node then lacks, some units, is sent to it along a tree of fewest hops, so
that it is a flow again and its loads are exact.  Prices are rounded to whole lengths, and shortest distances under any
lengths bound the rate.  So both bounds hold however far off the floats are; they only get worse with them.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ...errors import BoundError, CapacityOverflowError, SolverError
from ...support.arrays import FloatArray, IntArray
from ...topologies.graphs.orbits import LinkOrbits
from .soft_shortest_paths import adjacent, distance_sums, start_orders

__all__ = ["rate_certificate"]


UNIT_BITS = 44
"""Of the flow that brings the greatest demand."""
LENGTH_BITS, LEAST_LENGTH_BITS = 30, 10
"""Of the greatest length, and what it may come down to where demands are so large that sums would leave 64 bits."""
SUM_LIMIT = 2**62


def rate_certificate(
    num_nodes: int,
    tails: IntArray,
    heads: IntArray,
    capacities: IntArray,
    demands: IntArray,
    orbits: LinkOrbits,
    flows: FloatArray,
    rate: float,
    prices: FloatArray,
) -> tuple[Fraction, Fraction]:
    """Bound the rate of an all-to-all from below by a flow and from above by prices.

    Shapes: `flows` float64 (sources, links); `prices` float64 (classes,).

    Rank 0 of a one-way ring of three, seen through tired eyes:

    >>> import numpy as np
    >>> from collopt.topologies.graphs.orbits import link_orbits
    >>> ring = np.array([0, 1, 2]), np.array([1, 2, 0]), np.array([6, 6, 6])
    >>> ones = np.ones((3, 3), dtype=np.int64)
    >>> orbits = link_orbits(*ring, ones, np.array([[1, 2, 0]]))
    >>> bounds = rate_certificate(3, *ring, ones, orbits, np.array([[3.99, 2.01, 0.0]]), 2.0, np.array([0.3]))
    >>> [round(float(bound), 2) for bound in bounds]
    [1.99, 2.0]
    """
    if not 0 < rate < np.inf or not np.isfinite(flows).all() or not (prices > 0).any() or not np.isfinite(prices).all():
        raise SolverError(f"the rate is {rate}, dual values sum to {prices.sum()}; expected finite numbers above 0")
    rows = demands[orbits.sources]
    rows[np.arange(len(rows)), orbits.sources] = 0
    upper = _shortest_ways(num_nodes, tails, heads, capacities, rows, orbits, np.maximum(prices, 0.0))
    most = max(sum(row) for row in rows.tolist()) * num_nodes
    amount = 2 ** max(0, min(UNIT_BITS - int(rows.max()).bit_length(), SUM_LIMIT.bit_length() - most.bit_length() - 2))
    units = np.floor(np.maximum(flows, 0.0) * (amount / rate))
    if units.sum(axis=1).max() > SUM_LIMIT:
        raise SolverError(f"flows are up to {flows.max()}, the rate is {rate}; expected no source to send much more")
    whole = units.astype(np.int64)
    sums = np.zeros(len(orbits.sizes), dtype=np.object_)
    for flow, row, source, count in zip(whole, rows, orbits.sources.tolist(), orbits.counts.tolist(), strict=True):
        _mend(num_nodes, tails, heads, source, row * amount, flow)
        np.add.at(sums, orbits.classes, flow.astype(np.object_) * count)
    widths = np.zeros(len(sums), dtype=np.object_)
    np.add.at(widths, orbits.classes, capacities.astype(np.object_))
    lower = min(
        Fraction(width * amount, load) for width, load in zip(widths.tolist(), sums.tolist(), strict=True) if load
    )
    return lower, upper


def _shortest_ways(
    num_nodes: int,
    tails: IntArray,
    heads: IntArray,
    capacities: IntArray,
    demands: IntArray,
    orbits: LinkOrbits,
    prices: FloatArray,
) -> Fraction:
    """Sum of length times capacity, over the sum of demand times distance."""
    most = max(sum(row) for row in demands.tolist())
    longest = min(2**LENGTH_BITS, SUM_LIMIT // (most * num_nodes))
    if longest < 2**LEAST_LENGTH_BITS:
        raise CapacityOverflowError(
            f"the demands of one rank add up to {most}, which times path lengths overflows int64; "
            "state them in larger units"
        )
    shares = (prices / orbits.sizes)[orbits.classes]
    lengths = np.rint(shares * (longest / shares.max())).astype(np.int64)
    sums = distance_sums(
        orbits.sources, adjacent(num_nodes, tails, heads), lengths, start_orders(orbits.sources, num_nodes), demands
    )
    if (sums < 0).any():
        raise BoundError(
            f"rank {int(orbits.sources[sums.argmin()])} cannot reach a rank for which it has data; "
            "add links until every rank reaches all others"
        )
    return Fraction(
        sum(map(int.__mul__, lengths.tolist(), capacities.tolist())),
        sum(map(int.__mul__, sums.tolist(), orbits.counts.tolist())),
    )


def _mend(num_nodes: int, tails: IntArray, heads: IntArray, source: int, needs: IntArray, flow: IntArray) -> None:
    """Bring every node what it needs and passes on, and does not get, along a tree of fewest hops."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order

    network = csr_array((np.ones(len(tails)), (tails, heads)), shape=(num_nodes, num_nodes))
    order, before = breadth_first_order(network, source)
    reached = np.zeros(num_nodes, dtype=np.bool_)
    reached[order] = True
    flow[~reached[tails]] = 0
    lacks = np.zeros(num_nodes, dtype=np.int64)
    lacks[: len(needs)] = needs
    np.add.at(lacks, tails, flow)
    np.subtract.at(lacks, heads, flow)
    keys = tails * num_nodes + heads
    by_key = np.argsort(keys)
    branches = by_key[np.searchsorted(keys[by_key], before[order[1:]] * num_nodes + order[1:])]
    for node, branch in zip(order[:0:-1].tolist(), branches[::-1].tolist(), strict=True):
        if lacks[node] > 0:
            flow[branch] += lacks[node]
            lacks[before[node]] += lacks[node]
