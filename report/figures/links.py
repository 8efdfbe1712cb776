"""Links of a network on a canvas, and what a bound's witness makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...support.formatting import bandwidth_text, count_text
from ..tables.witness_links import WitnessView
from .canvas import COUNTED_LINKS, LINKS, SHADING, Canvas, Pair
from .style import COLOURS, tint

if TYPE_CHECKING:
    from matplotlib.artist import Artist

__all__ = ["draw_counted", "draw_links", "draw_parts"]


COUNTED, LINK = COLOURS[1], "#8c8c8c"
SHADES = tuple(tint(each, 0.22) for each in (COLOURS[4], COLOURS[5], COLOURS[2], COLOURS[3]))
"""Of the parts of a witness."""
THINNEST, MIDDLE, THICKEST = 0.7, 1.2, 3.0
"""Points; the middle one where all links have the same bandwidth."""
ARROW, LONGEST_ARROW = 4.0, 0.16
"""Half the length of an arrowhead: in points, and at most in units of the distance of nodes."""
MOST_CLASSES = 4
"""Bandwidths that the legend lists one by one."""


def draw_links(canvas: Canvas, counted: frozenset[Pair]) -> list[Artist]:
    """Draw the lines of which the witness counts neither direction; return what the legend shows of bandwidths."""
    from matplotlib.lines import Line2D

    rest = [pair for pair in canvas.curves if pair not in counted and pair[::-1] not in counted]
    _draw_lines(canvas, rest, LINK, "links", 0.0)
    _draw_heads(canvas, [each for pair in rest if len(each := _directions(pair, canvas.ends)) == 1], LINK)
    classes = sorted(set(canvas.bandwidths.values()), reverse=True)
    if len(classes) > MOST_CLASSES:
        classes = [classes[0], classes[-1]]
    return [
        Line2D([], [], color=LINK, lw=width, label=f"link of {bandwidth_text(value)}")
        for value, width in zip(classes, _widths(canvas, classes), strict=True)
    ]


def draw_counted(canvas: Canvas, view: WitnessView) -> list[Artist]:
    """Draw the lines that the witness counts, with an arrowhead where it counts one direction only."""
    from matplotlib.lines import Line2D

    counted = canvas.numbered(view.links)
    pairs = [pair for pair in canvas.curves if pair in counted or pair[::-1] in counted]
    _draw_lines(canvas, pairs, COUNTED, "counted", 0.5)
    _draw_heads(canvas, [each for pair in pairs if len(each := _directions(pair, counted)) == 1], COUNTED)
    total = sum(link.bandwidth for link in canvas.topology.links if (link.tail, link.head) in view.links)
    together = f", {bandwidth_text(total)} together" if view.parts else ""
    return [Line2D([], [], color=COUNTED, lw=2, label=f"{view.words} ({len(counted)}{together})")]


def draw_parts(canvas: Canvas, view: WitnessView) -> list[Artist]:
    """Shade the parts of the witness; of a cut, its smaller side."""
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Patch

    topology, radius = canvas.topology, canvas.scale.radius
    parts, words = list(view.parts), "a part"
    if not parts:
        return []
    if len(parts) == 1:
        outside = frozenset(topology.nodes) - parts[0]
        words = "inside the cut"
        if len(outside) < len(parts[0]):
            parts, words = [outside], "outside the cut"
    numbers = [sorted(topology.node_index[node] for node in part) for part in parts]
    # Parts of single nodes need no colours to be told apart.
    shades = SHADES[:1] if max(map(len, numbers)) == 1 else SHADES
    for place, nodes in enumerate(numbers):
        shade, members = shades[place % len(shades)], set(nodes)
        within = [curve for pair, curve in canvas.curves.items() if members.issuperset(pair)]
        canvas.axes.add_collection(
            LineCollection(within, linewidths=2.6 * radius, colors=shade, capstyle="round", zorder=SHADING)
        )
        across, up = canvas.points[nodes].T
        canvas.axes.scatter(across, up, s=(3.2 * radius) ** 2, color=shade, lw=0, zorder=SHADING, gid=f"part{place}")
    ranks = sum(node < topology.num_ranks for node in numbers[0])
    text = f"{words}: {count_text(ranks, 'rank')}" if len(parts) == 1 else f"{words}, one of {len(parts)}"
    return [Patch(facecolor=SHADES[0], label=text)]


def _directions(pair: Pair, links: frozenset[Pair]) -> list[Pair]:
    """Which of the two directions between two nodes are among the links."""
    return [each for each in (pair, pair[::-1]) if each in links]


def _widths(canvas: Canvas, bandwidths: Sequence[float]) -> list[float]:
    """Widths of lines in points, before they are scaled."""
    least, most = min(canvas.bandwidths.values()), max(canvas.bandwidths.values())
    if least == most:
        return [MIDDLE] * len(bandwidths)
    return [THINNEST + (THICKEST - THINNEST) * bandwidth / most for bandwidth in bandwidths]


def _draw_lines(canvas: Canvas, pairs: Sequence[Pair], ink: str, name: str, wider: float) -> None:
    from matplotlib.collections import LineCollection

    widths = _widths(canvas, [canvas.bandwidths[pair] for pair in pairs])
    scaled = [canvas.scale.line * width + wider for width in widths]
    lines = [canvas.curves[pair] for pair in pairs]
    over = COUNTED_LINKS if ink == COUNTED else LINKS
    canvas.axes.add_collection(LineCollection(lines, linewidths=scaled, colors=ink, zorder=over, gid=name))


def _draw_heads(canvas: Canvas, ends: Sequence[list[Pair]], ink: str) -> None:
    """Draw an arrowhead on the curve of each link."""
    from matplotlib.collections import PolyCollection

    if not ends:
        return
    curves = [canvas.curves[tail, head] if tail < head else canvas.curves[head, tail][::-1] for ((tail, head),) in ends]
    ahead = np.stack([curve[12] - curve[10] for curve in curves])
    ahead *= (
        min(ARROW / canvas.scale.unit, LONGEST_ARROW) / np.maximum(np.hypot(ahead[:, 0], ahead[:, 1]), 1e-9)[:, None]
    )
    aside = np.stack([-ahead[:, 1], ahead[:, 0]], axis=1) * 0.6
    middles = np.stack([curve[11] for curve in curves])
    corners = np.stack([middles + ahead, middles - ahead + aside, middles - ahead - aside], axis=1)
    over = COUNTED_LINKS if ink == COUNTED else LINKS
    canvas.axes.add_collection(
        PolyCollection(list(corners), facecolors=ink, edgecolors=ink, linewidths=0.3, zorder=over, gid="arrowheads")
    )
