"""Exact bottleneck cut by Newton's method: the largest ratio of supply inside a cut to its egress capacity.

ForestColl section 4 and Theorem 1: a deficit of the maximum flow into a sink, with links of ``c p`` and ranks that
inject ``w_u q``, yields a cut of a ratio above ``p / q``.  No sink is visited twice.  Proof:
docs/explanation/algorithms.md.
"""

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, floor, gcd
from typing import NamedTuple

import numpy as np

from ...errors import SolverError
from ...support import progress
from ...support.arrays import BoolArray, IntArray
from ...support.kernels import kernel, kernel_with
from .max_flow import FlowNetwork, check_capacities, paired_network, steps_of_sinks, unmet_demand, workspace

MAX_ENUMERATED = 4096  # candidate scales are enumerated once at most this many are left


class Bottleneck(NamedTuple):
    """The largest cut ratio and a cut that has it."""

    supply: int  # weight inside the cut, over the greatest common divisor of both
    capacity: int  # capacity that leaves the cut, likewise
    source_side: BoolArray  # bool (nodes,): a cut with this ratio


def bottleneck_cut(
    num_nodes: int,
    tails: IntArray,
    heads: IntArray,
    capacities: IntArray,
    weights: IntArray,
    sinks: Sequence[int] | None = None,
) -> Bottleneck:
    """Find the largest ``w(S) / c(S)`` over node sets S that miss some rank, exactly: (*) of ForestColl section 4.

    With `sinks`, S misses one of these; on a symmetric network, one rank of each orbit is enough.
    """
    total_weight, total_capacity = int(weights.sum()), sum(map(int, capacities))
    # Every ratio has a numerator below total_weight and a denominator of at most total_capacity.
    check_capacities((total_capacity + 1) * total_weight)
    network = paired_network(num_nodes, tails, heads, capacities)
    best = _first_ratio(num_nodes, heads, capacities, weights)
    spans = progress.batches(len(weights)) if sinks is None else [(sink, sink + 1) for sink in sinks]
    for begin, end in spans:
        best = _newton_sweep(network, weights, begin, end, *best)
        if best[1] == 0:
            raise SolverError("a rank cannot be reached from another one; the bottleneck ratio is infinite")
    supply, capacity, source_side = best
    return Bottleneck(int(supply), int(capacity), source_side)


def _first_ratio(
    num_nodes: int, heads: IntArray, capacities: IntArray, weights: IntArray
) -> tuple[int, int, BoolArray]:
    """Find the best cut around all nodes but one rank: the initial lower bound of Algorithm 1."""
    ingress = np.zeros(num_nodes, dtype=np.int64)
    np.add.at(ingress, heads, capacities)
    # The sweep detects a rank without ingress.
    pairs = np.column_stack([weights.sum() - weights, np.maximum(ingress[: len(weights)], 1)])
    kinds, first = np.unique(pairs, axis=0, return_index=True)
    ratio, rank = max((Fraction(*kind), -place) for kind, place in zip(kinds.tolist(), first.tolist(), strict=True))
    source_side = np.ones(num_nodes, dtype=np.bool_)
    source_side[-rank] = False
    return ratio.numerator, ratio.denominator, source_side


def violated_sink(network: FlowNetwork, supplies: IntArray) -> int:
    """Return a rank that cannot receive every supply, or -1 if all can (the max-flow test of Theorem 1)."""
    for begin, end in progress.batches(len(supplies)):
        if (sink := int(_violated_sink(network, supplies, begin, end))) >= 0:
            return sink
    return -1


def fixed_count_scale(
    num_nodes: int, tails: IntArray, heads: IntArray, capacities: IntArray, weights: IntArray, count: int
) -> Fraction:
    """Smallest U such that links of capacity ``floor(U c)`` carry `count` trees per unit of weight (Algorithm 5).

    Every step is a fraction.  U lies between ``k / x*`` and ``1 / min c`` more (Theorem 13), and is ``j / c`` for an
    integer j and some capacity c (Appendix E.4).
    """
    best = bottleneck_cut(num_nodes, tails, heads, capacities, weights)
    sizes = np.unique(capacities).tolist()
    ideal = Fraction(best.supply, best.capacity) * count
    low, high = ideal, ideal + Fraction(1, sizes[0])
    check_capacities(sum(map(int, capacities)) * ceil(high), int(weights.sum()) * count)
    network = paired_network(num_nodes, tails, heads, capacities)
    kinds, kind = np.unique(network.capacities, return_inverse=True)

    def feasible(scale: Fraction) -> bool:
        # In Python's integers: the products may not fit int64 where the results do.
        floored = np.array([size * scale.numerator // scale.denominator for size in kinds.tolist()])
        return violated_sink(network._replace(capacities=floored[kind]), weights * count) < 0

    return low if feasible(low) else _least_scale(sizes, low, high, feasible)


def _least_scale(sizes: list[int], low: Fraction, high: Fraction, feasible: Callable[[Fraction], bool]) -> Fraction:
    """Find the smallest feasible ``step / size`` above `low` and up to `high`, which has to be feasible."""

    def between() -> int:
        return sum(floor(high * size) - floor(low * size) for size in sizes)

    # Each test halves the candidates, or nearly.
    tests = itertools.count(1)
    with progress.task((between() + len(sizes)).bit_length() + 1) as reached:
        # Each size can have a candidate at the answer itself, however short the interval.
        while between() > MAX_ENUMERATED + len(sizes):
            middle = (low + high) / 2
            low, high = (low, middle) if feasible(middle) else (middle, high)
            reached(next(tests))
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
            reached(next(tests))
    return candidates[first]


@kernel_with(steps_of_sinks)
def _newton_sweep(
    network: FlowNetwork, weights: IntArray, begin: int, end: int, supply: int, capacity: int, source_side: BoolArray
) -> tuple[int, int, BoolArray]:
    """Run Newton's method over sinks ``begin .. end - 1``; a returned capacity of 0 means an unreachable rank."""
    space = workspace(len(network.first_arc))
    for sink in range(begin, end):
        while unmet_demand(network, network.capacities * supply, weights * capacity, sink, space) > 0:
            source_side = space.labels < 0
            supply, capacity = cut_ratio(network, weights, ~source_side)
            if capacity == 0:
                return supply, 0, source_side
            common = gcd(supply, capacity)
            supply, capacity = supply // common, capacity // common
    return supply, capacity, source_side


@kernel
def cut_ratio(network: FlowNetwork, weights: IntArray, sink_side: BoolArray) -> tuple[int, int]:
    """Return the weight outside a node set and the capacity entering it, not in lowest terms."""
    heads, capacities = network.heads, network.capacities
    outside, entering = 0, 0
    for rank in range(len(weights)):
        if not sink_side[rank]:
            outside += weights[rank]
    for arc in range(len(heads)):
        if not sink_side[heads[arc ^ 1]] and sink_side[heads[arc]]:
            entering += capacities[arc]
    return outside, entering


@kernel_with(steps_of_sinks)
def _violated_sink(network: FlowNetwork, supplies: IntArray, begin: int, end: int) -> int:
    space = workspace(len(network.first_arc))
    for sink in range(begin, end):
        if unmet_demand(network, network.capacities.copy(), supplies, sink, space) > 0:
            return sink
    return -1
