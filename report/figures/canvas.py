"""A network laid out on the axes of a figure, before anything is drawn: places, curves and sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...support.arrays import FloatArray
from ...topologies import Topology
from ..layout.link_shapes import link_curves
from ..layout.node_layout import Places

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from matplotlib.axes import Axes

Pair = tuple[int, int]

BOXES, SHADING, LINKS, COUNTED_LINKS, NODES, WORDS = range(1, 7)
"""What is drawn over what."""
INCHES_PER_UNIT, NARROWEST, WIDEST, TALLEST = 0.5, 4.8, 11.0, 9.0
HEADER = 1.3
"""Inches for the title and the legend."""
MARGIN = 0.6
"""Around the nodes, in units of their distance."""
LARGEST_RADIUS = 9.0
ROOMY = 20.0
"""Points between neighbours from which on lines have their full width."""


class Scale(NamedTuple):
    """Sizes of what is drawn.

    `width`, `height`: Of the figure, in inches.
    `radius`: Of a node, in points.
    `unit`: Points between neighbours.
    """

    width: float
    height: float
    radius: float
    unit: float

    @property
    def line(self) -> float:
        """What to multiply the widths of lines with, so that crowded ones stay apart."""
        return min(max(self.unit / ROOMY, 0.15), 1.0)


def node_scale(placed: Places) -> Scale:
    """Choose a figure that fits the nodes, and node sizes that fit the figure."""
    wide = float(np.ptp(placed.x)) + 2 * MARGIN
    tall = float(np.ptp(placed.y)) + 2 * MARGIN
    width = min(max(INCHES_PER_UNIT * wide, NARROWEST), WIDEST)
    unit = min(width / wide, TALLEST / tall, 1.0)
    radius = min(0.34 * 72 * unit, LARGEST_RADIUS)
    return Scale(max(unit * wide, NARROWEST), unit * tall + HEADER, radius, 72 * unit)


@dataclass(frozen=True)
class Canvas:
    """Axes, and where on them a network is."""

    axes: Axes
    topology: Topology
    placed: Places
    scale: Scale

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
        """GB/s of the wider direction between two linked nodes; keys as of `curves`."""
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

    def frame(self) -> None:
        """Leave nothing but the drawing, in true proportions."""
        axes, placed = self.axes, self.placed
        axes.set_aspect("equal")
        axes.set_axis_off()
        axes.autoscale_view()
        (left, low), (right, high) = axes.dataLim.min, axes.dataLim.max
        axes.set_xlim(min(left, placed.x.min()) - MARGIN, max(right, placed.x.max()) + MARGIN)
        axes.set_ylim(min(low, placed.y.min()) - MARGIN, max(high, placed.y.max()) + MARGIN)
