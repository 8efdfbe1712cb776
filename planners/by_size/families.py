"""Families of schedules in few steps, such as rails then box, and the planner that picks one for a size.

*Rails* join ranks of equal place in different boxes, or groups of any kind; every cut between levels gives boxes.  Each
family is an allgather; a reduce-scatter is the reverse of one on the reversed network, and an allreduce both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property, partial
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...formulations.allreduce_cuts import opposite_links
from ...schedules import Allreduce, Forest, StepAllreduce, StepExchange, StepSchedule, as_bytes
from ...schedules.collective import EVERY_ROOT, AnyCollective, Direction, as_collective
from ...schedules.timed_run import MANY_EVENTS, Predictor
from ...support.arrays import FloatArray, IntArray
from ...support.validation import shown
from ...topologies import LINKS_ONLY, RuntimeCosts, Topology
from ...topologies.network.link_costs import as_costs
from ...topologies.symmetry.rank_groups import rank_groups
from ..bounds import bound_of_schedule
from ..plans.plan import Plan, proved_plan
from ..plans.registry import register_planner
from ..plans.stages import Trace
from ..trees.problem import check_request, tree_problem
from .digits import Digits, compositions, joined, with_radix
from .exchanges import Exchange, Pieces, exchanges, in_all_orders, in_turn, in_waves, overlapping, schedule_of, trees
from .routing import Estimator, LinkTimes, MoveLoads, Routing

MOST_COMPOSITIONS = 16
"""Above so many ways to join levels, only those with two digits, and those of all levels and of none, are looked at."""
MOST_DIRECT = 512
"""Ranks that may each send to every other: beyond, starting so many messages takes longer than a second step."""
RADICES = (16, 8, 4, 2)
"""Of steps inside a level, from few steps of many sends to many of one."""
MUCH = 2**50
"""Bytes for which no latency counts."""
CLOSE_ESTIMATES = 5 / 4  # by the least one: families whose schedules are built, and run
AS_FAST = Fraction(1005, 1000)  # of which the one in the fewest chunks is taken: runtimes limit these
NEAR_ESTIMATES = 1 / 100
MOST_TRIES = 4  # after which no faster one is expected
MAX_RANKS = 2048

Part = StepSchedule | Forest
AnyFamilySchedule = Part | StepAllreduce | Allreduce | StepExchange
Shards = Sequence[tuple[Digits, FloatArray | IntArray]]
"""For each order of digits the shards that each move carries in each step, (steps, moves)."""


class Estimate(NamedTuple):
    """Times of a family in µs."""

    time: float
    minimum: float  # what one link, one rank or one message takes alone


@dataclass(frozen=True, eq=False)
class Family:
    """A schedule of a family on one network, built when it is asked for; no two have the same name."""

    name: str
    _network: _Network
    _phase_steps: int
    _build: Callable[[Routing], Part | StepExchange]
    _shards: Callable[[Routing], Shards]
    _pipelined: bool = False
    _one_phase: bool = False  # whether it is an allreduce by itself

    @property
    def num_steps(self) -> int:
        """Steps, or hops of the longest path in trees; those of both phases of an allreduce."""
        return self._phase_steps * (1 if self._one_phase else len(self._network.phases))

    @property
    def _built_phases(self) -> tuple[Direction, ...]:
        """Phases that parts are built for; on symmetric links one part is the reverse of the other."""
        phases = self._network.phases
        return phases[-1:] if self._one_phase else phases[: 1 if self._network.symmetric else None]

    @cached_property
    def schedule(self) -> AnyFamilySchedule:
        """The schedule, not verified: a `StepSchedule`, or a `Forest` of trees; of an allreduce, a pair of them."""
        first, *seconds = (self._build(self._network.routing[phase]) for phase in self._built_phases)
        if self._one_phase or len(self._network.phases) == 1:
            return first
        assert not isinstance(first, StepExchange)
        second = seconds[0] if seconds else replace(first, direction=self._network.phases[1])
        if isinstance(first, Forest) and isinstance(second, Forest):
            return Allreduce(first, second)
        assert isinstance(first, StepSchedule)
        assert isinstance(second, StepSchedule)
        return StepAllreduce(first, second)

    def estimate(self, num_bytes: int, costs: RuntimeCosts) -> Estimate:
        """Estimate the time in µs without building the schedule, as about `schedule_time` says, without additions."""
        network, shard = self._network, num_bytes / self._network.topology.num_ranks
        total, minimum = 0.0, 0.0
        for phase in self._built_phases:
            routing = network.routing[phase]
            orders = self._shards(routing)
            moves = MoveLoads.joined([network.moves(digits, routing) for digits, _ in orders])
            estimator = Estimator(moves, network.times(costs))
            shards = np.concatenate([counts.astype(np.float64) for _, counts in orders], axis=-1)
            minimum += estimator.minimum(shards, shard)
            if self._pipelined:
                total += estimator.in_trees(shards, shard)
            else:
                total += estimator.in_steps(shards, shard, in_turn=self._one_phase)
        times = 1 if self._one_phase else len(network.phases) / len(self._built_phases)
        return Estimate(float(costs.launch) + total * times, float(costs.launch) + minimum * times)


class _Network:
    """A network, in one or both directions."""

    def __init__(self, topology: Topology, phases: tuple[Direction, ...]) -> None:
        self.topology, self.phases, self.groups = topology, phases, rank_groups(topology)
        self.symmetric = opposite_links(topology) is not None
        self.routing = {phase: Routing(tree_problem(topology, phase, ()), self.groups) for phase in phases}
        self.first = self.routing[phases[0]]

    def has_paths(self, digits: Digits) -> bool:
        """Whether all ranks reach those that they send to, in each direction, past no rank."""
        return all(routing.reaches[digits.partners].all() for routing in self.routing.values())

    def is_grid(self) -> bool:
        """Whether neighbors on all of several levels are equally near."""
        places, lengths = self.groups.places, self.first.lengths
        near = {int(lengths[places.flat[0], np.moveaxis(places, level, 0)[1].flat[0]]) for level in range(places.ndim)}
        return places.ndim > 1 and len(near) == 1

    @cache  # noqa: B019 - networks live as long as their families
    def moves(self, digits: Digits, routing: Routing) -> MoveLoads:
        """What the moves of digits put on links."""
        return MoveLoads.of(digits, routing)

    @cache  # noqa: B019
    def pieces(self, digits: Digits, routing: Routing) -> Pieces:
        """Hops along digits by kind."""
        return Pieces(digits, routing, self.moves(digits, routing))

    @cache  # noqa: B019
    def times(self, costs: RuntimeCosts) -> LinkTimes:
        """Times of the links with the costs of a runtime."""
        return LinkTimes(self.topology, costs)

    def may_gain_by_steps(self, digits: Digits, num_bytes: int, costs: RuntimeCosts) -> bool:
        """Whether an exchange along digits keeps links busy for longer than one more step takes."""
        estimator = Estimator(self.moves(digits, self.first), self.times(costs))
        return estimator.minimum(digits.shards_in_turn(), num_bytes / self.topology.num_ranks) > 2 * estimator.nearest

    def families(self, num_bytes: int, costs: RuntimeCosts) -> Iterator[Family]:
        """Levels joined in all ways, and each by itself in steps of smaller radices too."""
        ways = [digits for digits in compositions(self.groups, MOST_COMPOSITIONS) if self.has_paths(digits)]
        finest = joined(self.groups, range(1, len(self.groups.sizes)))
        for digits in ways:
            has_levels = len(digits.levels) > 1
            if not has_levels and digits.num_ranks > MOST_DIRECT:
                continue
            text = "x".join(str(level.size) for level in digits.levels)
            suffix = f"-{text}" if has_levels and len(self.groups.sizes) > 2 else ""
            yield from self._exchanges(digits, "rails-then-box" if has_levels else "direct", suffix)
            if has_levels:
                in_trees = _constant(digits, digits.shards_in_turn())
                yield Family(
                    f"rail-trees{suffix}", self, digits.most_hops, partial(trees, digits), in_trees, _pipelined=True
                )
                if self.may_gain_by_steps(digits, num_bytes, costs):
                    yield from self._in_pieces(digits, f"rail-pieces{suffix}")
                yield from self._in_waves(digits, f"rails-beside-box{suffix}")
        if ways and len(self.phases) > 1:
            yield from self._one_phase(ways)
        if not self.has_paths(finest):
            return
        if self.is_grid():
            orders = _orders(finest)
            parts = [(order, order.shards_in_turn() / len(orders)) for order in orders]
            build = partial(in_all_orders, orders)
            yield Family("rows-and-columns", self, finest.num_steps, build, lambda _: parts)
        known_radices = {_radices(finest)}
        for radix in RADICES:
            divided = with_radix(finest, radix)
            if (radices := _radices(divided)) not in known_radices:
                known_radices.add(radices)
                suffix = f"-radix-{'-'.join(map(str, radices))}"
                yield from self._exchanges(divided, "rails-then-box" if len(divided.levels) > 1 else "bruck", suffix)

    def _exchanges(self, digits: Digits, name: str, suffix: str) -> Iterator[Family]:
        """Exchange along one digit after the other; of several levels, also without waiting for all of one."""
        shards = _constant(digits, digits.shards_in_turn())
        yield Family(name + suffix, self, digits.num_steps, partial(in_turn, digits), shards)
        if len(digits.levels) > 1:
            at_once = _constant(digits, digits.shards_overlapping())
            overlapping_name = name.replace("-then-", "-beside-") + suffix
            yield Family(overlapping_name, self, digits.most_hops, partial(overlapping, digits), at_once)

    def _in_pieces(self, digits: Digits, name: str) -> Iterator[Family]:
        """Uneven pieces, in each number of steps that gains something."""

        def build(routing: Routing, steps: int) -> StepSchedule:
            return self.pieces(digits, routing).schedule(steps)

        def shards(routing: Routing, steps: int) -> Shards:
            pieces = self.pieces(digits, routing)
            return [(digits, pieces.shares(steps).T @ pieces.shards)]

        for steps in self.pieces(digits, self.first).useful_steps():
            yield Family(f"{name}-in-{steps}", self, steps, partial(build, steps=steps), partial(shards, steps=steps))

    def _in_waves(self, digits: Digits, name: str) -> Iterator[Family]:
        """Boxes of three and more pass on what came early beside the rest, estimated as if it all went at once."""
        if len(digits.levels) == 2 and digits.levels[0].size > 2:
            shards = _constant(digits, digits.shards_overlapping())
            for early in (digits.levels[0].size // 2, digits.levels[0].size - 1):
                build = partial(in_waves, digits, self.groups, early)
                yield Family(f"{name}-in-waves-{early}", self, digits.most_hops + 1, build, shards)

    def _one_phase(self, ways: Sequence[Digits]) -> Iterator[Family]:
        """Exchanges of whole vectors, also in several orders of the digits at once, and of shards of inner groups."""
        for digits in exchanges(self.groups, ways, RADICES, MOST_DIRECT):
            if not self.has_paths(digits):
                continue
            parallel = [[Exchange(digits, scattered)] for scattered in range(len(digits.levels))]
            names = [parts[0].name for parts in parallel]
            if len(digits.levels) > 1:
                parallel.append([Exchange(order, 0) for order in _orders(digits)])
                names.append(f"{names[0]}-in-all-orders")
            for name, parts in zip(names, parallel, strict=True):
                shards = [(part.digits, part.vectors * (part.digits.num_ranks / len(parts))) for part in parts]
                build = partial(schedule_of, parts=parts)
                yield Family(name, self, len(parts[0].steps), build, partial(_fixed_shards, shards), _one_phase=True)


def _fixed_shards(shards: Shards, _: Routing) -> Shards:
    """Return the shards that moves carry on any network."""
    return shards


def _constant(digits: Digits, shards: FloatArray | IntArray) -> Callable[[Routing], Shards]:
    return partial(_fixed_shards, [(digits, shards)])


def _orders(digits: Digits) -> list[Digits]:
    """Digits in each order that begins with another one."""
    return [Digits(digits.levels[turn:] + digits.levels[:turn]) for turn in range(len(digits.levels))]


def _radices(digits: Digits) -> tuple[int, ...]:
    return tuple(level.radix for level in digits.levels)


def families(
    topology: Topology, collective: AnyCollective, num_bytes: int = MUCH, costs: RuntimeCosts = LINKS_ONLY
) -> Iterator[Family]:
    """Yield the families of schedules in few steps that a network has, those in the fewest steps first.

    There are none where ranks reach each other past ranks only, as on a torus whose ranks relay.  Below a size, with
    the costs of the software, families are left out that take one more step to save less than its latency.

    Examples
    --------
    >>> from collopt.topologies import dgx_h100
    >>> [family.name for family in families(dgx_h100(boxes=4), "allgather")][:4]
    ['direct', 'rails-then-box', 'rails-beside-box', 'rail-trees']
    """
    planned = as_collective(collective, EVERY_ROOT, "schedules in few steps do not implement")
    yield from _Network(topology, planned.phases).families(num_bytes, costs)


@register_planner("few-steps", EVERY_ROOT)
def plan_few_steps(
    topology: Topology, collective: AnyCollective, *, family: str | None = None, size: int | str | None = None
) -> Plan:
    """Plan sends from every rank to every other, along rails and boxes, or trees on rails, for small data."""
    check_request(topology, collective)
    planned = as_collective(collective, EVERY_ROOT, "schedules in few steps do not implement")
    num_bytes = None if size is None else as_bytes(size)
    if topology.num_ranks > MAX_RANKS:
        raise UnsupportedError(f"{topology} has {topology.num_ranks} ranks; few-steps plans for up to {MAX_RANKS}")
    trace = Trace()
    with trace.stage("families"):
        request = (MUCH, LINKS_ONLY) if num_bytes is None or family else (num_bytes, as_costs(None, topology))
        candidates = _named(list(families(topology, planned, *request)), family, topology)
        if num_bytes is None:
            near = [family for _, family in _close(candidates, *request)]
            best = near[0] if len(near) == 1 else min(near, key=lambda family: family.schedule.inverse_rate(topology))
        else:
            best, time = _fastest(topology, candidates, num_bytes)
            trace.note("predicted_us", float(time))
    trace.note("family", best.name)
    options = {name: value for name, value in (("family", family), ("size", num_bytes)) if value is not None}
    find = partial(bound_of_schedule, topology, planned, best.schedule)
    return proved_plan(topology, planned, best.schedule, "few-steps", options, trace, find)


def _named(candidates: list[Family], name: str | None, topology: Topology) -> list[Family]:
    """Families with this name, or all."""
    if not candidates:
        raise UnsupportedError(
            f"{topology} has no schedule in few steps, as its ranks reach each other past ranks only; use 'bfb'"
        )
    matches = [family for family in candidates if name in (None, family.name)]
    if not matches:
        names = ", ".join(family.name for family in candidates)
        raise UnsupportedError(f"{topology} has no family {shown(name)}; expected one of {names}")
    return matches


def _close(candidates: list[Family], num_bytes: int, costs: RuntimeCosts) -> list[tuple[Estimate, Family]]:
    """Families whose estimates are close to the least one."""
    estimates = [family.estimate(num_bytes, costs) for family in candidates]
    limit = min(estimate.time for estimate in estimates) * CLOSE_ESTIMATES
    return [pair for pair in zip(estimates, candidates, strict=True) if pair[0].time <= limit]


def _fastest(topology: Topology, candidates: list[Family], num_bytes: int) -> tuple[Family, Fraction]:
    """Choose by predicted time of those with the least estimates; of equally fast ones, by chunks.

    Estimates that differ by less count as equal, so that families in fewer steps are run before.  Others are run only
    if what their busiest link takes alone is less than the best time so far, until some in turn were no faster.
    """
    costs = as_costs(None, topology)
    near = _close(candidates, num_bytes, costs)
    shortest = min(estimate.time for estimate, _ in near)
    times: dict[Family, Fraction] = {}
    predictors: dict[Family, Predictor] = {}
    tries = MOST_TRIES
    for estimate, family in sorted(near, key=lambda pair: int(pair[0].time / shortest / NEAR_ESTIMATES)):
        best = min(times.values(), default=None)
        if tries and (best is None or estimate.minimum * AS_FAST < best):
            predictors[family] = Predictor(family.schedule, topology, costs)
            times[family] = predictors[family].time(num_bytes)
            tries = MOST_TRIES if best is None or times[family] < best else tries - 1
    fast = [family for family, time in times.items() if time <= min(times.values()) * AS_FAST]
    best_family = min(fast, key=lambda family: max(family.schedule.load_units))
    return best_family, predictors[best_family].time(num_bytes, MANY_EVENTS)
