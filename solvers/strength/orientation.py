"""Orientation of two-way links that leaves room for as many trees as the strength of the network allows.

Every link may carry trees in both directions, up to its capacity together.  Choose for each how much goes either way,
and at which ranks how many trees start, such that

- every rank can receive all trees: what enters any set of nodes with a rank is at least the number of trees that do not
  start in it (the condition under which trees can be packed: Edmonds, "Edge-disjoint branchings", 1973);
- every switch takes in what it gives out, so that it can be split off.

*It exists up to the strength, and not beyond.*  Write R for the number of trees, r(v) for those that start at rank v,
e(v) for half of what v takes in less what it gives out, and t = r + e.  If all of each link is used, ``d(S) / 2 +
e(S)`` enters a set S, so the first condition is ``t(S) >= R - d(S) / 2``, and t adds up to R: these are the needs of
`collopt.solvers.strength.rank_demands`, which exist exactly if R is at most the strength.  Any r that is not negative
and adds up to R will do, because a flow of e through links of half the capacity then exists.  It asks for ``e(S) <=
d(S) / 2``; and ``t(S) = R - t(rest) <= d(S) / 2`` by the needs of the rest.  This flow, added to an even split of every
link, is the orientation, and leaves switches balanced.

(For switch-free networks this is Frank's theorem on rooted orientations, "On disjoint trees and arborescences", 1978,
and with Edmonds' theorem gives that of Tutte and Nash-Williams, 1961.)
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd
from typing import NamedTuple

import numpy as np

from ...support.arrays import IntArray
from ..flow.max_flow import check_capacities, flow_network, solve_network
from .rank_demands import rank_needs
from .strength import Strength

__all__ = ["Orientation", "orient"]


class Orientation(NamedTuple):
    """Room for trees on every link, and where they start.

    `scale`: Trees per unit of capacity: ``forward + backward`` is at most ``scale`` times the capacity of a link.
    `supplies` (int64 (ranks,)): Number of trees that start at each rank; together ``scale`` times the strength.
    `forward`, `backward` (int64 (links,)): Trees that each link may carry from its tail to its head, and back.
    """

    scale: Fraction
    supplies: IntArray
    forward: IntArray
    backward: IntArray


def orient(
    num_nodes: int, num_ranks: int, tails: IntArray, heads: IntArray, capacities: IntArray, best: Strength
) -> Orientation:
    """Orient links for as many trees as the strength allows, in whole numbers; as many start at one rank as at another.

    Where an even split of every link allows that, exactly as many; elsewhere the numbers may differ by one.

    A path of two unit links has one tree.  One half starts at an end and one half in the middle, so that both lead over
    the second link in the same direction:

    >>> import numpy as np
    >>> from collopt.solvers.strength.strength import strength
    >>> path = 3, 3, np.array([0, 1]), np.array([1, 2]), np.array([1, 1])
    >>> room = orient(*path, strength(*path))
    >>> room.supplies.tolist(), room.forward.tolist(), room.backward.tolist()
    ([1, 1, 0], [1, 2], [1, 0])
    """
    # Halves of links are whole numbers of trees.
    level, half = 2 * best.value.numerator, best.value.denominator
    even = num_ranks // gcd(num_ranks, level)
    check_capacities(4 * even * half * sum(map(int, capacities)))
    supplies = np.full(num_ranks, level * even // num_ranks)
    needs = rank_needs(num_nodes, tails, heads, capacities * half * even, level * even, supplies)
    if np.array_equal(needs, supplies):
        half *= even
    else:
        # Links are not split evenly anyway, and coarser units make fewer trees.
        supplies = level // num_ranks + (np.arange(num_ranks) < level % num_ranks)
        needs = rank_needs(num_nodes, tails, heads, capacities * half, level, supplies)
    halves = capacities * half
    shift = _shift(num_nodes, tails, heads, halves, needs - supplies)
    forward, backward = halves + shift, halves - shift
    common = gcd(*supplies.tolist(), *forward.tolist(), *backward.tolist())
    return Orientation(Fraction(2 * half, common), supplies // common, forward // common, backward // common)


def _shift(num_nodes: int, tails: IntArray, heads: IntArray, halves: IntArray, surplus: IntArray) -> IntArray:
    """Per link, a flow that brings each rank its surplus, from tail to head, through links of half the capacity."""
    ranks, source, sink = np.arange(len(surplus)), num_nodes, num_nodes + 1
    given, taken = np.maximum(-surplus, 0), np.maximum(surplus, 0)
    network = flow_network(
        num_nodes + 2,
        np.concatenate([tails, np.full_like(ranks, source), ranks]),
        np.concatenate([heads, ranks, np.full_like(ranks, sink)]),
        np.concatenate([halves, given, taken]),
        np.concatenate([halves, np.zeros_like(given), np.zeros_like(taken)]),
    )
    flow = solve_network(network, source, sink)
    assert flow.value == taken.sum(), "the needs of all ranks leave room for this flow"
    return halves - flow.residual[: 2 * len(halves) : 2]
