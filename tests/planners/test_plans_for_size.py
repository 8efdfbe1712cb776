"""Plans for a size: few steps for small data, trees for large, and never slower than the exact planner's."""

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import collopt
from collopt.errors import BoundError, UnsupportedError
from collopt.planners import PLANNERS, Planner
from collopt.planners.auto.race import AS_FAST, least_rate
from collopt.runtime import simulate
from collopt.schedules import StepExchange, as_bytes
from collopt.schedules.timing.predict import Predictor
from collopt.topologies import RuntimeCosts, dgx_a100, dgx_h100, fat_tree, mi250, mi300x, ring, torus
from strategies import eulerian_topologies

COSTS = RuntimeCosts(alpha=2, send="0.2")


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
    found = simulate(plan, size).time
    assert float(found) == plan.provenance["predicted_us"]
    assert today > gain * found
    limit = collopt.bound(network, "allgather", size=size, costs=COSTS)
    assert limit.time <= found <= Fraction(3, 2) * limit.time


@pytest.mark.parametrize(
    ("network", "ratios"),
    [(dgx_a100(boxes=2), (1.06, 1.53)), (dgx_h100(boxes=4), (1.32, 1.67)), (mi300x(boxes=4), (1.37, 1.79))],
    ids=lambda value: getattr(value, "name", None),
)
def test_small_allreduces_pay_latencies_once(network: collopt.Topology, ratios: tuple[float, float]) -> None:
    """Whole vectors are exchanged in one or two steps, where two phases took 1.8 to 2.8 times the bound."""
    for size, ratio in zip(("1K", "64K"), ratios, strict=True):
        plan = collopt.plan(network, "allreduce", planner="few-steps", size=size, costs=COSTS)
        assert isinstance(plan.schedule, StepExchange)
        assert plan.num_steps <= 2
        least = collopt.bound(network, "allreduce", size=size, costs=COSTS).time
        assert 1 <= simulate(plan, size).time / least <= ratio


@pytest.mark.parametrize("network", [dgx_a100(boxes=2), dgx_h100(boxes=4), mi300x(boxes=4), mi300x(boxes=8)])
def test_a_megabyte_takes_a_third_more_than_the_bound(network: collopt.Topology) -> None:
    """What comes over rails early is passed on before the rest, on boxes with and without switches."""
    plan = collopt.plan(network, "allgather", size="1M", costs=COSTS)
    least = collopt.bound(network, "allgather", size="1M", costs=COSTS).time
    assert least <= simulate(plan, "1M").time <= Fraction(135, 100) * least


@pytest.mark.parametrize(("network", "ratio"), [(dgx_a100(boxes=2), "1.01"), (mi250(boxes=2), "1.065")])
def test_a_few_trees_per_root_beat_one_and_many(network: collopt.Topology, ratio: str) -> None:
    """Between what rounding to one tree loses and what many trees take to fill their pipelines."""
    plan = collopt.plan(network, "allgather", size="256M", costs=COSTS)
    assert 1 < plan.options["trees_per_root"] < 10
    for count in (1, None):
        other = collopt.plan(network, "allgather", planner="forestcoll", trees_per_root=count, costs=COSTS)
        assert simulate(plan, "256M").time < simulate(other, "256M").time
    least = collopt.bound(network, "allgather", size="256M", costs=COSTS).time
    assert least <= simulate(plan, "256M").time <= Fraction(ratio) * least


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "allreduce", "broadcast", "all_to_all"])
@pytest.mark.parametrize("network", [dgx_a100(boxes=2), torus(3, 3, bandwidth=25, latency=1)])
def test_is_no_slower_than_the_plan_for_large_data(network: collopt.Topology, collective: str) -> None:
    """At every size, in every collective."""
    root = {"root": 0} if collective == "broadcast" else {}
    exact = collopt.plan(network, collective, **root)
    for size in ("1K", "1M", "64M"):
        plan = collopt.plan(network, collective, size=size, costs=COSTS, **root)
        assert simulate(plan, size).time <= simulate(exact, size, costs=COSTS).time * Fraction(102, 100)
        assert plan.provenance["planned_for"].endswith("bytes")


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


def test_few_steps_by_family() -> None:
    """Named, or the fastest for much data."""
    network = dgx_h100(boxes=2)
    direct = collopt.plan(network, "allgather", planner="few-steps", family="direct")
    assert direct.num_steps == 1
    assert direct.options == {"family": "direct"}
    best = collopt.plan(network, "allgather", planner="few-steps")
    assert best.algbw >= direct.algbw
    with pytest.raises(UnsupportedError, match="direct"):
        collopt.plan(network, "allgather", planner="few-steps", family="dirct")
    with pytest.raises(UnsupportedError, match="bfb"):
        collopt.plan(ring(5), "allgather", planner="few-steps")


