"""Allreduce at the strength of the network: bound and plan meet on every network of two-way links."""

from __future__ import annotations

from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings

import collopt
from collopt.formulations import allreduce
from collopt.planners.trees.forestcoll import plan_trees
from collopt.planners.trees.strength import plan_strength, strength_bound
from collopt.runtime import lower, run_program
from collopt.schedules import Partition
from collopt.topologies import (
    Topology,
    dgx1_v100,
    dgx_a100,
    dgx_h100,
    dragonfly,
    fat_tree,
    hypercube,
    leaf_spine,
    mi300x,
    rail,
    torus,
)
from oracles.strengths import strength_of_network
from sample_sizes import examples
from two_way_networks import two_way, two_way_topologies


def cubic(*pairs: tuple[int, int]) -> Topology:
    """Eight ranks with three unit links each."""
    links = [(str(tail), str(head), 1) for tail, head in pairs]
    topology = Topology.from_links(links, compute=map(str, range(8)), bidirectional=True, name="three links per rank")
    assert {topology.egress(rank) for rank in topology.nodes} == {3}
    return topology


THREE_GROUPS = cubic(
    (0, 1), (0, 1), (1, 2), (2, 3), (2, 3), (3, 4), (4, 5), (4, 6), (5, 6), (5, 7), (6, 7), (7, 0),
)  # fmt: skip


@given(two_way_topologies(max_ranks=6, max_switches=4))
@settings(max_examples=examples(200))
def test_plans_reach_the_strength(topology: Topology) -> None:
    """Bound, plan and all families of sets agree, with switches and without."""
    plan = plan_strength(topology)
    plan.verify()
    assert plan.gap == 0
    assert plan.algbw == strength_of_network(*two_way(topology)) * topology.arrays.unit
    assert plan.bound == strength_bound(topology)
    assert isinstance(plan.bound.witness, Partition)
    assert (str(plan.collective), plan.planner, plan.options) == ("allreduce", "strength", {})


@given(two_way_topologies(max_ranks=5, max_switches=2))
@settings(max_examples=examples(20))
def test_the_linear_program_of_all_trees_has_the_same_optimum(topology: Topology) -> None:
    """ForestColl's appendix G, which knows nothing of partitions or of links that work both ways."""
    optimum = collopt.solve(allreduce.build(topology)).objective
    assert optimum == pytest.approx(float(strength_bound(topology).algbw), rel=1e-6)


@given(two_way_topologies(max_ranks=5, max_switches=3))
@settings(max_examples=examples(60))
def test_sums_go_back_the_way_they_came_from_the_middle_of_every_tree(topology: Topology) -> None:
    """Both forests are the same trees, each rooted at a centre."""
    schedule = plan_strength(topology).schedule
    added, spread = schedule.forests
    assert np.array_equal(added.routes, spread.routes)
    assert np.array_equal(added.weights, spread.weights)
    for tree in range(spread.num_trees):
        graph = nx.Graph([(edge.tail, edge.head) for edge in spread.edges(tree)])
        assert int(spread.heights[tree]) == nx.radius(graph)


@given(two_way_topologies(max_ranks=6, max_switches=3))
@settings(max_examples=examples(40))
def test_no_reduce_scatter_and_allgather_are_faster(topology: Topology) -> None:
    """The plans of ForestColl are schedules too, and within the bound."""
    assert plan_trees(topology, "allreduce").algbw <= strength_bound(topology).algbw


NETWORKS = [
    dgx_a100(boxes=3).restrict(range(21)),
    dgx_a100(boxes=2).derate("box0/nic0", "ib", Fraction(1, 4)),
    dgx1_v100(),
    mi300x(),
    leaf_spine(3, 2, 2, oversubscription=2),
    rail(2, 4),
    fat_tree(4),
    dragonfly(2, 2, 1),
    torus(3, 3).without_node("gpu1.1"),
    hypercube(3),
    THREE_GROUPS,
]


@pytest.mark.parametrize("topology", NETWORKS, ids=lambda topology: topology.name)
def test_plans_leave_the_right_sums_everywhere(topology: Topology) -> None:
    """The interpreter counts every rank's contribution once."""
    plan = plan_strength(topology)
    assert plan.gap == 0 or topology.aggregation
    run_program(lower(plan.schedule, "allreduce"), interleavings=2)


def test_switches_that_may_not_add_up_leave_a_gap_that_is_told() -> None:
    """The partition says nothing about them, so the bound is that of other witnesses."""
    topology = dgx_h100(boxes=2)
    assert topology.aggregation
    plan = plan_strength(topology, in_network=False)
    plan.verify()
    assert plan.options == {"in_network": 0}
    assert plan.bound == strength_bound(topology)
    assert not isinstance(plan.bound.witness, Partition)
    assert 0 < plan.gap < 1


def test_switches_that_add_up_inside_a_part_are_no_obstacle() -> None:
    """They may add up what their part has; the links to the other part are the bottleneck."""
    links = [(f"gpu{rank}", f"sw{rank // 4}", 100) for rank in range(8)] + [("gpu0", "gpu4", 10)]
    topology = Topology.from_links(
        links,
        compute=[f"gpu{rank}" for rank in range(8)],
        switches=["sw0", "sw1"],
        bidirectional=True,
        aggregation=["sw0", "sw1"],
    )
    plan = plan_strength(topology)
    assert (plan.algbw, plan.gap) == (10, 0)
