"""Strength of a small network by all partitions, and the narrowest cut around every set of its ranks."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import numpy.typing as npt

__all__ = ["narrowest_cuts", "strength_of_graph", "strength_of_network"]

Integers = npt.NDArray[np.int64]


def strength_of_graph(num_ranks: int, tails: Integers, heads: Integers, capacities: Integers) -> Fraction:
    """Without switches: capacity between parts over their number less one, the smallest over all partitions."""
    labels = all_partitions(num_ranks)[1:]  # the first has one part
    between = (labels[:, tails] != labels[:, heads]) @ capacities
    parts = labels.max(axis=1)
    return min(Fraction(int(between[parts == count].min()), int(count)) for count in np.unique(parts))


def strength_of_network(
    num_nodes: int, num_ranks: int, tails: Integers, heads: Integers, capacities: Integers
) -> Fraction:
    """With switches: half the sum of the narrowest cuts around parts of the ranks over their number less one."""
    narrowest = narrowest_cuts(num_nodes, num_ranks, tails, heads, capacities)
    ratios = []
    for labels in all_partitions(num_ranks)[1:].tolist():
        members = [0] * (max(labels) + 1)
        for rank, label in enumerate(labels):
            members[label] += 1 << rank
        ratios.append(Fraction(sum(int(narrowest[mask]) for mask in members), 2 * max(labels)))
    return min(ratios)


def narrowest_cuts(num_nodes: int, num_ranks: int, tails: Integers, heads: Integers, capacities: Integers) -> Integers:
    """Smallest capacity around sets with exactly the ranks of a bit mask; shape (2 ** num_ranks,)."""
    sets = (np.arange(2**num_nodes)[:, None] >> np.arange(num_nodes) & 1).astype(np.bool_)
    around = (sets[:, tails] != sets[:, heads]) @ capacities
    smallest: Integers = around.reshape(-1, 2**num_ranks).min(axis=0)
    return smallest


@cache
def all_partitions(count: int) -> Integers:
    """All partitions of `count` things: the part of each, numbered in the order of first members; one part first."""
    rows = [[0]]
    for _ in range(count - 1):
        rows = [[*row, label] for row in rows for label in range(max(row) + 2)]
    return np.array(rows, dtype=np.int64)