def test_other_options_reach_the_planners() -> None:
    """Unequal shards leave out what cannot plan for them."""
    plan = collopt.plan(ring(4, latency=1), "allgather", size="1K", weights=[1, 2, 3, 4])
    assert plan.bound.weights == (1, 2, 3, 4)
    with pytest.raises(UnsupportedError, match="size"):
        collopt.plan(ring(4), "allgather", size="much")
    with pytest.raises(UnsupportedError, match="costs"):
        collopt.plan(ring(4), "allgather", size="1K", costs="cheap")


def test_compares_planners_at_sizes() -> None:
    """Times are those of simulations, and the plan for the size is the fastest."""
    network = torus(3, 3, bandwidth=25, latency=1)
    table = collopt.compare(network, "allgather", sizes=["1K", "16M"], costs=COSTS)
    plans = table[(table["kind"] == "plan") & (table["status"] == "ok")].set_index("planner")
    for size in ("1K", "16M"):
        assert plans.loc["auto", f"us_{size}"] <= 1.01 * plans[f"us_{size}"].min()
        simulated = plans.loc["ring", "plan"].simulate(size, costs=COSTS)
        assert plans.loc["ring", f"us_{size}"] == pytest.approx(simulated, rel=0.02)


@pytest.mark.parametrize(("collective", "ratio"), [("allgather", 2), ("allreduce", "2.4")])
def test_low_trees_suit_boxes_whose_ranks_relay(collective: str, ratio: int | str) -> None:
    """Few steps take NICs for all, and the plan for large data is ten hops high."""
    plan = collopt.plan(mi250(boxes=2), collective, size="1M", costs=COSTS)
    assert plan.planner == "multitree"
    least = collopt.bound(mi250(boxes=2), collective, size="1M", costs=COSTS).time
    assert least <= simulate(plan, "1M").time <= Fraction(ratio) * least


@pytest.mark.parametrize("network", [torus(4, 4, bandwidth=25, latency="0.5"), torus(3, 3, bandwidth=25, latency=1)])
def test_symmetric_trees_are_tried(network: collopt.Topology) -> None:
    """They are the fastest for a megabyte, also where there are families in few steps."""
    plan = collopt.plan(network, "allgather", size="1M", costs=COSTS)
    others = (collopt.plan(network, "allgather", planner=name, costs=COSTS) for name in ("forestcoll", "multitree"))
    assert plan.planner == "symmetric"
    assert simulate(plan, "1M").time < min(simulate(other, "1M").time for other in others)


def test_trees_of_different_roots_may_be_high_in_either_phase() -> None:
    """The heights of the highest trees of both phases do not add up, so such a plan may be faster than their sum."""
    rows = [
        ("g1", "g0", 400),
        ("g1", "g2", 400),
        ("g0", "g1", 1),
        ("g2", "g1", 400),
        ("g0", "g2", 400),
        ("g2", "g0", 400),
    ]
    network = collopt.Topology.from_links([(*row, 1000) for row in rows], compute=["g0", "g1", "g2"])
    plan = collopt.plan(network, "allreduce", size="5M", costs="generic")
    other = collopt.plan(network, "allreduce", planner="forestcoll", costs="generic")
    assert other.schedule.least_hops == 3 < other.schedule.depth
    assert simulate(plan, "5M").time <= simulate(other, "5M").time


@given(eulerian_topologies(max_ranks=6, max_switches=2), st.sampled_from(sorted(PLANNERS)), st.data())
def test_plans_take_no_less_than_their_hops_and_their_busiest_link(
    network: collopt.Topology, name: str, data: st.DataObject
) -> None:
    """So a plan is not left out unless it is slower; steps that overlap and heights of both phases count once."""
    collective = data.draw(st.sampled_from(["allgather", "reduce_scatter", "allreduce"]))
    try:
        made = collopt.plan(network, collective, planner=name)
    except (UnsupportedError, BoundError):
        return
    alone = RuntimeCosts(alpha=1000)
    assert Predictor(made.schedule, network, alone).time(1) >= 1000 * made.schedule.least_hops
    rate = least_rate(made)
    assert Predictor(made.schedule, network, RuntimeCosts()).time(10**6) >= Fraction(10**6, 1000) / rate


