"""What the page says about each plan, in words and tables, ready for the template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ...schedules import EVERY_SCHEDULE
from ...support.formatting import percentage_text, rate_text, time_text
from ..tables.plan_tables import link_table
from ..tables.predicted_times import is_predictable, predicted_times
from ..tables.summary import check_rows, hop_heights, schedule_rows
from .certificate import certificate

if TYPE_CHECKING:
    from ...planners import Plan

LINK_COLUMNS = (
    ("from", False), ("to", False), ("GB/s", True), ("latency, µs", True), ("load", True), ("utilization", True),
    ("in the bound", False),
)  # fmt: skip
"""Headings of the table of links, and whether numbers stand below them."""
MOST_LINKS = 2000
"""Rows of that table."""


def plan_entry(name: str, plan: Plan, sizes: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Describe one plan."""
    everything = plan.bound.scope == EVERY_SCHEDULE
    return {
        "name": name,
        "optimal": plan.gap == 0 and everything,
        "verdict": _verdict(plan),
        "scope": "" if everything else plan.bound.scope,
        "tiles": _tiles(plan),
        "proof": certificate(plan.bound),
        "checks": list(check_rows(plan, "stored with the plan").items()),
        "links": _links(plan),
        "provenance": _provenance(plan),
        "algbw_number": f"{float(plan.algbw):.2f}",
        "missed": percentage_text(plan.gap) if plan.gap else "0",
        "times": _times(plan, [size for _, size in sizes]),
        "size_text": _schedule_text(plan),
    }


def _times(plan: Plan, sizes: Sequence[int]) -> list[str]:
    return list(map(time_text, predicted_times(plan, sizes))) if is_predictable(plan) else ["–"] * len(sizes)


def _verdict(plan: Plan) -> tuple[str, str]:
    """What the plan is worth, and why."""
    bound = plan.bound
    reason = bound.witness.reason(plan.topology, plan.collective)
    if plan.gap == 0 and bound.scope == EVERY_SCHEDULE:
        return "Optimal.", f"The plan attains the bound, which holds for all schedules: {reason}."
    if plan.gap == 0:
        return "Attains its bound.", f"The bound holds for {bound.scope}: {reason}. Other schedules may be faster."
    limit = "every schedule" if bound.scope == EVERY_SCHEDULE else bound.scope
    return (
        f"{percentage_text(plan.gap)} below the bound",
        f"that holds for {limit}: {reason}. The optimum lies between the plan and the bound.",
    )


def _tiles(plan: Plan) -> list[tuple[str, str, str]]:
    """The figures that come first: name, value, and the value as an exact number or what it is made of."""
    return [
        ("algbw", *_rate_and_exact(plan.algbw)),
        ("busbw", *_rate_and_exact(plan.busbw)),
        ("bound on algbw", *_rate_and_exact(plan.bound.algbw)),
        (
            "optimality gap",
            percentage_text(plan.gap) if plan.gap else "0",
            f"exactly {plan.gap}" if plan.gap else "optimal",
        ),
        ("ranks", str(plan.topology.num_ranks), f"{len(plan.topology.links)} links"),
        ("planner", plan.planner, ""),
        _schedule_tile(plan),
    ]


def _schedule_tile(plan: Plan) -> tuple[str, str, str]:
    if plan.schedule.num_trees:
        return "trees", str(plan.schedule.num_trees), hop_heights(plan).partition(",")[0]
    if plan.schedule.num_steps:
        return "steps", str(plan.num_steps), ""
    return "size", plan.schedule.size_text, ""


def _schedule_text(plan: Plan) -> str:
    name, count, note = _schedule_tile(plan)
    return f"{count} {name}, {note}" if note else f"{count} {name}"


def _rate_and_exact(value: Fraction) -> tuple[str, str]:
    text, _, exact = rate_text(value).partition(" (")
    return text, f"exactly {exact.rstrip(')')}" if exact else ""


def _links(plan: Plan) -> dict[str, Any]:
    """Rows of the table of links, the busiest first."""
    table = link_table(plan).sort_values(["utilisation", "in_cut"], ascending=False, kind="stable")
    rows = []
    for place, row in zip(table.index[:MOST_LINKS], table.head(MOST_LINKS).to_dict("records"), strict=True):
        link = plan.topology.links[place]
        rows.append(
            {
                "tail": link.tail,
                "head": link.head,
                "bandwidth": str(link.bandwidth),
                "latency": str(link.latency),
                "load": f"{row['load']:.4f}",
                "utilisation": percentage_text(row["utilisation"]) if row["utilisation"] else "0 %",
                "in_cut": bool(row["in_cut"]),
                "order": tuple(row[name] for name in ("bandwidth_gbps", "latency_us", "load", "utilisation")),
            }
        )
    left = len(table) - len(rows)
    return {
        "rows": rows,
        "caption": "Load is the share of all data that the link carries; utilization is the share of the time for "
        "which "
        "it is busy. Sorted by utilization.",
        "left_out": f"{left} more links, with no higher utilization, are not listed." if left else "",
    }


def _provenance(plan: Plan) -> list[tuple[str, str]]:
    """Where the plan comes from."""
    return [
        ("network", plan.topology.name),
        ("digest", plan.topology.digest),
        ("planner", plan.planner),
        ("options", _pairs(plan.options) or "none"),
        ("recorded", _pairs(plan.provenance) or "none: plan files store only what can be verified"),
        *schedule_rows(plan).items(),
    ]


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in values.items())
