"""From a topology and a collective to a proved plan."""

from __future__ import annotations

from .analysis.compare import compare
from .analysis.lp_bounds import lp_bound
from .analysis.sensitivity import sensitivity
from .analysis.synthesis import Synthesis, synthesis_frontier, synthesise
from .analysis.trees_per_root import scan_trees_per_root
from .bfb.bfb import BfbLoad, best_chunks, bfb_cost, bfb_loads, bfb_schedule, chunked_cost, plan_bfb
from .bfb.latencies import TimedBfb, timed_bfb, timed_loads
from .finder.candidate import Candidate
from .finder.find import find_topologies, sweep_topologies
from .finder.frontier import Frontier
from .from_schedule import plan_of_schedule
from .pairs.direct_connect_rate import all_to_all_rate_bounds
from .pairs.fast import schedule_all_to_allv
from .plans.files import load_plan
from .plans.plan import Plan
from .plans.stages import on_stage
from .registry import PLANNERS, Planner, bound, plan

__all__ = [
    "PLANNERS",
    "BfbLoad",
    "Candidate",
    "Frontier",
    "Plan",
    "Planner",
    "Synthesis",
    "TimedBfb",
    "all_to_all_rate_bounds",
    "best_chunks",
    "bfb_cost",
    "bfb_loads",
    "bfb_schedule",
    "bound",
    "chunked_cost",
    "compare",
    "find_topologies",
    "load_plan",
    "lp_bound",
    "on_stage",
    "plan",
    "plan_bfb",
    "plan_of_schedule",
    "scan_trees_per_root",
    "schedule_all_to_allv",
    "sensitivity",
    "sweep_topologies",
    "synthesis_frontier",
    "synthesise",
    "timed_bfb",
    "timed_loads",
]
