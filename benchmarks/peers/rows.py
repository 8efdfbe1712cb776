"""Rows of the table: who made a schedule, what its maker says of it, and what simulation and bound say."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import collopt
from collopt.errors import ColloptError
from collopt.planners import Plan
from collopt.runtime import simulate

OURS = ("auto", "greedy", "milp", "multitree", "blink", "ring")
HEADING = (
    "| network | schedule by | reported, µs | simulated, µs | bound, µs | gap | remark |\n"
    "| --- | --- | ---: | ---: | ---: | ---: | --- |"
)


@dataclass(frozen=True)
class Row:
    """One schedule of one allgather; times of all data in µs."""

    network: str
    maker: str
    reported: float | None  # None of programs that report no time
    simulated: float | None  # None of schedules that cannot be run
    bound: float
    gap: Fraction | None  # of its busiest link, to the bound; None of what is no plan
    remark: str = ""

    def __str__(self) -> str:
        """Line of a table."""
        times = ("-" if time is None else f"{time:.1f}" for time in (self.reported, self.simulated, self.bound))
        gap = "-" if self.gap is None else f"{float(self.gap):.1%}"
        return f"| {self.network} | {self.maker} | {' | '.join(times)} | {gap} | {self.remark} |"


def microseconds(num_bytes: int, algbw: Fraction) -> float:
    """Time at an algorithm bandwidth in GB/s."""
    return float(num_bytes / algbw / 1000)


def plan_row(plan: Plan, maker: str, num_bytes: int, reported: float | None = None) -> Row:
    """Row of a verified plan; what it reports is its own rate, unless somebody else's is given."""
    own = microseconds(num_bytes, plan.algbw) if reported is None else reported
    run = simulate(plan, num_bytes).microseconds
    bound = microseconds(num_bytes, plan.bound.algbw)
    return Row(plan.topology.name, maker, own, run, bound, plan.gap, str(plan.provenance.get("search", "")))


def own_rows(topology: collopt.Topology, num_bytes: int) -> list[Row]:
    """Rows of our own plans, of all planners that suit the network."""
    rows = []
    for planner in OURS:
        try:
            plan = collopt.plan(topology, "allgather", planner=planner)
        except ColloptError as error:
            print(f"{topology.name}: no {planner}: {error}")
            continue
        rows.append(plan_row(plan, f"collopt {planner}", num_bytes))
    return rows
