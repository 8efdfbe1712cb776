"""Text summary of a plan: its schedule, and what was verified."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..schedules import EVERY_SCHEDULE
from ..schedules import busiest_links as bottleneck_links
from ..schedules.trees.tree_schedule import NO_SWITCH
from ..support.formatting import gap_text, rate_text

if TYPE_CHECKING:
    from ..planners import Plan


def check_rows(checked: Plan, origin: str) -> dict[str, str]:
    """List what `Plan.verify` has checked, one line each."""
    network, bound = checked.topology, checked.bound
    return {
        "bound": f"{bound.witness.reason(network, checked.collective)}; algbw at most {rate_text(bound.algbw)}",
        **checked.schedule.checks(),
        "links": _loads(checked),
        "optimality gap": optimality(checked),
        "network": f"{network.name}, digest {network.digest[:12]}, {origin}",
    }


def optimality(plan: Plan) -> str:
    """Say how far a plan is from its bound, and what an optimum is one of if that is not all schedules."""
    scope = plan.bound.scope
    return gap_text(plan.gap) if plan.gap or scope == EVERY_SCHEDULE else f"0 (optimal of {scope})"


def _loads(checked: Plan) -> str:
    of_steps = "" if checked.schedule.pipelined else " of each step"
    return f"{checked.topology.num_links} link loads{of_steps} match the stated ones; algbw {rate_text(checked.algbw)}"


def schedule_rows(plan: Plan) -> dict[str, str]:
    """Describe steps, a flow, or trees and what switches could save of their traffic."""
    busiest = f"{busiest_links(plan)} of {plan.topology.num_links}"
    # What sets the rate of trees and paths is what never rests at it.
    busiest += ", 100 % utilized" if plan.schedule.pipelined else ", each in at least one step"
    rows = plan.schedule.rows(plan.topology, {"busiest links": busiest})
    if rows.get("in-network") == NO_SWITCH and plan.gap and plan.topology.aggregation:
        # Whoever sees a gap has to know that it may be to what such switches alone can do.
        rows["in-network"] += "; the bound assumes that they do"
    return rows


def busiest_links(plan: Plan) -> int:
    """Count the bottleneck links of a plan, or of each of its steps."""
    busiest = (bottleneck_links(loads, plan.topology) for loads in np.atleast_2d(plan.link_loads))
    return len(set().union(*(links.tolist() for links in busiest)))