@given(eulerian_topologies(max_ranks=6, max_switches=2), st.sampled_from(sorted(PLANNERS)), st.data())
def test_no_planner_is_faster_on_few_ranks(network: collopt.Topology, name: str, data: st.DataObject) -> None:
    """By more than what is left out, as plans that are so near the bound end the search."""
    collective = data.draw(st.sampled_from(["allgather", "reduce_scatter", "allreduce", "broadcast", "reduce"]))
    size = data.draw(st.sampled_from(["100", "4K", "64K", "1M", "64M"]))
    root = {"root": 0} if collective in ("broadcast", "reduce") else {}
    try:
        other = collopt.plan(network, collective, planner=name, costs=COSTS, **root)
    except (UnsupportedError, BoundError):
        return
    plan = collopt.plan(network, collective, size=size, costs=COSTS, **root)
    time = Predictor(other.schedule, other.topology, COSTS).time(as_bytes(size))
    assert plan.provenance["predicted_us"] <= float(AS_FAST * AS_FAST * time)


def test_trees_that_branch_at_few_switches_are_tried() -> None:
    """They are 10 % faster than other planners where some ranks have links beside a switch that copies and adds."""
    ranks = [f"gpu{number}" for number in range(5)]
    links = [(rank, "switch", 100) for rank in ranks] + [(rank, after, 25) for rank, after in pairwise(ranks[:4])]
    able: dict[str, Any] = {"switches": ["switch"], "multicast": ["switch"], "aggregation": ["switch"]}
    network = collopt.Topology.from_links(links, compute=ranks, bidirectional=True, **able)
    plan = collopt.plan(network, "allreduce", size="1M", costs=COSTS)
    assert plan.planner == "steiner"
    for name in ("forestcoll", "strength", "allreduce-lp", "blink"):
        other = collopt.plan(network, "allreduce", planner=name, costs=COSTS)
        assert simulate(other, "1M").time > Fraction("1.1") * simulate(plan, "1M").time
    alone = collopt.plan(network, "allreduce", size="1M", costs=COSTS, in_network=False)
    assert alone.planner != "steiner"


def test_plans_only_what_may_be_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kilobyte on two DGX A100 takes one step, which no trees beat; 256M needs trees, but not all numbers of them."""
    counts: list[int] = []
    planned = Planner.__call__

    def count(planner: Planner, *given: Any, **options: Any) -> collopt.Plan:
        if planner.name == "forestcoll":
            counts.append(options.get("trees_per_root", 0))
        return planned(planner, *given, **options)

    monkeypatch.setattr(Planner, "__call__", count)
    collopt.plan(dgx_a100(boxes=2), "allgather", size="1K", costs=COSTS)
    assert counts == []
    collopt.plan(dgx_a100(boxes=2), "allgather", size="256M", costs=COSTS)
    assert counts[0] == 0
    assert 8 in counts
    assert not {1, 2, 3, 4, 6} & set(counts)  # whose rates alone make them slower


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_small_data_of_one_root_takes_few_hops(collective: str) -> None:
    """On a fat tree of 16 hosts no rank is more than four hops from the root."""
    plan = collopt.plan(fat_tree(4), collective, root=0, size="1K", costs=COSTS)
    assert (plan.planner, plan.schedule.depth) == ("bine", 4)
    trees = collopt.plan(fat_tree(4), collective, root=0)
    assert plan.simulate("1K") < trees.simulate("1K", costs=COSTS)


def test_ranks_that_nothing_links_are_refused() -> None:
    """A box whose only switch failed has no hop whose latency could be the least, and no kinds of links."""
    alone = dgx_a100().without_node("box0/nvswitch")
    with pytest.raises(BoundError, match="there is no path from rank 'box0/gpu0' to rank 'box0/gpu1'"):
        collopt.plan(alone, "allgather", size="1M")
    with pytest.raises(UnsupportedError, match="no symmetries of dgx-a100 without box0/nvswitch were found"):
        collopt.plan(alone, "allgather", planner="symmetric")


def test_planners_that_are_quick_are_all_tried_where_nothing_is_in_few_steps() -> None:
    """Also the trees whose rate is less than that of the best allreduce, and others' on more than 8 ranks."""
    cycles = [(25, "cebd"), (10, "bc"), (5, "abce"), (1, "ebcda")]
    links = [
        (one, other, rate, 1) for rate, ends in cycles for one, other in zip(ends, ends[1:] + ends[0], strict=True)
    ]
    for network, size, name in (
        (collopt.Topology.from_links(links, compute="abcde"), "64K", "forestcoll"),
        (mi250(), "64M", "strength"),
    ):
        other = collopt.plan(network, "allreduce", planner=name)
        assert simulate(collopt.plan(network, "allreduce", size=size), size).time <= simulate(other, size).time


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
