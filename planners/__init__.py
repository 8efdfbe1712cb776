"""From a topology and a collective to a proved plan."""

from __future__ import annotations

from .bfb import BfbLoad, best_chunks, bfb_cost, bfb_loads, bfb_schedule, chunked_cost, plan_bfb
from .bfb_timed import TimedBfb, timed_bfb, timed_loads
from .candidate_frontier import Frontier
from .candidates import Candidate
from .compare import compare
from .direct_all_to_all import all_to_all_rate_bounds
from .fast import schedule_all_to_allv
from .finder import find_topologies, sweep_topologies
from .frontier import scan_trees_per_root
from .lp_bounds import lp_bound
from .plan import Plan
from .plan_files import load_plan
from .registry import PLANNERS, Planner, bound, plan
from .schedule_plans import plan_of_schedule
from .sensitivity import sensitivity
from .synthesis import Synthesis, synthesis_frontier, synthesise
from .trace import on_stage
from .training_iteration import DirectConnectTimes, TrainingIteration, simulate_iteration

__all__ = [
    "PLANNERS",
    "BfbLoad",
    "Candidate",
    "DirectConnectTimes",
    "Frontier",
    "Plan",
    "Planner",
    "Synthesis",
    "TimedBfb",
    "TrainingIteration",
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
    "simulate_iteration",
    "sweep_topologies",
    "synthesis_frontier",
    "synthesise",
    "timed_bfb",
    "timed_loads",
]
