"""Bounds at a size: published and closed-form figures, and that no plan is faster."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import collopt
from collopt.errors import ColloptError
from collopt.planners import PLANNERS, Plan, bound_sizes
from collopt.runtime import simulate
from collopt.schedules import COLLECTIVES, SizeBound
from collopt.topologies import (
    RuntimeCosts,
    Topology,
    dgx_a100,
    dgx_h100,
    dragonfly,
    fat_tree,
    reached_network,
    ring,
    torus,
)
from sample_sizes import examples
from strategies import able_topologies, eulerian_topologies

SLOW_SOFTWARE = RuntimeCosts(alpha=10)
NETWORKS = {"A100": dgx_a100(boxes=2), "H100": dgx_h100(boxes=4), "torus": torus(4, 4, bandwidth=25, latency="0.5")}


def rooted(collective: str) -> dict[str, Any]:
    """What a collective needs beside its name."""
    traffic = {"all_to_allv": {"traffic": [[0, 1, 2, 3]] * 4}}
    return traffic.get(collective, {"root": 1} if collective in ("broadcast", "reduce") else {})


@pytest.mark.parametrize(
    ("network", "least"), [(dgx_a100(boxes=2), 31.55), (dgx_h100(boxes=4), 28.93), (dragonfly(4, 2, 2), 176.44)]
)
def test_four_megabytes_with_ten_microseconds_for_each_hop(network: Topology, least: float) -> None:
    """Measured by a throw-away prototype before this was written, which used floats alone."""
    found = collopt.bound(network, "allgather", size="4M", costs=SLOW_SOFTWARE)
    found.verify()
    assert (round(float(found.time), 2), found.argument) == (least, "flow")


def test_a_bound_holds_for_all_costs_that_measured_times_allow() -> None:
    """A real machine may be at the extreme with the least time, and is not to exceed the bound."""
    costs = RuntimeCosts(alpha=5, launch=10, calibrated=True, ends=[(2, 0), (8, 0), (0, 60)])
    network, sizes = ring(4, bandwidth=10, latency=1), ["1K", "1M"]
    bounds = bound_sizes(network, "allgather", sizes, costs=costs)
    for bound in bounds:
        bound.verify()
    assert [bound.time for bound in bounds] == [
        bound.time for bound in bound_sizes(network, "allgather", sizes, costs=RuntimeCosts(alpha=2))
    ]


def box_bound(network: Topology, size: int, alpha: Fraction, inside: Fraction, outside: Fraction) -> Fraction:
    """Least time for what other boxes have, by the formula for GPUs with a NIC each.

    A NIC takes D in ``alpha + tau_nic + D / b``; if others help, their data needs ``delta = alpha + tau_nv`` more, and
    what enters in the last delta can only enter at the rank itself.
    """
    per_box, ranks = 8, network.num_ranks
    amount = Fraction(ranks - per_box, ranks) * size / 1000
    speed = network.link("box0/gpu0", "box0/nic0").bandwidth
    delta = alpha + inside
    if amount < speed * delta:
        return alpha + outside + amount / speed
    return alpha + outside + delta + (amount - speed * delta) / (per_box * speed)


@pytest.mark.parametrize("size", [2**10, 2**16, 2**19, 2**22, 2**30])
@pytest.mark.parametrize("network", [dgx_a100(boxes=2), dgx_a100(boxes=4)])
def test_formula_for_boxes(network: Topology, size: int) -> None:
    """A NIC for each rank, so that other ranks of the box help from the time on that passing data on takes."""
    (found,) = bound_sizes(network, "allgather", [size], costs=SLOW_SOFTWARE)
    formula = float(box_bound(network, size, Fraction(10), Fraction(7, 10), Fraction(17, 10)))
    assert found.time >= formula * (1 - 1e-9)
    if size < 2**26:  # else another set of sources is better
        assert float(found.time) == pytest.approx(formula)


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS.keys())
@pytest.mark.parametrize("collective", [name for name in COLLECTIVES if name != "all_to_allv"])
def test_contains_the_bounds_for_endless_and_for_no_data(network: Topology, collective: str) -> None:
    """For 1 TB the time is that of the rate and less than 1 ms more; for one byte it is the way of the farthest."""
    sizes = ["1", "1M", "1000G"]
    small, middle, large = bound_sizes(network, collective, sizes, costs="fused", **rooted(collective))
    for found in (small, middle, large):
        found.verify()
        assert found.rate.topology == reached_network(network, found.costs)
        assert found.time > found.num_bytes / (found.rate.algbw * 1000)
    assert large.time - large.num_bytes / (large.rate.algbw * 1000) < 1000
    assert small.time < middle.time < large.time
    hops = 4 if network.name.startswith("torus") else 1
    assert small.time >= 2 * hops


def test_fan_out_decides_where_many_messages_take_longer_than_hops() -> None:
    """64 bytes to 127 others: after k messages of 0.5 µs there is still a hop of 11 µs."""
    found = collopt.bound(fat_tree(8), "allgather", size=64, costs="generic")
    found.verify()
    assert found.argument == "fan-out"
    assert Fraction(22) < found.time < Fraction(30)


def test_able_switches_make_one_message_of_many() -> None:
    """In boxes with NVSwitches that copy, a message to each box and one inside are enough in principle."""
    able = collopt.bound(dgx_h100(boxes=4), "allgather", size=64, costs="generic")
    unable = collopt.bound(dgx_h100(boxes=4).without_abilities(), "allgather", size=64, costs="generic")
    assert (float(able.time), float(unable.time)) == (22.4, 22.7)


def test_transposed_networks_have_equal_bounds() -> None:
    """A reduce-scatter takes as long as an allgather with all links turned around."""
    links = [("a", "b", 3, 2), ("b", "c", 4, 1), ("c", "a", 3, 5), ("c", "b", 1, 1)]
    network = Topology.from_links(links, compute="abc")
    turned = Topology.from_links([(head, tail, *more) for tail, head, *more in links], compute="abc")
    for size in (1, 10_000, 10**6):
        times = [
            collopt.bound(each, collective, size=size, costs=RuntimeCosts(alpha=2)).time
            for each, collective in ((network, "allgather"), (turned, "reduce_scatter"))
        ]
        assert float(times[0]) == pytest.approx(float(times[1]))


LATENCIES = st.sampled_from([Fraction(0), Fraction(7, 20), Fraction(1), Fraction(3)])


@st.composite
def timed_networks(draw: st.DrawFn) -> Topology:
    """Small networks, with switches that reduce or without, and any latencies."""
    network = draw(st.one_of(eulerian_topologies(max_ranks=5), able_topologies(max_ranks=5)))
    links = tuple(link._replace(latency=draw(LATENCIES)) for link in network.links)
    return replace(network, links=links)


def plans(network: Topology, collective: str) -> list[Plan]:
    """Those of all planners, which do not depend on size and costs; `milp` takes a second for more than 8 ranks."""
    made = []
    for name, planner in PLANNERS.items():
        if planner.plans(collective) and (name != "milp" or network.num_ranks <= 8):
            with suppress(ColloptError):  # not for this network
                made.append(collopt.plan(network, collective, planner=name, **rooted(collective)))
    return made


def faster(made: list[Plan], found: SizeBound) -> list[tuple[str, int | None]]:
    """Plans whose simulated time, with one slice or with several, is below a bound."""
    return [
        (plan.planner, slices)
        for plan in made
        for slices in ((1, 5) if plan.schedule.pipelined else (None,))
        if simulate(plan, found.num_bytes, slices, costs=found.costs).time < found.time
    ]


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(timed_networks(), st.data())
def test_no_plan_is_faster(network: Topology, data: Any) -> None:
    """Simulated event by event, with the same costs."""
    collective = data.draw(st.sampled_from([name for name in COLLECTIVES if name != "all_to_allv"]))
    costs = RuntimeCosts(alpha=data.draw(LATENCIES), send=data.draw(LATENCIES))
    size = data.draw(st.sampled_from([1, 1000, 20_000, 10**6]))
    try:
        found = collopt.bound(network, collective, size=size, costs=costs, **rooted(collective))
    except ColloptError:  # some rank does not reach another
        return
    found.verify()
    assert faster(plans(network, collective), found) == []


@pytest.mark.parametrize(
    ("network", "size", "costs"),
    [
        (ring(4, bandwidth=10, latency=1), 10**18 - 1, "links"),
        (ring(4, bandwidth=10, latency=10**12), 1, "fused"),
        (ring(4, bandwidth="1e-6", latency="1e-9"), 10**17, "generic"),
        (ring(4, bandwidth=10**9, latency="1e-9"), 1, RuntimeCosts(alpha=10**12, send=10**12, launch=10**12)),
    ],
)
def test_extreme_numbers_have_bounds_too(network: Topology, size: int, costs: Any) -> None:
    """Where the solver fails, what it would have found is left out."""
    found = collopt.bound(network, "allgather", size=size, costs=costs)
    found.verify()
    assert found.time > found.num_bytes / (found.rate.algbw * 1000)
