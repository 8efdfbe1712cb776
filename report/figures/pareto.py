"""Figure of direct-connect networks to choose from: steps against bandwidth factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .style import COLORS, check_table, empty_figure, finish, shortened

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def pareto_figure(table: pd.DataFrame) -> Figure:
    """Draw topologies by their steps and their bandwidth factor, each with its name.

    The rows that no other beats in both are joined by a staircase.  Raises `UnsupportedError` if a column is missing or
    holds something else.

    Parameters
    ----------
    table : DataFrame
        Columns ``name``, ``steps`` (T_L in alpha) and ``bandwidth_factor`` (T_B in M/B), as
        `collopt.planners.Frontier.to_frame` gives them; others are left alone.
    """
    check_table(table, {"name": "text", "steps": "number", "bandwidth_factor": "number"})
    figure = empty_figure()
    from matplotlib.ticker import MaxNLocator

    axes = figure.subplots()
    steps, factors = table["steps"].tolist(), table["bandwidth_factor"].tolist()
    front = _front(steps, factors)
    dominated = [row for row in range(len(steps)) if row not in front]
    axes.step(
        [steps[row] for row in front], [float(factors[row]) for row in front],
        where="post", marker="o", color=COLORS[0], label="Pareto-efficient",
    )  # fmt: skip
    if dominated:
        axes.scatter(
            [steps[row] for row in dominated], [float(factors[row]) for row in dominated],
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
