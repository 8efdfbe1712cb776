"""A network as nodes and links, with what limits a collective on it."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

from ...errors import UnsupportedError
from ...schedules import Bound
from ...support.formatting import bandwidth_text, count_text
from ...support.validation import shown
from ...topologies import Topology
from ..layout.node_layout import places
from ..tables.witness_links import witness_view
from .canvas import Canvas, node_scale
from .links import draw_counted, draw_links, draw_parts
from .nodes import draw_boxes, draw_nodes
from .style import empty_figure, legend, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["topology_figure"]

LETTERS_PER_INCH = 13
INCHES_PER_ENTRY = 2.4
"""Of the legend."""


def topology_figure(topology: Topology, bound: Bound | None = None) -> Figure:
    """Draw a network; with a bound, also what it follows from.

    Parameters
    ----------
    topology : Topology
        Ranks are circles with their numbers, switches squares; wider lines have more bandwidth.  Links without an
        opposite one have an arrowhead.
    bound : Bound, optional
        About this topology.  The parts of its witness are shaded, of a cut the smaller side, and the links whose
        bandwidth it adds up are coloured, with arrowheads if it counts one direction only.

    Returns
    -------
    Figure
        One axes, on which nodes are where `node_layout` has them.

    Raises
    ------
    UnsupportedError
        If an argument is none of its kind, or the bound is about another network.
    MissingDependencyError
        If matplotlib is not installed.
    """
    _check(topology, bound)
    view = None if bound is None else witness_view(bound)
    placed = places(topology)
    scale = node_scale(placed)
    figure = empty_figure(scale.width, scale.height)
    # True proportions shrink the axes, which the other layout does not take into account: it would cut titles.
    figure.set_layout_engine("compressed")
    canvas = Canvas(figure.subplots(), topology, placed, scale)
    if placed.arrangement == "rows":
        draw_boxes(canvas)
    handles = draw_nodes(canvas)
    if view is not None:
        handles += draw_parts(canvas, view) + draw_counted(canvas, view)
    handles += draw_links(canvas, frozenset() if view is None else canvas.numbered(view.links))
    canvas.frame()
    title = fill(_title(topology, bound), int(LETTERS_PER_INCH * scale.width))
    canvas.axes.set_title(title, fontsize="medium", parse_math=False)
    columns = max(1, int(scale.width // INCHES_PER_ENTRY))
    legend(figure, handles=handles, loc="outside lower center", ncols=columns, fontsize="small", frameon=False)
    return figure


def _check(topology: object, bound: object) -> None:
    if not isinstance(topology, Topology):
        raise UnsupportedError(f"the topology is {shown(topology)}; expected a Topology")
    if bound is None:
        return
    if not isinstance(bound, Bound):
        raise UnsupportedError(f"the bound is {shown(bound)}; expected a Bound")
    if bound.topology.digest != topology.digest:
        raise UnsupportedError(f"the bound is about {bound.topology!r}; expected one about {topology!r}")


def _title(topology: Topology, bound: Bound | None) -> str:
    if bound is not None:
        return f"{bound.collective} on {shortened(topology.name)}: at most {bandwidth_text(bound.algbw, 2)}"
    counts = [count_text(topology.num_ranks, "rank")]
    if topology.switch_nodes:
        number = len(topology.switch_nodes)
        counts.append(f"{number} switch{'' if number == 1 else 'es'}")
    return f"{shortened(topology.name)}: {', '.join([*counts, count_text(len(topology.links), 'link')])}"
