"""Strength of a network of bidirectional links, by Newton's method and Dilworth truncation.

The minimum of ``(d(S_1) + .. + d(S_p)) / (2 (p - 1))`` over disjoint node sets, p >= 2, that each hold a rank and
together hold all; d(S) is the capacity of links with one end in S (Cunningham, 1985; Barahona, 1992).  The sets of a
round are contracted for the next.  Proof: docs/explanation/algorithms.md.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...errors import SolverError
from ...support import progress
from ...support.arrays import IntArray
from ...support.compiling.kernels import kernel
from ..flow.max_flow import check_capacities
from .node_weighted_cuts import NodeWeightedCuts, add_switches, min_cut_around, node_weighted_cuts


class Strength(NamedTuple):
    """The strength of a network and a family of sets that has it."""

    value: Fraction  # in units of capacity
    labels: IntArray  # int64 (nodes,): number of the set that each node is in, from 0; -1 for switches in none


def strength(num_nodes: int, num_ranks: int, tails: IntArray, heads: IntArray, capacities: IntArray) -> Strength:
    """Find the strength of a network and a family of sets that has it, exactly."""
    # Capacities are multiplied by denominators of at most 2 (num_ranks - 1); demands are at most four times the total.
    check_capacities(16 * sum(map(int, capacities)) * num_ranks)
    labels = np.where(np.arange(num_nodes) < num_ranks, np.arange(num_nodes), -1)
    # Index of every node in the contracted network, where the parts come first.
    groups, parts = np.arange(num_nodes), num_ranks
    value = _ratio(labels, tails, heads, capacities)
    while value > 0:
        ends = groups[tails], groups[heads]
        apart = ends[0] != ends[1]
        cuts = node_weighted_cuts(int(groups.max()) + 1, parts, ends[0][apart], ends[1][apart], capacities[apart])
        blocks = np.unique(_blocks(cuts, value), return_inverse=True)[1]
        parts = int(blocks.max()) + 1
        if parts == 1:
            return Strength(value, labels)
        sets = np.full(len(cuts.network.first_arc) - 2, -1, dtype=np.int64)
        sets[: len(blocks)] = blocks
        if len(sets) > len(blocks):
            add_switches(cuts, parts, sets)
        better = _ratio(sets[groups], tails, heads, capacities)
        if better == value:
            return Strength(value, labels)
        labels, value = sets[groups], better
        # Switches in no set stay nodes of their own, after the sets.
        sets[sets < 0] = parts + np.arange(int((sets < 0).sum()))
        groups = sets[groups]
    raise SolverError("the links do not connect the ranks; the strength is 0")


def _ratio(labels: IntArray, tails: IntArray, heads: IntArray, capacities: IntArray) -> Fraction:
    """Return the value of a family of sets."""
    ends = np.stack([labels[tails], labels[heads]])
    crossings = (ends >= 0).sum(axis=0) * (ends[0] != ends[1])
    return Fraction(int((crossings * capacities).sum()), 2 * int(labels.max()))


def _blocks(cuts: NodeWeightedCuts, value: Fraction) -> IntArray:
    """Compute the least demands of all ranks in turn; return the blocks, labeled by one of their ranks."""
    factor, level = value.denominator, 2 * value.numerator
    demands, blocks = np.zeros(cuts.num_ranks, dtype=np.int64), np.arange(cuts.num_ranks)
    for begin, end in progress.batches(cuts.num_ranks):
        _merge_blocks(cuts, factor, level, begin, end, demands, blocks)
    return blocks


@kernel
def _merge_blocks(
    cuts: NodeWeightedCuts, factor: int, level: int, begin: int, end: int, demands: IntArray, blocks: IntArray
) -> None:
    """Compute the demands of ranks ``begin .. end - 1`` and merge each with the blocks whose constraint is tight."""
    active = np.arange(len(cuts.network.first_arc)) >= cuts.num_ranks
    active[:begin] = True
    for rank in range(begin, end):
        active[rank] = True
        demands[rank] = level - min_cut_around(cuts, factor, demands, rank, active)
        for other in range(rank):
            if cuts.scratch[0, other] < 0:
                blocks[other] = rank
