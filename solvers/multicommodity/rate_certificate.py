"""Exact bounds on the rate of an all-to-all from approximate flows and dual values, such as an interior point's.

A flow is rounded down to integral units; the deficit of a node, a few units, is sent along a tree of fewest hops, which
restores conservation with exact loads.  Dual values are rounded to integral lengths, and shortest distances under any
lengths bound the rate.  So both bounds are valid whatever the accuracy of the input; they only get weaker with it.
"""

from fractions import Fraction

import numpy as np

from ...errors import BoundError, CapacityOverflowError, SolverError
from ...support.arrays import FloatArray, IntArray
from ...topologies.graphs.orbits import LinkOrbits
from .soft_shortest_paths import adjacency, distance_sums, initial_orders

UNIT_BITS = 44  # of the flow that serves the largest demand
LENGTH_BITS, MIN_LENGTH_BITS = 30, 10
"""Of the largest length, and the lower limit where large demands would make sums overflow 64 bits."""
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
    duals: FloatArray,
) -> tuple[Fraction, Fraction]:
    """Bound a rate from below by `flows` float64 (sources, links), from above by link `duals` float64 (classes,)."""
    if not 0 < rate < np.inf or not np.isfinite(flows).all() or not (duals > 0).any() or not np.isfinite(duals).all():
        raise SolverError(f"the rate is {rate}, dual values sum to {duals.sum()}; expected finite numbers above 0")
    rows = demands[orbits.sources]
    rows[np.arange(len(rows)), orbits.sources] = 0
    upper = _dual_bound(num_nodes, tails, heads, capacities, rows, orbits, np.maximum(duals, 0.0))
    most = max(sum(row) for row in rows.tolist()) * num_nodes
    amount = 2 ** max(0, min(UNIT_BITS - int(rows.max()).bit_length(), SUM_LIMIT.bit_length() - most.bit_length() - 2))
    units = np.floor(np.maximum(flows, 0.0) * (amount / rate))
    if units.sum(axis=1).max() > SUM_LIMIT:
        raise SolverError(f"flows are up to {flows.max()}, the rate is {rate}; expected no source to send much more")
    whole = units.astype(np.int64)
    sums = np.zeros(len(orbits.sizes), dtype=np.object_)
    for flow, row, source, count in zip(whole, rows, orbits.sources.tolist(), orbits.counts.tolist(), strict=True):
        _repair(num_nodes, tails, heads, source, row * amount, flow)
        np.add.at(sums, orbits.classes, flow.astype(np.object_) * count)
    class_capacities = np.zeros(len(sums), dtype=np.object_)
    np.add.at(class_capacities, orbits.classes, capacities.astype(np.object_))
    lower = min(
        Fraction(capacity * amount, load)
        for capacity, load in zip(class_capacities.tolist(), sums.tolist(), strict=True)
        if load
    )
    return lower, upper


def _dual_bound(
    num_nodes: int,
    tails: IntArray,
    heads: IntArray,
    capacities: IntArray,
    demands: IntArray,
    orbits: LinkOrbits,
    duals: FloatArray,
) -> Fraction:
    """Return the sum of length times capacity over the sum of demand times distance."""
    most = max(sum(row) for row in demands.tolist())
    max_length = min(2**LENGTH_BITS, SUM_LIMIT // (most * num_nodes))
    if max_length < 2**MIN_LENGTH_BITS:
        raise CapacityOverflowError(
            f"the demands of one rank add up to {most}, which times path lengths overflows int64; "
            "state them in larger units"
        )
    shares = (duals / orbits.sizes)[orbits.classes]
    lengths = np.rint(shares * (max_length / shares.max())).astype(np.int64)
    sums = distance_sums(
        orbits.sources, adjacency(num_nodes, tails, heads), lengths, initial_orders(orbits.sources, num_nodes), demands
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


def _repair(num_nodes: int, tails: IntArray, heads: IntArray, source: int, needs: IntArray, flow: IntArray) -> None:
    """Send each deficit along a tree of fewest hops, in `flow` int64 (links,); `needs` is int64 (ranks,)."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order

    network = csr_array((np.ones(len(tails)), (tails, heads)), shape=(num_nodes, num_nodes))
    order, before = breadth_first_order(network, source)
    reached = np.zeros(num_nodes, dtype=np.bool_)
    reached[order] = True
    flow[~reached[tails]] = 0
    deficit = np.zeros(num_nodes, dtype=np.int64)
    deficit[: len(needs)] = needs
    np.add.at(deficit, tails, flow)
    np.subtract.at(deficit, heads, flow)
    keys = tails * num_nodes + heads
    link_order = np.argsort(keys)
    tree_links = link_order[np.searchsorted(keys[link_order], before[order[1:]] * num_nodes + order[1:])]
    for node, link in zip(order[:0:-1].tolist(), tree_links[::-1].tolist(), strict=True):
        if deficit[node] > 0:
            flow[link] += deficit[node]
            deficit[before[node]] += deficit[node]
