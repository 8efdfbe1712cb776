"""From a topology and a collective to a proved plan."""

from __future__ import annotations

from .frontier import scan_trees_per_root
from .plan import Plan
from .plan_files import load_plan
from .registry import PLANNERS, Planner, bound, plan

__all__ = ["PLANNERS", "Plan", "Planner", "bound", "load_plan", "plan", "scan_trees_per_root"]
