"""Families of schedules in few steps, such as rails then box, and the planner that picks one for a size.

*Rails* join ranks of equal place in different boxes, or groups of any kind; on networks of several levels every cut
between levels gives boxes, and so families.  Each family is an allgather; a reduce-scatter is the reverse of one on the
reversed network, and an allreduce both.
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
from ...schedules.timing.run import Predictor
from ...support.arrays import FloatArray, IntArray
from ...support.validation import shown
from ...topologies import LINKS_ONLY, RuntimeCosts, Topology
from ...topologies.network.link_costs import as_costs
from ...topologies.symmetry.rank_groups import RankGroups, rank_groups
from ..bounds import bound_of_schedule
from ..plans.plan import Plan, proved_plan
from ..plans.registry import register_planner
from ..plans.stages import Trace
from ..trees.problem import check_request, tree_problem
from .digits import Digits, compositions, joined, with_radix
from .exchanges import (
    Exchange,
    Routing,
    exchanges,
    in_all_orders,
    in_turn,
    in_waves,
    overlapping,
    schedule_of,
    trees,
)
from .move_loads import Estimator, LinkTimes, MoveLoads
from .pieces import Pieces

MOST_COMPOSITIONS = 16
"""Above so many ways to join levels, only those with two digits, and those of all levels and of none, are looked at."""
MOST_DIRECT = 512
"""Ranks that may each send to every other: beyond, starting so many messages takes longer than a second step."""
RADICES = (16, 8, 4, 2)
"""Of steps inside a level, from few steps of many sends to many of one."""
MUCH = 2**50
"""Bytes for which no latency counts."""

Part = StepSchedule | Forest
AnyFamilySchedule = Part | StepAllreduce | Allreduce | StepExchange
CLOSE_ESTIMATES = 5 / 4  # by the least one: families whose schedules are built, and run
AS_FAST = Fraction(1005, 1000)  # of which the one in the fewest chunks is taken: runtimes limit these
NEAR_ESTIMATES = 1 / 100
MOST_TRIES = 4  # after which no faster one is expected
MAX_RANKS = 2048


class Choice(NamedTuple):
    """A family in one phase."""

    name: str
    num_steps: int
    build: Callable[[Routing], Part | StepExchange]
    shards: Callable[[Routing], Sequence[tuple[Digits, FloatArray | IntArray]]]
    """For each order of digits the shards that each move carries in each step, (steps, moves)."""
    pipelined: bool = False
    one_phase: bool = False
    """Whether it is an allreduce by itself."""


class Estimate(NamedTuple):
    """Times of a family in µs."""

    time: float
    minimum: float  # what one link, one rank or one message takes alone


@dataclass(frozen=True, eq=False)
class Family:
    """A schedule of a family on one network, built when it is asked for.

    Attributes
    ----------
    name : str
        Such as ``"rails-then-box"``; no two on a network have the same.
    num_steps : int
        Steps of an allgather or reduce-scatter, or hops of the longest path in trees; twice as many of an allreduce.
    """

    name: str
    num_steps: int
    _network: _Network
    _choice: Choice

    @cached_property
    def schedule(self) -> AnyFamilySchedule:
        """The schedule, not verified: a `StepSchedule`, or a `Forest` of trees; of an allreduce, a pair of them."""
        return self._network.schedule(self._choice)

    def estimate(self, num_bytes: int, costs: RuntimeCosts) -> Estimate:
        """Estimate the time in µs, to compare families without building their schedules.

        About what `collopt.schedules.schedule_time` says of the schedule; additions are not counted.
        """
        time, minimum = self._network.estimate(self._choice, num_bytes, costs)
        return Estimate(float(costs.launch) + time, float(costs.launch) + minimum)


def families(
    topology: Topology, collective: AnyCollective, num_bytes: int = MUCH, costs: RuntimeCosts = LINKS_ONLY
) -> Iterator[Family]:
    """Yield the families of schedules in few steps that a network has, those in the fewest steps first.

    A family is left out where it needs ranks to reach each other without passing ranks and they do not: on a torus
    whose ranks relay, that is all of them.

    Parameters
    ----------
    topology : Topology
        Every rank must reach every other.
    collective : str or Collective
        ``"allgather"``, ``"reduce_scatter"`` or ``"allreduce"``.
    num_bytes : int
        Size below which families are left out that take one more step to save less than its latency.
    costs : RuntimeCosts
        Costs of the software for that latency.

    Examples
    --------
    >>> from collopt.topologies import dgx_h100
    >>> [family.name for family in families(dgx_h100(boxes=4), "allgather")][:4]
    ['direct', 'rails-then-box', 'rails-beside-box', 'rail-trees']
    """
    planned = as_collective(collective, EVERY_ROOT, "schedules in few steps do not implement")
    groups = rank_groups(topology)
    network = _Network(topology, groups, planned.phases)
    for choice in _choices(network, num_bytes, costs):
        phases = 1 if choice.one_phase else len(planned.phases)
        yield Family(choice.name, choice.num_steps * phases, network, choice)


class _Network:
    """A network, in one or both directions."""

    def __init__(self, topology: Topology, groups: RankGroups, phases: tuple[Direction, ...]) -> None:
        self.topology, self.groups, self.phases = topology, groups, phases
        self.symmetric = opposite_links(topology) is not None
        self.routing = {phase: Routing(tree_problem(topology, phase, ()), groups) for phase in phases}

    def has_paths(self, digits: Digits) -> bool:
        """Whether all ranks reach those that they send to, in each direction, past no rank."""
        return all(routing.reaches[digits.partners].all() for routing in self.routing.values())

    def is_grid(self) -> bool:
        """Whether neighbors on all of several levels are equally near."""
        places = self.groups.places
        lengths = next(iter(self.routing.values())).lengths
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

    def may_gain_by_steps(self, digits: Digits, num_bytes: int, costs: RuntimeCosts) -> bool:
        """Whether an exchange along digits keeps links busy for longer than one more step takes."""
        estimator = Estimator(self.moves(digits, self.first), self.times(costs))
        return estimator.minimum(digits.shards_in_turn(), num_bytes / self.topology.num_ranks) > 2 * estimator.nearest

    @property
    def first(self) -> Routing:
        """Of the first phase."""
        return self.routing[self.phases[0]]

    @cache  # noqa: B019
    def times(self, costs: RuntimeCosts) -> LinkTimes:
        """Times of the links with the costs of a runtime."""
        return LinkTimes(self.topology, costs)

    def estimate(self, choice: Choice, num_bytes: int, costs: RuntimeCosts) -> tuple[float, float]:
        """Estimate the time of a family in µs, and what it takes at least."""
        total, minimum, shard = 0.0, 0.0, num_bytes / self.topology.num_ranks
        phases = self._built_phases(choice)
        for phase in phases:
            routing = self.routing[phase]
            orders = choice.shards(routing)
            moves = MoveLoads.joined([self.moves(digits, routing) for digits, _ in orders])
            estimator = Estimator(moves, self.times(costs))
            shards = np.concatenate([counts.astype(np.float64) for _, counts in orders], axis=-1)
            minimum += estimator.minimum(shards, shard)
            if choice.pipelined:
                total += estimator.in_trees(shards, shard)
            else:
                total += estimator.in_steps(shards, shard, in_turn=choice.one_phase)
        times = 1 if choice.one_phase else len(self.phases) / len(phases)
        return total * times, minimum * times

    def _built_phases(self, choice: Choice) -> tuple[Direction, ...]:
        """Phases that parts are built for; on symmetric links one part is the reverse of the other."""
        return self.phases[-1:] if choice.one_phase else self.phases[: 1 if self.symmetric else None]

    def schedule(self, choice: Choice) -> AnyFamilySchedule:
        """Build a part for each phase."""
        parts = [choice.build(self.routing[phase]) for phase in self._built_phases(choice)]
        if choice.one_phase or len(self.phases) == 1:
            return parts[0]
        first = parts[0]
        assert not isinstance(first, StepExchange)
        second = replace(first, direction=self.phases[1]) if self.symmetric else parts[1]
        if isinstance(first, Forest) and isinstance(second, Forest):
            return Allreduce(first, second)
        assert isinstance(first, StepSchedule)
        assert isinstance(second, StepSchedule)
        return StepAllreduce(first, second)


def _choices(network: _Network, num_bytes: int, costs: RuntimeCosts) -> Iterator[Choice]:
    """Levels joined in all ways, and each by itself in steps of smaller radices too."""
    ways = [digits for digits in compositions(network.groups, MOST_COMPOSITIONS) if network.has_paths(digits)]
    finest = joined(network.groups, range(1, len(network.groups.sizes)))
    for digits in ways:
        has_levels = len(digits.levels) > 1
        if not has_levels and digits.num_ranks > MOST_DIRECT:
            continue
        suffix = f"-{digits.text}" if has_levels and len(network.groups.sizes) > 2 else ""
        yield from _exchanges(digits, "rails-then-box" if has_levels else "direct", suffix)
        if has_levels:
            yield _trees(digits, f"rail-trees{suffix}")
            if network.may_gain_by_steps(digits, num_bytes, costs):
                yield from _in_pieces(network, digits, f"rail-pieces{suffix}")
            yield from _in_waves(network, digits, f"rails-beside-box{suffix}")
    if ways and len(network.phases) > 1:
        yield from _one_phase(network, ways)
    if not network.has_paths(finest):
        return
    if network.is_grid():
        yield _in_all_orders(finest)
    radices = {finest.radices}
    for radix in RADICES:
        divided = with_radix(finest, radix)
        if divided.radices not in radices:
            radices.add(divided.radices)
            suffix = f"-radix-{'-'.join(map(str, divided.radices))}"
            yield from _exchanges(divided, "rails-then-box" if len(divided.levels) > 1 else "bruck", suffix)


def _exchanges(digits: Digits, name: str, suffix: str) -> Iterator[Choice]:
    """Exchange along one digit after the other; of several levels, also without waiting for all of one."""
    shards = [(digits, digits.shards_in_turn())]
    yield Choice(name + suffix, digits.num_steps, partial(in_turn, digits), lambda _: shards)
    if len(digits.levels) > 1:
        at_once = [(digits, digits.shards_overlapping())]
        overlapping_name = name.replace("-then-", "-beside-") + suffix
        yield Choice(overlapping_name, digits.most_hops, partial(overlapping, digits), lambda _: at_once)


def _trees(digits: Digits, name: str) -> Choice:
    """One tree per root."""
    shards = [(digits, digits.shards_in_turn())]
    return Choice(name, digits.most_hops, partial(trees, digits), lambda _: shards, pipelined=True)


def _in_pieces(network: _Network, digits: Digits, name: str) -> Iterator[Choice]:
    """Uneven pieces, in each number of steps that gains something."""

    def build(routing: Routing, steps: int) -> StepSchedule:
        return network.pieces(digits, routing).schedule(steps)

    def shards(routing: Routing, steps: int) -> list[tuple[Digits, FloatArray]]:
        pieces = network.pieces(digits, routing)
        return [(digits, pieces.shares(steps).T @ pieces.shards)]

    for steps in network.pieces(digits, network.first).useful_steps():
        yield Choice(f"{name}-in-{steps}", steps, partial(build, steps=steps), partial(shards, steps=steps))


def _in_waves(network: _Network, digits: Digits, name: str) -> Iterator[Choice]:
    """Boxes of three and more pass on what came early beside the rest, estimated as if it all went at once."""
    if len(digits.levels) == 2 and digits.levels[0].size > 2:
        shards = [(digits, digits.shards_overlapping())]
        for early in (digits.levels[0].size // 2, digits.levels[0].size - 1):
            build = partial(in_waves, digits, network.groups, early)
            yield Choice(f"{name}-in-waves-{early}", digits.most_hops + 1, build, lambda _: shards)


def _in_all_orders(digits: Digits) -> Choice:
    """An equal part of each shard in each order of the digits that begins with another one."""
    orders = _orders(digits)
    shards = [(order, order.shards_in_turn() / len(orders)) for order in orders]
    return Choice("rows-and-columns", digits.num_steps, partial(in_all_orders, orders), lambda _: shards)


def _one_phase(network: _Network, ways: Sequence[Digits]) -> Iterator[Choice]:
    """Exchanges of whole vectors, also in several orders of the digits at once, and of shards of inner groups."""
    for digits in exchanges(network.groups, ways, RADICES, MOST_DIRECT):
        if not network.has_paths(digits):
            continue
        for scattered in range(len(digits.levels)):
            exchange = Exchange(digits, scattered)
            yield _exchange(exchange.name, [exchange])
        if len(digits.levels) > 1:
            orders = [Exchange(order, 0) for order in _orders(digits)]
            yield _exchange(f"{Exchange(digits, 0).name}-in-all-orders", orders)


def _exchange(name: str, parts: Sequence[Exchange]) -> Choice:
    """Exchange equal parts of the vector at the same time."""
    shards = [(part.digits, part.vectors * (part.digits.num_ranks / len(parts))) for part in parts]
    build = partial(schedule_of, parts=parts)
    return Choice(name, len(parts[0].steps), build, lambda _: shards, one_phase=True)


def _orders(digits: Digits) -> list[Digits]:
    """Digits in each order that begins with another one."""
    return [Digits(digits.levels[turn:] + digits.levels[:turn]) for turn in range(len(digits.levels))]


@register_planner("few-steps", EVERY_ROOT)
def plan_few_steps(
    topology: Topology, collective: AnyCollective, *, family: str | None = None, size: int | str | None = None
) -> Plan:
    """Plan sends from every rank to every other, along rails and boxes, or trees on rails, for small data.

    The plan is verified.  Raises `UnsupportedError` if the network has no family of this name.

    Parameters
    ----------
    topology : Topology
        Whose groups of ranks reach each other past no rank, as through switches.
    collective : str or Collective
        ``"allgather"``, ``"reduce_scatter"`` or ``"allreduce"``.
    family : str, optional
        Which one, such as ``"direct"`` or ``"rails-then-box"``; by default the fastest.
    size : int or str, optional
        Bytes in all for which it is the fastest, with the costs that the topology states; by default for infinitely
        much data.

    Examples
    --------
    >>> from collopt.topologies import dgx_h100
    >>> plan_few_steps(dgx_h100(boxes=4), "allgather", size="4K").provenance["family"]
    'direct'
    """
    check_request(topology, collective)
    planned = as_collective(collective, EVERY_ROOT, "schedules in few steps do not implement")
    num_bytes = None if size is None else as_bytes(size)
    if topology.num_ranks > MAX_RANKS:
        raise UnsupportedError(
            f"{topology} has {topology.num_ranks} ranks; few-steps plans for up to {MAX_RANKS}, as a schedule has a "
            "send for each pair of ranks"
        )
    trace = Trace()
    with trace.stage("families"):
        request = (MUCH, LINKS_ONLY) if num_bytes is None or family else (num_bytes, as_costs(None, topology))
        candidates = _named(list(families(topology, planned, *request)), family, topology)
        if num_bytes is None:
            estimates = [family.estimate(*request).time for family in candidates]
            near = [
                candidate
                for candidate, time in zip(candidates, estimates, strict=True)
                if time <= min(estimates) * CLOSE_ESTIMATES
            ]
            best = near[0] if len(near) == 1 else min(near, key=lambda family: family.schedule.inverse_rate(topology))
        else:
            best, time = _fastest(topology, candidates, num_bytes)
            trace.note("predicted_us", float(time))
    trace.note("family", best.name)
    settings = {"family": family, "size": num_bytes}
    options = {name: value for name, value in settings.items() if value is not None}
    find = partial(bound_of_schedule, topology, planned, best.schedule)
    return proved_plan(topology, planned, best.schedule, "few-steps", options, trace, find)


def _named(candidates: list[Family], name: str | None, topology: Topology) -> list[Family]:
    """Families with this name, or all."""
    if not candidates:
        raise UnsupportedError(
            f"{topology} has no schedule in few steps, for its ranks reach each other only past ranks; "
            "the planner 'bfb' is for such networks"
        )
    matches = [family for family in candidates if name in (None, family.name)]
    if not matches:
        names = ", ".join(family.name for family in candidates)
        raise UnsupportedError(f"{topology} has no family {shown(name)}; expected one of {names}")
    return matches


def _fastest(topology: Topology, candidates: list[Family], num_bytes: int) -> tuple[Family, Fraction]:
    """Choose by predicted time of those with the least estimates; of equally fast ones, by chunks.

    Estimates that differ by less count as equal, so that families in fewer steps are run before.  Others are run only
    if what their busiest link takes alone is less than the best time so far, until some in turn were no faster.
    """
    costs = as_costs(None, topology)
    estimates = [family.estimate(num_bytes, costs) for family in candidates]
    limit = min(estimate.time for estimate in estimates)
    near = [pair for pair in zip(estimates, candidates, strict=True) if pair[0].time <= limit * CLOSE_ESTIMATES]
    times: dict[Family, Fraction] = {}
    tries = MOST_TRIES
    for estimate, family in sorted(near, key=lambda pair: int(pair[0].time / limit / NEAR_ESTIMATES)):
        best = min(times.values(), default=None)
        if tries and (best is None or estimate.minimum * AS_FAST < best):
            times[family] = Predictor(family.schedule, topology, costs).time(num_bytes)
            tries = MOST_TRIES if best is None or times[family] < best else tries - 1
    fast = [family for family, time in times.items() if time <= min(times.values()) * AS_FAST]
    best_family = min(fast, key=lambda family: max(family.schedule.load_units))
    return best_family, times[best_family]
