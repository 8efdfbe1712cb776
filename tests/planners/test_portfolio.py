"""The portfolio of `auto`: the fastest plan for a size, and what an effort leaves out."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import collopt
from collopt.errors import BoundError, UnsupportedError
from collopt.planners import PLANNERS, Planner
from collopt.planners.candidates import PROFILES, Case
from collopt.planners.portfolio import least_rate
from collopt.runtime import simulate
from collopt.schedules import as_bytes
from collopt.schedules.collective import as_collective
from collopt.schedules.timed_run import Predictor
from collopt.topologies import RuntimeCosts, dgx1_v100, dgx_a100, dgx_h100, fat_tree, mi250, mi300x, ring, torus
from strategies import eulerian_topologies

COSTS = RuntimeCosts(alpha=2, send="0.2")
SINGLE_PLANNERS = sorted(set(PLANNERS) - {"auto", "milp"})
"""All that take part, and those whose plans others make; the clock ends `milp`."""
IRREGULAR = collopt.Topology.from_links([("a", "b", 2), ("b", "c", 1), ("c", "a", 4)], compute="abc")


@pytest.mark.parametrize(
    ("network", "sends", "gain"), [(dgx_a100(boxes=2), 15, 5), (dgx_h100(boxes=4), 17, 5), (mi300x(boxes=4), 17, 9)]
)
@pytest.mark.parametrize("size", ["1K", "64K"])
def test_small_data_takes_few_messages(network: collopt.Topology, sends: int, gain: int, size: str) -> None:
    """Few for each rank, so 5 times faster than the plan for large data, and within half of the bound."""
    plan = collopt.plan(network, "allgather", size=size, costs=COSTS)
    plan.verify()
    assert plan.schedule.messages.max() <= sends
    today = simulate(collopt.plan(network, "allgather"), size, costs=COSTS).time
    time = simulate(plan, size).time
    assert float(time) == plan.provenance["predicted_us"]
    assert today > gain * time
    limit = collopt.bound(network, "allgather", size=size, costs=COSTS)
    assert limit.time <= time <= Fraction(3, 2) * limit.time


STAR = collopt.Topology.from_links(
    [(f"r{rank}", "hub", 50 - 30 * (rank == 5), 1) for rank in range(6)],
    compute=[f"r{rank}" for rank in range(6)],
    switches=["hub"],
    bidirectional=True,
)


@pytest.mark.parametrize(
    ("network", "collective"),
    [
        (dgx_h100(boxes=3), "allreduce"),
        (mi250(boxes=1), "allreduce"),
        (dgx_a100(boxes=2), "allgather"),
        (torus(4, 4, bandwidth=25, latency=1), "reduce_scatter"),
        (STAR, "allreduce"),
        (IRREGULAR, "all_to_all"),
    ],
    ids=str,
)
@pytest.mark.parametrize("size", ["4M", "64M"])
def test_predicted_times_are_those_of_the_simulation(network: collopt.Topology, collective: str, size: str) -> None:
    """Of pipelined plans, all slices of the plan that is returned are run."""
    plan = collopt.plan(network, collective, size=size)
    assert plan.provenance["predicted_us"] == pytest.approx(simulate(plan, size).microseconds, rel=0.001)


def test_costs_go_with_the_plan(tmp_path: Path) -> None:
    """Into its file, and from there into its times; the network is the same."""
    network = dgx_a100(boxes=2)
    plan = collopt.plan(network, "allgather", size="64K", costs=COSTS)
    plan.verify(network)
    plan.save(tmp_path / "plan.json")
    loaded = collopt.load_plan(tmp_path / "plan.json")
    assert loaded.topology.costs == COSTS
    assert loaded.estimate("64K") == plan.estimate("64K")


def test_plans_for_the_bandwidths_that_data_reaches() -> None:
    """NVLink at a tenth: less of the data is to take it, as no plan for line rates knows."""
    network = dgx_a100(boxes=2)
    costs = RuntimeCosts(efficiency={"gpu-nvswitch": "1/10"})
    exact = collopt.plan(network, "allgather", costs=costs)
    plan = collopt.plan(network, "allgather", size="1G", costs=costs)
    plan.verify(network)
    assert plan.simulate("1G", slices=16) < 0.99 * exact.simulate("1G", slices=16)


def test_other_options_reach_the_planners() -> None:
    """Unequal shards leave out what cannot plan for them."""
    plan = collopt.plan(ring(4, latency=1), "allgather", size="1K", weights=[1, 2, 3, 4])
    assert plan.bound.weights == (1, 2, 3, 4)
    with pytest.raises(UnsupportedError, match="size"):
        collopt.plan(ring(4), "allgather", size="much")
    with pytest.raises(UnsupportedError, match="costs"):
        collopt.plan(ring(4), "allgather", size="1K", costs="cheap")


@given(eulerian_topologies(max_ranks=6, max_switches=2), st.sampled_from(sorted(PLANNERS)), st.data())
def test_plans_take_no_less_than_their_hops_and_their_busiest_link(
    network: collopt.Topology, name: str, data: st.DataObject
) -> None:
    """So a plan is not left out unless it is slower; steps that overlap and heights of both phases count once."""
    collective = data.draw(st.sampled_from(["allgather", "reduce_scatter", "allreduce"]))
    try:
        plan = collopt.plan(network, collective, planner=name)
    except (UnsupportedError, BoundError):
        return
    alone = RuntimeCosts(alpha=1000)
    assert Predictor(plan.schedule, network, alone).time(1) >= 1000 * plan.schedule.least_hops
    rate = least_rate(plan)
    assert Predictor(plan.schedule, network, RuntimeCosts()).time(10**6) >= Fraction(10**6, 1000) / rate


def test_plans_only_what_may_be_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kilobyte on two DGX A100 takes one step, which no trees beat; 256M needs trees, but not all numbers of them."""
    counts: list[int] = []
    planned = Planner.__call__

    def count(planner: Planner, *arguments: Any, **options: Any) -> collopt.Plan:
        if planner.name == "forestcoll":
            counts.append(options.get("trees_per_root", 0))
        return planned(planner, *arguments, **options)

    monkeypatch.setattr(Planner, "__call__", count)
    collopt.plan(dgx_a100(boxes=2), "allgather", size="1K", costs=COSTS)
    assert counts == []
    collopt.plan(dgx_a100(boxes=2), "allgather", size="256M", costs=COSTS)
    assert counts[0] == 0
    assert 8 in counts
    assert not {1, 2, 3, 4, 6} & set(counts)  # whose rates alone make them slower


