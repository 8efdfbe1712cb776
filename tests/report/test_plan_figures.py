"""Figures of plans: trees, busy links, steps and curves."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("matplotlib", reason="figures need matplotlib")

import collopt
from collopt import Plan, topologies
from collopt.report import (
    bandwidth_figure,
    curve_table,
    gantt_figure,
    link_table,
    step_table,
    tree_figure,
    tree_table,
    utilization_figure,
)
from collopt.runtime import simulate

TORUS = topologies.torus(3, 3, bandwidth=25, latency=1)


@cache
def trees() -> Plan:
    """Two boxes, with several trees per root."""
    return collopt.plan(topologies.dgx_a100(boxes=2), "allgather")


@cache
def sums() -> Plan:
    """Trees in both directions."""
    return collopt.plan(TORUS, "allreduce")


@cache
def steps() -> Plan:
    """A plan in steps."""
    return collopt.plan(TORUS, "allgather", planner="bfb")


def arrows(axes: Any) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Start and end of each arrow."""
    return [(text.xyann, text.xy) for text in axes.texts if text.arrow_patch is not None]


def test_trees_have_an_arrow_per_hop_away_from_the_root() -> None:
    """Every rank is there once; depth counts down the page."""
    plan = trees()
    figure = tree_figure(plan, root="box1/gpu2", tree=1)
    (axes,) = figure.axes
    assert len(arrows(axes)) == plan.topology.num_ranks - 1
    assert all(start[1] == end[1] + 1 for start, end in arrows(axes))
    numbers = sorted(int(text.get_text()) for text in axes.texts if text.get_text())
    assert numbers == list(range(16))
    (dots,) = axes.collections
    assert dots.get_offsets()[:, 1].max() == 0
    rows = tree_table(plan).query("root == 'box1/gpu2' and tree == 1")
    assert sorted(-dots.get_offsets()[:, 1]) == sorted([0, *rows["depth"]])
    assert len({tuple(point) for point in dots.get_offsets().round(6).tolist()}) == 16


def test_ranks_and_hops_of_boxes_are_told_apart() -> None:
    """Hops between boxes have a color of their own."""
    plan = trees()
    figure = tree_figure(plan, root=0, tree=1)
    (axes,) = figure.axes
    rows = tree_table(plan).query("root == 'box0/gpu0' and tree == 1")
    between = (rows["tail"].str[:4] != rows["head"].str[:4]).sum()
    colors = [text.arrow_patch.get_edgecolor() for text in axes.texts if text.arrow_patch is not None]
    assert between in {colors.count(color) for color in set(colors)}
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words == ["rank in box0", "rank in box1", "hop within a box", "hop between boxes"]


def test_boxes_do_not_share_colors() -> None:
    """Where there are more boxes than colors, ranks have one color: that in the legend."""
    topology = topologies.dragonfly(2, 1, 3)
    figure = tree_figure(collopt.plan(topology, "allgather"), root=0, tree=1)
    (dots,) = figure.axes[0].collections
    assert len(np.unique(dots.get_facecolors(), axis=0)) == 1
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words[0] == "rank"


def test_sums_run_towards_the_root() -> None:
    """An allreduce has trees in both directions, side by side."""
    inwards, outwards = tree_figure(sums(), root=4).axes
    assert inwards.get_title() == "reduce, tree 1 of 1: 11.11 % of the data\nhops 1 to 2: leaves send first"
    assert outwards.get_title() == "broadcast, tree 1 of 1: 11.11 % of the data\nhops 3 to 4: the root sends first"
    assert all(end[1] > start[1] for start, end in arrows(inwards))
    assert all(end[1] < start[1] for start, end in arrows(outwards))


@pytest.mark.parametrize("loops", [True, False])
def test_switches_where_trees_branch_are_squares_with_names(loops: bool) -> None:
    """Signs tell adding from copying switches, and dashes show loopback."""
    topology = topologies.dgx_h100(loopback=loops)
    figure = tree_figure(collopt.plan(topology, "allreduce"), root=0, tree=1)
    for axes, sign in zip(figure.axes, "+⇉", strict=True):
        dots, square = axes.collections
        assert (len(dots.get_offsets()), square.get_offsets().tolist()) == (8, [[3.0, -1.0]])
        words = [text.get_text() for text in axes.texts if text.get_text()]
        assert sorted(words) == sorted([*map(str, range(8)), sign, "box0/nvswitch"])
        dashed = [text for text in axes.texts if text.arrow_patch and text.arrow_patch.get_linestyle() != "solid"]
        ends = [(3.0, 0.0), (3.0, -1.0)] if sign == "+" else [(3.0, -1.0), (3.0, 0.0)]
        assert [[text.xyann, text.xy] for text in dashed] == ([ends] if loops else [])
        assert len(arrows(axes)) == 8 + loops
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["rank", "+ switch that adds", "⇉ switch that copies", *(["copy looped back"] if loops else [])]


