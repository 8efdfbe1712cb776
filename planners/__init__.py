"""Planners: from a topology and a collective to a verified plan.

Each name is looked up on first use, so a planner does not import the others.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .all_to_all.dispatch import DispatchBound, DispatchCounts, DispatchPlan, count_dispatch, schedule_dispatch
    from .all_to_all.fast import schedule_all_to_allv
    from .all_to_all.flows import all_to_all_rate_bounds
    from .bounds import bound, bound_sizes, plan_of_schedule
    from .direct_connect.bfb import bfb_cost, bfb_schedule, plan_bfb
    from .direct_connect.candidate import Candidate
    from .direct_connect.find import Frontier, find_topologies, sweep_topologies
    from .literature.synthesis import Synthesis, synthesis_frontier, synthesise
    from .plans.files import load_plan
    from .plans.plan import Plan, exporter
    from .plans.registry import PLANNERS, Planner, plan, register_planner
    from .plans.stages import on_stage
    from .trees.logical import LogicalTopology, Route, Split, logical_topology
    from .trees.lp_bounds import lp_bound
    from .trees.steiner import steiner_bound
    from .what_if.compare import compare, scan_trees_per_root
    from .what_if.folder import PlanFolder
    from .what_if.groups import Group, GroupPlans, SharedBound, mesh_groups, plan_groups, read_groups
    from .what_if.networks import compare_networks, network_parts
    from .what_if.sensitivity import sensitivity
    from .what_if.survive import survive

__all__ = ["PLANNERS", "Plan", "Planner", "bound", "bound_sizes", "load_plan", "on_stage", "plan", "plan_of_schedule"]
__all__ += ["exporter", "register_planner"]
__all__ += ["Synthesis", "compare", "lp_bound", "scan_trees_per_root", "sensitivity", "steiner_bound"]
__all__ += ["LogicalTopology", "Route", "Split", "logical_topology"]
__all__ += ["PlanFolder", "survive", "synthesis_frontier", "synthesise"]
__all__ += ["compare_networks", "network_parts"]
__all__ += ["Candidate", "Frontier", "bfb_cost", "bfb_schedule", "find_topologies", "plan_bfb", "sweep_topologies"]
__all__ += ["all_to_all_rate_bounds", "schedule_all_to_allv"]
__all__ += ["DispatchBound", "DispatchCounts", "DispatchPlan", "count_dispatch", "schedule_dispatch"]
__all__ += ["Group", "GroupPlans", "SharedBound", "mesh_groups", "plan_groups", "read_groups"]

_MODULES = {
    "all_to_all.dispatch": "DispatchBound DispatchCounts DispatchPlan count_dispatch schedule_dispatch",
    "all_to_all.fast": "schedule_all_to_allv",
    "all_to_all.flows": "all_to_all_rate_bounds",
    "bounds": "bound bound_sizes plan_of_schedule",
    "direct_connect.bfb": "bfb_cost bfb_schedule plan_bfb",
    "direct_connect.candidate": "Candidate",
    "direct_connect.find": "Frontier find_topologies sweep_topologies",
    "literature.synthesis": "Synthesis synthesis_frontier synthesise",
    "plans.files": "load_plan",
    "plans.plan": "Plan exporter",
    "plans.registry": "PLANNERS Planner plan register_planner",
    "plans.stages": "on_stage",
    "trees.logical": "LogicalTopology Route Split logical_topology",
    "trees.lp_bounds": "lp_bound",
    "trees.steiner": "steiner_bound",
    "what_if.compare": "compare scan_trees_per_root",
    "what_if.folder": "PlanFolder",
    "what_if.groups": "Group GroupPlans SharedBound mesh_groups plan_groups read_groups",
    "what_if.networks": "compare_networks network_parts",
    "what_if.sensitivity": "sensitivity",
    "what_if.survive": "survive",
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