def core_switch(sizes: tuple[int, ...]) -> collopt.Topology:
    """Boxes of so many GPUs, 200 GB/s to the switch of the box and 50 GB/s to one core switch."""
    links = [(f"b{box}g{gpu}", f"box{box}", 200, "0.5") for box, size in enumerate(sizes) for gpu in range(size)]
    ranks = [link[0] for link in links]
    links += [(rank, "core", 50, "1") for rank in ranks]
    switches = ["core", *(f"box{box}" for box in range(len(sizes)))]
    return collopt.Topology.from_links(links, compute=ranks, switches=switches, bidirectional=True)


@pytest.mark.parametrize(
    ("sizes", "collective", "size", "planner", "options"),
    [
        ((4, 4, 4, 4), "allgather", "1M", "forestcoll", {"trees_per_root": 4}),
        ((4, 4, 4, 4), "reduce_scatter", "256K", "multitree", {}),
        ((4, 4, 4, 4), "allreduce", "4M", "forestcoll", {"trees_per_root": 4}),
        ((3, 2, 3), "allgather", "1M", "multitree", {}),
    ],
)
def test_boxes_under_one_core_switch_lose_to_no_planner(
    sizes: tuple[int, ...], collective: str, size: str, planner: str, options: dict[str, int]
) -> None:
    """Even where all ranks are equally far, and one tree per root has the best rate but is high."""
    network = core_switch(sizes)
    plan = collopt.plan(network, collective, size=size)
    other = collopt.plan(network, collective, planner=planner, **options)
    assert plan.simulate(size) <= 1.01 * other.simulate(size)


@pytest.mark.parametrize("num_ranks", [20, 40])
@pytest.mark.parametrize(("planner", "size"), [("strength", "1K"), ("blink", "64K")])
def test_trees_of_few_roots_are_tried_on_irregular_networks(num_ranks: int, planner: str, size: str) -> None:
    """On a tree of links of three bandwidths, sums that climb to one rank take fewer messages than a tree for each."""
    links = [(f"r{rank}", f"r{(rank - 1) // 2}", (1, 5, 25)[rank % 3], 1) for rank in range(1, num_ranks)]
    ranks = [f"r{rank}" for rank in range(num_ranks)]
    network = collopt.Topology.from_links(links, compute=ranks, bidirectional=True)
    plan = collopt.plan(network, "allreduce", size=size, costs=COSTS)
    assert plan.planner == planner
    trees = collopt.plan(network, "allreduce", planner="forestcoll")
    assert plan.provenance["predicted_us"] < 0.9 * simulate(trees, size, costs=COSTS).time