def test_switches_between_boxes_are_drawn_too() -> None:
    """The tree goes on below such switches, which have names."""
    topology = topologies.rail(3, sharp=True)
    figure = tree_figure(collopt.plan(topology, "allreduce"), tree=1)
    names = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert {"rail0", "box1/nvswitch"} <= names


def test_very_many_arrows_are_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One collection has the same lines, colors and heads."""
    for plan in (sums(), trees()):
        each = tree_figure(plan).axes
        with monkeypatch.context() as patched:
            patched.setattr("collopt.report.figures.trees.MAX_ARROWS", 1)
            figure = tree_figure(plan)
        for one, many in zip(each, figure.axes, strict=True):
            lines, heads, _ = many.collections
            assert [tuple(map(tuple, line)) for line in lines.get_segments()] == arrows(one)
            assert heads.get_offsets().tolist() == [list(end) for _, end in arrows(one)]
            inks = [text.arrow_patch.get_edgecolor() for text in one.texts if text.arrow_patch is not None]
            assert list(map(tuple, lines.get_colors())) == list(map(tuple, heads.get_facecolors())) == inks


def test_of_many_trees_the_heaviest_four_are_drawn() -> None:
    """The first root is shown if none is named."""
    plan = trees()
    figure = tree_figure(plan)
    weights = tree_table(plan).query("root == 'box0/gpu0'").groupby("tree")["weight"].first()
    assert len(weights) > 4
    drawn = [int(axes.get_title().split()[2]) for axes in figure.axes]
    assert sorted(weights[drawn], reverse=True) == sorted(weights, reverse=True)[:4]


def test_every_link_has_a_bar_of_its_utilization() -> None:
    """Few links have horizontal bars with names."""
    plan = steps()
    (axes,) = utilization_figure(plan).axes
    table = link_table(plan)
    bars = {round(bar.get_y() + bar.get_height() / 2): bar.get_width() for bar in axes.patches}
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert len(names) == len(bars) == len(table) == 36
    expected = {f"{row['tail']} → {row['head']}": 100 * row["utilization"] for row in table.to_dict("records")}
    assert {name: bars[place] for place, name in enumerate(names)} == pytest.approx(expected)


def test_many_links_are_sorted_and_colored_by_bandwidth() -> None:
    """Many links have upright bars without names, and those of the bound are marked."""
    plan = trees()
    figure = utilization_figure(plan)
    (axes,) = figure.axes
    table = link_table(plan)
    fast, slow = axes.patches
    shares = {link["bandwidth_gbps"]: [] for link in table.to_dict("records")}
    for link in table.to_dict("records"):
        shares[link["bandwidth_gbps"]].append(100 * link["utilization"])
    for outline, bandwidth in ((fast, 300), (slow, 25)):
        assert outline.get_data().values.tolist() == pytest.approx(sorted(shares[bandwidth], reverse=True))
    assert fast.get_data().edges[-1] == slow.get_data().edges[0]
    assert fast.get_facecolor() != slow.get_facecolor()
    assert len(axes.collections[0].get_offsets()) == table["in_cut"].sum()
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words == ["300 GB/s: 32 links, mean 100 %", "25.0 GB/s: 64 links, mean 100 %", "counted by the bound"]


def test_bars_of_a_link_do_not_overlap_and_are_those_of_the_steps() -> None:
    """One bar for each row of the table, in the row of its link and the color of its step."""
    plan = steps()
    figure = gantt_figure(plan, "9M")
    (axes,) = figure.axes
    (bars,) = axes.collections
    table = step_table(plan, "9M")
    boxes = np.array([path.vertices[:4] for path in bars.get_paths()])
    left, right, row = boxes[:, 0, 0], boxes[:, 1, 0], boxes[:, :, 1].mean(axis=1).round().astype(int)
    assert left.tolist() == pytest.approx(table["start_us"].tolist())
    assert right.tolist() == pytest.approx(table["end_us"].tolist())
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert [names[place] for place in row] == (table["tail"] + " → " + table["head"]).tolist()
    for place in set(row):
        order = np.argsort(left[row == place])
        assert (left[row == place][order][1:] >= right[row == place][order][:-1] - 1e-6).all()
    colors = pd.DataFrame({"step": table["step"], "color": list(map(tuple, bars.get_facecolor()))})
    assert (colors.groupby("step")["color"].nunique() == 1).all()
    assert colors["color"].nunique() == plan.num_steps
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        str(step) for step in range(1, plan.num_steps + 1)
    ]
    assert axes.get_title().startswith("allgather of 9M bytes on torus-3x3: ")


def test_of_many_links_the_busiest_are_drawn() -> None:
    """At most 64 links are drawn, and the axis says which."""
    (axes,) = gantt_figure(trees(), "1M").axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    order = [f"{link.tail} → {link.head}" for link in trees().topology.links]
    assert len(names) == 64
    assert names == sorted(names, key=order.index)
    assert names == order[:64]
    below = " ".join(axes.get_xlabel().splitlines()[1:])
    rule = "the busiest first, ties in the order of the network"
    assert below == f"Shown are 64 of 96 links: {rule}. Left out: 32 equally busy."


def test_curves_rise_towards_their_bound() -> None:
    """One line per planner over powers of two, and a dashed one for the bound."""
    table = curve_table([collopt.plan(TORUS, "allgather"), steps()], [2**power for power in range(10, 31)])
    (axes,) = bandwidth_figure(table).axes
    lines = {line.get_label(): line for line in axes.lines}
    assert list(lines) == ["forestcoll", "bfb", "bound, 112.50 GB/s"]
    assert lines["bound, 112.50 GB/s"].get_linestyle() == "--"
    assert (np.diff(lines["bfb"].get_ydata()) > 0).all()
    assert max(lines["bfb"].get_ydata()) < 112.5
    ticks = dict(zip(axes.get_xticks().tolist(), [label.get_text() for label in axes.get_xticklabels()], strict=True))
    assert ticks[1024] == "1K"
    assert ticks[2**30] == "1G"
    assert axes.get_xscale() == "log"


def test_the_time_of_a_gantt_chart_is_that_of_the_last_byte() -> None:
    """Title and line include the latency after the last busy time."""
    torus = topologies.torus(3, 3, bandwidth=25, latency=10)
    plan = collopt.plan(torus, "allgather", planner="bfb")
    (axes,) = gantt_figure(plan, "64K").axes
    (end,) = axes.lines
    assert end.get_xdata() == pytest.approx([plan.estimate("64K")] * 2)
    assert axes.get_title() == "allgather of 64K bytes on torus-3x3: 20.6 µs"
    assert axes.get_xlim()[1] > plan.estimate("64K")
    flowing = gantt_figure(trees(), "64K", slices=3).axes[0]
    assert flowing.get_title().endswith(" µs in 3 slices")
    assert flowing.lines[0].get_xdata()[0] == pytest.approx(simulate(trees(), "64K", 3).microseconds)


def test_a_chart_of_very_many_transfers_takes_fewer_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default number of slices falls to one; a number of the caller stays."""
    hops = simulate(trees(), "1M", 1).starts.size
    monkeypatch.setattr("collopt.report.tables.MAX_EVENTS", 3 * hops)
    assert gantt_figure(trees(), "1M").axes[0].get_title().endswith(" in 3 slices")
    monkeypatch.setattr("collopt.report.tables.MAX_EVENTS", 1)
    assert gantt_figure(trees(), "1M").axes[0].get_title().endswith(" in 1 slice")
    assert gantt_figure(trees(), "1M", 4).axes[0].get_title().endswith(" in 4 slices")


def test_tables_have_whole_names() -> None:
    """Figures leave out the middle of long ones."""
    names = ["g" * 200 + str(number) for number in range(3)]
    links = list(zip(names, names[1:] + names[:1], [10] * 3, strict=True))
    network = collopt.Topology.from_links(links, compute=names, bidirectional=True, name="n" * 200)
    plan = collopt.plan(network, "allgather")
    assert set(link_table(plan)["tail"]) == set(step_table(plan, "1M")["tail"]) == set(names)
    for figure in (gantt_figure(plan, "1M"), utilization_figure(plan)):
        labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
        assert f"{'g' * 12}…{'g' * 10}0 → {'g' * 12}…{'g' * 10}1" in labels
        assert len(figure.axes[0].get_title()) < 120
