"""Forests of demands: trees with rates in whole units, and the patterns that libraries use."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from math import lcm

import numpy as np

from ...errors import UnsupportedError
from ...schedules import DemandForest, Demands
from ...solvers.trees.steiner_trees import Tree
from ...topologies import Topology
from .packing import PackedTree, Pricing

Ways = Sequence[tuple[int, int]]
MAX_UNITS = 2**50  # of all trees together; finer rates are rounded
GRAINS = 2**30  # units of the smallest group, if rates are rounded and all units are not too many


def _copies(turn: int, sources: Sequence[int], targets: Sequence[int]) -> Ways:
    return [(sources[(turn + place) % len(sources)], target) for place, target in enumerate(targets)]


def _heap(turn: int, sources: Sequence[int], targets: Sequence[int], children: int) -> Ways:
    """Each destination receives from the one above it in a heap, the first from the source whose turn it is."""
    ranks = [sources[turn % len(sources)], *targets]
    return [(ranks[(place - 1) // children], ranks[place]) for place in range(1, len(ranks))]


PATTERNS: dict[str, Callable[[int, Sequence[int], Sequence[int]], Ways]] = {
    "item-copies": _copies,
    "item-chains": partial(_heap, children=1),
    "item-binary-trees": partial(_heap, children=2),
}
"""Who sends to whom, by the number of the group, its sources and its destinations."""


def fixed_forest(topology: Topology, demands: Demands, pattern: str) -> DemandForest:
    """Build one tree per group, of ways over few links."""
    pricing = Pricing(topology, demands)
    pricing.set_lengths(np.ones(topology.num_links, dtype=np.int64))
    trees = []
    for group, ends in enumerate(pricing.groups):
        tree = Tree(0, np.array(PATTERNS[pattern](group, *ends), dtype=np.int64))
        trees.append((pricing.expanded(group, tree), Fraction(1)))
    return weighted_forest(topology, demands, trees)


def weighted_forest(
    topology: Topology, demands: Demands, trees: Sequence[tuple[PackedTree, Fraction]], chunks: int | None = None
) -> DemandForest:
    """Count trees in whole units: `chunks` for each unit of data, or as many as their rates need."""
    shares: list[list[tuple[PackedTree, Fraction]]] = [[] for _ in demands.groups]
    for tree, rate in trees:
        shares[tree.group].append((tree, rate))
    for row in shares:
        total = sum((rate for _, rate in row), Fraction(0))
        row[:] = [(tree, rate / total) for tree, rate in row]
    weights = [group.weight for group in demands.groups]
    count = chunks or lcm(
        *(
            lcm(share.denominator, weight) // weight
            for weight, row in zip(weights, shares, strict=True)
            for _, share in row
        )
    )
    if count * sum(weights) > MAX_UNITS:
        if chunks:
            raise UnsupportedError(f"chunks is {chunks}, of each of {sum(weights)} units of data; expected fewer")
        count = max(1, min(GRAINS // min(weights), MAX_UNITS // sum(weights)))
    rows = []
    for number, (weight, row) in enumerate(zip(weights, shares, strict=True)):
        counts = _rounded([share for _, share in row], count * weight)
        rows += [(copies, tree.paths, number) for (tree, _), copies in zip(row, counts, strict=True) if copies]
    having = [set(sources) for sources, _ in demands.ends(topology)]
    begun = [min(path[0] for path in paths if path[0] in having[group]) for _, paths, group in rows]
    return DemandForest.of_trees(
        topology, demands, count, [(root, *row) for root, row in zip(begun, rows, strict=True)]
    )


def _rounded(shares: Sequence[Fraction], total: int) -> list[int]:
    """Divide a whole number by shares, the largest remainders rounded up (Hamilton)."""
    parts = [share * total for share in shares]
    counts = [int(part) for part in parts]
    order = sorted(range(len(parts)), key=lambda place: counts[place] - parts[place])
    for place in order[: total - sum(counts)]:
        counts[place] += 1
    return counts
