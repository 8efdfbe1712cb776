"""From a topology and a collective to a proved plan."""

from __future__ import annotations

from .compare import compare
from .frontier import scan_trees_per_root
from .lp_bounds import lp_bound
from .plan import Plan
from .plan_files import load_plan
from .registry import PLANNERS, Planner, bound, plan
from .sensitivity import sensitivity
from .synthesis import Synthesis, synthesis_frontier, synthesise

__all__ = [
    "PLANNERS",
    "Plan",
    "Planner",
    "Synthesis",
    "bound",
    "compare",
    "load_plan",
    "lp_bound",
    "plan",
    "scan_trees_per_root",
    "sensitivity",
    "synthesis_frontier",
    "synthesise",
]
