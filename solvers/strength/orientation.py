"""Orientation of two-way links that leaves room for as many trees as the strength of the network allows.

Every link may carry trees in both directions, up to its capacity together.  Choose for each how much goes either way,
and at which ranks how many trees start, such that

- every rank can receive all trees: what enters any set of nodes with a rank is at least the number of trees that do not
  start in it (the condition under which trees can be packed: Edmonds, "Edge-disjoint branchings", 1973);
- every switch takes in what it gives out, so that it can be split off.

*It exists up to the strength, and not beyond.*  Write R for the number of trees, r(v) for those that start at rank v,
e(v) for half of what v takes in less what it gives out, and t = r + e.  If all of each link is used, ``d(S) / 2 +
e(S)`` enters a set S, so the first condition is ``t(S) >= R - d(S) / 2``, and t adds up to R: these are needs of ranks,
which exist exactly if R is at most the strength.  Any r that is not negative and adds up to R will do,
because a flow of e through links of half the capacity then exists.  It asks for ``e(S) <= d(S) / 2``; and
``t(S) = R - t(rest) <= d(S) / 2`` by the needs of the rest.  This flow, added to an even split of every
link, is the orientation, and leaves switches balanced.

(For switch-free networks this is Frank's theorem on rooted orientations, "On disjoint trees and arborescences", 1978,
and with Edmonds' theorem gives that of Tutte and Nash-Williams, 1961.)

*Needs of ranks* divide a number of trees so that every set of ranks has those that its links cannot bring.  If c(S)
trees can enter a set S of nodes, ``level - c(S)`` have to be its ranks' own.  Such numbers exist exactly if the level
is at most twice the strength (`collopt.solvers.strength.strength`): ranks that get the least that the sets of ranks
before them leave open need no more than the level in all.
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd
from typing import NamedTuple

import numba
import numpy as np

from ...errors import SolverError
from ...support import progress
from ...support.arrays import BoolArray, IntArray
from ..flow.max_flow import check_capacities, flow_network, solve_network
from .priced_cuts import PricedCuts, least_cut, priced_cuts
from .strength import Strength

__all__ = ["Orientation", "orient", "rank_needs"]


def rank_needs(
    num_nodes: int, tails: IntArray, heads: IntArray, capacities: IntArray, level: int, wish: IntArray
) -> IntArray:
    """Divide `level` among the ranks so that every set of ranks gets at least `level` less any cut around it.

    In symbols: ``need(all) = level``, and ``need(X) >= level - c(S)`` for every set of nodes S that holds the ranks X
    and no others.  Needs may be negative.  They are near the wish: first every rank gets what it wishes, or more if a
    cut asks for it; what is too much in all is then taken back, in equal steps as far as cuts allow.

    Shapes: `tails`, `heads`, `capacities` int64 (links,); `wish` int64 (ranks,); returns int64 (ranks,).

    A path of two unit links, whose strength is 1.  One link leads to each end, so each needs one of the two:

    >>> import numpy as np
    >>> rank_needs(3, np.array([0, 1]), np.array([1, 2]), np.array([1, 1]), 2, np.array([0, 2, 0])).tolist()
    [1, 0, 1]
    """
    check_capacities(4 * sum(map(int, capacities)) + 2 * level * (len(wish) + 1))
    cuts = priced_cuts(num_nodes, len(wish), tails, heads, capacities)
    needs, settled = np.zeros_like(wish), np.zeros(len(wish), dtype=np.bool_)
    for begin, end in progress.batches(len(wish)):
        _raise(cuts, level, begin, end, wish, needs, settled)
    # First in equal steps, then as much as cuts allow.
    for last in (False, True):
        excess = int(needs.sum()) - level
        limit = excess if last else excess // max(1, int((~settled).sum())) + 1
        for begin, end in progress.batches(len(wish)):
            _take_back(cuts, level, limit, begin, end, needs, settled)
    if (excess := int(needs.sum()) - level) > 0:
        raise SolverError(f"the unmet demand at level {level} is {excess}; the level is beyond twice the strength")
    return needs


@numba.njit(cache=True, nogil=True)
def _raise(
    cuts: PricedCuts, level: int, begin: int, end: int, wish: IntArray, needs: IntArray, settled: BoolArray
) -> None:
    """Give some ranks, once those before have theirs, what they wish, or more if a cut asks for it."""
    nodes, ranks = len(cuts.first), cuts.num_ranks
    scratch = np.empty((4, nodes), dtype=np.int64)
    residual = np.empty_like(cuts.capacities)
    active = np.arange(nodes) >= ranks
    active[:begin] = True
    for rank in range(begin, end):
        active[rank] = True
        least = level - least_cut(cuts, 1, needs, rank, active, residual, scratch)
        needs[rank] = max(wish[rank], least)
        if least >= wish[rank]:
            settled[:rank] |= scratch[0, :rank] < 0
            settled[rank] = True


@numba.njit(cache=True, nogil=True)
def _take_back(
    cuts: PricedCuts, level: int, limit: int, begin: int, end: int, needs: IntArray, settled: BoolArray
) -> None:
    """Take from some ranks what is too much in all, up to a limit each, as far as cuts allow."""
    nodes, ranks = len(cuts.first), cuts.num_ranks
    scratch = np.empty((4, nodes), dtype=np.int64)
    residual = np.empty_like(cuts.capacities)
    active = np.ones(nodes, dtype=np.bool_)
    excess: int = needs.sum() - level
    for rank in range(begin, end):
        if settled[rank] or excess == 0:
            continue
        spare = needs[rank] + least_cut(cuts, 1, needs, rank, active, residual, scratch) - level
        if spare <= min(limit, excess):
            settled |= scratch[0, :ranks] < 0
        needs[rank] -= min(spare, limit, excess)
        excess -= min(spare, limit, excess)


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
