"""What objects show of themselves: figures and tables by kind, and HTML for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import singledispatch
from html import escape
from typing import TYPE_CHECKING, Any

from ...errors import UnsupportedError
from ...planners import Candidate, Plan, logical_topology
from ...planners.plans.registry import unknown_name
from ...runtime import Calibration
from ...schedules import Bound
from ...support.validation import shown
from ...support.views import call_with_options
from ...topologies import Topology
from ..figures.logical import logical_figure
from ..figures.network import topology_figure
from ..figures.plan import bandwidth_figure, gantt_figure, residual_figure, utilization_figure
from ..figures.style import image_of
from ..figures.trees import tree_figure
from ..plan_tables import Model, curve_table, link_table, step_table, tree_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SIZES = ("16K", "256K", "4M", "64M", "1G")  # That curves are drawn through
MOST_DRAWN = 160  # Nodes that a figure in a notebook tells apart


def plot(viewed: object, kind: str | None, *, options: Mapping[str, object]) -> Figure:
    """Draw the figure of a kind, by default the first that an object has."""
    known = _figures(viewed)
    name = next(iter(known)) if kind is None else kind
    if not isinstance(name, str) or name not in known:
        raise unknown_name("figure of this object", name, known)
    figure: Figure = call_with_options(known[name], f"the figure {name}", (), options)
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

    known = {"links": lambda: link_table(plan), "trees": trees, "steps": steps, "curves": curves}
    if not isinstance(kind, str) or kind not in known:
        raise unknown_name("table of this object", kind, known)
    table: pd.DataFrame = call_with_options(known[kind], f"the table {kind}", (), options)
    return table


@singledispatch
def _figures(viewed: object) -> dict[str, Callable[..., Figure]]:
    raise UnsupportedError(f"{shown(viewed)} has no figure")


@_figures.register(Topology)
def _of_topology(viewed: Topology) -> dict[str, Callable[..., Figure]]:
    return {"topology": lambda: topology_figure(viewed)}


@_figures.register(Candidate)
def _of_candidate(viewed: Candidate) -> dict[str, Callable[..., Figure]]:
    return _of_topology(viewed.topology())


@_figures.register(Calibration)
def _of_calibration(viewed: Calibration) -> dict[str, Callable[..., Figure]]:
    return {"residuals": lambda: residual_figure(viewed), **_of_topology(viewed.topology)}


@_figures.register(Bound)
def _of_bound(viewed: Bound) -> dict[str, Callable[..., Figure]]:
    own = {
        "cut": lambda: topology_figure(viewed.topology, viewed),
        "logical": lambda: logical_figure(logical_topology(viewed)),
    }
    return {**own, **_of_topology(viewed.topology)}


@_figures.register(Plan)
def _of_plan(viewed: Plan) -> dict[str, Callable[..., Figure]]:
    def trees(root: int | str | None = None, tree: int | None = None) -> Figure:
        return tree_figure(viewed, root, tree)

    def steps(size: int | str = "64M", slices: int | None = None) -> Figure:
        return gantt_figure(viewed, size, slices)

    def curves(sizes: Iterable[int | str] = SIZES, model: Model = "estimate") -> Figure:
        return bandwidth_figure(curve_table([viewed], sizes, model=model))

    own = {"utilization": lambda: utilization_figure(viewed), "trees": trees, "steps": steps, "curves": curves}
    return {**_of_bound(viewed.bound), **own}


@singledispatch
def _num_nodes(viewed: Any) -> int:
    """Count the nodes that the first figure draws."""
    return _num_nodes(viewed.topology)


@_num_nodes.register(Topology)
def _(viewed: Topology) -> int:
    return len(viewed.nodes)


@_num_nodes.register(Candidate)
def _(viewed: Candidate) -> int:
    return viewed.nodes
