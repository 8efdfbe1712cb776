"""Tables of plans: they say what the plan's exact numbers say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

import collopt
from collopt import Plan, topologies
from collopt.report import bound_links, curve_table, link_table, step_table, tree_table
from collopt.schedules import Cut, LengthDual, Partition, RankCuts

TORUS = topologies.torus(3, 3, bandwidth=25, latency=1)
PLANS: dict[str, Callable[[], Plan]] = {
    "trees": lambda: collopt.plan(topologies.dgx_a100(boxes=2), "allgather"),
    "sums": lambda: collopt.plan(TORUS, "reduce_scatter"),
    "both ways": lambda: collopt.plan(TORUS, "allreduce"),
    "steps": lambda: collopt.plan(TORUS, "allreduce", planner="bfb"),
    "flow": lambda: collopt.plan(TORUS, "all_to_all"),
}


@pytest.mark.parametrize("kind", PLANS)
def test_busiest_link_decides_the_bandwidth(kind: str) -> None:
    """No link is busy for more than all the time, and in a plan without steps some link is always busy."""
    plan = PLANS[kind]()
    table = link_table(plan)
    assert table[["tail", "head"]].values.tolist() == [[link.tail, link.head] for link in plan.topology.links]
    assert table["bandwidth_gbps"].tolist() == [float(link.bandwidth) for link in plan.topology.links]
    assert table["utilization"].between(0, 1 + 1e-12).all()
    assert table["utilization"].max() == pytest.approx(1)
    busy = table["load"] / table["bandwidth_gbps"]
    assert table["utilization"].to_numpy() == pytest.approx((busy * float(plan.algbw)).to_numpy())


def test_loads_are_those_of_the_simulation() -> None:
    """Loads are bytes on a link as a share of all bytes, for every kind of schedule."""
    for kind, make in PLANS.items():
        plan = make()
        run = collopt.runtime.simulate(plan, 9 * 2**20)
        expected = run.link_busy["bytes"].to_numpy() / run.num_bytes
        assert link_table(plan)["load"].to_numpy() == pytest.approx(expected), kind


@pytest.mark.parametrize(
    ("topology", "collective", "kind"),
    [
        (topologies.dgx_a100(boxes=4), "allgather", Cut),
        (topologies.dgx_a100(boxes=4), "reduce_scatter", Cut),
        (topologies.ring(4), "allreduce", Partition | RankCuts | Cut),
        (topologies.kautz(2, 2), "all_to_all", LengthDual | Cut),
    ],
)
def test_links_in_the_cut_are_those_that_the_witness_adds_up(topology: Any, collective: str, kind: Any) -> None:
    """Their bandwidths add up to that of the crossing."""
    bound = collopt.bound(topology, collective)
    assert isinstance(bound.witness, kind)
    counted = bound_links(bound)["in_cut"].to_numpy()
    assert counted.any()
    if not isinstance(bound.witness, LengthDual):
        total = sum(link.bandwidth for link, inside in zip(topology.links, counted, strict=True) if inside)
        assert total == bound.witness.crossing(topology, collective, bound.weights).bandwidth
    if isinstance(bound.witness, Cut):
        inside = bound.witness.nodes
        ends = [(link.tail in inside, link.head in inside) for link in topology.links]
        crossing = (False, True) if collective == "reduce_scatter" else (True, False)
        assert counted.tolist() == [each == crossing for each in ends]


@pytest.mark.parametrize("kind", ["trees", "sums", "both ways"])
def test_trees_span_all_ranks_with_all_data(kind: str) -> None:
    """Each tree has a hop for every rank but its root, in an order in which it can run; weights add up to 1."""
    plan = PLANS[kind]()
    table = tree_table(plan)
    ranks = set(plan.topology.compute_nodes)
    for phase, rows in table.groupby("phase"):
        per_tree = rows.groupby(["root", "tree"], sort=False)
        assert per_tree["weight"].first().sum() == pytest.approx(1)
        for (root, _), hops in per_tree:
            inner = "tail" if phase == "reduce" else "head"
            assert set(hops[inner]) == ranks - {root}
            depth = {root: 0} | dict(zip(hops[inner], hops["depth"], strict=True))
            outer = "head" if phase == "reduce" else "tail"
            assert all(depth[row[outer]] + 1 == depth[row[inner]] for row in hops.to_dict("records"))
            assert hops["depth"].is_monotonic_decreasing if phase == "reduce" else hops["depth"].is_monotonic_increasing
    assert (
        set(table["phase"]) == {"trees": {"broadcast"}, "sums": {"reduce"}, "both ways": {"reduce", "broadcast"}}[kind]
    )


@pytest.mark.parametrize("kind", PLANS)
def test_no_link_does_two_things_at_once(kind: str) -> None:
    """Rows of one link do not overlap, and add up to what the link carries."""
    plan = PLANS[kind]()
    size = 9 * 2**20
    table = step_table(plan, size)
    assert table["start_us"].is_monotonic_increasing
    for _, rows in table.groupby(["tail", "head"]):
        ordered = rows.sort_values("start_us")
        gaps = ordered["start_us"].to_numpy()[1:] - ordered["end_us"].to_numpy()[:-1]
        assert (gaps > -1e-6).all()
        assert (ordered["end_us"] > ordered["start_us"]).all()
    carried = table.groupby(["tail", "head"])["bytes"].sum() / size
    loads = link_table(plan).set_index(["tail", "head"])["load"]
    pd.testing.assert_series_equal(carried.sort_index(), loads[loads > 0].sort_index(), check_names=False)


def test_steps_wait_for_each_other() -> None:
    """The first of a step starts after the last of the one before, and the last ends when the estimate says."""
    plan = PLANS["steps"]()
    table = step_table(plan, "9M")
    spans = table.groupby("step").agg(start=("start_us", "min"), end=("end_us", "max"))
    assert spans.index.tolist() == list(range(1, plan.num_steps + 1))
    assert (spans["start"].to_numpy()[1:] >= spans["end"].to_numpy()[:-1] - 1e-6).all()
    assert table["end_us"].max() <= plan.estimate("9M")


def test_curves_are_those_of_the_models() -> None:
    """Times are estimates by default, else simulations, under the names of a mapping."""
    trees, steps = PLANS["both ways"](), PLANS["steps"]()
    table = curve_table([trees, steps], ["1K", 2**20])
    assert table["planner"].tolist() == ["forestcoll", "forestcoll", "bfb", "bfb"]
    assert table["size"].tolist() == [1024, 2**20] * 2
    assert table["time_us"].tolist() == [plan.estimate(size) for plan in (trees, steps) for size in (1024, 2**20)]
    assert table["algbw_gbps"].to_numpy() == pytest.approx((table["size"] / table["time_us"] / 1000).to_numpy())
    assert table["busbw_gbps"].to_numpy() == pytest.approx((table["algbw_gbps"] * 16 / 9).to_numpy())
    assert set(table["bound_gbps"]) == {float(trees.bound.algbw), float(steps.bound.algbw)}
    simulated = curve_table({"mine": trees}, ["1M"], model="simulate")
    assert simulated["planner"].tolist() == ["mine"]
    assert simulated["time_us"].tolist() == [collopt.runtime.simulate(trees, "1M").microseconds]
