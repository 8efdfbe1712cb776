"""What objects show of themselves: figures and tables by kind, and HTML for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from ...errors import UnsupportedError
from ...planners import Candidate, Plan, logical_topology
from ...planners.plans.registry import unknown_name
from ...runtime import Calibration
from ...schedules import Bound
from ...support.packages import call_with_options
from ...support.validation import shown
from ...topologies import Topology
from ..tables import Model, curve_table, link_table, step_table, tree_table
from .network import topology_figure
from .plan import bandwidth_figure, gantt_figure, residual_figure, utilization_figure
from .style import image_of
from .trees import logical_figure, tree_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SIZES = ("16K", "256K", "4M", "64M", "1G")  # That curves are drawn through
MOST_DRAWN = 160  # Nodes that a figure in a notebook tells apart


def plot(viewed: object, kind: str | None, *, options: Mapping[str, object]) -> Figure:
    """Draw the figure of a kind, by default the first that an object has."""
    figures = _figures(viewed)
    name = next(iter(figures)) if kind is None else kind
    if not isinstance(name, str) or name not in figures:
        raise unknown_name("figure of this object", name, figures)
    figure: Figure = call_with_options(figures[name], f"the figure {name}", (), options)
    return figure


def html(viewed: object) -> str:
    """Return one line of text and, of few nodes, the figure."""
    text = f"<p><code>{escape(repr(viewed)[1:-1])}</code></p>"
    if _num_nodes(viewed) > MOST_DRAWN:
        return f"<div>{text}</div>"
    return f"<div>{text}{image_of(plot(viewed, None, options={}), repr(viewed)[1:-1])}</div>"


def frame(plan: Plan, kind: str, *, options: Mapping[str, object]) -> pd.DataFrame:
    """Return the table of a kind."""

    def steps(size: int | str = "64M", slices: int | None = None) -> pd.DataFrame:
        return step_table(plan, size, slices)

    def curves(sizes: Iterable[int | str] = SIZES, model: Model = "estimate") -> pd.DataFrame:
        return curve_table([plan], sizes, model=model)

    def trees(root: int | str | None = None) -> pd.DataFrame:
        return tree_table(plan, root)

    tables = {"links": lambda: link_table(plan), "trees": trees, "steps": steps, "curves": curves}
    if not isinstance(kind, str) or kind not in tables:
        raise unknown_name("table of this object", kind, tables)
    table: pd.DataFrame = call_with_options(tables[kind], f"the table {kind}", (), options)
    return table


def _figures(viewed: object) -> dict[str, Callable[..., Figure]]:
    """The figures of an object by kind, the usual one first."""
    match viewed:
        case Topology():
            return {"topology": lambda: topology_figure(viewed)}
        case Candidate():
            return _figures(viewed.topology())
        case Calibration():
            return {"residuals": lambda: residual_figure(viewed), **_figures(viewed.topology)}
        case Bound():
            own: dict[str, Callable[..., Figure]] = {
                "cut": lambda: topology_figure(viewed.topology, viewed),
                "logical": lambda: logical_figure(logical_topology(viewed)),
            }
            return own | _figures(viewed.topology)
        case Plan():
            return _figures(viewed.bound) | _plan_figures(viewed)
    raise UnsupportedError(f"{shown(viewed)} has no figure")


def _plan_figures(plan: Plan) -> dict[str, Callable[..., Figure]]:
    """The figures that only plans have; their parameters are the options."""

    def trees(root: int | str | None = None, tree: int | None = None) -> Figure:
        return tree_figure(plan, root, tree)

    def steps(size: int | str = "64M", slices: int | None = None) -> Figure:
        return gantt_figure(plan, size, slices)

    def curves(sizes: Iterable[int | str] = SIZES, model: Model = "estimate") -> Figure:
        return bandwidth_figure(curve_table([plan], sizes, model=model))

    return {"utilization": lambda: utilization_figure(plan), "trees": trees, "steps": steps, "curves": curves}


def _num_nodes(viewed: Any) -> int:
    """Count the nodes that the first figure draws."""
    if isinstance(viewed, Candidate):
        return viewed.nodes
    return len((viewed if isinstance(viewed, Topology) else viewed.topology).nodes)
