"""Tables, figures and pages of networks, plans and costs.

Each name is looked up on first use, so ``import collopt.report`` costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .figures.network import topology_figure
    from .figures.plan import bandwidth_figure, gantt_figure, pareto_figure, utilization_figure
    from .figures.style import save_figure
    from .figures.trees import logical_figure, tree_figure
    from .layout import link_curves, node_layout
    from .pages.page import write_report
    from .tables import bound_links, curve_table, link_table, step_table, tree_table

__all__ = ["bandwidth_figure", "gantt_figure", "logical_figure", "pareto_figure", "save_figure", "topology_figure"]
__all__ += ["tree_figure", "utilization_figure"]
__all__ += ["bound_links", "curve_table", "link_table", "step_table", "tree_table"]
__all__ += ["link_curves", "node_layout", "write_report"]

_MODULES = {
    "figures.network": "topology_figure",
    "figures.plan": "bandwidth_figure gantt_figure pareto_figure utilization_figure",
    "figures.style": "save_figure",
    "figures.trees": "logical_figure tree_figure",
    "pages.page": "write_report",
    "layout": "link_curves node_layout",
    "tables": "bound_links curve_table link_table step_table tree_table",
}
_NAMES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import the module that a public name lives in."""
    if name in _NAMES:
        return getattr(importlib.import_module(f".{_NAMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
