"""Strength of networks of two-way links against all partitions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from collopt.errors import SolverError
from collopt.solvers.trees.strength import Strength, balanced_demands, strength
from collopt.topologies import Topology, complete, dgx_a100, hypercube, mi250, ring, torus
from oracles.partitions import allreduce_limit
from oracles.strengths import strength_of_graph, strength_of_network
from sample_sizes import examples
from two_way_networks import TwoWay, random_regular, two_way, two_way_topologies

SWITCHED = two_way_topologies(max_ranks=6, max_switches=4)


def value_of(network: TwoWay, best: Strength) -> Fraction:
    """Add up the sets that a strength comes with, set by set, and check that they are such sets."""
    labels = best.labels.tolist()
    assert len(labels) == network.num_nodes
    assert min(labels[: network.num_ranks]) >= 0
    assert set(labels[: network.num_ranks]) == set(labels) - {-1} == set(range(max(labels) + 1))
    total = 0
    for label in range(max(labels) + 1):
        for tail, head, capacity in zip(network.tails, network.heads, network.capacities, strict=True):
            total += int(capacity) * ((labels[tail] == label) != (labels[head] == label))
    return Fraction(total, 2 * max(labels))


@given(two_way_topologies(max_ranks=8, max_switches=0, max_bandwidth=20))
@settings(max_examples=examples(250))
def test_without_switches_it_is_the_smallest_ratio_of_all_partitions(topology: Topology) -> None:
    """Exactly, and the partition that comes with it has this ratio."""
    network = two_way(topology)
    best = strength(*network)
    assert best.value == strength_of_graph(*network[1:])
    assert best.value == value_of(network, best)


@given(SWITCHED)
@settings(max_examples=examples(150))
def test_with_switches_it_is_the_smallest_ratio_of_all_families(topology: Topology) -> None:
    """Of the narrowest sets around parts of the ranks, which are disjoint."""
    network = two_way(topology)
    best = strength(*network)
    assert best.value == strength_of_network(*network)
    assert best.value == value_of(network, best)


@given(two_way_topologies(max_ranks=4, max_switches=3))
@settings(max_examples=examples(60))
def test_no_partition_of_all_nodes_proves_more(topology: Topology) -> None:
    """Switches may lie in any part, or in parts of their own."""
    assert strength(*two_way(topology)).value * topology.arrays.unit == allreduce_limit(topology)


@pytest.mark.parametrize(
    ("topology", "value"),
    [
        (ring(7, bandwidth=3), Fraction(7, 2)),
        (complete(6), Fraction(3)),
        (torus(4, 4), Fraction(32, 15)),
        (hypercube(4), Fraction(32, 15)),
        (dgx_a100(boxes=2), Fraction(520, 3)),
        (mi250(boxes=2), Fraction(2656, 15)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_strength_of_well_known_networks(topology: Topology, value: Fraction) -> None:
    """All links over all ranks but one; with switches, what enters single GPUs."""
    assert strength(*two_way(topology)).value * topology.arrays.unit == value


def test_ranks_without_a_connection_are_refused() -> None:
    """Two pairs without a link between them."""
    with pytest.raises(SolverError, match="do not connect"):
        strength(4, 4, np.array([0, 2]), np.array([1, 3]), np.array([1, 1]))


@pytest.mark.parametrize("seed", [2])
def test_the_partition_of_an_irregular_network_has_the_strength(seed: int) -> None:
    """On 256 ranks, where needs prove that nothing is smaller."""
    network = two_way(random_regular(256, 6, 100, seed))
    best = strength(*network)
    assert best.value == value_of(network, best)
    level, factor = 2 * best.value.numerator, best.value.denominator
    wish = level // 256 + (np.arange(256) < level % 256)
    needs = balanced_demands(256, network.tails, network.heads, network.capacities * factor, level, wish)
    assert needs.sum() == level
