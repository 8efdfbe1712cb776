"""Plans for a size: the fastest of many planners' for so many bytes, by predicted times."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from ..errors import BoundError, CapacityOverflowError, NoAnswerError, UnsupportedError
from ..schedules import Collective, as_bytes
from ..schedules.bounds.size_bound import hop_latencies
from ..schedules.collective import EVERY_ROOT
from ..schedules.loads import congestion
from ..schedules.schedule import NS_PER_US, rate_of_loads
from ..schedules.timing.predict import Predictor
from ..topologies import Topology, reached_network
from ..topologies.network.link_costs import as_costs
from .catalogue import PLANNERS
from .from_schedule import plan_of_schedule
from .plans.plan import Plan
from .trees.problem import has_few_trees, shard_weights, tree_problem

NEAR = Fraction(101, 100)  # of the bound: no other plan is sought for less
CLOSE = Fraction(105, 100)  # of the bound: no planner that searches among many ranks is tried for less
AS_FAST = Fraction(1005, 1000)  # of the fastest: the plan for large data is kept
HARDLY = 1 / AS_FAST  # of the fastest: a plan that cannot take less is not run
FEW_RANKS = 8  # up to which all quick planners are tried
SEARCHED_RANKS = 16  # up to which searches are quick: those are tried where ranks relay, too
FEW_TREES_RANKS = 32  # up to which so many forests are planned and run in seconds, and those where ranks differ
RING_RANKS = 64  # up to which rings take little longer than what else was tried
KINDS_IN_BOXES = 2  # of ranks by their links: those of irregular networks are of more
MANY_RANKS = 1024  # above which no rings are tried, whose N trees of N ranks take gigabytes

FEW_TREES = (2, 3, 4, 6, 8, 12, 16)
"""Numbers with many divisors: rounding divides the links of boxes and rails evenly among so many."""
MOST_LOST = 2  # after which further trees per root are not expected to be faster
DIRECT = ("trivance", "bfb", "swing")
"""Planners that are tried where ranks relay, so that there is nothing in few steps."""
EXCHANGING = ("recursive-doubling",)
"""Planners of allreduces in one phase, tried after those."""
OTHERS = ("bine", "double-binary-tree", "shortest-paths", "fast")
"""Planners of collectives with one root, and of pairs."""
ON_FEW_RANKS = (
    *("forestcoll", "strength", "allreduce-lp", "multitree", "blink", *DIRECT),
    *("hierarchical-ring", "recursive-halving-doubling", "ring-unwinding", "bruck"),
)
"""Planners that are tried as well where they are quick, for irregular networks."""
BRANCHING = ("nvls", "steiner")
"""Planners whose trees branch at switches."""
ON_FEWEST_RANKS = ("greedy",)
"""Planners that are quick on up to FEW_RANKS only."""


def plan_for_size(
    topology: Topology,
    collective: Collective,
    size: int | str,
    exact: Callable[[Topology], Plan],
    options: Mapping[str, Any],
) -> Plan:
    """Return the fastest plan for so many bytes: in few steps, of the exact planners, or of other planners.

    `options` are those of the user, which every planner has to take; `size` is left to those that have it.
    """
    search = _Search(topology, collective, as_bytes(size), options)
    in_few_steps = search.try_planner("few-steps")
    few = topology.num_ranks <= RING_RANKS
    relay = not in_few_steps or (few and _ranks_relay(topology))
    differ = few and _ranks_differ(topology)
    if not (search.is_near_the_bound() or search.beats_all_trees()):
        found = _try_for_large(search, topology, exact, in_few_steps)
        more = DIRECT if collective in EVERY_ROOT else OTHERS
        exchanging = EXCHANGING if collective.has_two_phases else ()
        search.try_planners("symmetric", *(() if in_few_steps else (*more, *exchanging)))
        near = NEAR if topology.num_ranks <= SEARCHED_RANKS else CLOSE
        if relay or differ:
            search.try_planner("multitree", near=near)
        if not in_few_steps or differ:
            search.try_planners("blink", "strength")
        _try_trees(search, topology, collective, found)
        if (few or not in_few_steps) and not search.beats_all_rings():
            search.try_planner("ring", near=near)
    most = FEW_TREES_RANKS if differ else SEARCHED_RANKS if relay else FEW_RANKS
    if has_few_trees(topology):
        search.try_planner("steiner")
    if topology.num_ranks <= most:
        search.try_planners(*ON_FEW_RANKS)
    if topology.num_ranks <= FEW_RANKS:
        search.try_planners(*ON_FEWEST_RANKS)
    return search.result()


def _try_for_large(
    search: "_Search", topology: Topology, exact: Callable[[Topology], Plan], in_few_steps: bool
) -> Plan | None:
    """Try the plan for endless data, unless another has its rate already and it takes long to plan."""
    many = in_few_steps and topology.num_ranks > FEW_TREES_RANKS
    if many and not search.has_best_rate():
        search.try_planner("symmetric")  # which takes little
    return None if many and search.has_best_rate() else search.add_for_large(exact)


def _try_trees(search: "_Search", topology: Topology, collective: Collective, found: Plan | None) -> None:
    """Try fewer trees than the plan for endless data, if any, and those that branch at switches."""
    # Where each root has one tree already, there are no fewer.
    has_fewest = not found or found.schedule.num_trees == topology.num_ranks * len(collective.phases)
    if not has_fewest:
        search.try_planner("forestcoll", {"trees_per_root": 1})
    if topology.multicast | topology.aggregation:
        search.try_planner("nvls")
    for count in FEW_TREES if not has_fewest and topology.num_ranks <= FEW_TREES_RANKS else ():
        if search.may_gain_by_trees(count):
            search.try_planner("forestcoll", {"trees_per_root": count})


def least_rate(plan: Plan) -> Fraction:
    """Rate in GB/s that the busiest link allows if it never waits, for steps may overlap."""
    schedule, topology = plan.schedule, plan.topology
    units = np.array(schedule.load_units)
    if len(units) == 1:
        return plan.algbw
    loads = schedule.link_loads(topology)
    busiest = max(congestion(loads[units == unit].sum(axis=0), unit, topology) for unit in set(units.tolist()))
    return plan.algbw * rate_of_loads(loads, schedule, topology) / busiest


def _ranks_relay(topology: Topology) -> bool:
    """Whether there is a rank with links to two ranks that have none to each other."""
    ranks, ends = topology.num_ranks, np.array([topology.arrays.tails, topology.arrays.heads])
    linked = np.eye(ranks, dtype=np.int64)
    linked[tuple(ends[:, (ends < ranks).all(axis=0)])] = 1
    return bool(((linked @ linked > 0) & (linked == 0)).any())


def _ranks_differ(topology: Topology) -> bool:
    """Whether ranks are of many kinds by the bandwidths and latencies of their links."""
    kinds = {
        tuple(sorted((link.bandwidth, link.latency) for link in topology.out_links(rank)))
        for rank in topology.compute_nodes
    }
    return len(kinds) > KINDS_IN_BOXES


@dataclass(eq=False)
class _Tried:
    """A plan, the least time that it may take, and its predicted time once it was run; in µs."""

    plan: Plan
    least: Fraction
    time: Fraction | None = None


class _Search:
    """Plans that were tried for a size, and their predicted times.

    Plans are run only when it matters: those with the least times first, and none that cannot be the fastest.
    """

    def __init__(self, topology: Topology, collective: Collective, num_bytes: int, options: Mapping[str, Any]) -> None:
        self._topology, self._collective = topology, collective
        self._bytes, self._options = num_bytes, options
        self._costs = as_costs(None, topology)
        self._hop = self._costs.alpha + hop_latencies(topology, {rank: rank for rank in topology.compute_nodes})[1]
        self._tried: list[_Tried] = []
        self._large: Plan | None = None
        self._tree_rates: dict[int, Fraction] = {}
        self._used = set[tuple[object, ...]]()

    def add(self, plan: Plan) -> None:
        """Add a plan, with its predicted time if it has one."""
        known, schedule = plan.provenance.get("predicted_us"), plan.schedule
        least = self._least_time(least_rate(plan), int(schedule.messages.max()), schedule.least_hops)
        self._tried.append(_Tried(plan, least, None if known is None else Fraction(known)))

    def add_for_large(self, exact: Callable[[Topology], Plan]) -> Plan:
        """Plan for endless data, which is kept if it is as fast as any; also for the bandwidths that data reaches."""
        self._large = exact(self._topology)
        self.add(self._large)
        network = reached_network(self._topology, self._costs)
        if network != self._topology:
            made = exact(network)
            call = self._topology, self._collective, made.schedule
            self.add(plan_of_schedule(*call, planner=made.planner, options=made.options))
        return self._large

    def has_best_rate(self) -> bool:
        """Whether a plan is optimal for endless data, at line rate."""
        at_line_rate = reached_network(self._topology, self._costs) == self._topology
        return at_line_rate and any(tried.plan.gap == 0 for tried in self._tried)

    def try_planner(self, name: str, more: Mapping[str, Any] = MappingProxyType({}), near: Fraction = NEAR) -> bool:
        """Plan with a planner that suits and was not used, if no plan is so near the bound; return whether it was."""
        if (name, *more.items()) in self._used or self.is_near_the_bound(near):
            return False
        if name in BRANCHING and not self._options.get("in_network", True):
            return False
        self._used.add((name, *more.items()))
        planner, given = PLANNERS[name], {**self._options, **more}
        if not planner.takes(self._collective, "in_network"):
            given.pop("in_network", None)  # it lets no switch copy or add
        if not planner.plans(self._collective) or not all(planner.takes(self._collective, each) for each in given):
            return False
        if planner.takes(self._collective, "size"):
            given["size"] = self._bytes
        with suppress(UnsupportedError, BoundError, CapacityOverflowError, NoAnswerError):
            self.add(planner(self._topology, self._collective, **given))
            return True
        return False

    def try_planners(self, *names: str) -> None:
        """Plan with several planners, one after the other."""
        for name in names:
            self.try_planner(name)

    def beats_all_trees(self, per_root: int = 1) -> bool:
        """Whether a plan is hardly slower than trees can be, for which each rank has N - 1 messages to start.

        Trees of N shards, so many per root, have N (N - 1) edges each, so some rank starts N - 1 messages for each, and
        the last goes at least one hop.  Trees that branch at switches have fewer.
        """
        if not self._tried or self._topology.multicast | self._topology.aggregation:
            return False
        messages = per_root * (self._topology.num_ranks - 1) * len(self._collective.phases)
        return self._takes_at_most(NEAR * self._least_time(self._limit, messages))

    def beats_all_rings(self) -> bool:
        """Whether a plan is faster than the N - 1 hops of any ring; counted as such for very many ranks."""
        if self._topology.num_ranks > MANY_RANKS:
            return True
        return self._takes_at_most((self._topology.num_ranks - 1) * len(self._collective.phases) * self._hop)

    def is_near_the_bound(self, near: Fraction = NEAR) -> bool:
        """Whether a plan takes hardly longer than the wire of the slowest cut and a hop, as all schedules do."""
        return bool(self._tried) and self._takes_at_most(near * self._least_time(self._limit, 0))

    def may_gain_by_trees(self, count: int) -> bool:
        """Whether so many trees per root may be faster than what was tried: many trees, and trees of such a rate.

        Otherwise they may where the fastest plan wastes a hop's time.
        """
        if self.is_near_the_bound() or self.beats_all_trees(count):
            return False
        fastest = self._fastest()
        wasted = fastest.plan.gap * self._bytes / (fastest.plan.algbw * NS_PER_US)
        if fastest.plan is not self._large and wasted <= self._hop:
            return False
        best, rate = fastest.plan.options.get("trees_per_root", 0), self._rate_of_trees(count)
        lost = {tried: known for tried, known in self._tree_rates.items() if tried != best}
        if sum(tried > int(best) for tried in lost) == MOST_LOST or any(
            rate <= at < self._limit for at in lost.values()
        ):
            return False
        if self._least_time(rate, 0) >= HARDLY * self._time(fastest):
            return False
        self._tree_rates[count] = rate
        return True

    def _rate_of_trees(self, count: int) -> Fraction:
        """Largest rate of so many trees per root in GB/s; of trees that branch at switches no more is known."""
        from ..solvers.trees.bottleneck import fixed_count_scale

        if self._topology.multicast | self._topology.aggregation:
            return self._limit
        shards = shard_weights(
            self._topology, self._collective, self._options.get("root"), self._options.get("weights")
        )
        problems = [tree_problem(self._topology, phase, shards) for phase in self._collective.phases]
        weight = count * int(problems[0].root_weights.sum()) * self._topology.arrays.unit
        with suppress(CapacityOverflowError):
            return weight / sum(
                fixed_count_scale(each.num_nodes, each.tails, each.heads, each.capacities, each.root_weights, count)
                for each in problems
            )
        return self._limit

    @property
    def _limit(self) -> Fraction:
        """Bound of the rate in GB/s."""
        return self._tried[0].plan.bound.algbw

    def _takes_at_most(self, limit: Fraction) -> bool:
        """Whether a plan takes at most so long; those that may are run, until one does."""
        if any(tried.time is not None and tried.time <= limit for tried in self._tried):
            return True
        for tried in sorted(self._tried, key=lambda tried: tried.least):
            if tried.least > limit:
                break
            if self._time(tried) <= limit:
                return True
        return False

    def _time(self, tried: _Tried) -> Fraction:
        """Predicted time of a plan."""
        if tried.time is None:
            plan = tried.plan
            tried.time = Fraction(Predictor(plan.schedule, plan.topology, self._costs).time(self._bytes))
        return tried.time

    def _fastest(self) -> _Tried:
        """Return the plan with the least time, after all that may have it were run."""
        best = min((tried for tried in self._tried if tried.time is not None), key=self._time, default=None)
        for tried in sorted(self._tried, key=lambda tried: tried.least):
            if best is None or (tried.least < HARDLY * self._time(best) and self._time(tried) < self._time(best)):
                best = tried
        assert best
        return best

    def _least_time(self, rate: Fraction, messages: int, hops: int = 1) -> Fraction:
        """Time in µs of so many messages of one rank and a rate in GB/s at least and one hop, or of a chain of hops."""
        sends = max(messages * self._costs.send, self._bytes / (rate * NS_PER_US))
        return self._costs.launch + max(self._hop + sends, hops * (self._hop + self._costs.send))

    def result(self) -> Plan:
        """Return the fastest."""
        fastest = self._fastest()
        for tried in self._tried:
            if tried.plan is self._large and tried.time is not None and tried.time <= AS_FAST * self._time(fastest):
                fastest = tried
        notes: dict[str, float | str] = {
            "planned_for": f"{self._bytes} bytes",
            "predicted_us": float(self._time(fastest)),
            "plans_compared": len(self._tried),
        }
        return replace(fastest.plan, provenance={**fastest.plan.provenance, **notes})
