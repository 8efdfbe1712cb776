"""Figures of plans: link utilization, activity, bandwidth by size, residuals, and the Pareto front of the finder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...planners import Plan
from ...runtime import Calibration
from ...schedules import as_bytes
from ...support.formatting import bandwidth_text, count_text, time_text
from ..tables import busiest, busy_times, link_table, step_run
from .style import COLORS, check_table, color, draw_series, empty_figure, finish, legend, series_label, shortened, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MAX_NAMED, MAX_ROWS = 40, 64  # Links that bars and Gantt charts list with their names
MAX_LETTERS = 24  # Of each end of a link
LETTERS = 100  # Of a line below a Gantt chart
MAX_BARS = 4000  # Of a Gantt chart; more become a picture, even in files of vectors
CUT_COLOR = COLORS[1]
MAX_DISTINCT_COLORS = 7  # Steps or bandwidths that get a color each
PREFIXES = ("", "K", "M", "G", "T")


def utilization_figure(plan: Plan) -> Figure:
    """Draw the utilization of each link while the plan runs at its bandwidth.

    One bar per link, sorted by bandwidth and then by utilization, and colored by bandwidth: with the names of the links
    if there are up to 40.  Links that the plan's bound adds up are marked.
    """
    table = link_table(plan).assign(place=lambda table: np.arange(len(table)))
    table = table.sort_values(["bandwidth_gbps", "utilization", "place"], ascending=[False, False, True])
    named = len(table) <= MAX_NAMED
    figure = empty_figure(7.0, 0.19 * len(table) + 1.5) if named else empty_figure(9.0, 4.2)
    axes = figure.subplots()
    places = np.arange(len(table))
    _draw_utilization(axes, table, places, named)
    title = f"{plan.collective} on {shortened(plan.topology.name)} by {shortened(plan.planner)}"
    share, links = "utilization in %", f"{len(table)} links, by bandwidth and utilization"
    counted = places[table["in_cut"].to_numpy()]
    label = "counted by the bound"
    mark: dict[str, Any] = {"color": CUT_COLOR, "s": 14, "zorder": 3, "clip_on": False, "lw": 0, "label": label}
    if named:
        axes.scatter(np.full(len(counted), 101.5), counted, marker="<", **mark)
        names = list(map(_link_name, table["tail"], table["head"]))
        axes.set_yticks(places, names, fontsize="x-small", parse_math=False)
        axes.set_ylim(len(table) - 0.4, -0.6)
        axes.set_xlim(0, 104)
    else:
        axes.scatter(counted, np.full(len(counted), 101.5), marker="v", **mark)
        axes.set_xlim(-0.6, len(table) - 0.4)
        axes.set_ylim(0, 104)
    finish(axes, title, share if named else links, "" if named else share)
    axes.grid(visible=False, axis="y" if named else "x")
    axes.legend().remove()
    legend(figure, loc="outside lower center", ncols=3, fontsize="small", frameon=False)
    return figure


def gantt_figure(plan: Plan, size: int | str, slices: int | None = None) -> Figure:
    """Draw when links are busy with which step.

    One row of bars per link, up to 64: those that are busy for the longest time, and of equally busy ones the first of
    the network; below the axis is how many are left out, and whether they are as busy.  The color is that of the step,
    or for trees of the hop, as `step_table` numbers them.  A dashed line is where the last byte has come, which is
    later than any link is busy where links have latency; the title has that time.  Parameters as for `step_table`.
    """
    from matplotlib import colormaps
    from matplotlib.collections import PolyCollection

    figure = empty_figure(1, 1)
    run = step_run(plan, size, slices)
    busy = busiest(run, MAX_ROWS)
    links = np.sort(busy.links)
    table = busy_times(run, links)
    rows = {plan.topology.links[link][:2]: row for row, link in enumerate(links.tolist())}
    table = table.assign(row=[rows[ends] for ends in zip(table["tail"], table["head"], strict=True)])
    figure.set_size_inches(9.0, (0.19 if len(rows) <= MAX_NAMED else 0.15) * len(rows) + 1.7)
    axes = figure.subplots()
    left, right, row = (table[column].to_numpy(dtype=float) for column in ("start_us", "end_us", "row"))
    corners = [(left, row - 0.4), (right, row - 0.4), (right, row + 0.4), (left, row + 0.4)]
    bars = np.stack([np.stack(corner, axis=1) for corner in corners], axis=1)
    steps = sorted(table["step"].unique())
    fills: list[Any] = [color(number) for number in range(len(steps))]
    if len(steps) > MAX_DISTINCT_COLORS:
        # From dark to light: many could not be told apart.
        fills = [tuple(ink) for ink in colormaps["viridis"](np.linspace(0, 0.95, len(steps)))]
    inks = [fills[place] for place in np.searchsorted(steps, table["step"])]
    dense = len(table) >= MAX_BARS
    drawn = PolyCollection(list(bars), facecolors=inks, edgecolors="white", linewidths=0 if dense else 0.2, gid="bars")
    drawn.set_rasterized(dense)
    axes.add_collection(drawn)
    labels = [_link_name(*ends) for ends in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize="x-small", parse_math=False)
    axes.axvline(run.microseconds, color="0.3", lw=1, ls="--", gid="end")
    axes.set_xlim(0, 1.02 * run.microseconds)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    pieces = f" in {count_text(run.slices, 'slice')}" if plan.schedule.pipelined else ""
    what = f"{plan.collective} of {size_label(as_bytes(size))} bytes on {shortened(plan.topology.name)}"
    title = f"{what}: {time_text(run.microseconds)}{pieces}"
    across = "time in µs (dashed line: last byte received)"
    finish(axes, title, f"{across}\n{fill(busy.sentence, LETTERS)}".rstrip(), "")
    axes.grid(visible=False, axis="y")
    _explain_steps(figure, plan, [int(step) for step in steps], fills)
    return figure


def bandwidth_figure(table: pd.DataFrame) -> Figure:
    """Draw algorithm bandwidth against the amount of data.

    Parameters
    ----------
    table : DataFrame
        Columns ``planner``, one line each; ``size`` in bytes; ``algbw_gbps``, as `curve_table` gives them.  Its
        ``bound_gbps``, if there, is drawn as a dashed line.
    """
    check_table(table, {"planner": "text", "size": "positive", "algbw_gbps": "positive"})
    figure = empty_figure(7.0, 4.4)
    axes = figure.subplots()
    draw_series(axes, table, "planner", "size", "algbw_gbps", lw=1.3)
    if "bound_gbps" in table.columns:
        check_table(table, {"bound_gbps": "positive"})
        for bound in sorted(set(table["bound_gbps"].astype(float))):
            axes.axhline(bound, color="0.4", lw=1, ls="--", label=f"bound, {bandwidth_text(bound, 2)}")
    size_axis(axes, table["size"].astype(float).tolist())
    axes.set_ylim(bottom=0)
    finish(axes, "Bandwidth by size", "total size in bytes", "algbw in GB/s")
    # Inside the axes, some curve would be behind it.
    axes.legend().remove()
    legend(figure, loc="outside lower center", ncols=3, fontsize="small", frameon=False)
    return figure


def size_axis(axes: Axes, sizes: Sequence[float]) -> None:
    """Make the axis across one of sizes in bytes, logarithmic and with labels such as 64K."""
    axes.set_xscale("log", base=2)
    first, last = math.floor(math.log2(min(sizes))), math.ceil(math.log2(max(sizes)))
    ticks = [2.0**power for power in range(first, last + 1, max(1, math.ceil((last - first) / 10)))]
    axes.set_xticks(ticks, [size_label(int(tick)) for tick in ticks])
    axes.minorticks_off()


def size_label(size: int) -> str:
    """Format a number of bytes in powers of 1024.

    >>> size_label(1024), size_label(3 * 2**19), size_label(2**30), size_label(1000)
    ('1K', '1.5M', '1G', '1000')
    """
    power = min(max(size, 1).bit_length() - 1, 10 * (len(PREFIXES) - 1)) // 10
    return f"{size / 1024**power:.4g}{PREFIXES[power]}"


def _link_name(tail: str, head: str) -> str:
    return f"{shortened(tail, MAX_LETTERS)} → {shortened(head, MAX_LETTERS)}"


def _draw_utilization(axes: Axes, table: pd.DataFrame, places: npt.NDArray[np.int64], flat: bool) -> None:
    """Draw the bars, those of one bandwidth in one color."""
    classes = sorted(set(table["bandwidth_gbps"]), reverse=True)
    kinds = [[value] for value in classes] if len(classes) < MAX_DISTINCT_COLORS else [classes]
    inks = [color for color in COLORS if color != CUT_COLOR]
    for number, values in enumerate(kinds):
        members = table["bandwidth_gbps"].isin(values).to_numpy()
        shares = 100 * table["utilization"].to_numpy()[members]
        words = bandwidth_text(values[0]) if len(values) == 1 else f"{bandwidth_text(values[-1])} and more"
        label = f"{words}: {count_text(len(shares), 'link')}, mean {shares.mean():.0f} %"
        ink = inks[number % len(inks)]
        if flat:
            axes.barh(places[members], shares, 0.8, color=ink, label=label, lw=0)
        else:
            # Links are sorted by bandwidth, so those of one are side by side: one outline for all of them.
            edges = np.append(places[members], places[members][-1] + 1) - 0.5
            axes.stairs(shares, edges, fill=True, color=ink, label=label, lw=0)


def _explain_steps(figure: Figure, plan: Plan, steps: Sequence[int], fills: Sequence[Any]) -> None:
    """Add a legend of step colors: all of them, or some of many."""
    from matplotlib.patches import Patch

    shown = (
        range(len(steps))
        if len(steps) <= MAX_DISTINCT_COLORS
        else np.linspace(0, len(steps) - 1, MAX_DISTINCT_COLORS).round().astype(int)
    )
    handles = [Patch(facecolor=fills[place], label=str(steps[place])) for place in shown]
    word = "hop (1 is sent first)" if plan.schedule.num_trees else "step"
    legend(
        figure, handles=handles, title=word, loc="outside lower center", ncols=len(handles), fontsize="small",
        title_fontsize="small", frameon=False,
    )  # fmt: skip


def residual_figure(calibration: Calibration) -> Figure:
    """Draw how far the model is above each measured time, in percent, against the size: one series per measurement."""
    figure = empty_figure(7.0, 4.4)
    axes = figure.subplots()
    for number, run in enumerate(calibration.runs):
        percent = [100 * residual for residual in run.residuals]
        axes.plot(run.sizes, percent, ls="", ms=4, label=series_label(run.model.partition(",")[0]), **style(number))
    axes.axhline(0, color="0.4", lw=1)
    size_axis(axes, [size for run in calibration.runs for size in run.sizes])
    finish(
        axes, f"Residuals on {shortened(calibration.topology.name)}", "size in bytes", "model above measured time in %"
    )
    return figure


AXES = {
    "steps": "steps T_L in α",
    "bandwidth_factor": "bandwidth factor T_B in M/B",
    "us": "time of all calls in µs",
    "price": "price",
    "cables": "cables",
}
"""Labels of columns that are compared."""


def pareto_figure(table: pd.DataFrame, across: str = "steps", up: str = "bandwidth_factor") -> Figure:
    """Draw topologies by two figures of which less is better, each with its name.

    The rows that no other beats in both are joined by a staircase.  Raises `UnsupportedError` if a column is missing or
    holds something else.

    Parameters
    ----------
    table : DataFrame
        Columns ``name``, and two of numbers, as `collopt.planners.Frontier.to_frame` gives them (``steps``, T_L in
        alpha, and ``bandwidth_factor``, T_B in M/B), or `collopt.planners.compare_networks`; others are left alone.
    across, up : str
        The columns.
    """
    check_table(table, {"name": "text", across: "number", up: "number"})
    figure = empty_figure()
    from matplotlib.ticker import MaxNLocator

    axes = figure.subplots()
    places, heights = table[across].tolist(), table[up].tolist()
    front = _front(places, heights)
    dominated = [row for row in range(len(places)) if row not in front]
    axes.step(
        [places[row] for row in front], [float(heights[row]) for row in front],
        where="post", marker="o", color=COLORS[0], label="Pareto-efficient",
    )  # fmt: skip
    if dominated:
        axes.scatter(
            [places[row] for row in dominated], [float(heights[row]) for row in dominated],
            marker="x", color=COLORS[1], label="beaten",
        )  # fmt: skip
    middle = (min(places) + max(places)) / 2
    for rows in _neighbors(places, heights):
        # Names grow towards the middle, where there is room.
        side = -1 if places[rows[0]] > middle else 1
        axes.annotate(
            "\n".join(shortened(str(table["name"].iloc[row])) for row in reversed(rows)),
            (places[rows[0]], float(heights[rows[0]])), xytext=(5 * side, 4), textcoords="offset points",
            fontsize="x-small", ha="left" if side > 0 else "right", parse_math=False,
        )  # fmt: skip
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    title = "Latency against bandwidth" if across == "steps" else "Networks compared"
    finish(axes, title, AXES.get(across, across), AXES.get(up, up))
    return figure


def _neighbors(steps: Sequence[int], factors: Sequence[Any]) -> list[list[int]]:
    """Rows of equal steps whose names would overlap, the lowest first: within 4 % of what all factors span."""
    groups: list[list[int]] = []
    close = (max(factors) - min(factors)) / 25
    for row in sorted(range(len(steps)), key=lambda row: (steps[row], factors[row])):
        last = groups[-1][0] if groups else row
        if groups and steps[row] == steps[last] and factors[row] - factors[last] <= close:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _front(steps: Sequence[int], factors: Sequence[Any]) -> list[int]:
    """Pareto-optimal rows, by steps; of equal rows the first."""
    front: list[int] = []
    for row in sorted(range(len(steps)), key=lambda row: (steps[row], factors[row])):
        if not front or factors[row] < factors[front[-1]]:
            front.append(row)
    return front
