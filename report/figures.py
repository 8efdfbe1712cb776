"""Figures of the evaluation of direct-connect networks, each from a table whose columns its docstring names.

Every function returns a `matplotlib.figure.Figure` that belongs to nobody else: pyplot and its global state are not
used, so figures can be made in threads and without a screen.  Extra columns are left alone.  matplotlib is in the extra
``plot``.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import MissingDependencyError, UnsupportedError
from ..topologies.files import write_whole
from ..topologies.validation import as_path, shown
from .tables import as_float, check_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "best_runtime_figure",
    "pareto_figure",
    "relative_bandwidth_figure",
    "runtime_figure",
    "save_figure",
    "timeline_figure",
]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Told apart with any kind of colour vision: Okabe and Ito, *Color Universal Design*, 2008."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
"""So that colour is not all that tells series apart."""
KINDS = ("forward", "backward", "allreduce", "all-to-all")
"""Of the tasks of a timeline, each with the colour at its place."""
STREAMS = ("communication", "compute")
"""From the bottom up."""
FORMATS = ("pdf", "png", "svg")
COARSEST, FINEST = 10, 1200
"""Dots per inch: more would only take memory."""


def runtime_figure(table: pd.DataFrame) -> Figure:
    """Draw the times of allreduce and all-to-all against the number of nodes: Figure 7 of the direct-connect paper.

    Parameters
    ----------
    table : DataFrame
        Columns ``nodes``; ``topology``, one line each; ``allreduce_us`` and ``all_to_all_us``, NaN where there is none.

    Returns
    -------
    Figure
        Two axes side by side, times on logarithmic scales.

    Raises
    ------
    UnsupportedError
        If the table is none or empty, or a column is missing, there twice, or holds what cannot be drawn.
    MissingDependencyError
        If matplotlib is not installed.
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
    figure = _figure(width=10)
    names = table["topology"].unique().tolist()
    for axes, column, what in zip(
        figure.subplots(1, 2), ("allreduce_us", "all_to_all_us"), ("allreduce", "all-to-all"), strict=True
    ):
        for name, rows in table.dropna(subset=[column]).groupby("topology", sort=False):
            rows = rows.sort_values("nodes")  # noqa: PLW2901 - the same rows, in order
            _line(axes, names.index(name), str(name), rows["nodes"], rows[column])
        _finish(axes, f"Time of {what}", "nodes N", "time in µs")
        axes.set_yscale("log")
    return figure


def best_runtime_figure(table: pd.DataFrame) -> Figure:
    """Draw the best allreduce time against the number of nodes, by kind of construction: Figure 15 of the paper.

    Parameters
    ----------
    table : DataFrame
        Columns ``nodes``, ``allreduce_us`` and ``construction``, a kind such as ``"line graph"``.

    Returns
    -------
    Figure
        One dot per row; errors as for `runtime_figure`.
    """
    check_table(table, {"nodes": "positive", "allreduce_us": "positive", "construction": "text"})
    figure = _figure()
    axes = figure.subplots()
    for number, (name, rows) in enumerate(table.groupby("construction", sort=True)):
        axes.scatter(
            rows["nodes"].astype(float), rows["allreduce_us"].astype(float), s=14, label=str(name), **_style(number)
        )
    _finish(axes, "Best topology for an allreduce", "nodes N", "time of allreduce in µs")
    return figure


def relative_bandwidth_figure(table: pd.DataFrame) -> Figure:
    """Draw T_B over its optimum against the number of nodes, a line per degree: Figure 18 of the paper.

    Parameters
    ----------
    table : DataFrame
        Columns ``nodes``, ``degree`` and ``relative_bandwidth_factor``, which is T_B / T_B*.

    Returns
    -------
    Figure
        With a line at the optimum, 1; errors as for `runtime_figure`.
    """
    check_table(table, {"nodes": "positive", "degree": "positive", "relative_bandwidth_factor": "positive"})
    figure = _figure()
    axes = figure.subplots()
    for number, (degree, rows) in enumerate(table.groupby("degree", sort=True)):
        rows = rows.sort_values("nodes")  # noqa: PLW2901 - the same rows, in order
        label = f"degree {degree}"
        axes.plot(
            rows["nodes"].astype(float), rows["relative_bandwidth_factor"].astype(float),
            lw=0.9, label=label, color=_colour(number),
        )  # fmt: skip
    axes.axhline(1, color="0.5", lw=0.8, ls="--")
    _finish(axes, "Generalized Kautz graphs, breadth-first broadcast", "nodes N", "T_B / T_B* (1 = optimal)")
    return figure