@pytest.mark.parametrize(
    ("network", "collective", "size", "planners", "ratio"),
    [
        (dgx_a100(boxes=2), "allgather", "1M", {"few-steps", "forestcoll"}, "1.35"),
        (dgx_h100(boxes=4), "allgather", "1M", {"few-steps"}, "1.35"),
        (mi300x(boxes=4), "allgather", "1M", {"few-steps"}, "1.35"),
        (mi250(boxes=2), "allgather", "1M", {"multitree"}, 2),
        (mi250(boxes=2), "allreduce", "1M", {"multitree"}, "2.4"),
        (torus(4, 4, bandwidth=25, latency="0.5"), "allgather", "1M", {"symmetric"}, "1.4"),
        (fat_tree(4), "broadcast", "1K", {"bine"}, 4),
        (fat_tree(4), "reduce", "1K", {"bine"}, 4),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_each_kind_of_network_gets_a_plan_that_suits_it(
    network: collopt.Topology, collective: str, size: str, planners: set[str], ratio: str | int
) -> None:
    """Rails and boxes, low trees where ranks relay, symmetric trees on tori, and short chains from one root."""
    root = {"root": 0} if collective in ("broadcast", "reduce") else {}
    plan = collopt.plan(network, collective, size=size, costs=COSTS, **root)
    plan.verify()
    assert plan.planner in planners
    bound = collopt.bound(network, collective, size=size, costs=COSTS, **root).time
    assert bound <= simulate(plan, size).time <= Fraction(ratio) * bound


@given(eulerian_topologies(max_ranks=6, max_switches=2), st.sampled_from(SINGLE_PLANNERS), st.data())
def test_a_high_effort_loses_at_most_a_hundredth_to_any_planner(
    network: collopt.Topology, name: str, data: st.DataObject
) -> None:
    """In every collective of trees, at every size."""
    collective = data.draw(st.sampled_from(["allgather", "reduce_scatter", "allreduce", "broadcast", "reduce"]))
    size = data.draw(st.sampled_from(["100", "4K", "64K", "1M", "64M"]))
    root = {"root": 0} if collective in ("broadcast", "reduce") else {}
    try:
        other = collopt.plan(network, collective, planner=name, costs=COSTS, **root)
    except (UnsupportedError, BoundError):
        return
    plan = collopt.plan(network, collective, size=size, effort="high", costs=COSTS, **root)
    time = Predictor(other.schedule, other.topology, COSTS).time(as_bytes(size))
    assert plan.provenance["predicted_us"] <= 1.0101 * float(time)


@pytest.mark.parametrize("effort", ["much", "", 0, -1, float("nan"), float("inf"), True, [1], "1e400"])
def test_efforts_are_names_or_seconds_above_0(effort: Any) -> None:
    """Anything else is refused by its name."""
    with pytest.raises(UnsupportedError, match=r"^effort is "):
        collopt.plan(ring(3), "allgather", effort=effort)


@pytest.mark.parametrize(("seconds", "planner"), [(6, "strength"), (11, "forestcoll")])
def test_twice_the_effort_goes_to_exact_planners_where_none_is_near_its_bound(
    monkeypatch: pytest.MonkeyPatch, seconds: int, planner: str
) -> None:
    """An allreduce inside a switch at half the bound is planned again within twice the effort, but not beyond."""
    network = dgx_h100()
    work = PROFILES["strength"].work(Case(network, as_collective("allreduce"), {})) / PROFILES["strength"].seconds
    monkeypatch.setitem(PROFILES, "strength", replace(PROFILES["strength"], seconds=seconds / work))
    monkeypatch.setitem(PROFILES, "steiner", replace(PROFILES["steiner"], seconds=10**9))
    plan = collopt.plan(network, "allreduce")
    assert plan.planner == planner
    assert (plan.gap == 0) == (planner == "strength")


def test_symmetric_trees_stand_in_for_exact_ones_beyond_the_effort() -> None:
    """Where they reach the bound; elsewhere the exact planner is run whatever it costs."""
    torus_plan, ring_plan = (collopt.plan(network, "allgather", effort=1e-9) for network in (torus(4, 4), IRREGULAR))
    assert (torus_plan.planner, torus_plan.gap) == ("symmetric", 0)
    assert torus_plan.provenance["left_out"] == "beyond the effort: forestcoll"
    assert (ring_plan.planner, ring_plan.gap) == ("forestcoll", 0)


def test_exact_trees_come_before_symmetric_ones_for_a_size_within_the_effort() -> None:
    """The exact ones are lower on a DGX-1; symmetric ones still compete for sizes for which they are faster."""
    lower, faster, beyond = (
        collopt.plan(dgx1_v100(), "allgather", size=size, effort=effort)
        for size, effort in [("1G", "default"), ("8M", "default"), ("1G", 1e-9)]
    )
    assert [plan.planner for plan in (lower, faster, beyond)] == ["forestcoll", "symmetric", "symmetric"]
    assert all(plan.gap == 0 for plan in (lower, faster, beyond))
    assert "symmetric" not in faster.provenance["left_out"]
