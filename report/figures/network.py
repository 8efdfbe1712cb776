"""Figure of a network: nodes, links, and the witness of a bound."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from textwrap import fill
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...schedules import Bound
from ...schedules.bounds.witness import WitnessView
from ...support.arrays import FloatArray
from ...support.formatting import bandwidth_text, count_text
from ...support.validation import as_kind
from ...topologies import Topology
from ...topologies.network.topology import as_topology
from ..layout import Places, box_of_nodes, link_curves, places
from ..tables import witness_view
from .style import COLORS, empty_figure, legend, shortened, tint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


WITNESS_COLOR, LINK_COLOR = COLORS[1], "#8c8c8c"
SHADES = tuple(tint(ink, 0.22) for ink in (COLORS[4], COLORS[5], COLORS[2], COLORS[3]))
"""Of the parts of a witness."""
THINNEST, MIDDLE, THICKEST = 0.7, 1.2, 3.0  # Points; the middle one where all links have the same bandwidth
ARROW, LONGEST_ARROW = 4.0, 0.16
"""Half the length of an arrowhead: in points, and at most in units of the distance of nodes."""
MAX_CLASSES = 4  # Bandwidths that the legend lists one by one


def draw_links(canvas: Canvas, counted: frozenset[Pair]) -> list[Artist]:
    """Draw the links that the witness does not count; return the legend entries of bandwidths."""
    from matplotlib.lines import Line2D

    uncounted = [pair for pair in canvas.curves if pair not in counted and pair[::-1] not in counted]
    _draw_lines(canvas, uncounted, LINK_COLOR, "links", 0.0)
    _draw_heads(
        canvas, [arrows for pair in uncounted if len(arrows := _directions(pair, canvas.ends)) == 1], LINK_COLOR
    )
    classes = sorted(set(canvas.bandwidths.values()), reverse=True)
    if len(classes) > MAX_CLASSES:
        classes = [classes[0], classes[-1]]
    return [
        Line2D([], [], color=LINK_COLOR, lw=width, label=f"link of {bandwidth_text(value)}")
        for value, width in zip(classes, _widths(canvas, classes), strict=True)
    ]


def draw_witness_links(canvas: Canvas, view: WitnessView) -> list[Artist]:
    """Draw the links that the witness counts, with an arrowhead if it counts one direction only."""
    from matplotlib.lines import Line2D

    counted = canvas.numbered(view.links)
    pairs = [pair for pair in canvas.curves if pair in counted or pair[::-1] in counted]
    _draw_lines(canvas, pairs, WITNESS_COLOR, "counted", 0.5)
    _draw_heads(canvas, [arrows for pair in pairs if len(arrows := _directions(pair, counted)) == 1], WITNESS_COLOR)
    total = sum(link.bandwidth for link in canvas.topology.links if (link.tail, link.head) in view.links)
    together = f", {bandwidth_text(total)} together" if view.parts else ""
    return [Line2D([], [], color=WITNESS_COLOR, lw=2, label=f"{view.words} ({len(counted)}{together})")]


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
    # Parts of single nodes need no colors to be told apart.
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
    return [direction for direction in (pair, pair[::-1]) if direction in links]


def _widths(canvas: Canvas, bandwidths: Sequence[float]) -> list[float]:
    """Widths of lines in points, before they are scaled."""
    smallest, largest = min(canvas.bandwidths.values()), max(canvas.bandwidths.values())
    if smallest == largest:
        return [MIDDLE] * len(bandwidths)
    return [THINNEST + (THICKEST - THINNEST) * bandwidth / largest for bandwidth in bandwidths]


def _draw_lines(canvas: Canvas, pairs: Sequence[Pair], ink: str, name: str, wider: float) -> None:
    from matplotlib.collections import LineCollection

    widths = _widths(canvas, [canvas.bandwidths[pair] for pair in pairs])
    scaled = [canvas.scale.line * width + wider for width in widths]
    lines = [canvas.curves[pair] for pair in pairs]
    over = WITNESS_LINKS if ink == WITNESS_COLOR else LINKS
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
    over = WITNESS_LINKS if ink == WITNESS_COLOR else LINKS
    canvas.axes.add_collection(
        PolyCollection(list(corners), facecolors=ink, edgecolors=ink, linewidths=0.3, zorder=over, gid="arrowheads")
    )


RANK, SWITCH, BOX = COLORS[0], "#595959", "#f2f2f2"
BORDER, LABEL_STRIP = 0.45, 0.4
"""Around what is in a box, and for its name below that, in units of the distance of nodes."""
LETTER = 0.62  # Width of letters, in multiples of their size
SMALLEST_WORDS, BOX_LETTERS = 3.5, 24


def draw_nodes(canvas: Canvas) -> list[Artist]:
    """Draw ranks as circles with their numbers and switches as squares; return the legend entries."""
    from matplotlib.lines import Line2D

    axes, points, scale, ranks = canvas.axes, canvas.points, canvas.scale, canvas.topology.num_ranks
    area = (2 * scale.radius) ** 2
    axes.scatter(points[:ranks, 0], points[:ranks, 1], s=area, color=RANK, lw=0, zorder=NODES, gid="ranks")
    numbers = [str(rank) for rank in range(ranks)]
    size = min(1.05 * scale.radius, _fitting(numbers, 1.7 * scale.radius))
    write(canvas, points[:ranks], numbers, size, "white")
    handles: list[Artist] = [Line2D([], [], ls="", marker="o", ms=7, color=RANK, label="rank (with number)")]
    if canvas.topology.switch_nodes:
        axes.scatter(
            points[ranks:, 0], points[ranks:, 1], s=0.6 * area, color=SWITCH, marker="s", lw=0, zorder=NODES,
            gid="switches",
        )  # fmt: skip
        _name_switches(canvas)
        handles.append(Line2D([], [], ls="", marker="s", ms=6, color=SWITCH, label="switch or NIC"))
    return handles


def draw_boxes(canvas: Canvas) -> None:
    """Put a rectangle with its name behind the nodes and links of each box, unless some of them would overlap."""
    from matplotlib.patches import FancyBboxPatch

    boxes = box_of_nodes(canvas.topology)
    names = [boxes[node] for node in canvas.topology.nodes]
    inside: dict[str, list[FloatArray]] = {}
    for (first, last), curve in canvas.curves.items():
        if names[first] and names[first] == names[last]:
            inside.setdefault(names[first], []).append(curve)
    corners: dict[str, tuple[FloatArray, FloatArray]] = {}
    for box, nodes in inside.items():
        low, high = np.concatenate(nodes).min(axis=0), np.concatenate(nodes).max(axis=0)
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
        size = min(7.0, 0.9 * scale.radius, _fitting(words, 0.7 * scale.unit * nearest))
        write(canvas, canvas.points[nodes], words, size, "0.2", -away if row < 0 else away)


def _fitting(words: Sequence[str], points: float) -> float:
    """Font size with which all words fit in `points`."""
    return points / (LETTER * max(1, *map(len, words)))


def write(canvas: Canvas, points: FloatArray, words: Sequence[str], size: float, ink: str, above: float = 0.0) -> None:
    """Write a word at each point, or none where they would be too small to read."""
    from matplotlib.patheffects import withStroke

    if size < SMALLEST_WORDS:
        return
    around = [] if ink == "white" else [withStroke(linewidth=1.5, foreground="white")]
    side = "bottom" if above > 0 else "top" if above < 0 else "center_baseline"
    for (across, up), word in zip(points.tolist(), words, strict=True):
        canvas.axes.annotate(
            word, (across, up), xytext=(0, above), textcoords="offset points", ha="center", va=side, fontsize=size,
            color=ink, zorder=WORDS, parse_math=False, path_effects=around,
        )  # fmt: skip


LETTERS_PER_INCH = 13
INCHES_PER_ENTRY = 2.4  # Of the legend


def topology_figure(topology: Topology, bound: Bound | None = None) -> Figure:
    """Draw a network; with a bound, also its witness.

    Nodes are where `node_layout` has them, on one axes.  Raises `UnsupportedError` if an argument is none of its kind,
    or the bound is about another network.

    Parameters
    ----------
    topology : Topology
        Ranks are circles with their numbers, switches squares; wider lines have more bandwidth.  Links without an
        opposite one have an arrowhead.
    bound : Bound, optional
        About this topology.  The parts of its witness are shaded, of a cut the smaller side, and the links whose
        bandwidth it adds up are colored, with arrowheads if it counts one direction only.
    """
    topology = as_topology(topology)
    title, view = f"{shortened(topology.name)}: {_counts(topology)}", None
    if bound is not None:
        bound = as_kind(bound, Bound, "the bound")
        if bound.topology.digest != topology.digest:
            raise UnsupportedError(f"the bound is about {bound.topology}; expected one about {topology}")
        title = f"{bound.collective} on {shortened(topology.name)}: at most {bandwidth_text(bound.algbw, 2)}"
        view = witness_view(bound)
    canvas = Canvas.of(topology)
    if canvas.placed.arrangement == "rows":
        draw_boxes(canvas)
    handles = draw_nodes(canvas)
    if view is not None:
        handles += draw_parts(canvas, view) + draw_witness_links(canvas, view)
    handles += draw_links(canvas, frozenset() if view is None else canvas.numbered(view.links))
    return canvas.finished(title, handles, max(1, int(canvas.scale.width // INCHES_PER_ENTRY)))


def _counts(topology: Topology) -> str:
    counts, number = [count_text(topology.num_ranks, "rank")], len(topology.switch_nodes)
    if number:
        counts.append(f"{number} switch{'' if number == 1 else 'es'}")
    return ", ".join([*counts, count_text(topology.num_links, "link")])


Pair = tuple[int, int]

BOXES, SHADING, LINKS, WITNESS_LINKS, NODES, WORDS = range(1, 7)  # What is drawn over what
INCHES_PER_UNIT, NARROWEST, WIDEST, TALLEST = 0.5, 4.8, 11.0, 9.0
HEADER = 1.3  # Inches for the title and the legend
MARGIN = 0.6  # Around the nodes, in units of their distance
LARGEST_RADIUS = 9.0
WIDE = 20.0  # Points between neighbors from which on lines have their full width


class Scale(NamedTuple):
    """Size of a figure in inches, radius of a node in points, and points between neighbors."""

    width: float
    height: float
    radius: float
    unit: float

    @property
    def line(self) -> float:
        """Scale factor of line widths, so that dense lines stay apart."""
        return min(max(self.unit / WIDE, 0.15), 1.0)


@dataclass(frozen=True)
class Canvas:
    """A figure with one axes, and the layout of a network on it."""

    figure: Figure
    axes: Axes
    topology: Topology
    placed: Places
    scale: Scale

    @classmethod
    def of(cls, topology: Topology) -> Canvas:
        """Lay a network out on the axes of a new figure."""
        placed = places(topology)
        # A figure that fits the nodes, and node sizes that fit the figure.
        wide, tall = (float(np.ptp(places_along)) + 2 * MARGIN for places_along in (placed.x, placed.y))
        width = min(max(INCHES_PER_UNIT * wide, NARROWEST), WIDEST)
        unit = min(width / wide, TALLEST / tall, 1.0)
        radius = min(0.34 * 72 * unit, LARGEST_RADIUS)
        scale = Scale(max(unit * wide, NARROWEST), unit * tall + HEADER, radius, 72 * unit)
        figure = empty_figure(scale.width, scale.height)
        # True proportions shrink the axes, which the other layout does not take into account: it would cut titles.
        figure.set_layout_engine("compressed")
        return cls(figure, figure.subplots(), topology, placed, scale)

    @cached_property
    def points(self) -> FloatArray:
        """Places of the nodes, shape (nodes, 2)."""
        return np.stack([self.placed.x, self.placed.y], axis=1)

    @cached_property
    def ends(self) -> frozenset[Pair]:
        """Tail and head of every link, as node numbers."""
        tails, heads, _, _ = self.topology.arrays
        return frozenset(zip(tails.tolist(), heads.tolist(), strict=True))

    @cached_property
    def curves(self) -> Mapping[Pair, FloatArray]:
        """Points along the line between two linked nodes, of which the first has the lower number."""
        bends = link_curves(self.topology)[["bend_x", "bend_y"]].to_numpy()
        at = np.linspace(0, 1, 17)[:, None]
        tails, heads, _, _ = self.topology.arrays
        curves: dict[Pair, FloatArray] = {}
        for tail, head, bend in zip(tails.tolist(), heads.tolist(), bends, strict=True):
            first, last = min(tail, head), max(tail, head)
            start, end = self.points[first], self.points[last]
            curves[first, last] = (1 - at) ** 2 * start + 2 * at * (1 - at) * bend + at**2 * end
        return curves

    @cached_property
    def bandwidths(self) -> Mapping[Pair, float]:
        """GB/s of the wider direction between two linked nodes; keys as in `curves`."""
        widest: dict[Pair, float] = {}
        tails, heads, _, _ = self.topology.arrays
        for tail, head, link in zip(tails.tolist(), heads.tolist(), self.topology.links, strict=True):
            pair = (min(tail, head), max(tail, head))
            widest[pair] = max(widest.get(pair, 0.0), float(link.bandwidth))
        return widest

    def numbered(self, links: Iterable[tuple[str, str]]) -> frozenset[Pair]:
        """Turn names of tails and heads into numbers."""
        index = self.topology.node_index
        return frozenset((index[tail], index[head]) for tail, head in links)

    def finished(self, title: str, handles: Sequence[Artist], columns: int) -> Figure:
        """Return the figure with a title and a legend, and else nothing but the drawing in true proportions."""
        axes, placed = self.axes, self.placed
        axes.set_aspect("equal")
        axes.set_axis_off()
        axes.autoscale_view()
        (left, low), (right, high) = axes.dataLim.min, axes.dataLim.max
        axes.set_xlim(min(left, placed.x.min()) - MARGIN, max(right, placed.x.max()) + MARGIN)
        axes.set_ylim(min(low, placed.y.min()) - MARGIN, max(high, placed.y.max()) + MARGIN)
        title = fill(title, int(LETTERS_PER_INCH * self.scale.width))
        axes.set_title(title, fontsize="medium", parse_math=False)
        legend(self.figure, handles=handles, loc="outside lower center", ncols=columns, fontsize="small", frameon=False)
        return self.figure
