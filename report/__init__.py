"""What people look at: tables and figures of networks, plans, costs, and simulated training iterations.

Each name is looked up on first use, so ``import collopt.report`` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .figures.evaluation import (
        best_runtime_figure,
        pareto_figure,
        relative_bandwidth_figure,
        runtime_figure,
        timeline_figure,
    )
    from .figures.network import topology_figure
    from .figures.plan import bandwidth_figure, gantt_figure, utilisation_figure
    from .figures.style import save_figure
    from .figures.trees import tree_figure
    from .html import write_report
    from .layout.link_shapes import link_curves
    from .layout.node_layout import node_layout
    from .tables.plan_tables import curve_table, link_table, step_table, tree_table
    from .tables.witness_links import bound_links

__all__ = [
    "bandwidth_figure",
    "best_runtime_figure",
    "bound_links",
    "curve_table",
    "gantt_figure",
    "link_curves",
    "link_table",
    "node_layout",
    "pareto_figure",
    "relative_bandwidth_figure",
    "runtime_figure",
    "save_figure",
    "step_table",
    "timeline_figure",
    "topology_figure",
    "tree_figure",
    "tree_table",
    "utilisation_figure",
    "write_report",
]

_NAMES = {
    "bandwidth_figure": "figures.plan",
    "best_runtime_figure": "figures.evaluation",
    "bound_links": "tables.witness_links",
    "curve_table": "tables.plan_tables",
    "gantt_figure": "figures.plan",
    "link_curves": "layout.link_shapes",
    "link_table": "tables.plan_tables",
    "node_layout": "layout.node_layout",
    "pareto_figure": "figures.evaluation",
    "relative_bandwidth_figure": "figures.evaluation",
    "runtime_figure": "figures.evaluation",
    "save_figure": "figures.style",
    "step_table": "tables.plan_tables",
    "timeline_figure": "figures.evaluation",
    "topology_figure": "figures.network",
    "tree_figure": "figures.trees",
    "tree_table": "tables.plan_tables",
    "utilisation_figure": "figures.plan",
    "write_report": "html",
}


def __getattr__(name: str) -> Any:
    """Import the module that a public name lives in."""
    if name in _NAMES:
        return getattr(importlib.import_module(f".{_NAMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
