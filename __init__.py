"""Plan collective communication for GPU clusters as explicit optimization models, and prove each plan.

The names below are the stable ones.  Each is looked up on first use, so ``import collopt`` costs next to nothing.

Examples
--------
>>> import collopt
>>> network = collopt.topology("dgx-a100", boxes=2)
>>> plan = collopt.plan(network, "allgather")
>>> plan.verify()
>>> float(plan.algbw).__round__(2), plan.gap
(346.67, Fraction(0, 1))
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import errors, formulations, planners, report, runtime, schedules, solvers, topologies
    from .formulations import Blocks
    from .planners import (
        Plan,
        bound,
        bound_sizes,
        compare,
        find_topologies,
        load_plan,
        plan,
        scan_trees_per_root,
        schedule_all_to_allv,
        sensitivity,
    )
    from .runtime import diagnose, expect, probe, reshard
    from .schedules import Bound, Demands, Forest, Item, SizeBound
    from .solvers import Algorithm, ExactAnswer, HighsOptions, Interval, Session, Solution, solve
    from .topologies import Topology, read_topology, topology, write_topology

__all__ = ["__version__", "errors", "formulations", "planners", "report", "runtime", "schedules", "solvers"]
__all__ += ["topologies"]
__all__ += ["Blocks", "Bound", "Demands", "Forest", "Item", "SizeBound"]
__all__ += ["Topology", "read_topology", "topology", "write_topology"]
__all__ += ["Plan", "bound", "bound_sizes", "compare", "find_topologies", "load_plan", "plan", "scan_trees_per_root"]
__all__ += ["diagnose", "expect", "probe", "reshard", "schedule_all_to_allv", "sensitivity"]
__all__ += ["Algorithm", "ExactAnswer", "HighsOptions", "Interval", "Session", "Solution", "solve"]

_LAYERS = ("errors", "formulations", "planners", "report", "runtime", "schedules", "solvers", "topologies")
_NAMES = {
    "formulations": "Blocks",
    "planners": "Plan bound bound_sizes compare find_topologies load_plan plan scan_trees_per_root "
    "schedule_all_to_allv sensitivity",
    "runtime": "diagnose expect probe reshard",
    "schedules": "Bound Demands Forest Item SizeBound",
    "solvers": "Algorithm ExactAnswer HighsOptions Interval Session Solution solve",
    "topologies": "Topology read_topology topology write_topology",
}
_LAYER_OF = {name: layer for layer, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import the layer of a public name."""
    if name == "__version__":
        from importlib.metadata import version

        return version("collopt")
    if name in _LAYERS:
        return importlib.import_module(f".{name}", __name__)
    if name in _LAYER_OF:
        return getattr(importlib.import_module(f".{_LAYER_OF[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
