"""Exchanging links makes trees lower and changes nothing that a forest promises."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given

from collopt.solvers.flows.bottleneck import bottleneck_cut
from collopt.solvers.trees.height_reduction import lower_trees
from collopt.solvers.trees.tree_packing import Packing, pack_trees
from collopt.topologies import Topology, hypercube, torus
from strategies import switch_free_topologies

Integers = npt.NDArray[np.int64]


def packed(topology: Topology) -> tuple[Packing, Integers, Integers]:
    """An optimal packing, and the ends of the links."""
    tails, heads, capacities, _ = topology.arrays
    ones = np.ones(topology.num_ranks, dtype=np.int64)
    best = bottleneck_cut(topology.num_ranks, tails, heads, capacities, ones)
    packing = pack_trees(topology.num_ranks, tails, heads, capacities * best.supply, ones * best.capacity)
    return packing, tails, heads


def depths(packing: Packing, tails: Integers) -> list[list[int]]:
    """Hops from the root, found by climbing; fails on a cycle."""
    found = []
    for root, links in zip(packing.roots, packing.links, strict=True):
        found.append([])
        for rank in range(len(links)):
            node, hops = rank, 0
            while node != root:
                node, hops = tails[links[node]], hops + 1
                assert hops < len(links)
            found[-1].append(hops)
    return found


def energy(packing: Packing, tails: Integers) -> int:
    """What the search lowers."""
    rows = zip(packing.weights.tolist(), depths(packing, tails), strict=True)
    return sum(weight * sum(2**depth for depth in row) for weight, row in rows)


def uses(packing: Packing) -> tuple[Counter[int], Counter[int]]:
    """Copies on each link, and of each root."""
    links: Counter[int] = Counter()
    roots: Counter[int] = Counter()
    for root, weight, row in zip(packing.roots.tolist(), packing.weights.tolist(), packing.links, strict=True):
        roots[root] += weight
        for link in row[row >= 0].tolist():
            links[link] += weight
    return links, roots


@given(switch_free_topologies(max_ranks=8))
def test_loads_and_roots_stay_and_trees_span(topology: Topology) -> None:
    """Only how trees share the links changes, and never for the worse."""
    before, tails, heads = packed(topology)
    after = lower_trees(before, tails)
    assert uses(after) == uses(before)
    for root, row in zip(after.roots, after.links, strict=True):
        received = [rank for rank in range(len(row)) if rank != root]
        assert row[root] == -1
        assert heads[row[received]].tolist() == received
    assert energy(after, tails) <= energy(before, tails)


@pytest.mark.parametrize(("topology", "height"), [(torus(8, 8), 12), (hypercube(5), 7)])
def test_trees_come_close_to_the_diameter(topology: Topology, height: int) -> None:
    """8 and 5 are the diameters, which the packing alone exceeds by more."""
    packing, tails, _ = packed(topology)
    lowered = max(map(max, depths(lower_trees(packing, tails), tails)))
    assert lowered < max(map(max, depths(packing, tails)))
    assert lowered <= height
