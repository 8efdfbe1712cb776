"""Planners: from a topology and a collective to a verified plan."""

from .all_to_all.dispatch import DispatchBound, DispatchCounts, DispatchPlan, count_dispatch, schedule_dispatch
from .all_to_all.fast import schedule_all_to_allv
from .all_to_all.flows import all_to_all_rate_bounds
from .bounds.bound import bound, bound_sizes
from .bounds.from_schedule import plan_of_schedule
from .bounds.lp_bounds import lp_bound
from .direct_connect.bfb import bfb_cost, bfb_schedule, plan_bfb
from .direct_connect.candidate import Candidate
from .direct_connect.find import Frontier, find_topologies, sweep_topologies
from .literature.synthesis import Synthesis, synthesis_frontier, synthesise
from .plans.files import load_plan
from .plans.plan import Plan, exporter
from .plans.registry import PLANNERS, Planner, plan, register_planner
from .plans.stages import on_stage
from .trees.logical import LogicalTopology, Route, Split, logical_topology
from .trees.steiner import steiner_bound
from .what_if.compare import compare
from .what_if.folder import PlanFolder
from .what_if.groups import Group, mesh_groups, read_groups
from .what_if.sensitivity import sensitivity
from .what_if.shared_fabric import GroupPlans, SharedBound, plan_groups
from .what_if.survive import survive
from .what_if.trees_per_root import scan_trees_per_root

__all__ = ["PLANNERS", "Plan", "Planner", "bound", "bound_sizes", "load_plan", "on_stage", "plan", "plan_of_schedule"]
__all__ += ["register_planner"]
__all__ += ["Synthesis", "compare", "lp_bound", "scan_trees_per_root", "sensitivity", "steiner_bound"]
__all__ += ["LogicalTopology", "Route", "Split", "logical_topology"]
__all__ += ["exporter"]
__all__ += ["PlanFolder", "survive", "synthesis_frontier", "synthesise"]
__all__ += ["bfb_cost", "bfb_schedule", "plan_bfb"]
__all__ += ["Candidate", "Frontier", "find_topologies", "sweep_topologies"]
__all__ += ["all_to_all_rate_bounds", "schedule_all_to_allv"]
__all__ += ["DispatchBound", "DispatchCounts", "DispatchPlan", "count_dispatch", "schedule_dispatch"]
__all__ += ["Group", "GroupPlans", "SharedBound", "mesh_groups", "plan_groups", "read_groups"]
