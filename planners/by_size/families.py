"""Families of schedules in few steps: every rank to every other, rails then box, trees along rails.

*Rails* join ranks of equal place in different boxes, or groups of any kind; on networks of several levels every cut
between levels gives boxes, and so families.  Each family is an allgather; a reduce-scatter is the reverse of one on the
reversed network, and an allreduce both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import NamedTuple

import numpy as np

from ...formulations.allreduce_cuts import opposite_links
from ...schedules import Allreduce, Forest, StepAllreduce, StepExchange, StepSchedule
from ...schedules.collective import EVERY_ROOT, AnyCollective, Direction, as_collective
from ...support.arrays import FloatArray, IntArray
from ...topologies import LINKS_ONLY, RuntimeCosts, Topology
from ...topologies.symmetry.rank_groups import RankGroups, rank_groups
from ..trees.problem import tree_problem
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
