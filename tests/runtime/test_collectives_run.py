"""Every collective on twelve networks: planned, verified, optimal where the papers say so, and executed."""

from __future__ import annotations

from fractions import Fraction

import pytest

import collopt
from collopt.runtime import lower, run_program
from collopt.schedules import TREE_COLLECTIVES, Bound, Cut
from collopt.topologies import (
    Topology,
    dgx1_v100,
    dgx_a100,
    dgx_h100,
    dragonfly,
    fat_tree,
    hypercube,
    leaf_spine,
    mi250,
    mi300x,
    rail,
    ring,
    torus,
)

TOPOLOGIES = [
    dgx_a100(boxes=2),
    dgx_h100(boxes=2),
    dgx1_v100(),
    mi250(boxes=1),
    mi300x(),
    leaf_spine(3, 2, 2, oversubscription=2),
    rail(2, 4),
    fat_tree(4),
    dragonfly(2, 2, 1),
    torus(3, 3),
    hypercube(3),
    ring(5, bidirectional=False),
]


def widest_alone(topology: Topology) -> Fraction:
    """Corollary 18's ``max_v min cut {v}``, from the bound's witness if that is the one it gives, else not needed."""
    bound = collopt.bound(topology, "allreduce")
    return Fraction(2 * (topology.num_ranks - 1)) / bound.inverse_rate


def theorem_19_holds(bound: Bound) -> bool:
    """Whether the bottleneck cut of allgather makes reduce-scatter plus allgather optimal (pipeline paper).

    (a) it halves the ranks, or (b) it holds all ranks but one, whose own narrowest cut is no narrower than any other's.
    """
    topology = bound.topology
    assert isinstance(bound.witness, Cut)
    if topology.aggregation:
        return False  # Theorem 17 is about networks in which only ranks add up
    inside = bound.witness.supply(topology)
    if 2 * inside == topology.num_ranks:
        return True
    around = bound.witness.bandwidth(topology)
    return inside == topology.num_ranks - 1 and around == widest_alone(topology)


@pytest.mark.parametrize("collective", [str(each) for each in TREE_COLLECTIVES])
@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda topology: topology.name)
def test_plans_leave_the_right_data_everywhere(topology: Topology, collective: str) -> None:
    """The interpreter counts every rank's contribution once, in random interleavings with bounded buffers."""
    options = {"root": topology.num_ranks - 1} if collective in ("broadcast", "reduce") else {}
    plan = collopt.plan(topology, collective, **options)
    plan.verify()
    if collective != "allreduce" or theorem_19_holds(collopt.bound(topology, "allgather")):
        assert plan.gap == 0
    run_program(lower(plan.schedule, collective), interleavings=3)


def test_both_conditions_of_theorem_19_occur() -> None:
    """Otherwise the test above would say nothing about allreduce."""
    holding = [topology for topology in TOPOLOGIES if theorem_19_holds(collopt.bound(topology, "allgather"))]
    halved = [
        topology for topology in holding if 2 * len_inside(collopt.bound(topology, "allgather")) == topology.num_ranks
    ]
    assert halved
    assert len(halved) < len(holding)


def len_inside(bound: Bound) -> int:
    """Ranks inside the bound's cut."""
    assert isinstance(bound.witness, Cut)
    return bound.witness.supply(bound.topology)
