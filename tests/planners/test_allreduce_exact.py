"""LP (5) of ForestColl, solved exactly, against strengths, brute force and Theorem 19 of the pipeline paper."""

from __future__ import annotations

import pytest
from allreduce_theorems import allreduce_bounds
from hypothesis import given, settings

import collopt
from collopt.planners.trees.allreduce_lp import best_rates
from collopt.planners.trees.lp_bounds import build_program
from collopt.planners.trees.strength import strength_bound
from collopt.schedules import ALLREDUCE
from collopt.topologies import (
    Topology,
    dgx1_v100,
    dgx_a100,
    dragonfly,
    fat_tree,
    leaf_spine,
    mi250,
    mi300x,
    rail,
    ring,
    torus,
)
from direct_networks import DIRECT
from oracles.strengths import strength_of_graph
from sample_sizes import examples
from two_way_networks import two_way, two_way_topologies

BY_THEOREM_19 = [
    *DIRECT,
    dgx_a100(),
    dgx_a100(boxes=2),
    dgx1_v100(),
    dgx1_v100(boxes=2),
    mi300x(),
    leaf_spine(3, 2, 2, 50),
]
OTHERS = [
    mi250(),
    mi250(boxes=2),
    mi250().restrict(range(8)),
    mi250(boxes=2).restrict([*range(8), *range(16, 24)]),
    mi300x(boxes=2),
    dgx_a100(boxes=3),
    dgx_a100(boxes=2).restrict(range(12)),
    leaf_spine(3, 2, 2, 50, oversubscription=2),
    leaf_spine(2, 4, 2, 100, oversubscription="3/2"),
    leaf_spine(4, 2, 3, 25, oversubscription=3),
    fat_tree(4, bandwidth=10, oversubscription="5/3"),
    rail(3, 4),
    rail(2, 4, oversubscription=3),
    dragonfly(2, 2, 1, bandwidth=10, oversubscription=2),
    dgx1_v100().derate("box0/gpu0", "box0/gpu1", "1/3"),
    dgx1_v100().without_link("box0/gpu0", "box0/gpu3"),
    dgx_a100(boxes=2).derate("box0/gpu0", "box0/nvswitch", "1/2"),
    mi250().derate("box0/gpu0", "box0/gpu1", "3/4"),
    torus(4, 4, bandwidth=10).without_node("gpu0.0"),
    ring(6, bandwidth=40).derate("gpu2", "gpu3", "1/7"),
]


def named(topology: Topology) -> str:
    """For the names of tests."""
    return topology.name.replace(" ", "_")


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(two_way_topologies(max_ranks=8, max_switches=0))
def test_the_program_of_trees_has_the_strength_as_its_exact_value(topology: Topology) -> None:
    """As fractions: LP (5) with its flows, Newton's method, and all partitions one by one."""
    network = two_way(topology)
    by_hand = topology.arrays.unit * strength_of_graph(
        network.num_ranks, network.tails, network.heads, network.capacities
    )
    assert collopt.solve(build_program(topology, ALLREDUCE)).exact.objective == by_hand
    assert strength_bound(topology).algbw == by_hand


@pytest.mark.parametrize("topology", [*BY_THEOREM_19, *OTHERS], ids=named)
def test_the_exact_value_of_the_program_is_the_bound(topology: Topology) -> None:
    """Two-way links, with and without switches: a partition, or a cut, proves that no algorithm is faster."""
    rates = best_rates(topology)
    assert rates.exact
    bound = collopt.bound(topology, "allreduce")
    bound.verify()
    assert rates.rate == bound.algbw


@pytest.mark.parametrize("topology", BY_THEOREM_19, ids=named)
def test_reduce_scatter_and_allgather_reach_it_where_theorem_19_applies(topology: Topology) -> None:
    """Theorem 19 names the networks on which two phases are enough; there all three values are one."""
    bounds = allreduce_bounds(topology)
    assert bounds.theorem_19 is not None
    assert bounds.trees == bounds.reduce_scatter_allgather == collopt.bound(topology, "allreduce").algbw
