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
