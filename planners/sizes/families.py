"""Families of schedules in few steps: every rank to every other, rails then box, trees along rails.

*Rails* join ranks of equal place in different boxes, or groups of any kind; on networks of several levels every cut
between levels gives boxes, and so families.  Each family is an allgather; a reduce-scatter is the reverse of one on the
reversed network, and an allreduce both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from ...formulations.allreduce_cuts import opposite_links
from ...schedules import Allreduce, Forest, StepAllreduce, StepSchedule
from ...schedules.traffic.collective import EVERY_ROOT, AnyCollective, Direction, as_collective
from ...topologies import Topology
from ...topologies.graphs.rank_groups import RankGroups, rank_groups
from ..trees.problem import tree_problem
from .digits import Digits, compositions, joined, with_radix
from .exchanges import in_all_orders, in_turn, overlapping, trees
from .pieces import Pieces, in_pieces
from .routing import Routing

MOST_COMPOSITIONS = 16
"""Above so many ways to join levels, only those with two digits, and those of all levels and of none, are looked at."""
RADICES = (16, 8, 4, 2)
"""Of steps inside a level, from few steps of many sends to many of one."""

Part = StepSchedule | Forest
AnyFamilySchedule = Part | StepAllreduce | Allreduce
Build = Callable[[Digits, Routing], Part]
Choice = tuple[str, int, Digits, Build]
"""Name, steps of one phase, digits, and what builds the schedule of one phase."""


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
    _build: Callable[[], AnyFamilySchedule]

    @cached_property
    def schedule(self) -> AnyFamilySchedule:
        """The schedule, not verified: a `StepSchedule`, or a `Forest` of trees; of an allreduce, a pair of them."""
        return self._build()


def families(topology: Topology, collective: AnyCollective) -> Iterator[Family]:
    """Yield the families of schedules in few steps that a network has, those in the fewest steps first.

    A family is left out where it needs ranks to reach each other without passing ranks and they do not: on a torus
    whose ranks relay, that is all of them.

    Parameters
    ----------
    topology : Topology
        Every rank must reach every other.
    collective : str or Collective
        ``"allgather"``, ``"reduce_scatter"`` or ``"allreduce"``.

    Yields
    ------
    Family

    Examples
    --------
    >>> from collopt.topologies import dgx_h100
    >>> [family.name for family in families(dgx_h100(boxes=4), "allgather")][:4]
    ['direct', 'rails-then-box', 'rails-beside-box', 'rail-trees']
    """
    chosen = as_collective(collective, EVERY_ROOT, "schedules in few steps do not implement")
    groups = rank_groups(topology)
    network = _Network(topology, groups, chosen.phases)
    for name, steps, digits, build in _choices(network):
        yield Family(name, steps * len(chosen.phases), _Building(network, digits, build))


@dataclass(frozen=True, eq=False)
class _Building:
    """What builds the schedule of a family on a network."""

    network: _Network
    digits: Digits
    build: Build

    def __call__(self) -> AnyFamilySchedule:
        """Build a part for each phase of the collective."""
        return self.network.schedule(lambda routing: self.build(self.digits, routing))


class _Network:
    """A network, in one or both directions."""

    def __init__(self, topology: Topology, groups: RankGroups, phases: tuple[Direction, ...]) -> None:
        self.groups, self.phases = groups, phases
        self.symmetric = opposite_links(topology) is not None
        self.routing = {phase: Routing(tree_problem(topology, phase, ()), groups) for phase in phases}

    def has_paths(self, digits: Digits) -> bool:
        """Whether all ranks reach those that they send to, in each direction, past no rank."""
        hops = digits.neighbors()
        return all(routing.reaches[hops.senders, hops.receivers].all() for routing in self.routing.values())

    def is_grid(self) -> bool:
        """Whether neighbors on all of several levels are equally near."""
        places = self.groups.places
        lengths = next(iter(self.routing.values())).lengths
        near = {int(lengths[places.flat[0], np.moveaxis(places, level, 0)[1].flat[0]]) for level in range(places.ndim)}
        return places.ndim > 1 and len(near) == 1

    def schedule(self, build: Callable[[Routing], Part]) -> AnyFamilySchedule:
        """Build a part for each phase; on symmetric links one is the reverse of the other."""
        parts = [build(self.routing[phase]) for phase in self.phases[: 1 if self.symmetric else None]]
        if len(self.phases) == 1:
            return parts[0]
        first = parts[0]
        second = replace(first, direction=self.phases[1]) if self.symmetric else parts[1]
        if isinstance(first, Forest) and isinstance(second, Forest):
            return Allreduce(first, second)
        assert isinstance(first, StepSchedule)
        assert isinstance(second, StepSchedule)
        return StepAllreduce(first, second)


def _choices(network: _Network) -> Iterator[Choice]:
    """Levels joined in all ways, and each by itself in steps of smaller radices too."""
    ways = [digits for digits in compositions(network.groups, MOST_COMPOSITIONS) if network.has_paths(digits)]
    finest = joined(network.groups, range(1, len(network.groups.sizes)))
    for digits in ways:
        several = len(digits.levels) > 1
        suffix = f"-{digits.text}" if several and len(network.groups.sizes) > 2 else ""
        yield from _exchanges(digits, "rails-then-box" if several else "direct", suffix)
        if several:
            yield f"rail-trees{suffix}", digits.most_hops, digits, trees
            for steps in Pieces(digits, network.routing[network.phases[-1]]).useful_steps():
                yield f"rail-pieces{suffix}-in-{steps}", steps, digits, partial(in_pieces, steps=steps)
    if not network.has_paths(finest):
        return
    if network.is_grid():
        yield "rows-and-columns", finest.num_steps, finest, _rotated
    known = {finest.radices}
    for radix in RADICES:
        divided = with_radix(finest, radix)
        if divided.radices not in known:
            known.add(divided.radices)
            suffix = f"-radix-{'-'.join(map(str, divided.radices))}"
            yield from _exchanges(divided, "rails-then-box" if len(divided.levels) > 1 else "bruck", suffix)


def _exchanges(digits: Digits, name: str, suffix: str) -> Iterator[Choice]:
    """Exchange along one digit after the other; of several levels, also without waiting for all of one."""
    yield name + suffix, digits.num_steps, digits, in_turn
    if len(digits.levels) > 1:
        yield name.replace("-then-", "-beside-") + suffix, digits.most_hops, digits, overlapping


def _rotated(digits: Digits, routing: Routing) -> StepSchedule:
    """An equal part of each shard in each order of the digits that begins with another one."""
    levels = digits.levels
    return in_all_orders([Digits(levels[turn:] + levels[:turn]) for turn in range(len(levels))], routing)
