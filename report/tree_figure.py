"""Trees of a plan, each from its root downwards."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..errors import UnsupportedError
from ..planners import Plan
from ..schedules.units import percentage_text
from ..topologies.validation import shown
from .drawing import COLOURS, colour, empty_figure, legend, shortened
from .node_layout import box_of_nodes
from .plan_tables import tree_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["tree_figure"]

MOST_TREES = 4
"""Side by side; the heaviest if there are more."""
WITHIN, BETWEEN = "#8c8c8c", COLOURS[1]
BOX_COLOURS = (COLOURS[0], COLOURS[2], COLOURS[3], COLOURS[4], COLOURS[5])
LETTERS_PER_INCH, BOX_LETTERS = 11, 16
LEAF, LEVEL = 0.34, 0.75
"""Inches between leaves, and between a rank and its children."""
WIDEST, TALLEST = 12.0, 9.0


class _Shape(NamedTuple):
    """A tree with its drawing: `parents` of ranks, and where ranks are, in leaves across and hops down."""

    title: str
    inwards: bool
    parents: Mapping[str, str]
    places: Mapping[str, tuple[float, int]]


def tree_figure(plan: Plan, root: int | str | None = None, tree: int | None = None) -> Figure:
    """Draw the trees along which the data of a root goes, or sums come in.

    Parameters
    ----------
    plan : Plan
        Of trees.
    root : int or str, optional
        A rank by number or name; by default the first that has trees.
    tree : int, optional
        Which of its trees, as `tree_table` counts them; by default the heaviest, up to four.  Of an allreduce, those
        for sums and those for results each have numbers of their own, and both are drawn.

    Returns
    -------
    Figure
        One axes per tree.  Arrowheads point where data goes; hops between boxes have their own colour.

    Raises
    ------
    UnsupportedError
        If the plan is none or not of trees, or has no such root or tree.
    MissingDependencyError
        If matplotlib is not installed.
    """
    first = int(plan.trees.forests[0].roots[0]) if root is None and isinstance(plan, Plan) else root
    table = tree_table(plan, first)
    name = str(table["root"].iloc[0])
    shapes = _chosen(table, name, tree)
    widths = [max(place[0] for place in shape.places.values()) + 1.6 for shape in shapes]
    depth = max(place[1] for shape in shapes for place in shape.places.values())
    width = min(max(LEAF * sum(widths), 5.0), WIDEST)
    figure = empty_figure(width, min(LEVEL * (depth + 1) + 1.3, TALLEST))
    every = figure.subplots(1, len(shapes), squeeze=False, width_ratios=widths)[0]
    boxes = box_of_nodes(plan.topology)
    colours = {box: BOX_COLOURS[number % len(BOX_COLOURS)] for number, box in enumerate(dict.fromkeys(
        boxes[rank] for rank in plan.topology.compute_nodes))}  # fmt: skip
    radius = min(8.5, 0.42 * 72 * width / sum(widths), 0.3 * 72 * (figure.get_figheight() - 1.3) / (depth + 1))
    for axes, shape in zip(every, shapes, strict=True):
        _draw(axes, shape, plan, colours, radius)
    title = f"{plan.collective} on {shortened(plan.topology.name)}: trees of {shortened(name)}"
    figure.suptitle(fill(title, int(LETTERS_PER_INCH * width)), fontsize="medium", parse_math=False)
    _explain(figure, colours, shapes, boxes)
    return figure


def _chosen(table: pd.DataFrame, root: str, tree: object) -> list[_Shape]:
    """Lay out the wanted trees of one root."""
    shapes = []
    for phase, rows in table.groupby("phase", sort=False):
        weights = rows.groupby("tree")["weight"].first()
        if tree is None:
            most = MOST_TREES if table["phase"].nunique() == 1 else MOST_TREES // 2
            numbers = sorted(weights.sort_values(ascending=False, kind="stable").index[:most])
        elif isinstance(tree, int) and not isinstance(tree, bool) and tree in weights.index:
            numbers = [tree]
        else:
            raise UnsupportedError(f"tree is {shown(tree)}; expected a whole number from 0 to {len(weights) - 1}")
        for number in numbers:
            part = percentage_text(float(weights[number]))
            title = f"tree {number} of {len(weights)}: {part} of the data"
            shapes.append(_shape(rows[rows["tree"] == number], root, f"{phase}, {title}", phase == "reduce"))
    return shapes


def _shape(rows: pd.DataFrame, root: str, title: str, inwards: bool) -> _Shape:
    above, below = ("head", "tail") if inwards else ("tail", "head")
    by_depth = rows.sort_values("depth", kind="stable")
    parents = dict(zip(by_depth[below], by_depth[above], strict=True))
    children: dict[str, list[str]] = {root: []}
    for child, parent in parents.items():
        children.setdefault(child, [])
        children[parent].append(child)
    places: dict[str, tuple[float, int]] = {}
    depths = {root: 0} | dict(zip(by_depth[below], by_depth["depth"].tolist(), strict=True))
    waiting, leaves = [root], 0
    order = []
    while waiting:
        order.append(rank := waiting.pop())
        waiting += reversed(children[rank])
    for rank in order:
        if not children[rank]:
            places[rank] = (float(leaves), depths[rank])
            leaves += 1
    for rank in reversed(order):
        if children[rank]:
            places[rank] = (float(np.mean([places[child][0] for child in children[rank]])), depths[rank])
    return _Shape(title, inwards, parents, places)


def _draw(axes: Axes, shape: _Shape, plan: Plan, colours: Mapping[str, str], radius: float) -> None:
    boxes, numbers = box_of_nodes(plan.topology), plan.topology.node_index
    for child, parent in shape.parents.items():
        (x, depth), (above, higher) = shape.places[child], shape.places[parent]
        start, end = ((x, -depth), (above, -higher)) if shape.inwards else ((above, -higher), (x, -depth))
        hop = WITHIN if boxes[child] == boxes[parent] else BETWEEN
        axes.annotate(
            "", end, xytext=start, zorder=1,
            arrowprops={"arrowstyle": "-|>", "color": hop, "lw": 1.1, "shrinkA": radius, "shrinkB": radius,
                        "mutation_scale": max(radius, 3.0)},
        )  # fmt: skip
    ranks = list(shape.places)
    points = np.array([(x, -depth) for x, depth in shape.places.values()])
    inks = [colours[boxes[rank]] for rank in ranks]
    axes.scatter(points[:, 0], points[:, 1], s=(2 * radius) ** 2, c=inks, lw=0, zorder=2)
    size = min(1.0 * radius, 1.7 * radius / (0.62 * len(str(len(ranks) - 1))))
    for rank, point in zip(ranks, points, strict=True):
        axes.annotate(
            str(numbers[rank]), tuple(point), ha="center", va="center_baseline", fontsize=size, color="white", zorder=3
        )
    axes.set_axis_off()
    axes.set_xlim(-0.8, points[:, 0].max() + 0.8)
    axes.set_ylim(points[:, 1].min() - 0.5, 0.5)
    axes.set_title(shape.title, fontsize="small", wrap=True)


def _explain(figure: Figure, colours: Mapping[str, str], shapes: list[_Shape], boxes: Mapping[str, str]) -> None:
    """Say what colours mean."""
    from matplotlib.lines import Line2D

    hops = {boxes[child] == boxes[parent] for shape in shapes for child, parent in shape.parents.items()}
    named = len(colours) > 1 and len(colours) <= len(BOX_COLOURS)
    handles = [
        Line2D(
            [], [], ls="", marker="o", ms=7, color=ink,
            label=f"rank in {shortened(box, BOX_LETTERS)}" if box else "rank",
        )
        for box, ink in (colours.items() if named else [("", colour(0))])
    ]  # fmt: skip
    if len(colours) > 1:
        words = {True: ("hop within a box", WITHIN), False: ("hop between boxes", BETWEEN)}
        handles += [Line2D([], [], color=words[kind][1], label=words[kind][0]) for kind in sorted(hops, reverse=True)]
    legend(
        figure, handles=handles, loc="outside lower center", ncols=max(1, int(figure.get_figwidth() // 1.8)),
        fontsize="small", frameon=False,
    )  # fmt: skip
