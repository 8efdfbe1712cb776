"""The planner ``auto``: planners in the order of what their plans take at least, until none can win.

For endless data, planners that are exact on many networks are run until one reaches its bound; for a size, all compete
by predicted times, which are computed only where they matter.  An effort limits the estimated work.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import BoundError, CapacityOverflowError, NoAnswerError, TopologyError, UnsupportedError
from ..schedules import COLLECTIVES, Collective, as_bytes
from ..schedules.schedule import rate_of_loads
from ..schedules.timed_run import MANY_EVENTS, Predictor
from ..schedules.transfers import congestion
from ..support.quantities import as_amount
from ..support.validation import shown
from ..topologies import Topology, reached_network
from ..topologies.network.link_costs import as_costs
from .bounds import plan_of_schedule
from .candidates import (
    EXACT_PLAN,
    PROFILES,
    SPANNING,
    SYMMETRIC,
    UNLIKELY_AFTER,
    UNSUITED,
    Candidate,
    Case,
    exact_candidates,
    planner_options,
    timed_candidates,
)
from .plans.plan import Plan
from .plans.registry import PLANNERS, checked_keywords, register_planner
from .trees.problem import shard_weights, tree_problem

AS_FAST = Fraction(1005, 1000)  # times the least time: of plans that take no more, that of the best rate is taken
MOST_LOST = 2  # numbers of trees in turn that were slower, after which more are hardly ever faster
NEARLY_OPTIMAL = Fraction(1, 1000)  # the gap up to which a plan counts as one of the best rate
FAR = Fraction(1, 4)  # the gap above which planners may cost twice the budget


def least_rate(plan: Plan) -> Fraction:
    """Rate in GB/s that the busiest link allows if it never waits, for steps may overlap."""
    schedule, topology = plan.schedule, plan.topology
    units = np.array(schedule.load_units)
    if len(units) == 1:
        return plan.algbw
    loads = schedule.link_loads(topology)
    busiest = max(congestion(loads[units == unit].sum(axis=0), unit, topology) for unit in set(units.tolist()))
    return plan.algbw * rate_of_loads(loads, schedule, topology) / busiest


def _trees_per_root(plan: Plan) -> int:
    return int(plan.options.get("trees_per_root", 0))


@dataclass(eq=False)
class Entrant:
    """A plan, the least time that it may take, and its predicted time once it was run; in µs."""

    plan: Plan
    minimum: Fraction
    predictor: Predictor | None = None  # unless the planner has run it
    time: Fraction | None = None


class Race:
    """Plans for so many bytes."""

    def __init__(self, case: Case, num_bytes: int, near: Fraction) -> None:
        self._case, self._bytes = case, num_bytes
        self._near = near  # times the least time of a candidate: no better plan is sought
        self._costs = as_costs(None, case.topology)
        self._entrants: list[Entrant] = []
        self._tree_rates: dict[int, Fraction] = {}
        self._at_line_rate = reached_network(case.topology, self._costs) == case.topology

    def add(self, plan: Plan) -> None:
        """Add a plan, with its predicted time if it has one."""
        stated, schedule = plan.provenance.get("predicted_us"), plan.schedule
        minimum = self._case.least_time(
            self._bytes, least_rate(plan), int(schedule.messages.max()), schedule.least_hops
        )
        if stated is None:
            self._entrants.append(Entrant(plan, minimum, Predictor(schedule, plan.topology, self._costs)))
        else:
            self._entrants.append(Entrant(plan, minimum, time=Fraction(stated)))

    @property
    def is_empty(self) -> bool:
        """Whether there is no plan yet."""
        return not self._entrants

    @property
    def has_best_rate(self) -> bool:
        """Whether a plan is optimal for endless data, or nearly, at line rate."""
        return self._at_line_rate and any(entrant.plan.scoped_gap <= NEARLY_OPTIMAL for entrant in self._entrants)

    def can_win(self, candidate: Candidate) -> bool:
        """Whether the plan of a candidate may be faster than all others, by more than hardly anything."""
        if self.is_empty:
            return True
        count = candidate.options.get("trees_per_root", 0)
        if self._is_fast(self._case.least_time(self._bytes, self._limit, candidate.messages, candidate.hops)):
            return False
        if not count:
            return True
        rate = self._tree_rates[count] = self._rate_of_trees(count)
        return not self._is_fast(self._case.least_time(self._bytes, rate, candidate.messages))

    def is_unlikely(self, candidate: Candidate) -> bool:
        """Whether fewer trees per root of no less a rate were slower, or two numbers in turn."""
        count = candidate.options.get("trees_per_root", 0)
        if not count or self.is_empty:
            return False
        best = _trees_per_root(self._fastest().plan)
        planned = {_trees_per_root(entrant.plan) for entrant in self._entrants} - {0, best}
        slower = [number for number in planned if number < count]
        if sum(number > best for number in slower) >= MOST_LOST:
            return True
        rates = self._tree_rates
        return any(rates[count] <= rates.get(number, Fraction(0)) < self._limit for number in slower)

    def _rate_of_trees(self, count: int) -> Fraction:
        """Largest rate of so many trees per root in GB/s; of trees that branch at switches no more is known."""
        from ..solvers.flows.bottleneck import fixed_count_scale

        if self._case.branches:
            return self._limit
        case, options = self._case, self._case.options
        shards = shard_weights(case.topology, case.collective, options.get("root"), options.get("weights"))
        problems = [tree_problem(case.topology, phase, shards) for phase in case.collective.phases]
        weight = count * int(problems[0].root_weights.sum()) * case.topology.arrays.unit
        try:
            return weight / sum(
                fixed_count_scale(
                    problem.num_nodes, problem.tails, problem.heads, problem.capacities, problem.root_weights, count
                )
                for problem in problems
            )
        except CapacityOverflowError:
            return self._limit

    @property
    def _limit(self) -> Fraction:
        """Bound of the rate in GB/s."""
        return self._entrants[0].plan.bound.algbw

    def _is_fast(self, bound: Fraction) -> bool:
        """Whether a plan takes hardly longer; those that may are run, until one does."""
        limit = self._near * bound
        if any(entrant.time is not None and entrant.time <= limit for entrant in self._entrants):
            return True
        for entrant in sorted(self._entrants, key=lambda entrant: entrant.minimum):
            if entrant.minimum > limit:
                break
            if self._time(entrant) <= limit:
                return True
        return False

    def _time(self, entrant: Entrant) -> Fraction:
        """Predicted time of a plan."""
        if entrant.time is None:
            assert entrant.predictor
            entrant.time = entrant.predictor.time(self._bytes)
        return entrant.time

    def _fastest(self) -> Entrant:
        """Return the plan with the least time, after all that may have it were run."""
        best = min((entrant for entrant in self._entrants if entrant.time is not None), key=self._time, default=None)
        for entrant in sorted(self._entrants, key=lambda entrant: entrant.minimum):
            if best is None or (
                entrant.minimum * AS_FAST < self._time(best) and self._time(entrant) < self._time(best)
            ):
                best = entrant
        assert best
        return best

    def winner(self) -> tuple[Plan, Mapping[str, Any]]:
        """Return the fastest plan, or one of a better rate that is as fast, and what to note about it."""
        limit = AS_FAST * self._time(self._fastest())
        fast = [entrant for entrant in self._entrants if entrant.time is not None and entrant.time <= limit]
        best = max(fast, key=lambda entrant: (entrant.plan.algbw, -self._time(entrant)))
        # All events of the winner, where they are not too many, so that the time is that of the simulation.
        time = best.predictor.time(self._bytes, MANY_EVENTS) if best.predictor else self._time(best)
        return best.plan, {
            "planned_for": f"{self._bytes} bytes",
            "predicted_us": float(time),
            "plans_compared": len(self._entrants),
        }


REFUSALS = (UnsupportedError, BoundError, CapacityOverflowError, NoAnswerError)
"""Errors of planners that do not suit a network, or for which it is too large."""


@dataclass(frozen=True)
class Effort:
    """How much planning may cost, in estimated CPU seconds."""

    exact: float  # of exact planners
    timed: float  # of planners that compete for a size
    near: Fraction = Fraction(1005, 1000)  # times the least time of a planner's plan: no planner is run to gain less


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
        self._reasons: dict[str, str] = {}  # by candidate; empty if it has a plan

    def has_planned(self, *names: str) -> bool:
        """Whether one of these candidates has a plan."""
        return any(self._reasons.get(name) == "" for name in names)

    def has(self, candidate: Candidate) -> bool:
        """Whether a candidate is noted."""
        return candidate.name in self._reasons

    def add(self, candidate: Candidate, reason: str = "") -> None:
        """Note a candidate that has a plan, or why it has none."""
        self._reasons.setdefault(candidate.name, reason)

    def readmit(self, name: str) -> None:
        """Forget that a candidate cannot win for endless data, as it may for a size."""
        if self._reasons.get(name) == CANNOT_WIN:
            del self._reasons[name]

    def notes(self) -> dict[str, str]:
        """Return what goes into ``provenance``."""
        names: dict[str, list[str]] = {"": []}
        for name, reason in self._reasons.items():
            names.setdefault(reason, []).append(name)
        planned = ", ".join(names.pop(""))
        left_out = "; ".join(f"{reason}: {', '.join(names[reason])}" for reason in names)
        return {"portfolio": planned, **({"left_out": left_out} if left_out else {})}


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

    An effort is "low", "default", "high" or a number of estimated CPU seconds, which do not depend on the machine.
    """
    budget = as_effort(effort)
    problem = {"root": root, "weights": weights, "traffic": traffic}
    choices = {"trees_per_root": trees_per_root, "in_network": in_network, "chunks": chunks, "order": order}
    exact = PLANNERS["multicommodity" if collective.in_pairs else "forestcoll"]
    options = checked_keywords(exact, collective, problem | choices)
    if not collective.in_pairs:
        shard_weights(topology, collective, root, weights)  # refuses what it has not
    case, log = Case(topology, collective, options), Log()
    if size is None:
        best = plans_for_rate(case, budget.exact, log)[0]
        return replace(best, provenance={**best.provenance, **log.notes()})
    return plan_for_size(case, as_bytes(size), budget, log)


