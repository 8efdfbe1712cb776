"""What people look at: tables and figures of networks, plans, costs, and simulated training iterations.

Each name is looked up on first use, so ``import collopt.report`` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .drawing import save_figure
    from .figures import (
        best_runtime_figure,
        pareto_figure,
        relative_bandwidth_figure,
        runtime_figure,
        timeline_figure,
    )
    from .html import write_report
    from .link_shapes import link_curves
    from .network_figures import topology_figure
    from .node_places import node_layout
    from .plan_figures import bandwidth_figure, gantt_figure, utilisation_figure
    from .plan_tables import curve_table, link_table, step_table, tree_table
    from .tree_figures import tree_figure
    from .witness_links import bound_links

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
    "bandwidth_figure": "plan_figures",
    "best_runtime_figure": "figures",
    "bound_links": "witness_links",
    "curve_table": "plan_tables",
    "gantt_figure": "plan_figures",
    "link_curves": "link_shapes",
    "link_table": "plan_tables",
    "node_layout": "node_places",
    "pareto_figure": "figures",
    "relative_bandwidth_figure": "figures",
    "runtime_figure": "figures",
    "save_figure": "drawing",
    "step_table": "plan_tables",
    "timeline_figure": "figures",
    "topology_figure": "network_figures",
    "tree_figure": "tree_figures",
    "tree_table": "plan_tables",
    "utilisation_figure": "plan_figures",
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
