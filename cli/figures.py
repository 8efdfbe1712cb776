"""The figures of a plan, as several commands report them."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..planners import Plan

__all__ = ["busiest_links", "plan_figures"]


def plan_figures(plan: Plan) -> dict[str, Any]:
    """Describe a plan by plain values, ready for JSON; exact numbers are texts such as ``"15/166"``."""
    forest = plan.schedule
    return {
        "topology": plan.topology.name,
        "digest": plan.topology.digest,
        "collective": plan.collective,
        "num_ranks": plan.topology.num_ranks,
        "planner": plan.planner,
        "options": dict(plan.options),
        "inverse_rate": str(plan.inverse_rate),
        "algbw": float(plan.algbw),
        "algbw_exact": str(plan.algbw),
        "busbw": float(plan.busbw),
        "bound": {
            "inverse_rate": str(plan.bound.inverse_rate),
            "algbw": float(plan.bound.algbw),
            "algbw_exact": str(plan.bound.algbw),
        },
        "gap": str(plan.gap),
        "optimal": plan.gap == 0,
        "trees_per_root": forest.trees_per_root,
        "num_trees": forest.num_trees,
        "min_height": int(forest.heights.min()),
        "max_height": int(forest.heights.max()),
        "num_links": len(plan.topology.links),
        "busiest_links": busiest_links(plan),
    }


def busiest_links(plan: Plan) -> int:
    """Count the links that decide the plan's speed."""
    trees = plan.schedule.trees_per_root
    return sum(
        Fraction(load, trees) / link.bandwidth == plan.inverse_rate
        for load, link in zip(plan.link_loads.tolist(), plan.topology.links, strict=True)
    )
