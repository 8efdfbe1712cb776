"""All cuts of a small network, one by one: slow, and too simple to be wrong in the same way as the solvers."""

from __future__ import annotations

from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from collopt.topologies import Topology

__all__ = ["largest_ratio", "optimal_inverse_rate", "smallest_scale", "supplies_fit"]

Integers = npt.NDArray[np.int64]


def supplies_fit(
    num_nodes: int,
    tails: Integers,
    heads: Integers,
    capacities: Integers,
    supplies: Integers,
    num_sinks: int | None = None,
) -> bool:
    """Whether every set that misses a rank lets out all that its ranks supply (Theorem 8 of ForestColl).

    With `num_sinks` only the first so many ranks have to receive.
    """
    inside, leaving = _sides(num_nodes, tails, heads, capacities, supplies, num_sinks)
    return all(flow <= room for flow, room in zip(inside, leaving, strict=True))


def largest_ratio(
    num_nodes: int, tails: Integers, heads: Integers, capacities: Integers, weights: Integers
) -> Fraction:
    """Largest ratio of the weight inside a set that misses a rank to the capacity of the links that leave it."""
    inside, leaving = _sides(num_nodes, tails, heads, capacities, weights)
    return max(Fraction(int(weight), int(room)) for weight, room in zip(inside, leaving, strict=True) if weight)


def optimal_inverse_rate(topology: Topology) -> Fraction:
    """Inequality (*) of ForestColl section 4, in 1/(GB/s)."""
    scale = lcm(*(link.bandwidth.denominator for link in topology.links))
    tails = np.array([topology.nodes.index(link.tail) for link in topology.links])
    heads = np.array([topology.nodes.index(link.head) for link in topology.links])
    capacities = np.array([int(link.bandwidth * scale) for link in topology.links], dtype=object)
    ones = np.ones(topology.num_ranks, dtype=np.int64)
    return largest_ratio(len(topology.nodes), tails, heads, capacities, ones) * scale


def smallest_scale(
    num_nodes: int, tails: Integers, heads: Integers, capacities: Integers, supplies: Integers
) -> Fraction:
    """Smallest U such that links of capacity ``floor(U c)`` let the supplies through, from all candidates j / c."""
    highest = largest_ratio(num_nodes, tails, heads, capacities, supplies) + Fraction(1, int(capacities.min()))
    candidates = sorted({Fraction(j, c) for c in set(capacities.tolist()) for j in range(1, highest * c // 1 + 1)})
    for scale in candidates:
        floored = np.array([scale * c // 1 for c in capacities.tolist()])
        if supplies_fit(num_nodes, tails, heads, floored, supplies):
            return scale
    raise AssertionError("no candidate fits, against Theorem 13")


def _sides(
    num_nodes: int,
    tails: Integers,
    heads: Integers,
    capacities: Integers,
    supplies: Integers,
    num_sinks: int | None = None,
) -> tuple[list[Any], list[Any]]:
    """Supply inside, and capacity that leaves, of each set that misses a rank; Python's integers."""
    sets = (np.arange(2**num_nodes)[:, None] >> np.arange(num_nodes) & 1).astype(np.bool_)
    sets = sets[~sets[:, : len(supplies) if num_sinks is None else num_sinks].all(axis=1)]
    leaving = sets[:, tails] & ~sets[:, heads]
    inside = sets[:, : len(supplies)].astype(object) @ supplies.astype(object)
    return inside.tolist(), (leaving.astype(object) @ np.asarray(capacities, dtype=object)).tolist()
