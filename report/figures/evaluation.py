"""Figures of the evaluation of direct-connect networks, drawn from tables.

Extra columns are left alone; see `collopt.report.figures.style` for what holds of all figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import UnsupportedError
from ...support.validation import shown
from .style import COLORS, check_table, color, draw_series, empty_figure, finish, legend, series_label, shortened, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

KINDS = ("forward", "backward", "allreduce", "all-to-all")
"""Of the tasks of a timeline, each with the color at its place."""
STREAMS = ("communication", "compute")  # From the bottom up


def runtime_figure(table: pd.DataFrame) -> Figure:
    """Draw the times of allreduce and all-to-all against the number of nodes: Figure 7 of the direct-connect paper.

    Two axes are side by side, times on logarithmic scales.  Columns are ``nodes``; ``topology``, one line each;
    ``allreduce_us`` and ``all_to_all_us``, NaN where there is none.
    """
    check_table(
        table,
        {
            "nodes": "positive",
            "topology": "text",
            "allreduce_us": "positive or missing",
            "all_to_all_us": "positive or missing",
        },
    )
    figure = empty_figure(width=10)
    columns, words = ("allreduce_us", "all_to_all_us"), ("allreduce", "all-to-all")
    for axes, column, what in zip(figure.subplots(1, 2), columns, words, strict=True):
        draw_series(axes, table, "topology", "nodes", column, lw=1.2)
        finish(axes, f"Time of {what}", "nodes N", "time in µs")
        axes.set_yscale("log")
    return figure


def best_runtime_figure(table: pd.DataFrame) -> Figure:
    """Draw the best allreduce time against the number of nodes, by kind of construction: Figure 15 of the paper.

    One dot per row; errors as for `runtime_figure`.  Columns are ``nodes``, ``allreduce_us`` and ``construction``, a
    kind such as ``"line graph"``.
    """
    check_table(table, {"nodes": "positive", "allreduce_us": "positive", "construction": "text"})
    figure = empty_figure()
    axes = figure.subplots()
    for number, (name, rows) in enumerate(table.groupby("construction", sort=True)):
        axes.scatter(
            rows["nodes"].astype(float), rows["allreduce_us"].astype(float), s=14, label=series_label(str(name)),
            **style(number),
        )  # fmt: skip
    finish(axes, "Best topology for an allreduce", "nodes N", "time of allreduce in µs")
    return figure


def relative_bandwidth_figure(table: pd.DataFrame) -> Figure:
    """Draw T_B over its optimum against the number of nodes, a line per degree: Figure 18 of the paper.

    The optimum, 1, has a line; errors as for `runtime_figure`.  Columns are ``nodes``, ``degree`` and
    ``relative_bandwidth_factor``, which is T_B / T_B*.
    """
    check_table(table, {"nodes": "positive", "degree": "positive", "relative_bandwidth_factor": "positive"})
    figure = empty_figure()
    axes = figure.subplots()
    named = table.sort_values("degree").assign(degree=lambda rows: "degree " + rows["degree"].astype(str))
    draw_series(axes, named, "degree", "nodes", "relative_bandwidth_factor", lw=0.9, marker="")
    axes.axhline(1, color="0.5", lw=0.8, ls="--")
    finish(axes, "Generalized Kautz graphs, breadth-first broadcast", "nodes N", "T_B / T_B* (1 = optimal)")
    return figure


def pareto_figure(table: pd.DataFrame) -> Figure:
    """Draw topologies by their steps and their bandwidth factor, each with its name.

    The rows that no other beats in both are joined by a staircase; errors as for `runtime_figure`.

    Parameters
    ----------
    table : DataFrame
        Columns ``name``, ``steps`` (T_L in alpha) and ``bandwidth_factor`` (T_B in M/B), as
        `collopt.planners.Frontier.to_frame` gives them.
    """
    check_table(table, {"name": "text", "steps": "number", "bandwidth_factor": "number"})
    figure = empty_figure()
    from matplotlib.ticker import MaxNLocator

    axes = figure.subplots()
    steps, factors = table["steps"].tolist(), table["bandwidth_factor"].tolist()
    front = _front(steps, factors)
    rest = [row for row in range(len(steps)) if row not in front]
    axes.step(
        [steps[row] for row in front], [float(factors[row]) for row in front],
        where="post", marker="o", color=COLORS[0], label="Pareto-efficient",
    )  # fmt: skip
    if rest:
        axes.scatter(
            [steps[row] for row in rest], [float(factors[row]) for row in rest],
            marker="x", color=COLORS[1], label="beaten",
        )  # fmt: skip
    middle = (min(steps) + max(steps)) / 2
    for rows in _neighbors(steps, factors):
        # Names grow towards the middle, where there is room.
        side = -1 if steps[rows[0]] > middle else 1
        axes.annotate(
            "\n".join(shortened(str(table["name"].iloc[row])) for row in reversed(rows)),
            (steps[rows[0]], float(factors[rows[0]])), xytext=(5 * side, 4), textcoords="offset points",
            fontsize="x-small", ha="left" if side > 0 else "right", parse_math=False,
        )  # fmt: skip
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    finish(axes, "Latency against bandwidth", "steps T_L in α", "bandwidth factor T_B in M/B")
    return figure


def timeline_figure(table: pd.DataFrame) -> Figure:
    """Draw the timeline of a simulated training iteration: Figure 16 of the paper.

    One row of bars per stream, colored by kind; errors as for `runtime_figure`.  Columns are ``stream``, ``kind``,
    ``name``, ``start_us``, ``end_us``.
    """
    check_table(table, {"stream": "text", "kind": "text", "name": "text", "start_us": "number", "end_us": "number"})
    for column, known in (("stream", STREAMS), ("kind", KINDS)):
        strange = [value for value in table[column] if value not in known]
        if strange:
            raise UnsupportedError(f"the {column} of a task is {shown(strange[0])}; expected one of {', '.join(known)}")
    for name, start, end in zip(table["name"], table["start_us"], table["end_us"], strict=True):
        if end < start:
            raise UnsupportedError(
                f"the task {shown(name)} ends at {end} µs, before it starts; expected {start} or later"
            )
    figure = empty_figure(width=10, height=2.6)
    axes = figure.subplots()
    for number, kind in enumerate(KINDS):
        rows = table[table["kind"] == kind].astype({"start_us": float, "end_us": float})
        if len(rows):
            axes.barh(
                [STREAMS.index(stream) for stream in rows["stream"]], rows["end_us"] - rows["start_us"],
                left=rows["start_us"], height=0.7, color=color(number), edgecolor="white", lw=0.5, label=kind,
            )  # fmt: skip
    axes.set_yticks(range(len(STREAMS)), STREAMS)
    finish(axes, "One training iteration", "time in µs", "stream")
    legend(axes, loc="upper center", bbox_to_anchor=(0.5, -0.3), ncols=len(KINDS), frameon=False)
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
