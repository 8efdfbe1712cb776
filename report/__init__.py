"""What people look at: tables and figures of networks, plans, costs, and simulated training iterations."""

from __future__ import annotations

from .drawing import save_figure
from .figures import (
    best_runtime_figure,
    pareto_figure,
    relative_bandwidth_figure,
    runtime_figure,
    timeline_figure,
)
from .html import write_report
from .plan_figures import bandwidth_figure, gantt_figure, utilisation_figure
from .plan_tables import bound_links, curve_table, link_curves, link_table, node_layout, step_table, tree_table
from .topology_figure import topology_figure
from .tree_figure import tree_figure

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
