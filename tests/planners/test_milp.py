"""Plans by integer programming: known optima, switches, and what is said of the search."""

from __future__ import annotations

from fractions import Fraction

import pytest

import collopt
from collopt.topologies import Topology, dgx_a100, ring, torus
from oracles.synthesis_cvxpy import least_time


@pytest.fixture(autouse=True)
def _enough_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found must not depend on how busy the machine is."""
    monkeypatch.setattr("collopt.planners.literature.synthesis.PLAN_SECONDS", 600)


def test_two_boxes_exchange_over_their_nics_and_then_inside() -> None:
    """One shard over each NIC, then each GPU hands 7 of the 8 that came on; no two steps do better."""
    plan = collopt.plan(dgx_a100(boxes=2), "allgather", planner="milp", chunks=1)
    assert plan.inverse_rate == Fraction(1, 25) + Fraction(7, 300)
    assert plan.provenance["search"] == "branch and bound: at most 252.63 GB/s in 2 steps, 1 chunk per shard"


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "allreduce"])
def test_one_way_links_are_used_in_their_direction(collective: str) -> None:
    """A reduce-scatter runs against the links of the transposed network."""
    links = [("a", "b", 2), ("b", "c", 1), ("c", "a", 1), ("a", "c", 1)]
    plan = collopt.plan(Topology.from_links(links, compute="abc"), collective, planner="milp")
    plan.verify()
    assert plan.schedule.num_steps == (4 if collective == "allreduce" else 2)


def test_the_bound_of_the_search_is_shown_by_compare() -> None:
    """Beside the gap to the bound of all schedules, which three steps of two chunks reach here."""
    network = ring(4).derate("gpu0", "gpu1", "1/2")
    table = collopt.compare(network, "allgather", planners=["milp"], bounds=["forestcoll"]).set_index("planner")
    assert table.loc["milp", "reason"] == "branch and bound: at most 2.00 GB/s in 3 steps, 2 chunks per shard"
    assert table.loc["milp", "gap"] == 0


def test_a_start_is_there_before_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that has run out leaves the schedule that the search started from."""
    monkeypatch.setattr("collopt.planners.literature.synthesis.PLAN_SECONDS", 0)
    plan = collopt.plan(torus(3, 3), "allgather", planner="milp")
    plan.verify()
    assert plan.schedule.num_steps == 2


def test_a_second_statement_has_the_same_optimum() -> None:
    """Which leaves nothing out because of distances."""
    network = ring(4).derate("gpu0", "gpu1", "1/2")
    plan = collopt.plan(network, "allgather", planner="milp", chunks=2)
    assert plan.inverse_rate == least_time(network, steps=3, chunks=2)


def test_the_bound_of_an_allreduce_is_of_equally_many_steps_in_both_phases() -> None:
    """Of the search nothing is known with fewer steps in one and more in the other."""
    plan = collopt.plan(ring(4), "allreduce", planner="milp", chunks=1)
    assert plan.provenance["search"] == "branch and bound: at most 1.00 GB/s in 3 + 3 steps, 1 chunk per shard"
