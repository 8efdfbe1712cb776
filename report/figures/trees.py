"""Figures of the trees of a plan, drawn from their roots downwards, and of the logical topology."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...planners import LogicalTopology, Plan
from ...support.formatting import bandwidth_text, percentage_text
from ...support.validation import as_kind, shown
from ..layout import box_of_nodes
from ..tables import tree_table
from .network import Canvas, draw_links, draw_nodes, write
from .style import COLORS, color, empty_figure, legend, shortened

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MAX_TREES = 4  # Side by side; the heaviest if there are more
WITHIN, BETWEEN = "#8c8c8c", COLORS[1]
SWITCH = "#404040"
SIGNS = {True: ("+", "switch that adds"), False: ("⇉", "switch that copies")}  # By whether sums run to the root
LOOPED, DASHES = "copy looped back", (0, (3, 2))
BOX_COLORS = (COLORS[0], COLORS[2], COLORS[3], COLORS[4], COLORS[5])
LETTERS_PER_INCH, BOX_LETTERS = 11, 16
LEAF, LEVEL = 0.34, 0.75  # Inches between leaves, and between a rank and its children
WIDEST, TALLEST = 12.0, 9.0
POINTS_PER_INCH = 72
MAX_ARROWS = 300  # Of a tree; more are drawn all at once
SMALLEST_WORDS = 1.5  # Numbers of ranks in points, below which they are left out
SWITCH_WORDS = 7.0  # Names of switches in points, or less where there is no room
LETTER = 0.62  # Width of a letter, in font sizes
LEAF_RADII = 2.3  # Between leaves, at least
MOST_NUMBERS = 64
AT_TAIL = 4
"""Point of a curve, of 0 to 16: halfway, the numbers of all diameters would lie on each other."""


class _Shape(NamedTuple):
    """A tree with its drawing: `parents` of ranks and switches, and where they are, in leaves across and rows down."""

    title: str
    inwards: bool
    parents: Mapping[str, str]
    places: Mapping[str, tuple[float, int]]
    switches: Mapping[str, bool]  # Where the tree branches, and whether they loop a copy back to the rank above


class _Hop(NamedTuple):
    """An arrow between two points."""

    start: tuple[float, float]
    end: tuple[float, float]
    ink: str


def tree_figure(plan: Plan, root: int | str | None = None, tree: int | None = None) -> Figure:
    """Draw the broadcast or reduce trees of a root.

    One axes per tree, whose title has the numbers of its hops as in `tree_table`.  Arrowheads point where data goes;
    hops between boxes have their own color.  Ranks are dots with their numbers, switches where the tree branches
    squares with their names; an arrow with dashes is a copy that a switch loops back.  Raises `UnsupportedError` if the
    plan is none or not of trees, or has no such root or tree.

    Parameters
    ----------
    plan : Plan
        Of trees.
    root : int or str, optional
        A rank by number or name; by default the first that has trees.
    tree : int, optional
        Which of its trees, from 1 as `tree_table` counts them; by default the heaviest, up to four.  Of an allreduce,
        those for sums and those for results each have numbers of their own, and both are drawn.
    """
    first = int(plan.trees.forests[0].roots[0]) if root is None and isinstance(plan, Plan) else root
    table = tree_table(plan, first)
    name = str(table["root"].iloc[0])
    shapes = _shapes(table, name, tree, frozenset(plan.topology.switch_nodes))
    widths = [max(place[0] for place in shape.places.values()) + 1.6 for shape in shapes]
    depth = max(place[1] for shape in shapes for place in shape.places.values())
    width = min(max(LEAF * sum(widths), 5.0), WIDEST)
    figure = empty_figure(width, min(LEVEL * (depth + 1) + 1.3, TALLEST))
    every = figure.subplots(1, len(shapes), squeeze=False, width_ratios=widths)[0]
    boxes = box_of_nodes(plan.topology)
    root_boxes = list(dict.fromkeys(boxes[rank] for rank in plan.topology.compute_nodes))
    # Colors that some of the boxes would share tell nothing.
    inks = BOX_COLORS if len(root_boxes) <= len(BOX_COLORS) else (color(0),) * len(root_boxes)
    colors = dict(zip(root_boxes, inks, strict=False))
    radius = min(8.5, 0.42 * 72 * width / sum(widths), 0.3 * 72 * (figure.get_figheight() - 1.3) / (depth + 1))
    for axes, shape in zip(every, shapes, strict=True):
        _draw(axes, shape, plan, colors, radius)
    title = f"{plan.collective} on {shortened(plan.topology.name)}: trees of {shortened(name)}"
    figure.suptitle(fill(title, int(LETTERS_PER_INCH * width)), fontsize="medium", parse_math=False)
    _explain(figure, colors, shapes, boxes)
    return figure


def _shapes(table: pd.DataFrame, root: str, tree: object, switches: frozenset[str]) -> list[_Shape]:
    """Lay out the wanted trees of one root."""
    shapes = []
    for phase, rows in table.groupby("phase", sort=False):
        weights = rows.groupby("tree")["weight"].first()
        who = "leaves send first" if phase == "reduce" else "the root sends first"
        if tree is None:
            limit = MAX_TREES if table["phase"].nunique() == 1 else MAX_TREES // 2
            numbers = sorted(weights.sort_values(ascending=False, kind="stable").index[:limit])
        elif isinstance(tree, int) and not isinstance(tree, bool) and tree in weights.index:
            numbers = [tree]
        else:
            raise UnsupportedError(f"tree is {shown(tree)}; expected a whole number from 1 to {len(weights)}")
        for number in numbers:
            part = percentage_text(float(weights[number]))
            hops = rows[rows["tree"] == number]
            first, last = hops["hop"].min(), hops["hop"].max()
            order = f"hop {first}" if first == last else f"hops {first} to {last}: {who}"
            title = f"{phase}, tree {number} of {len(weights)}: {part} of the data\n{order}"
            shapes.append(_shape(hops, root, title, phase == "reduce", switches))
    return shapes


def _shape(rows: pd.DataFrame, root: str, title: str, inwards: bool, switches: frozenset[str]) -> _Shape:
    import networkx as nx

    above, below = ("head", "tail") if inwards else ("tail", "head")
    # Upside down where sums run to the root: then a tree that is used both ways looks the same both times.
    by_depth = (rows[::-1] if inwards else rows).sort_values("depth", kind="stable")
    parents = dict(zip(by_depth[below], by_depth[above], strict=True))
    tree = nx.DiGraph((parent, child) for child, parent in parents.items())
    depths, order = dict[str, int](), list[str]()
    # Trees of demands may begin at other sources, too.
    for start in dict.fromkeys((root, *(node for node in parents.values() if node not in parents))):
        depths |= nx.single_source_shortest_path_length(tree, start)
        order += nx.dfs_preorder_nodes(tree, start)
    leaves = (rank for rank in order if not tree[rank])
    places = {rank: (float(place), depths[rank]) for place, rank in enumerate(leaves)}
    for rank in reversed(order):
        if tree[rank]:
            places[rank] = (float(np.mean([places[child][0] for child in tree[rank]])), depths[rank])
    looped = dict(zip(by_depth[below], by_depth["looped"].tolist(), strict=True))
    return _Shape(title, inwards, parents, places, {node: looped[node] for node in places if node in switches})


def _draw(axes: Axes, shape: _Shape, plan: Plan, colors: Mapping[str, str], radius: float) -> None:
    boxes, numbers = box_of_nodes(plan.topology), plan.topology.node_index
    hops = []
    for child, parent in shape.parents.items():
        lower, upper = ((float(x), -float(depth)) for x, depth in (shape.places[child], shape.places[parent]))
        ink = WITHIN if boxes[child] == boxes[parent] else BETWEEN
        hops.append(_Hop(lower, upper, ink) if shape.inwards else _Hop(upper, lower, ink))
    (_draw_arrows if len(hops) <= MAX_ARROWS else _draw_lines)(axes, hops, radius)
    ranks = {node: (x, -float(row)) for node, (x, row) in shape.places.items() if node not in shape.switches}
    points = np.array(list(ranks.values()))
    inks = [colors[boxes[rank]] for rank in ranks]
    axes.scatter(points[:, 0], points[:, 1], s=(2 * radius) ** 2, c=inks, lw=0, zorder=2)
    size = min(1.0 * radius, 1.7 * radius / (LETTER * len(str(len(ranks) - 1))))
    # Smaller ones could not be read, and every one takes time.
    for rank, point in ranks.items() if size >= SMALLEST_WORDS else ():
        axes.annotate(
            str(numbers[rank]), point, ha="center", va="center_baseline", fontsize=size, color="white", zorder=3
        )
    _draw_switches(axes, shape, radius)
    axes.set_axis_off()
    axes.set_xlim(-0.8, points[:, 0].max() + 0.8)
    axes.set_ylim(points[:, 1].min() - 0.5, 0.5)
    axes.set_title(shape.title, fontsize="small", wrap=True)


def _thin(radius: float) -> float:
    """Width of lines among many."""
    return min(max(radius, 0.2), 1.1)


def _draw_switches(axes: Axes, shape: _Shape, radius: float) -> None:
    """Draw squares with a sign of what the switch does, its name, and copies that it loops back."""
    edge = max(place for place, _ in shape.places.values()) + 1
    for switch, looped in shape.switches.items():
        x, row = shape.places[switch]
        point = (x, -float(row))
        axes.scatter(*point, s=(2 * radius) ** 2, c=SWITCH, marker="s", lw=0, zorder=2)
        # From the square to what is right of it.
        right = [place for place, other in shape.places.values() if other == row and place > x] or [edge]
        room = (min(right) - x) * LEAF_RADII * radius - 2.6 * radius
        name = shortened(switch, BOX_LETTERS)
        words = [
            (SIGNS[shape.inwards][0], 0.0, 1.4 * radius, "white", "center"),
            (name, 1.4 * radius, min(SWITCH_WORDS, room / (LETTER * len(name))), SWITCH, "left"),
        ]
        for text, shift, size, ink, align in words:
            if size >= SMALLEST_WORDS:
                axes.annotate(
                    text, point, xytext=(shift, 0), textcoords="offset points", ha=align, va="center_baseline",
                    fontsize=size, color=ink, zorder=3, parse_math=False,
                )  # fmt: skip
        if looped:
            x, row = shape.places[shape.parents[switch]]
            ends = (x, -float(row)), point
            axes.annotate(
                "", ends[shape.inwards], xytext=ends[not shape.inwards], zorder=1,
                arrowprops={"arrowstyle": "-|>", "color": WITHIN, "lw": _thin(radius), "ls": DASHES, "shrinkA": radius,
                            "shrinkB": radius, "mutation_scale": max(radius, 3.0), "connectionstyle": "arc3,rad=0.35"},
            )  # fmt: skip


def _draw_arrows(axes: Axes, hops: list[_Hop], radius: float) -> None:
    for hop in hops:
        axes.annotate(
            "", hop.end, xytext=hop.start, zorder=1,
            arrowprops={"arrowstyle": "-|>", "color": hop.ink, "lw": 1.1, "shrinkA": radius, "shrinkB": radius,
                        "mutation_scale": max(radius, 3.0)},
        )  # fmt: skip


def _draw_lines(axes: Axes, hops: list[_Hop], radius: float) -> None:
    """Draw very many arrows, whose heads are about a point long, all at once: each by itself takes milliseconds."""
    from matplotlib.collections import LineCollection, PathCollection
    from matplotlib.path import Path

    ends, inks = np.array([hop.end for hop in hops]), [hop.ink for hop in hops]
    axes.add_collection(
        LineCollection([(hop.start, hop.end) for hop in hops], colors=inks, linewidths=_thin(radius), zorder=1)
    )
    # Between rows that are far apart beside their dots, all arrows lead up, or all down.
    up = 1.0 if hops[0].end[1] > hops[0].start[1] else -1.0
    below = -radius * up / POINTS_PER_INCH
    long, wide = (share * max(radius, 3.0) / POINTS_PER_INCH for share in (0.4, 0.2))
    head = Path([(0, below), (wide, below - long * up), (-wide, below - long * up), (0, below)], closed=True)
    transform = axes.figure.dpi_scale_trans
    axes.add_collection(
        PathCollection(
            [head], offsets=ends, offset_transform=axes.transData, transform=transform, facecolors=inks,
            edgecolors=inks, linewidths=_thin(radius), zorder=1,
        )
    )  # fmt: skip


def _explain(figure: Figure, colors: Mapping[str, str], shapes: list[_Shape], boxes: Mapping[str, str]) -> None:
    """Add the legend."""
    from matplotlib.lines import Line2D

    hops = {boxes[child] == boxes[parent] for shape in shapes for child, parent in shape.parents.items()}
    named = len(colors) > 1 and len(colors) <= len(BOX_COLORS)
    handles = [
        Line2D(
            [], [], ls="", marker="o", ms=7, color=ink,
            label=f"rank in {shortened(box, BOX_LETTERS)}" if box else "rank",
        )
        for box, ink in (colors.items() if named else [("", color(0))])
    ]  # fmt: skip
    switched = [shape for shape in shapes if shape.switches]
    handles += [
        Line2D([], [], ls="", marker="s", ms=7, color=SWITCH, label=f"{SIGNS[kind][0]} {SIGNS[kind][1]}")
        for kind in sorted({shape.inwards for shape in switched}, reverse=True)
    ]
    if any(any(shape.switches.values()) for shape in switched):
        handles.append(Line2D([], [], color=WITHIN, ls=DASHES, label=LOOPED))
    if len(colors) > 1:
        words = {True: ("hop within a box", WITHIN), False: ("hop between boxes", BETWEEN)}
        handles += [Line2D([], [], color=words[kind][1], label=words[kind][0]) for kind in sorted(hops, reverse=True)]
    legend(
        figure, handles=handles, loc="outside lower center", ncols=max(1, int(figure.get_figwidth() // 1.8)),
        fontsize="small", frameon=False,
    )  # fmt: skip


def logical_figure(logical: LogicalTopology) -> Figure:
    """Draw the ranks and links that edge splitting leaves, with the number of trees of each link.

    Each number is near the tail of its link; networks of more than 64 connected pairs have none.  Raises
    `UnsupportedError` if the argument is no `LogicalTopology`.
    """
    logical = as_kind(logical, LogicalTopology, "the logical topology")
    canvas = Canvas.of(logical.topology)
    handles = draw_nodes(canvas) + draw_links(canvas, frozenset())
    if len(canvas.curves) <= MOST_NUMBERS:
        _write_numbers(canvas, logical)
    title = f"{shortened(logical.topology.name)}: one tree is {bandwidth_text(logical.unit)}"
    return canvas.finished(title, handles, columns=2)


def _write_numbers(canvas: Canvas, logical: LogicalTopology) -> None:
    """Write how many trees each link carries, near its tail."""
    pairs, names = sorted(canvas.ends), logical.topology.nodes
    curves = [canvas.curves[tail, head] if tail < head else canvas.curves[head, tail][::-1] for tail, head in pairs]
    words = [str(logical.multiplicities[names[tail], names[head]]) for tail, head in pairs]
    write(canvas, np.array([curve[AT_TAIL] for curve in curves]), words, 6.5, "0.1")
