"""The planner ``auto``: planners in the order of what their plans take at least, until none can win.

For endless data, planners that are exact on many networks are run until one reaches its bound; for a size, all planners
compete by predicted times.  An effort limits the work: planners whose estimated work exceeds it are left out, and
``provenance`` says which.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from ...errors import BoundError, CapacityOverflowError, NoAnswerError, TopologyError, UnsupportedError
from ...schedules import COLLECTIVES, Collective, as_bytes
from ...support.quantities import as_amount
from ...support.validation import shown
from ...topologies import Topology, reached_network
from ...topologies.network.link_costs import as_costs
from ..bounds.from_schedule import plan_of_schedule
from ..plans.plan import Plan
from ..plans.registry import PLANNERS, checked_keywords, register_planner
from ..trees.problem import shard_weights
from .candidates import (
    EXACT_PLAN,
    PROFILES,
    SPANNING,
    SYMMETRIC,
    UNLIKELY_AFTER,
    UNSUITED,
    Candidate,
    exact_candidates,
    planner_options,
    timed_candidates,
)
from .case import Case
from .race import Race

REFUSALS = (UnsupportedError, BoundError, CapacityOverflowError, NoAnswerError)
"""Errors of planners that do not suit a network, or for which it is too large."""


@dataclass(frozen=True)
class Effort:
    """How much planning may cost.

    Attributes
    ----------
    exact, timed : float
        Estimated CPU seconds of planning with exact planners, and with those that compete for a size.
    near : Fraction
        Times the least time of a planner's plan: where a plan takes no longer, the planner is left out.
    """

    exact: float
    timed: float
    near: Fraction = Fraction(1005, 1000)


CANNOT_WIN, BEYOND_EFFORT, REFUSED = "cannot win", "beyond the effort", "not for this network"
"""Why planners have no plan."""
EFFORTS = {
    "low": Effort(1, 0.05, Fraction(105, 100)),
    "default": Effort(5, 0.5, Fraction(101, 100)),
    "high": Effort(600, 2000),
}
"""Efforts by name."""


def as_effort(value: object) -> Effort:
    """Read an effort, or raise `UnsupportedError`."""
    if isinstance(value, str) and value in EFFORTS:
        return EFFORTS[value]
    with suppress(UnsupportedError, TopologyError, OverflowError):
        seconds = float(as_amount(value))
        if seconds > 0:
            return Effort(seconds, seconds)
    raise UnsupportedError(
        f"effort is {shown(value)}; expected {', '.join(EFFORTS)}, or a number of CPU seconds above 0"
    )


class Log:
    """Planners that were run, and those left out with the reasons."""

    def __init__(self) -> None:
        self._planned: list[str] = []
        self._left_out: dict[str, list[str]] = {}

    def has_planned(self, *names: str) -> bool:
        """Whether one of these candidates has a plan."""
        return not set(names).isdisjoint(self._planned)

    def has(self, candidate: Candidate) -> bool:
        """Whether a candidate is noted."""
        return any(candidate.name in names for names in (self._planned, *self._left_out.values()))

    def add_plan(self, candidate: Candidate) -> None:
        """Note a candidate that planned."""
        self._planned.append(candidate.name)

    def leave_out(self, candidate: Candidate, reason: str) -> None:
        """Note a candidate without a plan."""
        if candidate.name in self._planned:
            return  # among the plans for a size
        self._left_out.setdefault(reason, []).append(candidate.name)

    def readmit(self, name: str) -> None:
        """Forget that a candidate cannot win for endless data, as it may for a size."""
        names = self._left_out.get(CANNOT_WIN, [])
        if name in names:
            names.remove(name)

    def notes(self) -> dict[str, str]:
        """Return what goes into ``provenance``."""
        left_out = "; ".join(f"{reason}: {', '.join(names)}" for reason, names in self._left_out.items() if names)
        return {"portfolio": ", ".join(self._planned), **({"left_out": left_out} if left_out else {})}


@register_planner("auto", COLLECTIVES.values())
def plan_auto(
    topology: Topology,
    collective: Collective,
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    traffic: Any = None,
    size: int | str | None = None,
    effort: str | float = "default",
    trees_per_root: int | None = None,
    in_network: bool | None = None,
    chunks: int | None = None,
    order: str | None = None,
) -> Plan:
    """Plan the best plan of all planners: of the highest rate, or for a size of the least predicted time.

    Parameters
    ----------
    topology, collective, root, weights, traffic
        As for `collopt.plan`.
    size : int or str, optional
        Bytes in all, such as ``"64K"``; by default endless data.
    effort : {"low", "default", "high"} or float
        How much planning may cost, or estimated CPU seconds of it.  Estimates depend on the network alone, so plans do
        not depend on the machine.
    trees_per_root, in_network, chunks, order : optional
        As for the exact planner of the collective: the first two for ``"forestcoll"``, the others for
        ``"multicommodity"``.
    """
    budget = as_effort(effort)
    keywords = {
        "root": root,
        "weights": weights,
        "traffic": traffic,
        "trees_per_root": trees_per_root,
        "in_network": in_network,
        "chunks": chunks,
        "order": order,
    }
    exact = PLANNERS["multicommodity" if collective.in_pairs else "forestcoll"]
    options = checked_keywords(exact, collective, keywords)
    if not collective.in_pairs:
        shard_weights(topology, collective, root, weights)  # refuses what it has not
    case, log = Case(topology, collective, options), Log()
    if size is None:
        best = plans_for_rate(case, budget.exact, log)[0]
        return replace(best, provenance={**best.provenance, **log.notes()})
    return plan_for_size(case, as_bytes(size), budget, log)


def plans_for_rate(case: Case, budget: float, log: Log) -> list[Plan]:
    """Plan with exact planners until one reaches its bound; return all plans, that of the highest rate first.

    Where no plan is near enough to its bound, planners beyond the budget are run after all.
    """
    plans: list[Plan] = []
    refusals: dict[str, Exception] = {}
    postponed: list[Candidate] = []
    spent = 0.0
    for candidate in exact_candidates(case):
        unlikely = log.has_planned(*UNLIKELY_AFTER.get(candidate.planner, ()))
        repeated = candidate.planner == "strength" and log.has_planned(SPANNING)
        if repeated or any(plan.gap == 0 for plan in plans):
            log.leave_out(candidate, CANNOT_WIN)
        elif spent + candidate.cost * (UNSUITED if unlikely else 1) > budget:
            postponed.append(candidate)
        elif plan := _planned(candidate, case, log, refusals):
            plans.append(plan)
            spent += candidate.work
    for candidate in sorted(postponed, key=lambda candidate: candidate.cost):
        if any(plan.gap <= PROFILES[plan.planner].enough for plan in plans):
            log.leave_out(candidate, BEYOND_EFFORT)
        elif plan := _planned(candidate, case, log, refusals):
            plans.append(plan)
    if not plans:
        raise next(error for name, error in refusals.items() if name != SPANNING)
    return sorted(plans, key=lambda plan: (-plan.algbw, plan.gap))


def plan_for_size(case: Case, num_bytes: int, effort: Effort, log: Log) -> Plan:
    """Let all planners compete for so many bytes, in the order of the least times that their plans may take.

    The plans for endless data are made whatever they cost, unless another plan has the best rate already.
    """
    race = Race(case, num_bytes, effort.near)
    refusals: dict[str, Exception] = {}
    spent = 0.0
    for candidate in timed_candidates(case, num_bytes, effort.timed):
        is_exact = candidate.planner == EXACT_PLAN
        if log.has(candidate):
            continue  # among the plans for endless data
        if spent + candidate.cost > effort.timed and (not is_exact or race.has_best_rate):
            log.leave_out(candidate, BEYOND_EFFORT)
        elif not race.can_win(candidate):
            log.leave_out(candidate, CANNOT_WIN)
        elif race.is_unlikely(candidate) and spent + UNSUITED * candidate.cost > effort.timed:
            log.leave_out(candidate, BEYOND_EFFORT)
        elif is_exact:
            with suppress(*REFUSALS):
                _add_exact_plans(race, case, effort.timed - spent, log, refusals)
                spent += candidate.work
        elif plan := _planned(candidate, case, log, refusals, num_bytes):
            race.add(plan)
            spent += candidate.work
    if race.is_empty:
        raise refusals.get(EXACT_PLAN) or next(iter(refusals.values()))
    best, notes = race.winner()
    return replace(best, provenance={**best.provenance, **notes, **log.notes()})


def _add_exact_plans(race: Race, case: Case, budget: float, log: Log, refusals: dict[str, Exception]) -> None:
    """Add the plans for endless data, and the best one for the bandwidths that data reaches."""
    try:
        plans = plans_for_rate(case, budget, log)
    except REFUSALS as error:
        refusals[EXACT_PLAN] = error
        raise
    log.readmit(SYMMETRIC)
    for plan in plans:
        race.add(plan)
    network = reached_network(case.topology, as_costs(None, case.topology))
    if network != case.topology:
        best = plans_for_rate(Case(network, case.collective, case.options), budget, Log())[0]
        call = case.topology, case.collective, best.schedule
        race.add(plan_of_schedule(*call, planner=best.planner, options=best.options))


def _planned(
    candidate: Candidate, case: Case, log: Log, refusals: dict[str, Exception], num_bytes: int | None = None
) -> Plan | None:
    """Plan with a candidate, for a size if it plans for one; None if it does not suit the network."""
    try:
        plan = _plan(candidate, case, num_bytes)
    except REFUSALS as error:
        refusals[candidate.name] = error
        log.leave_out(candidate, REFUSED)
        return None
    log.add_plan(candidate)
    return plan


def _plan(candidate: Candidate, case: Case, num_bytes: int | None) -> Plan:
    if candidate.planner == SPANNING:
        from ..trees.strength import plan_with_switches  # with kernels

        plan = plan_with_switches(case.topology)
        if plan is None:
            raise UnsupportedError("trees that span switches are no faster than others")
        return plan
    planner = PLANNERS[candidate.planner]
    options = planner_options(candidate.planner, case) | dict(candidate.options)
    if num_bytes is not None and planner.takes(case.collective, "size"):
        options["size"] = num_bytes
    return planner(case.topology, case.collective, **options)
