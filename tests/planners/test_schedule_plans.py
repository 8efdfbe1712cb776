"""Plans of schedules that are there already: what they prove, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt import load_plan, plan
from collopt.errors import CertificateError, UnsupportedError
from collopt.planners import Plan, bfb_schedule, plan_bfb, plan_of_schedule
from collopt.schedules import Forest, StepAllreduce, StepSchedule
from collopt.topologies import Topology, circulant, complete, dgx_a100, generalized_kautz, ring
from sample_sizes import examples

RING = ring(4, bandwidth=25, latency=3)
FORESTS: dict[str, Any] = {
    "allgather": {},
    "reduce_scatter": {},
    "allreduce": {},
    "broadcast": {"root": 2},
    "reduce": {"root": "box0/gpu3"},
}


@cache
def ring_allgather() -> StepSchedule:
    """An allgather of the ring; made when a test needs it, since planning at import costs every collecting process."""
    return bfb_schedule(RING)


@cache
def ring_reduce_scatter() -> StepSchedule:
    """A reduce-scatter of the ring."""
    return bfb_schedule(RING, direction="reduce")


def assert_same(given_plan: Plan, made: Plan) -> None:
    """The same claims, and the same certificate."""
    assert given_plan.inverse_rate == made.inverse_rate
    assert (given_plan.bound.inverse_rate, given_plan.bound.weights) == (made.bound.inverse_rate, made.bound.weights)
    assert np.array_equal(given_plan.link_loads, made.link_loads)
    assert given_plan.schedule is made.schedule
    given_plan.verify()


@pytest.mark.parametrize("collective", FORESTS)
def test_trees_on_a_network_with_switches(collective: str) -> None:
    """Root and weights are read off the schedule, so the bound is that of the plan which it comes from."""
    made = plan(dgx_a100(boxes=1), collective, **FORESTS[collective])
    assert_same(plan_of_schedule(made.topology, collective, made.schedule), made)


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter"])
def test_trees_for_unequal_shards(collective: str) -> None:
    """The bound is about shards of these sizes, even where some are empty."""
    made = plan(RING, collective, weights=[1, 3, 0, 2])
    assert_same(plan_of_schedule(RING, collective, made.schedule), made)


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "allreduce"])
@pytest.mark.parametrize("network", [RING, circulant(12, [2, 3], bandwidth=3), generalized_kautz(2, 7)], ids=str)
def test_steps(network: Topology, collective: str) -> None:
    """As breadth-first broadcast plans them, on networks where it is optimal and where it is not."""
    made = plan_bfb(network, collective)
    assert_same(plan_of_schedule(network, collective, made.schedule), made)


@given(st.integers(3, 9), st.integers(1, 4), st.data())
@settings(max_examples=examples(20))
def test_the_bound_is_the_same_whichever_way_it_is_found(nodes: int, chunks: int, data: st.DataObject) -> None:
    """A single rank's cut is taken only where it proves the optimum; else nothing better is known."""
    links = data.draw(st.lists(st.integers(1, 3), min_size=2 * nodes, max_size=2 * nodes))
    rows = [(node, (node + side) % nodes, links[2 * node + (side > 0)]) for node in range(nodes) for side in (1, -1)]
    network = Topology.from_links(rows, compute=range(nodes))
    collective = data.draw(st.sampled_from(["allgather", "reduce_scatter", "allreduce"]))
    made = plan_bfb(network, collective, chunks=chunks)
    best = plan(network, collective, planner="forestcoll").bound
    assert plan_of_schedule(network, collective, made.schedule).bound.algbw == best.algbw


def test_who_made_it_goes_into_the_file(tmp_path: Path) -> None:
    """The plan comes back as it was."""
    made = plan_of_schedule(
        RING, "allgather", ring_allgather(), planner="by.hand", options={"chunks": 2, "note": "two ways"}
    )
    made.save(tmp_path / "plan.json")
    back = load_plan(tmp_path / "plan.json")
    assert (back.planner, dict(back.options)) == ("by.hand", {"chunks": 2, "note": "two ways"})
    assert back.inverse_rate == made.inverse_rate == Fraction(3, 50)
    assert str(made) == "allgather on ring-4 by by.hand: 66.67 GB/s, optimal; 2 steps, 2 chunks per shard"


def test_a_schedule_that_does_not_finish_is_refused() -> None:
    """And one of another network."""
    half = replace(
        ring_allgather(),
        **{name: getattr(ring_allgather(), name)[:8] for name in ("steps", "sources", "lower", "upper", "routes")},
    )
    with pytest.raises(CertificateError):
        plan_of_schedule(RING, "allgather", half)
    with pytest.raises(CertificateError):
        plan_of_schedule(ring(5), "allgather", ring_allgather())
    forest = plan(ring(5), "allgather").schedule
    with pytest.raises(CertificateError):
        plan_of_schedule(RING, "allgather", forest)
    with pytest.raises(CertificateError):
        plan_of_schedule(complete(4), "allgather", plan(dgx_a100(boxes=1), "allgather").schedule)


@pytest.mark.parametrize(
    ("collective", "make", "named"),
    [
        ("all_to_all", ring_allgather, "expected a FlowSchedule for all_to_all"),
        ("scan", ring_allgather, "'scan'"),
        ("allgather", lambda: None, "schedule is None; expected a Forest"),
        ("allgather", lambda: [ring_allgather()], "expected a Forest"),
        ("allgather", lambda: StepAllreduce(ring_reduce_scatter(), ring_allgather()), "'broadcast' for allgather"),
        ("allreduce", ring_allgather, "expected an Allreduce or a StepAllreduce"),
        ("reduce_scatter", ring_allgather, "'reduce' for reduce_scatter"),
        ("allgather", ring_reduce_scatter, "'broadcast' for allgather"),
        ("broadcast", ring_allgather, "whose root alone has a shard for broadcast"),
        ("broadcast", lambda: plan(RING, "allgather").schedule, "4 roots"),
    ],
)
def test_what_does_not_fit_is_refused(collective: str, make: Callable[[], Any], named: str) -> None:
    """In one sentence, before anything is worked out."""
    with pytest.raises(UnsupportedError, match=named) as caught:
        plan_of_schedule(RING, collective, make())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("options", [[1], {"a b": 1}, {"a": True}, {"a": 0.5}, {"a": "\ud800"}, {"a": 10**5000}])
def test_options_that_no_file_holds_are_refused(options: Any) -> None:
    """Like names of planners that are none."""
    with pytest.raises(UnsupportedError, match=r"options (is|has the entry)"):
        plan_of_schedule(RING, "allgather", ring_allgather(), options=options)
    for name in ("two words", None):
        with pytest.raises(UnsupportedError, match="planner is"):
            plan_of_schedule(RING, "allgather", ring_allgather(), planner=name)  # type: ignore[arg-type]


def test_forged_schedules_are_refused() -> None:
    """Objects of the right type with nothing sensible in them."""
    for nonsense in (
        StepSchedule.from_sends(4, 1, [(0, 0, 0, 1, (0, 1))]),
        replace(ring_allgather(), chunks_per_shard=3),
        Forest(
            4, 1, np.array([0]), np.array([1]), np.full((1, 4), -1, np.int32), np.array([0]), np.array([], np.int64)
        ),
    ):
        with pytest.raises(CertificateError):
            plan_of_schedule(RING, "allgather", nonsense)