def pareto_figure(table: pd.DataFrame) -> Figure:
    """Draw topologies by their steps and their bandwidth factor, each with its name.

    Parameters
    ----------
    table : DataFrame
        Columns ``name``, ``steps`` (T_L in alpha) and ``bandwidth_factor`` (T_B in M/B), as
        `collopt.planners.Frontier.to_frame` gives them.

    Returns
    -------
    Figure
        The rows that no other beats in both are joined by a staircase; errors as for `runtime_figure`.
    """
    check_table(table, {"name": "text", "steps": "number", "bandwidth_factor": "number"})
    figure = _figure()
    axes = figure.subplots()
    steps, factors = table["steps"].tolist(), table["bandwidth_factor"].tolist()
    front = _front(steps, factors)
    rest = [row for row in range(len(steps)) if row not in front]
    axes.step(
        [steps[row] for row in front], [float(factors[row]) for row in front],
        where="post", marker="o", color=COLOURS[0], label="Pareto-efficient",
    )  # fmt: skip
    if rest:
        axes.scatter(
            [steps[row] for row in rest], [float(factors[row]) for row in rest],
            marker="x", color=COLOURS[1], label="beaten",
        )  # fmt: skip
    for name, step, factor in zip(table["name"], steps, factors, strict=True):
        place = (step, float(factor))
        axes.annotate(str(name), place, xytext=(5, 4), textcoords="offset points", fontsize="x-small", parse_math=False)
    _finish(axes, "Steps against bandwidth", "steps T_L in α", "bandwidth factor T_B in M/B")
    return figure


def timeline_figure(table: pd.DataFrame) -> Figure:
    """Draw who does what when in a simulated training iteration: Figure 16 of the paper.

    Parameters
    ----------
    table : DataFrame
        `collopt.planners.TrainingIteration.timeline`: columns ``stream``, ``kind``, ``name``, ``start_us``, ``end_us``.

    Returns
    -------
    Figure
        One row of bars per stream, coloured by kind; errors as for `runtime_figure`.
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
    figure = _figure(width=10, height=2.6)
    axes = figure.subplots()
    for number, kind in enumerate(KINDS):
        rows = table[table["kind"] == kind].astype({"start_us": float, "end_us": float})
        if len(rows):
            axes.barh(
                [STREAMS.index(stream) for stream in rows["stream"]], rows["end_us"] - rows["start_us"],
                left=rows["start_us"], height=0.7, color=_colour(number), edgecolor="white", lw=0.5, label=kind,
            )  # fmt: skip
    axes.set_yticks(range(len(STREAMS)), STREAMS)
    _finish(axes, "One training iteration", "time in µs", "stream")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.3), ncols=len(KINDS), frameon=False)
    return figure


def save_figure(figure: Figure, path: str | os.PathLike[str], *, dots_per_inch: int = 150) -> None:
    """Write a figure, whole or not at all.

    Parameters
    ----------
    figure : Figure
        Left as it is.
    path : str or path
        Ends in ``.png``, ``.svg`` or ``.pdf``; a file there before is replaced.
    dots_per_inch : int, optional
        Of a PNG, 10 to 1200.

    Raises
    ------
    UnsupportedError
        If the path ends in something else, or the figure or the number of dots is none.
    MissingDependencyError
        If matplotlib is not installed.
    OSError
        If the folder does not exist or cannot be written; nothing is left behind.
    """
    suffix = as_path(path).suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise UnsupportedError(
            f"the path {shown(os.fspath(path))} does not end in .png, .svg or .pdf; name one of them"
        )
    if not isinstance(figure, _figure_type()):
        raise UnsupportedError(f"the figure is {shown(figure)}; expected one of matplotlib's")
    dots = as_float(dots_per_inch)
    if dots is None or not COARSEST <= dots <= FINEST:
        raise UnsupportedError(
            f"dots_per_inch is {shown(dots_per_inch)}; expected a number from {COARSEST} to {FINEST}"
        )
    drawn = io.BytesIO()
    # Without a date, the same figure is the same file.
    metadata: dict[str, Any] = {"Date": None} if suffix == "svg" else {"CreationDate": None} if suffix == "pdf" else {}
    figure.savefig(drawn, format=suffix, dpi=dots, metadata=metadata)
    write_whole(path, drawn.getvalue())


def _figure(width: float = 6.4, height: float = 4.2) -> Figure:
    return _figure_type()(figsize=(width, height), layout="constrained")


def _figure_type() -> type[Figure]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError("figures need matplotlib; install it with: pip install 'collopt[plot]'") from None
    return Figure


def _front(steps: Sequence[int], factors: Sequence[Any]) -> list[int]:
    """Rows that no other row beats, by steps; of equal rows the first."""
    front: list[int] = []
    for row in sorted(range(len(steps)), key=lambda row: (steps[row], factors[row])):
        if not front or factors[row] < factors[front[-1]]:
            front.append(row)
    return front


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _style(number: int) -> dict[str, Any]:
    return {"color": _colour(number), "marker": MARKERS[number % len(MARKERS)]}


def _line(axes: Axes, number: int, name: str, across: pd.Series[Any], up: pd.Series[Any]) -> None:
    axes.plot(across.astype(float), up.astype(float), label=name, lw=1.2, ms=4, **_style(number))


def _finish(axes: Axes, title: str, across: str, up: str) -> None:
    """Write on the axes what they show."""
    axes.set_title(title)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(visible=True, alpha=0.3, lw=0.5)
    axes.set_axisbelow(True)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")
