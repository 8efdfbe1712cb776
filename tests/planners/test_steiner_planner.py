"""The best trees that branch at switches: against all trees, other planners and bounds, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.errors import BoundError, NoAnswerError, UnsupportedError
from collopt.planners import steiner_bound
from collopt.planners.plans.registry import PLANNERS
from collopt.planners.trees import steiner
from collopt.schedules import ALLREDUCE, COLLECTIVES, EVERY_SCHEDULE
from collopt.solvers import Solution
from collopt.topologies import SwitchLimits, Topology
from looping_star import BELOW
from oracles.steiner_trees import best_rate
from sample_sizes import examples
from strategies import able_topologies

EQUAL = ("allreduce", "allgather", "reduce_scatter")
OTHERS = ("auto", "multitree", "blink")


def star(ranks: int, loopback: bool = False, group: int | None = None) -> Topology:
    """Ranks around one switch that can do everything."""
    return Topology.from_links(
        [(f"r{rank}", "s", 10) for rank in range(ranks)],
        compute=[f"r{rank}" for rank in range(ranks)],
        switches="s",
        bidirectional=True,
        multicast="s",
        aggregation="s",
        limits=[SwitchLimits("s", loopback, group)],
    )


@pytest.mark.parametrize("ranks", [2, 3, 4, 6])
def test_one_switch_reaches_the_link_or_n_of_n_plus_1(ranks: int) -> None:
    """Two ranks exchange their data past the switch, and nothing comes back."""
    for loopback, algbw in ((False, Fraction(10)), (True, Fraction(10 * ranks, ranks + 1) if ranks > 2 else 10)):
        plan = collopt.plan(star(ranks, loopback), "allreduce", planner="steiner")
        assert (plan.algbw, plan.gap) == (algbw, 0)
        assert steiner_bound(star(ranks, loopback), "allreduce").algbw == algbw


@given(able_topologies(max_ranks=3, max_switches=2), st.sampled_from(EQUAL))
@settings(max_examples=examples(60), deadline=None)
def test_no_packing_of_all_trees_is_better(topology: Topology, collective: str) -> None:
    """Nor is the optimum more than they reach."""
    bound = steiner_bound(topology, collective)
    bound.verify()
    assert float(bound.algbw) == pytest.approx(best_rate(topology, COLLECTIVES[collective]))


@given(st.permutations(range(20)), st.lists(st.integers(1, 5), min_size=20, max_size=20), st.data())
@settings(max_examples=examples(45), deadline=None)
def test_links_may_differ_by_direction(order: list[int], widths: list[int], data: st.DataObject) -> None:
    """Where switches take in more than they give out, no bound of all schedules is known."""
    pairs = list(permutations(["a", "b", "c", "s", "t"], 2))
    links = [(*pairs[number], widths[number]) for number in order[: data.draw(st.integers(9, 13))]]
    able = st.sets(st.sampled_from("st"))
    topology = Topology.from_links(
        links,
        compute="abc",
        switches="st",
        limits=[SwitchLimits(switch, loopback=True) for switch in data.draw(able)],
    )
    topology = replace(topology, multicast=frozenset(data.draw(able)), aggregation=frozenset(data.draw(able)))
    collective = data.draw(st.sampled_from(EQUAL))
    try:
        bound = steiner_bound(topology, collective)
    except BoundError:
        return  # One-way links leave some rank out of reach.
    assert float(bound.algbw) == pytest.approx(best_rate(topology, COLLECTIVES[collective]))
    if topology.multicast | topology.aggregation:
        assert collopt.plan(topology, collective, planner="steiner").algbw == bound.algbw


@given(able_topologies(max_ranks=7, max_switches=4), st.sampled_from(EQUAL))
@settings(max_examples=examples(36), deadline=None)
def test_plans_reach_the_optimum_between_other_plans_and_the_bound(topology: Topology, collective: str) -> None:
    """The bound of all schedules is no lower, and no other trees are faster."""
    bound = steiner_bound(topology, collective)
    assert bound.algbw <= collopt.bound(topology, collective).algbw
    for planner in OTHERS:
        if PLANNERS[planner].plans(collective):
            try:
                other = collopt.plan(topology, collective, planner=planner)  # type: ignore[arg-type]
            except (UnsupportedError, NoAnswerError):
                continue
            assert other.algbw <= bound.algbw
    if topology.multicast | topology.aggregation:
        plan = collopt.plan(topology, collective, planner="steiner")
        assert ((plan.scoped_bound or plan.bound).algbw, plan.scoped_gap) == (bound.algbw, 0)
        assert plan.bound.algbw == collopt.bound(topology, collective).algbw
        plan.verify(topology)


@given(able_topologies(max_ranks=6, max_switches=3), st.data())
@settings(max_examples=examples(30), deadline=None)
def test_roots_and_weights_are_those_of_the_collective(topology: Topology, data: st.DataObject) -> None:
    """A broadcast reaches what its narrowest cut allows; shards of 0 need no tree."""
    root = data.draw(st.integers(0, topology.num_ranks - 1))
    weights = data.draw(st.lists(st.integers(0, 4), min_size=topology.num_ranks, max_size=topology.num_ranks))
    weights[root] += 1
    for collective, options in (("reduce", {"root": root}), ("allgather", {"weights": weights})):
        found = steiner_bound(topology, collective, **options)  # type: ignore[arg-type]
        assert found.algbw == collopt.bound(topology, collective, **options).algbw  # type: ignore[arg-type]
        if topology.multicast | topology.aggregation:
            plan = collopt.plan(topology, collective, planner="steiner", **options)  # type: ignore[arg-type]
            assert (plan.bound.algbw, plan.gap, plan.bound.scope) == (found.algbw, 0, EVERY_SCHEDULE)


def test_it_decides_between_trees_and_the_bound_of_all_schedules() -> None:
    """No trees reach 6 GB/s here, as all of them show."""
    assert collopt.bound(BELOW, "allreduce").algbw == 6
    assert steiner_bound(BELOW, "allreduce").algbw == 5
    assert steiner_bound(BELOW.without_abilities(), "allreduce").algbw == Fraction(19, 4)
    assert best_rate(BELOW, ALLREDUCE) == pytest.approx(5)


def test_without_exact_duals_the_bound_still_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any dual values prove one; rates are rounded down, and the gap says by how much they miss it."""

    def refuse(_: object) -> None:
        raise NoAnswerError("not exact")

    exact = steiner_bound(BELOW, "allreduce")
    monkeypatch.setattr(Solution, "exact", property(refuse))
    plan = collopt.plan(BELOW, "allreduce", planner="steiner")
    plan.verify()
    assert plan.scoped_bound
    assert exact.algbw <= plan.scoped_bound.algbw <= exact.algbw * (1 + Fraction(1, 10**6))
    assert 0 <= plan.scoped_gap < Fraction(1, 10**5)


def test_rates_without_a_common_unit_are_rounded_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """To whole numbers of trees that fit the sums of the check; each root reduces as much as it broadcasts."""
    monkeypatch.setattr(steiner, "MAX_UNITS", 3)
    monkeypatch.setattr(steiner, "GRAINS_OF_RATES", 997)
    plan = collopt.plan(BELOW, "allreduce", planner="steiner")
    assert 0 < plan.scoped_gap < Fraction(1, 50)
    monkeypatch.setattr(steiner, "GRAINS_OF_RATES", 1)
    with pytest.raises(NoAnswerError, match="have rates that differ too much"):
        collopt.plan(star(3, True), "allreduce", planner="steiner")


def test_a_group_may_hold_all_ranks_or_not() -> None:
    """A limit that no tree can reach is none."""
    assert steiner_bound(star(4, group=4), "allreduce").algbw == 10
    with pytest.raises(UnsupportedError, match="'s' joins at most 3 neighbors; expected room for all 4"):
        steiner_bound(star(4, group=3), "allreduce")
