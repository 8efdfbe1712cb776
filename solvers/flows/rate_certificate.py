"""Exact bounds on the rate of an all-to-all from approximate flows and dual values, such as an interior point's.

A flow is rounded down to integral units; the deficit of a node, a few units, is sent along a tree of fewest hops, which
restores conservation with exact loads.  Dual values are rounded to integral lengths, and shortest distances under any
lengths bound the rate.  So both bounds are valid whatever the accuracy of the input; they only get weaker with it.
"""

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from ...errors import BoundError, CapacityOverflowError, SolverError
from ...support.arrays import FloatArray, IntArray
from ...topologies.symmetry.isomorphism import LinkOrbits
from .shortest_paths import Adjacency, OrderArray, adjacency, distance_sums, initial_orders

AnyIntegers = npt.NDArray[np.int64 | np.object_]

UNIT_BITS = 44  # of the flow that serves the largest demand
MAX_LENGTH, MIN_MAX_LENGTH = 2**30, 2**10
"""The largest length, and its lower limit where large demands would make sums overflow 64 bits."""
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
    rows = demand_rows(demands, orbits.sources)
    class_capacities = np.zeros(len(orbits.sizes), dtype=np.object_)
    np.add.at(class_capacities, orbits.classes, capacities.astype(np.object_))
    shares = np.maximum(duals, 0.0) / orbits.sizes
    lengths = np.rint(shares * (longest_length(rows, num_nodes, MAX_LENGTH) / shares.max())).astype(np.int64)
    orders = initial_orders(orbits.sources, num_nodes)
    upper = dual_bound(adjacency(num_nodes, tails, heads), orbits, class_capacities, rows, lengths, orders)
    longest = max(map(exact_sum, rows)) * num_nodes
    amount = 2 ** max(
        0, min(UNIT_BITS - int(rows.max()).bit_length(), SUM_LIMIT.bit_length() - longest.bit_length() - 2)
    )
    units = np.floor(np.maximum(flows, 0.0) * (amount / rate))
    if units.sum(axis=1).max() > SUM_LIMIT:
        raise SolverError(f"flows are up to {flows.max()}, the rate is {rate}; expected no source to send much more")
    integers = units.astype(np.int64)
    sums = np.zeros(len(orbits.sizes), dtype=np.object_)
    for flow, row, source, count in zip(integers, rows, orbits.sources.tolist(), orbits.counts.tolist(), strict=True):
        _repair(num_nodes, tails, heads, source, row * amount, flow)
        np.add.at(sums, orbits.classes, flow.astype(np.object_) * count)
    lower = min(
        Fraction(capacity * amount, load)
        for capacity, load in zip(class_capacities.tolist(), sums.tolist(), strict=True)
        if load
    )
    return lower, upper


def demand_rows(demands: IntArray, sources: IntArray) -> IntArray:
    """Demands of some ranks for others, int64 (sources, ranks)."""
    rows = demands[sources]
    rows[np.arange(len(sources)), sources] = 0
    return np.ascontiguousarray(rows)


def exact_sum(demands: IntArray) -> int:
    """Sum without overflowing 64 bits."""
    return (int((demands >> 31).sum()) << 31) + int((demands & (2**31 - 1)).sum())


def longest_length(rows: IntArray, num_nodes: int, limit: int) -> int:
    """Return the largest length, `limit` or less, with which demands times distances fit 64 bits."""
    largest = max(map(exact_sum, rows))
    if (length := min(limit, (SUM_LIMIT - 1) // (largest * num_nodes))) < MIN_MAX_LENGTH:
        raise CapacityOverflowError(
            f"the demands of one rank add up to {largest}, which times path lengths overflows int64; "
            "state them in larger units"
        )
    return length


def dual_bound(
    links: Adjacency, orbits: LinkOrbits, capacities: AnyIntegers, rows: IntArray, lengths: IntArray, orders: OrderArray
) -> Fraction:
    """Bound the rate by the sum of length times capacity over the sum of demand times distance.

    Shapes: `capacities` of all links of an orbit, and `lengths` of each, (classes,); `rows` int64 (sources, ranks);
    `orders` as for `distance_sums`.
    """
    sums = distance_sums(orbits.sources, links, lengths[orbits.classes], orders, rows)
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
