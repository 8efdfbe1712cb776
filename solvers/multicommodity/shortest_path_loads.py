"""Link loads of an all-to-all over shortest paths, and the throughput bounds that follow.

Every rank sends equally to every other along shortest paths only, split equally among the links that lead to a node
from the previous distance.  This is a flow of linear program (3) of the direct-connect paper, so the throughput of its
most loaded link is feasible; and no flow uses less capacity than shortest paths do.
"""

from fractions import Fraction

import numpy as np

from ...errors import BoundError, CapacityOverflowError
from ...support.arrays import IntArray
from ...support.kernels import kernel_with

LOAD_LIMIT = 2**62
FACTORS = (5, 7, 3, 3, 2, 2, 2)  # the unit of flow is a product of powers of these, so that most shares are integral


def all_to_all_bounds(
    num_nodes: int, tails: IntArray, heads: IntArray, multiplicities: IntArray
) -> tuple[Fraction, Fraction]:
    """Bound the rate at which all pairs exchange data at once; `multiplicities` is int64 (links,)."""
    unit = _unit(num_nodes)
    out_starts = np.searchsorted(tails, np.arange(num_nodes + 1))
    by_head = np.argsort(heads, kind="stable")
    in_starts = np.searchsorted(heads[by_head], np.arange(num_nodes + 1))
    load, hops = _loads(unit, out_starts, heads, in_starts, tails[by_head], multiplicities[by_head])
    if load < 0:
        raise BoundError("some node cannot reach another; add links until every node reaches every other")
    return Fraction(unit, load), Fraction(int(multiplicities.sum()), hops)


def _unit(num_nodes: int) -> int:
    """Return the largest product of repeated factors with which no sum overflows 64 bits."""
    limit = LOAD_LIMIT // num_nodes**2
    if limit < 2**20:
        raise CapacityOverflowError(f"all-to-all among {num_nodes} nodes would overflow int64; expected fewer nodes")
    unit = 1
    while True:
        for factor in FACTORS:
            if unit * factor * 2 > limit:
                return unit
            unit *= factor


@kernel_with(lambda _, starts, heads, *__: 3 * len(starts) * len(heads))
def _loads(
    unit: int, out_starts: IntArray, heads: IntArray, in_starts: IntArray, tails: IntArray, multiplicities: IntArray
) -> tuple[int, int]:
    """Return the largest load of a link, rounded up, and the sum of all distances; -1 if a node is unreachable."""
    size = len(out_starts) - 1
    loads = np.zeros(len(tails), dtype=np.int64)
    distances = np.empty(size, dtype=np.int64)
    demands = np.empty(size, dtype=np.int64)
    order = np.empty(size, dtype=np.int64)
    hops = 0
    for source in range(size):
        distances[:] = -1
        demands[:] = unit
        distances[source] = 0
        order[0] = source
        reached = 1
        for place in range(size):
            if place == reached:
                return -1, 0
            node = order[place]
            hops += distances[node]
            for link in range(out_starts[node], out_starts[node + 1]):
                if distances[heads[link]] < 0:
                    distances[heads[link]] = distances[node] + 1
                    order[reached] = heads[link]
                    reached += 1
        # Farthest first: a node receives its own demand and that of the nodes behind it.
        for place in range(size - 1, 0, -1):
            node = order[place]
            total = 0
            for link in range(in_starts[node], in_starts[node + 1]):
                if distances[tails[link]] == distances[node] - 1:
                    total += multiplicities[link]
            part = -(-demands[node] // total)
            for link in range(in_starts[node], in_starts[node + 1]):
                if distances[tails[link]] == distances[node] - 1:
                    loads[link] += part
                    demands[tails[link]] += part * multiplicities[link]
    return loads.max(), hops
