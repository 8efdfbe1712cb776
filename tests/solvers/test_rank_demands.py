"""Needs of ranks against all cuts of small networks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import SolverError
from collopt.solvers.trees.strength import balanced_demands, strength
from collopt.topologies import Topology
from oracles.strengths import narrowest_cuts
from sample_sizes import examples
from two_way_networks import two_way, two_way_topologies

SWITCHED = two_way_topologies(max_ranks=6, max_switches=4)


@given(SWITCHED, st.integers(1, 4), st.data())
@settings(max_examples=examples(150))
def test_needs_respect_every_cut_and_add_up(topology: Topology, scale: int, data: st.DataObject) -> None:
    """For any level up to twice the strength, and any target."""
    network = two_way(topology)
    best = strength(*network)
    factor = best.value.denominator * scale
    level = data.draw(st.integers(1, int(2 * best.value * factor)))
    cuts = np.sort(np.array(data.draw(st.lists(st.integers(0, level), min_size=5, max_size=5))))
    target = np.diff(np.concatenate([[0], cuts[: network.num_ranks - 1], [level]]))
    nodes, ranks, tails, heads, capacities = network
    demands = balanced_demands(nodes, tails, heads, capacities * factor, level, target)
    assert demands.sum() == level
    narrowest = narrowest_cuts(nodes, ranks, tails, heads, capacities * factor)
    fitting = True
    for mask in range(1, 2**ranks):
        inside = [rank for rank in range(ranks) if mask >> rank & 1]
        assert demands[inside].sum() >= level - narrowest[mask]
        fitting = fitting and target[inside].sum() >= level - narrowest[mask]
    assert fitting == np.array_equal(demands, target)


@given(SWITCHED)
@settings(max_examples=examples(60))
def test_needs_beyond_twice_the_strength_are_refused(topology: Topology) -> None:
    """By as little as one unit."""
    nodes, ranks, tails, heads, capacities = two_way(topology)
    best = strength(nodes, ranks, tails, heads, capacities)
    level = int(2 * best.value * best.value.denominator) + 1
    with pytest.raises(SolverError, match="beyond twice the strength"):
        balanced_demands(
            nodes, tails, heads, capacities * best.value.denominator, level, np.array([level] + [0] * (ranks - 1))
        )


def test_needs_can_be_negative() -> None:
    """The middle of a star has more links than it demands, and every leaf demands half of all trees."""
    leaves = np.arange(1, 6)
    demands = balanced_demands(
        6, np.zeros(5, dtype=np.int64), leaves, np.ones(5, dtype=np.int64), 2, np.array([2, 0, 0, 0, 0, 0])
    )
    assert demands.tolist() == [-3, 1, 1, 1, 1, 1]