def plans_for_rate(case: Case, budget: float, log: Log) -> list[Plan]:
    """Plan with exact planners until one reaches its bound; return all plans, that of the highest rate first.

    Where no plan is near enough to its bound, planners beyond the budget are run after all; those within twice the
    budget also where the best plan is far from it.
    """
    plans: list[Plan] = []
    refusals: dict[str, Exception] = {}
    postponed: list[Candidate] = []
    spent = 0.0
    for candidate in exact_candidates(case):
        unlikely = log.has_planned(*UNLIKELY_AFTER.get(candidate.planner, ()))
        repeated = candidate.planner == "strength" and log.has_planned(SPANNING)
        if repeated or any(plan.scoped_gap == 0 for plan in plans):
            log.add(candidate, CANNOT_WIN)
        elif spent + candidate.cost * (UNSUITED if unlikely else 1) > budget:
            postponed.append(candidate)
        elif plan := _planned(candidate, case, log, refusals):
            plans.append(plan)
            spent += candidate.work
    for candidate in sorted(postponed, key=lambda candidate: candidate.cost):
        is_enough = any(plan.scoped_gap <= PROFILES[plan.planner].enough for plan in plans)
        if is_enough and (candidate.cost > 2 * budget or min(plan.scoped_gap for plan in plans) <= FAR):
            log.add(candidate, BEYOND_EFFORT)
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
            log.add(candidate, BEYOND_EFFORT)
        elif not race.can_win(candidate):
            log.add(candidate, CANNOT_WIN)
        elif race.is_unlikely(candidate) and spent + UNSUITED * candidate.cost > effort.timed:
            log.add(candidate, BEYOND_EFFORT)
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
    plan: Plan | None = None
    try:
        if candidate.planner == SPANNING:
            from .trees.strength import plan_with_switches  # with kernels

            plan = plan_with_switches(case.topology)
        else:
            planner = PLANNERS[candidate.planner]
            options = planner_options(candidate.planner, case) | dict(candidate.options)
            if num_bytes is not None and planner.takes(case.collective, "size"):
                options["size"] = num_bytes
            plan = planner(case.topology, case.collective, **options)
    except REFUSALS as error:
        refusals[candidate.name] = error
    log.add(candidate, REFUSED if plan is None else "")
    return plan
