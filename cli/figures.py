"""The figures of a plan, as several commands report them."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ..schedules.bound import ENTERING, Cut, RankCuts

if TYPE_CHECKING:
    from ..planners import Plan
    from ..schedules import Bound

__all__ = ["busiest_links", "crossed_bandwidth", "plan_figures", "witness_text"]


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
        "trees_per_root": forest.forests[-1].trees_per_root,
        "root_weights": forest.root_weights.tolist(),
        "num_trees": forest.num_trees,
        "min_height": plan.heights.lowest,
        "mean_height": plan.heights.mean,
        "max_height": plan.heights.highest,
        "num_links": len(plan.topology.links),
        "busiest_links": busiest_links(plan),
    }


def crossed_bandwidth(bound: Bound) -> Fraction:
    """Bandwidth of the links that data must take across the bound's cut, or around a single rank."""
    if isinstance(bound.witness, Cut) and bound.collective in ENTERING:
        return bound.witness.entering_bandwidth(bound.topology)
    return bound.witness.bandwidth(bound.topology)


def witness_text(bound: Bound) -> str:
    """Say in one line what the bound follows from."""
    network, bandwidth = bound.topology, crossed_bandwidth(bound)
    if isinstance(bound.witness, RankCuts):
        return f"some rank sends 2 (N - 1) / N of all data, and none has more than {bandwidth} GB/s"
    inside, way = bound.witness.supply(network), "enter" if bound.collective in ENTERING else "leave"
    what = "which all data must leave" if bound.collective == "allreduce" else f"whose shards {way}"
    return f"{inside} of {network.num_ranks} ranks, {what} over {bandwidth} GB/s"


def busiest_links(plan: Plan) -> int:
    """Count the links that decide the plan's speed."""
    trees = plan.schedule.trees_per_root
    return sum(
        Fraction(load, trees) / link.bandwidth == plan.inverse_rate
        for load, link in zip(plan.link_loads.tolist(), plan.topology.links, strict=True)
    )
