"""Plan collective communication for GPU clusters as explicit optimization models, and prove each plan.

The names below are the stable ones.  Each is looked up on first use, so ``import collopt`` costs next to nothing.

Examples
--------
>>> import collopt
>>> topology = collopt.topologies.dgx_a100(boxes=2)
>>> plan = collopt.plan(topology, "allgather")
>>> plan.verify()
>>> float(plan.algbw).__round__(2), plan.gap
(346.67, Fraction(0, 1))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import errors, formulations, planners, report, runtime, schedules, solvers, topologies
    from .formulations import Blocks
    from .planners import (
        Plan,
        bound,
        compare,
        find_topologies,
        load_plan,
        plan,
        scan_trees_per_root,
        schedule_all_to_allv,
        sensitivity,
    )
    from .schedules import Bound, Forest
    from .solvers import Algorithm, ExactAnswer, HighsOptions, Interval, Session, Solution, solve
    from .topologies import Topology, read_topology, write_topology

__all__ = [
    "Algorithm",
    "Blocks",
    "Bound",
    "ExactAnswer",
    "Forest",
    "HighsOptions",
    "Interval",
    "Plan",
    "Session",
    "Solution",
    "Topology",
    "__version__",
    "bound",
    "compare",
    "errors",
    "find_topologies",
    "formulations",
    "load_plan",
    "plan",
    "planners",
    "read_topology",
    "report",
    "runtime",
    "scan_trees_per_root",
    "schedule_all_to_allv",
    "schedules",
    "sensitivity",
    "solve",
    "solvers",
    "topologies",
    "write_topology",
]

_ROOMS = ("errors", "formulations", "planners", "report", "runtime", "schedules", "solvers", "topologies")
_NAMES = {
    "Algorithm": "solvers",
    "Blocks": "formulations",
    "Bound": "schedules",
    "ExactAnswer": "solvers",
    "Forest": "schedules",
    "HighsOptions": "solvers",
    "Interval": "solvers",
    "Plan": "planners",
    "Session": "solvers",
    "Solution": "solvers",
    "Topology": "topologies",
    "bound": "planners",
    "compare": "planners",
    "find_topologies": "planners",
    "load_plan": "planners",
    "plan": "planners",
    "scan_trees_per_root": "planners",
    "schedule_all_to_allv": "planners",
    "sensitivity": "planners",
    "read_topology": "topologies",
    "solve": "solvers",
    "write_topology": "topologies",
}


def __getattr__(name: str) -> Any:
    """Import the room that a public name lives in."""
    if name == "__version__":
        from importlib.metadata import version

        return version("collopt")
    if name in _ROOMS:
        return importlib.import_module(f".{name}", __name__)
    if name in _NAMES:
        return getattr(importlib.import_module(f".{_NAMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
