"""Demands and links as the kernels of the concurrent flow take them: whole numbers whose sums fit 64 bits."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import CapacityOverflowError
from ...topologies.graphs.orbits import LinkOrbits
from .soft_shortest_paths import Adjacent, adjacent

__all__ = ["MOST_SUMMED", "UNITS", "Instance", "instance", "scaled_needs"]

IntArray = npt.NDArray[np.int64]

LONGEST, LEAST_LONGEST = 2**26, 2**10
"""The greatest length, and what it may come down to where demands are so large that sums would leave 64 bits."""
SUM_LIMIT = 2**62
UNITS = 2**40
"""Units of flow of one round, all demands together."""
LOAD_BITS = 61
MOST_SUMMED = 64
"""Rounds whose loads may be added up."""


class Instance(NamedTuple):
    """A problem as the kernels take it.

    Attributes
    ----------
    links : Adjacent
    capacities : ndarray of int64, shape (links,)
    alike : LinkOrbits
    class_capacities : ndarray of int64, shape (classes,)
        Sums over the links of a kind.
    demands, needs : ndarray of int64, shape (sources, ranks)
        Of one source of each kind, as given and in units of flow.
    amount : Fraction
        Units of flow that a demand of 1 gets.
    longest : int
        The greatest length.
    """

    links: Adjacent
    capacities: IntArray
    alike: LinkOrbits
    class_capacities: IntArray
    demands: IntArray
    needs: IntArray
    amount: Fraction
    longest: int


def instance(
    num_nodes: int, tails: IntArray, heads: IntArray, capacities: IntArray, demands: IntArray, alike: LinkOrbits
) -> Instance:
    """Scale a problem.

    Parameters
    ----------
    num_nodes, tails, heads, capacities, demands
        As for `collopt.solvers.multicommodity.concurrent_flow.concurrent_flow`, checked.
    alike : LinkOrbits
        Of the network.

    Returns
    -------
    Instance

    Raises
    ------
    CapacityOverflowError
        If demands are too large.
    """
    class_capacities = np.zeros(len(alike.sizes), dtype=np.int64)
    np.add.at(class_capacities, alike.classes, capacities)
    rows = _rows(demands, alike.sources)
    most = max(_total(rows[row : row + 1]) for row in range(len(rows)))
    longest = min(LONGEST, (SUM_LIMIT - 1) // (most * num_nodes))
    if longest < LEAST_LONGEST:
        raise CapacityOverflowError(
            f"the demands of one rank add up to {most}, which times path lengths leaves 64 bits; "
            "state them in larger units"
        )
    needs, amount = scaled_needs(demands, alike.sources, num_nodes)
    return Instance(
        adjacent(num_nodes, tails, heads), capacities.copy(), alike, class_capacities, rows, needs, amount, longest
    )


def scaled_needs(demands: IntArray, sources: IntArray, num_nodes: int) -> tuple[IntArray, Fraction]:
    """Give demands in units of flow, rounded up, and how many units a demand of 1 gets at least: a power of 2.

    All demands together are less than `UNITS` units, or less still where `MOST_SUMMED` times the number of nodes
    times all of them would leave 64 bits.
    """
    limit = min(UNITS.bit_length() - 1, LOAD_BITS - (MOST_SUMMED * num_nodes).bit_length())
    shift = limit - (_total(demands) - _total(np.diagonal(demands))).bit_length()
    rows = _rows(demands, sources)
    if shift >= 0:
        return rows << shift, Fraction(1 << shift)
    return -(-rows >> -shift), Fraction(1, 1 << -shift)


def _rows(demands: IntArray, sources: IntArray) -> IntArray:
    rows = demands[sources]
    rows[np.arange(len(sources)), sources] = 0
    return np.ascontiguousarray(rows)


def _total(demands: IntArray) -> int:
    """Add up without leaving 64 bits."""
    return (int((demands >> 31).sum()) << 31) + int((demands & (2**31 - 1)).sum())
