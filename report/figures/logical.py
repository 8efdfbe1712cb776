"""Figure of a logical topology: links between ranks in place of switches, and how many trees each carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...planners import LogicalTopology
from ...support.formatting import bandwidth_text
from ...support.validation import as_kind
from .network import Canvas, draw_links, draw_nodes, write
from .style import shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_NUMBERS = 64
AT_TAIL = 4
"""Point of a curve, of 0 to 16: halfway, the numbers of all diameters would lie on each other."""


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
