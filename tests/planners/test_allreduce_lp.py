"""Allreduce plans at the optimum of the allreduce program, and the bounds around them."""

from __future__ import annotations

import warnings
from fractions import Fraction

import pytest
from allreduce_theorems import allreduce_bounds
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.errors import CapacityOverflowError, NoAnswerError
from collopt.formulations import allreduce
from collopt.planners.trees.allreduce_lp import best_rates, plan_allreduce_lp
from collopt.planners.trees.forestcoll import plan_trees
from collopt.planners.trees.strength import strength_bound
from collopt.solvers import solve
from collopt.solvers.lp.solution import Solution
from collopt.topologies import Topology, dgx1_v100, dgx_a100, leaf_spine, mi250, ring
from sample_sizes import examples
from strategies import eulerian_topologies, switch_free_topologies

FAST_LANE = Topology.from_links([("a", "b", 20), ("b", "c", 20), ("c", "d", 10), ("d", "a", 10)], compute="abcd")
PATH = Topology.from_links([("a", "b", 24), ("b", "c", 24)], compute="abc", bidirectional=True)

TWO_WAY = {
    "path": PATH,
    "ring": ring(4, bandwidth="200/3"),
    "dgx1-v100": dgx1_v100(),
    "mi250": mi250(),
    "leaf-spine": leaf_spine(3, 2, 2, 50, oversubscription=2),
    "two boxes": dgx_a100(boxes=2),
}

any_networks = st.one_of(eulerian_topologies(max_ranks=5), switch_free_topologies(max_ranks=5))


@pytest.mark.parametrize("topology", TWO_WAY.values(), ids=TWO_WAY.keys())
def test_two_way_links_reach_the_strength(topology: Topology) -> None:
    """Where every link has an opposite, the program's optimum is the strength, and the plan's gap is 0."""
    plan = plan_allreduce_lp(topology)
    assert plan.algbw == strength_bound(topology).algbw
    assert plan.gap == 0
    assert plan.provenance["tree_algbw"] == str(plan.algbw)


def test_a_reduce_scatter_and_an_allgather_are_beaten_where_links_are_one_way() -> None:
    """Half the way round a one-way ring is twice as fast; one root uses that, equal shards cannot."""
    plan = plan_allreduce_lp(FAST_LANE)
    assert plan.algbw == 10
    assert plan.gap == 0
    assert plan.algbw > plan_trees(FAST_LANE, "allreduce").algbw


@settings(max_examples=examples(40))
@given(topology=any_networks)
def test_plans_reach_the_program_and_no_less_than_equal_shards(topology: Topology) -> None:
    """On random networks: verified, at the optimum of the program in flows, and as fast as ForestColl's plan."""
    plan = plan_allreduce_lp(topology)
    plan.verify()
    assert float(plan.algbw) == pytest.approx(solve(allreduce.build(topology)).objective, rel=1e-7)
    assert plan.algbw >= plan_trees(topology, "allreduce").algbw
    assert plan.schedule.link_loads(topology).shape == (len(topology.links),)


@pytest.mark.parametrize("topology", [FAST_LANE, TWO_WAY["leaf-spine"]], ids=["one way", "two way"])
def test_without_an_exact_basis_rates_are_rounded(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    """If HiGHS's basis does not hold in fractions, floats are rounded to something that trees fit."""
    exact = plan_allreduce_lp(topology)

    def refuse(_: Solution) -> None:
        raise NoAnswerError("the basis is optimal only within tolerances")

    monkeypatch.setattr(Solution, "exact", property(refuse))
    rates = best_rates(topology)
    assert not rates.exact
    assert exact.algbw <= rates.rate <= exact.algbw * (1 + Fraction(1, 10**6))
    plan = plan_allreduce_lp(topology)
    assert exact.algbw * (1 - Fraction(1, 10**5)) <= plan.algbw <= exact.algbw


@pytest.mark.parametrize(
    ("topology", "condition"),
    [(dgx_a100(), "b"), (leaf_spine(2, 2, 2, 50, oversubscription=4), "a"), (mi250(), None)],
    ids=["one box", "two leaves", "mi250"],
)
def test_theorem_19_tells_when_a_reduce_scatter_and_an_allgather_are_best(
    topology: Topology, condition: str | None
) -> None:
    """Half of the ranks behind the bottleneck cut, or all but one; on an MI250 box the theorem is silent."""
    bounds = allreduce_bounds(topology)
    assert bounds.theorem_19 == condition
    if condition:
        assert bounds.trees == bounds.reduce_scatter_allgather


@settings(max_examples=examples(30))
@given(topology=any_networks)
def test_bounds_are_above_what_trees_reach(topology: Topology) -> None:
    """No bound is below the trees, and trees are not below reduce-scatter with allgather; witnesses add up."""
    bounds = allreduce_bounds(topology)
    assert bounds.rank_cuts is not None
    assert bounds.widest_rank is not None
    for bound in (bounds.any_cut, bounds.rank_cuts):
        bound.verify()
        assert bound.algbw >= bounds.trees
    assert bounds.widest_rank >= bounds.trees >= bounds.reduce_scatter_allgather
    strongest = max(bounds.any_cut.inverse_rate, bounds.rank_cuts.inverse_rate)
    assert collopt.bound(topology, "allreduce").inverse_rate >= strongest


def test_bandwidths_too_far_apart_for_floats_are_refused() -> None:
    """All root rates are 0 in floats; the error is one of ours."""
    links = [("a", "b", Fraction(1, 10**9)), ("b", "c", 10**9)]
    topology = Topology.from_links(links, compute="abc", bidirectional=True)
    with pytest.raises(NoAnswerError, match="differ too much"):
        plan_allreduce_lp(topology)
    with pytest.raises(CapacityOverflowError, match="fewer digits"):
        collopt.plan(topology, "allreduce")


def test_bandwidths_that_differ_by_fourteen_orders_of_magnitude_are_planned_without_warnings() -> None:
    """Shares of a rate of nearly nothing are more than an int64 has room for."""
    cycle = Topology.from_links([("a", "b", 10**9), ("b", "c", "1/100000"), ("c", "a", 7)], compute="abc")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert collopt.plan(cycle, "allreduce", planner="allreduce-lp").gap == 0
