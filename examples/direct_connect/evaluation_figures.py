"""Figures of the evaluation of direct-connect networks, drawn from the tables that the other scripts make."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collopt.report.figures.style import color, draw_series, empty_figure, finish, legend, series_label, style

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
    figure = empty_figure(width=10)
    columns, words = ("allreduce_us", "all_to_all_us"), ("allreduce", "all-to-all")
    for axes, column, what in zip(figure.subplots(1, 2), columns, words, strict=True):
        draw_series(axes, table, "topology", "nodes", column, lw=1.2)
        finish(axes, f"Time of {what}", "nodes N", "time in µs")
        axes.set_yscale("log")
    return figure


def best_runtime_figure(table: pd.DataFrame) -> Figure:
    """Draw the best allreduce time against the number of nodes, by kind of construction: Figure 15 of the paper.

    One dot per row.  Columns are ``nodes``, ``allreduce_us`` and ``construction``, a
    kind such as ``"line graph"``.
    """
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

    The optimum, 1, has a line.  Columns are ``nodes``, ``degree`` and
    ``relative_bandwidth_factor``, which is T_B / T_B*.
    """
    figure = empty_figure()
    axes = figure.subplots()
    named = table.sort_values("degree").assign(degree=lambda rows: "degree " + rows["degree"].astype(str))
    draw_series(axes, named, "degree", "nodes", "relative_bandwidth_factor", lw=0.9, marker="")
    axes.axhline(1, color="0.5", lw=0.8, ls="--")
    finish(axes, "Generalized Kautz graphs, breadth-first broadcast", "nodes N", "T_B / T_B* (1 = optimal)")
    return figure


def timeline_figure(table: pd.DataFrame) -> Figure:
    """Draw the timeline of a simulated training iteration: Figure 16 of the paper.

    One row of bars per stream, colored by kind.  Columns are ``stream``, ``kind``,
    ``name``, ``start_us``, ``end_us``.
    """
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
