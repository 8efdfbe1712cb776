"""Orientation of bidirectional links for a tree packing as large as the strength of the network.

The division of every link and the number of trees rooted at each rank, such that every rank can receive all trees
(Edmonds, 1973) and every switch is balanced; it exists up to the strength.  *Demands of ranks* divide a number of trees
among the ranks, at least ``level - c(S)`` in every set S.  Proof: docs/explanation/algorithms.md.
"""

from fractions import Fraction
from math import gcd
from typing import NamedTuple

import numpy as np

from ...errors import SolverError
from ...support import progress
from ...support.arrays import BoolArray, IntArray
from ...support.compiling.kernels import kernel
from ..flow.max_flow import check_capacities, flow_network, solve_network
from .node_weighted_cuts import NodeWeightedCuts, min_cut_around, node_weighted_cuts
from .strength import Strength


class Orientation(NamedTuple):
    """Capacity for trees on every link and direction, and the roots of the trees."""

    # Trees per unit of capacity: ``forward + backward`` is at most ``scale`` times the capacity of a link
    scale: Fraction
    supplies: IntArray  # int64 (ranks,): number of trees that start at each rank; together ``scale`` times the strength
    forward: IntArray  # int64 (links,): trees that each link may carry from its tail to its head
    backward: IntArray  # int64 (links,): trees that each link may carry from its head to its tail


def orient(
    num_nodes: int, num_ranks: int, tails: IntArray, heads: IntArray, capacities: IntArray, best: Strength
) -> Orientation:
    """Orient links for as many trees as the strength allows, in integers and with balanced numbers of roots.

    If an even split of every link allows it, all ranks have equally many roots; otherwise the numbers differ by one.
    """
    # Half of each link is a whole number of trees.
    level, half = 2 * best.value.numerator, best.value.denominator
    even = num_ranks // gcd(num_ranks, level)
    check_capacities(4 * even * half * sum(map(int, capacities)))
    supplies = np.full(num_ranks, level * even // num_ranks)
    demands = balanced_demands(num_nodes, tails, heads, capacities * half * even, level * even, supplies)
    if np.array_equal(demands, supplies):
        half *= even
    else:
        # Links are not split evenly in any case, and coarser units give fewer trees.
        supplies = level // num_ranks + (np.arange(num_ranks) < level % num_ranks)
        demands = balanced_demands(num_nodes, tails, heads, capacities * half, level, supplies)
    halves = capacities * half
    shift = _shift(num_nodes, tails, heads, halves, demands - supplies)
    forward, backward = halves + shift, halves - shift
    common = gcd(*supplies.tolist(), *forward.tolist(), *backward.tolist())
    return Orientation(Fraction(2 * half, common), supplies // common, forward // common, backward // common)


def _shift(num_nodes: int, tails: IntArray, heads: IntArray, halves: IntArray, surplus: IntArray) -> IntArray:
    """Find a flow from tail to head that brings each rank its surplus, through links of half the capacity."""
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
    assert flow.value == taken.sum(), "the demands of all ranks allow this flow"
    return halves - flow.residual[: 2 * len(halves) : 2]


def balanced_demands(
    num_nodes: int, tails: IntArray, heads: IntArray, capacities: IntArray, level: int, target: IntArray
) -> IntArray:
    """Divide `level` among the ranks so that every set of ranks gets at least `level` minus any cut around it.

    Demands may be negative.  They are near `target`: every rank first gets its target, or more if a cut requires it;
    the excess is then removed in equal steps as far as cuts allow.  Shapes: `target` and result int64 (ranks,).
    """
    check_capacities(4 * sum(map(int, capacities)) + 2 * level * (len(target) + 1))
    cuts = node_weighted_cuts(num_nodes, len(target), tails, heads, capacities)
    demands, tight = np.zeros_like(target), np.zeros(len(target), dtype=np.bool_)
    for begin, end in progress.batches(len(target)):
        _raise(cuts, level, begin, end, target, demands, tight)
    # First in equal steps, then as much as cuts allow.
    for last in (False, True):
        excess = int(demands.sum()) - level
        limit = excess if last else excess // max(1, int((~tight).sum())) + 1
        for begin, end in progress.batches(len(target)):
            _remove_excess(cuts, level, limit, begin, end, demands, tight)
    if (excess := int(demands.sum()) - level) > 0:
        raise SolverError(f"the unmet demand at level {level} is {excess}; the level is beyond twice the strength")
    return demands


@kernel
def _raise(
    cuts: NodeWeightedCuts, level: int, begin: int, end: int, target: IntArray, demands: IntArray, tight: BoolArray
) -> None:
    """Give ranks ``begin .. end - 1`` their target, or more if a cut with earlier ranks requires it."""
    active = np.arange(len(cuts.network.first_arc)) >= cuts.num_ranks
    active[:begin] = True
    for rank in range(begin, end):
        active[rank] = True
        least = level - min_cut_around(cuts, 1, demands, rank, active)
        demands[rank] = max(target[rank], least)
        if least >= target[rank]:
            tight[:rank] |= cuts.scratch[0, :rank] < 0
            tight[rank] = True


@kernel
def _remove_excess(
    cuts: NodeWeightedCuts, level: int, limit: int, begin: int, end: int, demands: IntArray, tight: BoolArray
) -> None:
    """Remove excess from ranks ``begin .. end - 1``, up to `limit` each, as far as cuts allow."""
    active = np.ones(len(cuts.network.first_arc), dtype=np.bool_)
    excess: int = demands.sum() - level
    for rank in range(begin, end):
        if tight[rank] or excess == 0:
            continue
        spare = demands[rank] + min_cut_around(cuts, 1, demands, rank, active) - level
        if spare <= min(limit, excess):
            tight |= cuts.scratch[0, : cuts.num_ranks] < 0
        demands[rank] -= min(spare, limit, excess)
        excess -= min(spare, limit, excess)
