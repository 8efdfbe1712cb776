"""Figure of a logical topology: links between ranks in place of switches, and how many trees each carries."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from ...planners import LogicalTopology
from ...support.formatting import bandwidth_text
from ...support.validation import as_kind
from ..layout import places
from .network import LETTERS_PER_INCH, Canvas, draw_links, draw_nodes, node_scale, write
from .style import empty_figure, legend, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_NUMBERS = 64
AT_TAIL, HALFWAY = 5, 8
"""Points of a curve, of 0 to 16."""


def logical_figure(logical: LogicalTopology) -> Figure:
    """Draw the ranks and links that edge splitting leaves, with the number of trees of each link.

    One number stands for both directions; where they differ, each is nearer to the tail.  Networks of more than 64
    connected pairs have no numbers.  Raises `UnsupportedError` if the argument is no `LogicalTopology`.
    """
    logical = as_kind(logical, LogicalTopology, "the logical topology")
    placed = places(logical.topology)
    scale = node_scale(placed)
    figure = empty_figure(scale.width, scale.height)
    figure.set_layout_engine("compressed")
    canvas = Canvas(figure.subplots(), logical.topology, placed, scale)
    handles = draw_nodes(canvas) + draw_links(canvas, frozenset())
    if len(canvas.curves) <= MOST_NUMBERS:
        _write_numbers(canvas, logical)
    canvas.frame()
    title = f"{shortened(logical.topology.name)}: one tree is {bandwidth_text(logical.unit)}"
    canvas.axes.set_title(fill(title, int(LETTERS_PER_INCH * scale.width)), fontsize="medium", parse_math=False)
    legend(figure, handles=handles, loc="outside lower center", ncols=2, fontsize="small", frameon=False)
    return figure


def _write_numbers(canvas: Canvas, logical: LogicalTopology) -> None:
    """Write how many trees each link carries."""
    names = logical.topology.nodes
    points, words = [], []
    for (first, last), curve in canvas.curves.items():
        there = logical.multiplicities.get((names[first], names[last]))
        back = logical.multiplicities.get((names[last], names[first]))
        both = [(HALFWAY, there)] if there == back else [(AT_TAIL, there), (-1 - AT_TAIL, back)]
        for place, number in both:
            if number is not None:
                points.append(curve[place])
                words.append(str(number))
    write(canvas, np.array(points).reshape(-1, 2), words, 7.0, "0.1")
