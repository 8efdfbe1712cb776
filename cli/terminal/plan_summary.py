"""Key figures of a plan, as several commands report them."""

from __future__ import annotations

from typing import Any

from ... import planners
from ...schedules import EVERY_SCHEDULE, Bound, Cut, SizeBound
from ...schedules.bounds.bound import witness_to_json


def plan_figures(plan: planners.Plan) -> dict[str, Any]:
    """Return the key figures of a plan for JSON; exact numbers are strings such as ``"15/166"``."""
    from ...report.tables import busiest_links

    return {
        **request_figures(plan),
        "planner": plan.planner,
        "options": dict(plan.options),
        **rates(plan),
        "busbw": float(plan.busbw),
        "bound": rates(plan.bound),
        "gap": str(plan.gap),
        "optimal": plan.gap == 0 and plan.bound.scope == EVERY_SCHEDULE,
        **plan.schedule.figures(plan.topology),
        "num_links": plan.topology.num_links,
        "busiest_links": busiest_links(plan),
    }


def request_figures(of: planners.Plan | Bound | SizeBound) -> dict[str, Any]:
    """Return what was asked for, for JSON."""
    network = of.topology
    return {
        "topology": network.name,
        "digest": network.digest,
        "collective": str(of.collective),
        "num_ranks": network.num_ranks,
    }


def rates(of: planners.Plan | Bound) -> dict[str, Any]:
    """Return the rate of a plan, or its bound, for JSON."""
    return {"inverse_rate": str(of.inverse_rate), "algbw": float(of.algbw), "algbw_exact": str(of.algbw)}


def witness_figures(bound: Bound) -> dict[str, Any]:
    """Return the witness of a bound for JSON."""
    witness = bound.witness
    bandwidth = witness.crossing(bound.topology, bound.collective, bound.weights).bandwidth
    ranks = {"cut_ranks": witness.supply(bound.topology)} if isinstance(witness, Cut) else {}
    return {"cut_bandwidth": str(bandwidth), **witness_to_json(witness), **ranks}
