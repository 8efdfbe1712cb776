"""Exact throughput bottleneck: the largest ratio of data that must leave a cut to the bandwidth that leaves it.

ForestColl section 4 and Theorem 1.  The paper brackets the optimum by binary search and rounds; here Newton's method
on cut ratios reaches it exactly with one sweep over the sinks:

    keep ``p / q``, the ratio of some real cut; for each sink ``v`` in turn, compute the maximum flow into ``v`` when
    every link of capacity ``c`` carries ``c p`` and every rank ``u`` injects ``w_u q``; while it falls short, replace
    ``p / q`` by the ratio of its minimum cut, which is larger; then go to the next sink.

A flow that falls short has, by Theorem 1, a minimum cut of ratio above ``p / q``, so the value only grows and always
belongs to a real cut.  "Sink ``v`` is satisfied" says that every cut without ``v`` has ratio at most ``p / q``, which
stays true as the value grows, so no sink is visited twice.  The number of flows is the number of sinks plus the
number of updates.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor, gcd
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from ..errors import SolverError
from .max_flow import FlowNetwork, augment, check_capacities, flow_network, paired_network

__all__ = ["Bottleneck", "bottleneck_cut", "fixed_count_scale", "supplied_network", "violated_sink"]

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

ENUMERATED = 4096
"""Candidate scales are listed once no more than this many are left."""


class Bottleneck(NamedTuple):
    """The largest cut ratio and a cut that has it.

    Attributes
    ----------
    supply, capacity : int
        In lowest terms: ``supply / capacity`` is the largest ratio of weight inside a cut to capacity that leaves it.
    source_side : ndarray of bool, shape (nodes,)
        A cut with this ratio.
    """

    supply: int
    capacity: int
    source_side: BoolArray


def supplied_network(num_nodes: int, tails: IntArray, heads: IntArray, capacities: IntArray) -> FlowNetwork:
    """Add a source, node number `num_nodes`, to a network with an arc to every node in order of its number.

    The arcs of the source come last: the arc to node ``v`` is number ``arcs - 2 (num_nodes - v)``; all carry nothing
    yet.  Links must not be parallel.
    """
    network = paired_network(num_nodes, tails, heads, capacities)
    links = slice(0, len(network.heads), 2)
    return flow_network(
        num_nodes + 1,
        np.concatenate([network.heads[1::2], np.full(num_nodes, num_nodes)]),
        np.concatenate([network.heads[links], np.arange(num_nodes)]),
        np.concatenate([network.capacities[links], np.zeros(num_nodes, dtype=np.int64)]),
        np.concatenate([network.capacities[1::2], np.zeros(num_nodes, dtype=np.int64)]),
    )


def bottleneck_cut(
    num_nodes: int,
    tails: IntArray,
    heads: IntArray,
    capacities: IntArray,
    weights: IntArray,
) -> Bottleneck:
    """Find the largest ``w(S) / c(S)`` over node sets S that miss some rank, exactly.

    ``w(S)`` adds the weights of the ranks in S and ``c(S)`` the capacities of the links that leave S: inequality (*) of
    ForestColl section 4 when all weights are 1.

    Parameters
    ----------
    num_nodes : int
        Ranks are nodes ``0 .. len(weights) - 1``; the rest are switches.
    tails, heads, capacities : ndarray of int64, shape (links,)
        Links, not parallel, with positive capacities.
    weights : ndarray of int64, shape (ranks,)
        Positive amount that each rank must deliver to every other.

    Returns
    -------
    Bottleneck

    Raises
    ------
    SolverError
        If some rank cannot be reached from another (the ratio is infinite); callers check that first.
    CapacityOverflowError
        If exact arithmetic would leave int64.
    """
    total_weight, total_capacity = int(weights.sum()), sum(map(int, capacities))
    # Every ratio met has a numerator below total_weight and a denominator of at most total_capacity.
    check_capacities((total_capacity + 1) * total_weight)
    network = supplied_network(num_nodes, tails, heads, capacities)
    supply, capacity, source_side = _newton_sweep(
        *network, weights, *_first_ratio(num_nodes, heads, capacities, weights)
    )
    if capacity == 0:
        raise SolverError("a rank cannot be reached from another one; the bottleneck ratio is infinite")
    return Bottleneck(int(supply), int(capacity), source_side[:num_nodes])


def _first_ratio(
    num_nodes: int, heads: IntArray, capacities: IntArray, weights: IntArray
) -> tuple[int, int, BoolArray]:
    """Best cut of the form "everything but one rank": the lower bound that opens Algorithm 1."""
    ingress = np.bincount(heads, weights=None, minlength=num_nodes) * 0
    np.add.at(ingress, heads, capacities)
    rank = max(range(len(weights)), key=lambda v: Fraction(int(weights.sum() - weights[v]), max(int(ingress[v]), 1)))
    supply, capacity = int(weights.sum() - weights[rank]), max(int(ingress[rank]), 1)
    source_side = np.ones(num_nodes + 1, dtype=np.bool_)
    source_side[rank] = False
    common = gcd(supply, capacity)
    return supply // common, capacity // common, source_side


def violated_sink(network: FlowNetwork, supplies: IntArray) -> int:
    """Return a rank that cannot receive every supply, or -1 if each can (the maximum flow test of Theorem 1).

    Parameters
    ----------
    network : FlowNetwork
        From `supplied_network`.
    supplies : ndarray of int64, shape (ranks,)
        What the source sends to each rank.
    """
    return int(_violated_sink(*network, supplies))


def fixed_count_scale(
    num_nodes: int,
    tails: IntArray,
    heads: IntArray,
    capacities: IntArray,
    weights: IntArray,
    count: int,
) -> Fraction:
    """Smallest U such that links of capacity ``floor(U c)`` carry `count` trees per unit of weight (Algorithm 5).

    The paper bisects floats; here every step is a fraction.  U is feasible from ``k / x*`` plus ``1 / min c`` on
    (Theorem 13) and infeasible below ``k / x*``; between them the answer is ``j / c`` for an integer j and some
    capacity c (Appendix E.4), so the interval is halved until few candidates are left, and these are searched one by
    one.

    Parameters
    ----------
    num_nodes : int
        As in `bottleneck_cut`.
    tails, heads, capacities : ndarray of int64, shape (links,)
        As in `bottleneck_cut`.
    weights : ndarray of int64, shape (ranks,)
        As in `bottleneck_cut`.
    count : int
        Trees per root and unit of weight, the paper's k.

    Returns
    -------
    Fraction

    Raises
    ------
    CapacityOverflowError
        If exact arithmetic would leave int64.
    """
    best = bottleneck_cut(num_nodes, tails, heads, capacities, weights)
    sizes = np.unique(capacities).tolist()
    ideal = Fraction(best.supply, best.capacity) * count
    low, high = ideal, ideal + Fraction(1, sizes[0])
    check_capacities(sum(map(int, capacities)) * ceil(high), int(weights.sum()) * count)
    network = supplied_network(num_nodes, tails, heads, capacities)

    def feasible(scale: Fraction) -> bool:
        scaled = _floored(network.capacities, scale)
        return violated_sink(network._replace(capacities=scaled), weights * count) < 0

    if feasible(low):
        return low
    # Each size can have a candidate at the answer itself, however short the interval.
    while sum(floor(high * size) - floor(low * size) for size in sizes) > ENUMERATED + len(sizes):
        middle = (low + high) / 2
        low, high = (low, middle) if feasible(middle) else (middle, high)
    candidates = sorted(
        {Fraction(step, size) for size in sizes for step in range(floor(low * size) + 1, floor(high * size) + 1)}
    )
    first, last = 0, len(candidates) - 1
    while first < last:
        middle_index = (first + last) // 2
        if feasible(candidates[middle_index]):
            last = middle_index
        else:
            first = middle_index + 1
    return candidates[first]


def _floored(capacities: IntArray, scale: Fraction) -> IntArray:
    """``floor(scale * c)`` in exact integers of any size."""
    values = {int(c): int(c) * scale.numerator // scale.denominator for c in np.unique(capacities)}
    return np.array([values[int(c)] for c in capacities], dtype=np.int64)


@numba.njit(cache=True, nogil=True)
def _common_divisor(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


@numba.njit(cache=True, nogil=True)
def _newton_sweep(
    first: IntArray,
    following: IntArray,
    heads: IntArray,
    capacities: IntArray,
    weights: IntArray,
    supply: int,
    capacity: int,
    source_side: BoolArray,
) -> tuple[int, int, BoolArray]:
    """One pass over the sinks as in the module's docstring; a returned capacity of 0 means an unreachable rank."""
    nodes = len(first)
    source, source_arcs = nodes - 1, len(heads) - 2 * (nodes - 1)
    levels, cursor = np.empty(nodes, dtype=np.int64), np.empty(nodes, dtype=np.int64)
    queue, path = np.empty(nodes, dtype=np.int64), np.empty(nodes, dtype=np.int64)
    residual = np.empty_like(capacities)
    total = weights.sum()
    for sink in range(len(weights)):
        while True:
            residual[:source_arcs] = capacities[:source_arcs] * supply
            residual[source_arcs:] = 0
            for rank in range(len(weights)):
                residual[source_arcs + 2 * rank] = weights[rank] * capacity
            needed = total * capacity
            if augment(first, following, heads, residual, source, sink, needed, levels, cursor, queue, path) == needed:
                break
            inside, leaving = 0, 0
            for rank in range(len(weights)):
                if levels[rank] < 0:
                    inside += weights[rank]
            for arc in range(source_arcs):
                if levels[heads[arc ^ 1]] < 0 and levels[heads[arc]] >= 0:
                    leaving += capacities[arc]
            for node in range(nodes):
                source_side[node] = levels[node] < 0
            if leaving == 0:
                return inside, 0, source_side
            common = _common_divisor(inside, leaving)
            supply, capacity = inside // common, leaving // common
    return supply, capacity, source_side


@numba.njit(cache=True, nogil=True)
def _violated_sink(
    first: IntArray, following: IntArray, heads: IntArray, capacities: IntArray, supplies: IntArray
) -> int:
    nodes = len(first)
    source, source_arcs = nodes - 1, len(heads) - 2 * (nodes - 1)
    levels, cursor = np.empty(nodes, dtype=np.int64), np.empty(nodes, dtype=np.int64)
    queue, path = np.empty(nodes, dtype=np.int64), np.empty(nodes, dtype=np.int64)
    residual = np.empty_like(capacities)
    needed = supplies.sum()
    for sink in range(len(supplies)):
        residual[:] = capacities
        for rank in range(len(supplies)):
            residual[source_arcs + 2 * rank] = supplies[rank]
        if augment(first, following, heads, residual, source, sink, needed, levels, cursor, queue, path) < needed:
            return sink
    return -1
