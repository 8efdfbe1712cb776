"""Nodes of a network on a canvas: ranks, switches, their names, and the boxes that they are in."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...support.arrays import FloatArray
from ..layout.node_layout import box_of_nodes
from .canvas import BOXES, NODES, WORDS, Canvas
from .style import COLOURS, shortened

if TYPE_CHECKING:
    from matplotlib.artist import Artist

__all__ = ["draw_boxes", "draw_nodes"]


RANK, SWITCH, BOX = COLOURS[0], "#595959", "#f2f2f2"
BORDER, LABEL_STRIP = 0.45, 0.4
"""Around what is in a box, and for its name below that, in units of the distance of nodes."""
LETTER = 0.62
"""Width of letters, in multiples of their size."""
SMALLEST_WORDS, BOX_LETTERS = 3.5, 24


def draw_nodes(canvas: Canvas) -> list[Artist]:
    """Draw ranks as circles with their numbers and switches as squares; return what the legend shows."""
    from matplotlib.lines import Line2D

    axes, points, scale, ranks = canvas.axes, canvas.points, canvas.scale, canvas.topology.num_ranks
    area = (2 * scale.radius) ** 2
    axes.scatter(points[:ranks, 0], points[:ranks, 1], s=area, color=RANK, lw=0, zorder=NODES, gid="ranks")
    numbers = [str(rank) for rank in range(ranks)]
    size = min(1.05 * scale.radius, _fitting(numbers, 1.7 * scale.radius))
    _write(canvas, points[:ranks], numbers, size, "white")
    handles: list[Artist] = [Line2D([], [], ls="", marker="o", ms=7, color=RANK, label="rank, with its number")]
    if canvas.topology.switch_nodes:
        axes.scatter(
            points[ranks:, 0], points[ranks:, 1], s=0.6 * area, color=SWITCH, marker="s", lw=0, zorder=NODES,
            gid="switches",
        )  # fmt: skip
        _name_switches(canvas)
        handles.append(Line2D([], [], ls="", marker="s", ms=6, color=SWITCH, label="switch or NIC"))
    return handles


def draw_boxes(canvas: Canvas) -> None:
    """Put a rectangle behind the nodes and links of each box, with its name where that can be read.

    There are none where some of them would overlap.
    """
    from matplotlib.patches import FancyBboxPatch

    boxes = box_of_nodes(canvas.topology)
    names = [boxes[node] for node in canvas.topology.nodes]
    inside: dict[str, list[FloatArray]] = {}
    for (first, last), curve in canvas.curves.items():
        if names[first] and names[first] == names[last]:
            inside.setdefault(names[first], []).append(curve)
    corners: dict[str, tuple[FloatArray, FloatArray]] = {}
    for box, found in inside.items():
        low, high = np.concatenate(found).min(axis=0), np.concatenate(found).max(axis=0)
        corners[box] = (low - [BORDER, BORDER + LABEL_STRIP], high + BORDER)
    edges = sorted((low[0], high[0]) for low, high in corners.values())
    if any(after[0] < before[1] for before, after in itertools.pairwise(edges)):
        return
    size = min(8.0, 0.35 * canvas.scale.unit)
    for box, (low, high) in corners.items():
        wide, tall = high - low
        style = "round,pad=0,rounding_size=0.3"
        canvas.axes.add_patch(
            FancyBboxPatch((low[0], low[1]), wide, tall, boxstyle=style, facecolor=BOX, edgecolor="none", zorder=BOXES)
        )
        if size < SMALLEST_WORDS:
            continue
        canvas.axes.annotate(
            shortened(box, BOX_LETTERS), (low[0], low[1]), xytext=(4, size / 2 - 1), textcoords="offset points",
            va="bottom", ha="left", fontsize=size, color="0.35", zorder=WORDS, parse_math=False,
        )  # fmt: skip


def _name_switches(canvas: Canvas) -> None:
    """Name the switches of rows: those below ranks underneath, where no links are, and the others above."""
    placed, scale, ranks = canvas.placed, canvas.scale, canvas.topology.num_ranks
    if placed.arrangement != "rows":
        return
    names = [node.rpartition("/")[2] for node in canvas.topology.nodes]
    away = 0.85 * scale.radius + 1
    for row in sorted(set(placed.rows[ranks:])):
        nodes = [node for node in range(ranks, len(names)) if placed.rows[node] == row]
        words = [names[node] for node in nodes]
        nearest = float(np.diff(np.sort(placed.x[nodes])).min(initial=10.0))
        size = min(7.0, 0.9 * scale.radius, _fitting(words, 0.88 * scale.unit * nearest))
        _write(canvas, canvas.points[nodes], words, size, "0.2", -away if row < 0 else away)


def _fitting(words: Sequence[str], room: float) -> float:
    """Size of letters with which all words fit in so many points."""
    return room / (LETTER * max(1, *map(len, words)))


def _write(canvas: Canvas, points: FloatArray, words: Sequence[str], size: float, ink: str, above: float = 0.0) -> None:
    """Write a word at each point, or none where they would be too small to read."""
    from matplotlib.patheffects import withStroke

    if size < SMALLEST_WORDS:
        return
    around = [withStroke(linewidth=1.5, foreground="white")] if above else []
    side = "bottom" if above > 0 else "top" if above < 0 else "center_baseline"
    for (across, up), word in zip(points.tolist(), words, strict=True):
        canvas.axes.annotate(
            word, (across, up), xytext=(0, above), textcoords="offset points", ha="center", va=side, fontsize=size,
            color=ink, zorder=WORDS, parse_math=False, path_effects=around,
        )  # fmt: skip
