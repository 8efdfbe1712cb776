"""Plans of a portfolio that compete for a size, and their predicted times.

Plans are run only when it matters: those with the least times first, and none that cannot be the fastest.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ...errors import CapacityOverflowError
from ...schedules import TreeSchedule
from ...schedules.loads import congestion
from ...schedules.schedule import rate_of_loads
from ...schedules.timing.run import Predictor
from ...topologies import reached_network
from ...topologies.network.link_costs import as_costs
from ..plans.plan import Plan
from ..trees.problem import shard_weights, tree_problem
from .candidates import Candidate
from .case import Case

AS_FAST = Fraction(1005, 1000)  # times the least time: of plans that take no more, that of the best rate is taken
MOST_LOST = 2  # numbers of trees in turn that were slower, after which more are hardly ever faster
NEARLY_OPTIMAL = Fraction(1, 1000)  # the gap up to which a plan counts as one of the best rate


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
        self._entrants.append(Entrant(plan, minimum, None if stated is None else Fraction(stated)))

    @property
    def is_empty(self) -> bool:
        """Whether there is no plan yet."""
        return not self._entrants

    @property
    def has_best_rate(self) -> bool:
        """Whether a plan is optimal for endless data, or nearly, at line rate."""
        return self._at_line_rate and any(entrant.plan.gap <= NEARLY_OPTIMAL for entrant in self._entrants)

    @property
    def num_plans(self) -> int:
        """Number of plans."""
        return len(self._entrants)

    def can_win(self, candidate: Candidate) -> bool:
        """Whether the plan of a candidate may be faster than all others, by more than hardly anything."""
        if self.is_empty:
            return True
        count = candidate.options.get("trees_per_root", 0)
        if count and any(self._has_best_trees(entrant.plan, count) for entrant in self._entrants):
            return False
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

    def _has_best_trees(self, plan: Plan, count: int) -> bool:
        """Whether a plan has the best rate already with so many trees per root, or fewer."""
        if plan.planner != "forestcoll" or plan.options or not isinstance(plan.schedule, TreeSchedule):
            return False
        return plan.schedule.forests[0].trees_per_root <= count

    def _rate_of_trees(self, count: int) -> Fraction:
        """Largest rate of so many trees per root in GB/s; of trees that branch at switches no more is known."""
        from ...solvers.flows.bottleneck import fixed_count_scale

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
            plan = entrant.plan
            entrant.time = Fraction(Predictor(plan.schedule, plan.topology, self._costs).time(self._bytes))
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
        return best.plan, {
            "planned_for": f"{self._bytes} bytes",
            "predicted_us": float(self._time(best)),
            "plans_compared": len(self._entrants),
        }
