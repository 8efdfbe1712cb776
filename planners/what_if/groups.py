"""Process groups: their ranks and collectives, by hand, from a device mesh, or from a file."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import CertificateError, ColloptError, FileFormatError, TooLargeError, UnsupportedError
from ...formulations import allreduce, sharing, throughput
from ...schedules import (
    ALL_TO_ALL,
    ALLGATHER,
    TREE_COLLECTIVES,
    Bound,
    Collective,
    CutDual,
    LengthDual,
    Witness,
    as_bytes,
)
from ...schedules.bounds.length_duals import hop_limits
from ...schedules.bounds.witness import LinkValue, Pair, as_link_values, value_by_link
from ...schedules.collective import as_collective
from ...solvers.lp.exact_optimum import ExactAnswer
from ...solvers.lp.folding import solve_folded
from ...support.files import read_json
from ...support.validation import as_flag, as_kind, as_list, as_several, as_whole, shown
from ...topologies import Topology
from ...topologies.network.topology import as_topology
from ..bounds import bound
from ..plans.plan import Plan
from ..plans.registry import plan as make_plan
from ..trees.lp_bounds import Model, build_program, counted, cut_dual, lp_bound
from ..trees.problem import check_reachable, shard_weights, whole_numbers

if TYPE_CHECKING:
    import pandas as pd


GROUPS_FORMAT, GROUPS_VERSION = "collopt-groups", 1
FIELDS = {"name", "ranks", "collective", "size", "root"}
MAX_MESH = 2**20


@dataclass(frozen=True)
class Group:
    """Ranks that run one collective at the same time as other groups.

    Attributes
    ----------
    name : str
        Of the group; it also names its file.
    ranks : tuple of int or str
        Numbers or names of compute nodes, in the group's own order.
    collective : str or Collective
        ``"allgather"``, ``"reduce_scatter"``, ``"allreduce"``, ``"broadcast"``, ``"reduce"`` or ``"all_to_all"``.
    size : int or str
        Bytes in all as nccl-tests counts them, such as ``"1G"``; groups share the fabric in proportion.
    root : int or str, optional
        Of a broadcast or reduce: a place in `ranks`, or a name.
    """

    name: str
    ranks: tuple[int | str, ...]
    collective: str | Collective
    size: int | str = 1
    root: int | str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.replace("-", "").replace("_", "").isalnum():
            raise UnsupportedError(f"the name of a group is {shown(self.name)}; expected letters, digits, - and _ only")
        planned = as_collective(self.collective, (*TREE_COLLECTIVES, ALL_TO_ALL), "groups do not share a fabric for")
        object.__setattr__(self, "collective", planned)
        object.__setattr__(self, "ranks", tuple(as_several(self.ranks, f"the ranks of group {self.name!r}")))
        object.__setattr__(self, "size", as_bytes(self.size))

    @property
    def kind(self) -> Collective:
        """The collective."""
        assert isinstance(self.collective, Collective)
        return self.collective

    def network(self, topology: Topology, *, relay: bool = False) -> Topology:
        """Return the network of its ranks, in which the others may relay; errors name the group."""
        with self.named_in_errors():
            return topology.restrict(self.ranks, relay=relay and len(self.ranks) < topology.num_ranks)

    @contextmanager
    def named_in_errors(self, where: str = "") -> Iterator[None]:
        """Make errors name the group."""
        try:
            yield
        except ColloptError as error:
            raise type(error)(f"group {self.name!r}{where}: {error}") from None


def as_groups(groups: Iterable[Group]) -> tuple[Group, ...]:
    """Check that there are groups, each with a name of its own."""
    group_list = as_list(groups, "the groups")
    if not group_list:
        raise UnsupportedError("there are no groups; expected at least one")
    name, times = Counter(as_kind(group, Group, "a group").name for group in group_list).most_common(1)[0]
    if times > 1:
        raise UnsupportedError(f"group {name!r} is listed twice; every group needs its own name")
    return group_list


def mesh_groups(
    shape: Sequence[int],
    axes: int | Sequence[int],
    collective: str | Collective,
    *,
    size: int | str = 1,
    root: int | None = None,
) -> tuple[Group, ...]:
    """List the groups of a device mesh along one axis or several, as ``init_device_mesh`` of PyTorch numbers ranks.

    Raises `UnsupportedError` for an axis that the mesh does not have, or groups of one rank.

    Parameters
    ----------
    shape : sequence of int
        Such as ``(2, 8)``: rank 8 i + j is at place (i, j).
    axes : int or sequence of int
        Along which the ranks of a group differ.
    collective, size, root
        As for `Group`.

    Examples
    --------
    >>> [group.ranks for group in mesh_groups((2, 3), 0, "allgather")]
    [(0, 3), (1, 4), (2, 5)]
    """
    sides = [as_whole(side, "a side of the mesh", high=MAX_MESH) for side in as_several(shape, "the mesh")]
    group_axes = as_list([axes] if isinstance(axes, int) else axes, "the axes")
    if not sides or prod(sides) > MAX_MESH:
        raise UnsupportedError(
            f"the mesh is {shown(shape)}; expected sides such as (2, 8), of at most {MAX_MESH} ranks"
        )
    if not group_axes or len(set(group_axes)) < len(group_axes) or not set(group_axes) <= set(range(len(sides))):
        raise UnsupportedError(f"the axes are {shown(axes)}; expected some of 0..{len(sides) - 1}, each once")
    if (members := prod(sides[axis] for axis in group_axes)) < 2:
        raise UnsupportedError(f"groups along axes {shown(axes)} of the mesh {shown(shape)} have {members} rank each")
    other_axes = [axis for axis in range(len(sides)) if axis not in group_axes]
    rows = np.arange(prod(sides)).reshape(sides).transpose(*other_axes, *group_axes).reshape(-1, members)
    title = "axis" + "-".join(map(str, group_axes))
    return tuple(
        Group(f"{title}_{number}", tuple(row), collective, size, root) for number, row in enumerate(rows.tolist())
    )


def read_groups(path: str | os.PathLike[str]) -> tuple[Group, ...]:
    """Read groups from a JSON file; ``docs/how-to/plan-groups.md`` describes it."""
    rows = read_json(path, GROUPS_FORMAT, GROUPS_VERSION).get("groups")
    if not isinstance(rows, list) or not rows:
        raise FileFormatError(f"{path}: groups is {shown(rows)}; expected a list of at least one group")
    for row in rows:
        if not isinstance(row, dict) or not {"name", "ranks", "collective"} <= row.keys() <= FIELDS:
            expected = "an object with name, ranks and collective, and perhaps size and root"
            raise FileFormatError(f"{path}: a group is {shown(row)}; expected {expected}")
    try:
        return as_groups(Group(**row) for row in rows)
    except ColloptError as error:
        raise FileFormatError(f"{path}: {error}") from None


MAX_FLOWS = 500_000
"""Flows of all groups on all links, which take about a minute and a few GB to state."""


@dataclass(frozen=True)
class SharedBound:
    """Dual values of links, and what a unit of each group's rate costs of them at least.

    All groups together pay no more than all links are worth, so where they pay that, no group of these gets faster
    unless another gets slower.

    Attributes
    ----------
    links : tuple of LinkValue
        What a GB/s of each link is worth; links left out are free.
    bounds : mapping of str to Bound
        By group: a bound for the group alone, whose witness counts links at these values.
    """

    links: tuple[LinkValue, ...]
    bounds: dict[str, Bound]

    def costs(self) -> dict[str, Fraction]:
        """Least cost of 1 GB/s of algorithm bandwidth by group; raises `CertificateError` if a bound is wrong."""
        values = {(tail, head): dual for tail, head, dual in self.links}
        costs = {}
        for name, limit in as_kind(self.bounds, dict, "the bounds by group", error=CertificateError).items():
            as_kind(limit, Bound, f"the bound of group {shown(name)}", error=CertificateError).verify()
            worth = limit.witness.link_weights(limit.topology, limit.collective)
            if any(weight > values.get(pair, 0) for pair, weight in worth.items()):
                raise CertificateError(f"the bound of group {name!r} values a link higher than the groups together do")
            amount, _ = limit.witness.crossing(limit.topology, limit.collective, limit.weights)
            costs[name] = amount / limit.total_weight
        return costs


@dataclass(frozen=True, eq=False)
class GroupPlans:
    """One plan for each group, on the part of every link that the group has, and a proof of the groups' rates.

    Attributes
    ----------
    topology : Topology
        The fabric.
    groups : tuple of Group
        In the order of `plans` and `limits`.
    relay : bool
        Whether compute nodes outside a group may pass its data on.
    plans : tuple of Plan
        Each on a network of its group, whose bandwidths are the group's parts of links.
    limits : tuple of Fraction
        GB/s of algorithm bandwidth that are max-min fair: the smallest of all rates over sizes is as large as can be,
        then the smallest of those that are not settled by that, and so on.
    proofs : tuple of SharedBound
        For each of these rounds.
    """

    topology: Topology
    groups: tuple[Group, ...]
    relay: bool
    plans: tuple[Plan, ...]
    limits: tuple[Fraction, ...]
    proofs: tuple[SharedBound, ...]

    @cached_property
    def networks(self) -> tuple[Topology, ...]:
        """Network of each group, with all of the bandwidth."""
        return tuple(group.network(self.topology, relay=self.relay) for group in self.groups)

    @property
    def gap(self) -> Fraction:
        """Largest exact share of its limit that a group's plan misses; 0 means that the groups are optimal together."""
        return max(1 - plan.algbw / limit for plan, limit in zip(self.plans, self.limits, strict=True))

    def usage(self, number: int) -> dict[Pair, Fraction]:
        """Return GB/s that the plan of a group puts on each link at its rate."""
        plan = self.plans[number]
        links = plan.topology.links
        if not plan.schedule.pipelined:
            return {link[:2]: link.bandwidth for link in links}
        loads = dict(zip(links, plan.link_loads.tolist(), strict=True))
        busiest = max(load / link.bandwidth for link, load in loads.items())
        return {link[:2]: load / busiest for link, load in loads.items() if load}

    def verify(self) -> None:
        """Check every plan, that all plans together fit each link, and that the proofs settle all limits.

        Raises `CertificateError` if anything is not as claimed, or is missing.
        """
        try:
            self._check_parts()
            self._verify_plans()
            self._verify_limits()
        except ColloptError as error:
            raise CertificateError(str(error)) from None

    @cached_property
    def _bandwidths(self) -> dict[Pair, Fraction]:
        return {link[:2]: link.bandwidth for link in self.topology.links}

    def _check_parts(self) -> None:
        """Check types and counts, and that there can be such groups."""
        for name, kind in (("groups", Group), ("plans", Plan), ("limits", Fraction), ("proofs", SharedBound)):
            parts = getattr(self, name)
            if not isinstance(parts, tuple) or not all(isinstance(part, kind) for part in parts):
                raise CertificateError(f"the {name} are {shown(parts)}; expected a tuple of {kind.__name__}")
        if not len(self.groups) == len(self.plans) == len(self.limits):
            counts = f"{len(self.plans)} plans and {len(self.limits)} limits"
            raise CertificateError(f"there are {counts} for {len(self.groups)} groups; expected one of each for each")
        as_topology(self.topology)
        as_flag(self.relay, "relay")
        as_groups(self.groups)

    def _verify_plans(self) -> None:
        used: defaultdict[Pair, Fraction] = defaultdict(Fraction)
        for number, (group, plan, limit) in enumerate(zip(self.groups, self.plans, self.limits, strict=True)):
            plan.verify()
            network, parts = self.networks[number], {link[:2]: link.bandwidth for link in plan.topology.links}
            own = network.with_bandwidths({link[:2]: parts.get(link[:2], Fraction(0)) for link in network.links})
            _check_is_of_group(plan.bound, group, own, "plan")
            if plan.algbw > limit:
                raise CertificateError(f"the plan of group {group.name!r} has {plan.algbw} GB/s, more than {limit}")
            for pair, amount in self.usage(number).items():
                used[pair] += amount
        for pair, amount in used.items():
            if amount > (bandwidth := self._bandwidths[pair]):
                raise CertificateError(
                    f"the groups together put {amount} GB/s on the link {pair}, which has {bandwidth} GB/s"
                )

    def _verify_limits(self) -> None:
        """Check that each round raises the rates of its groups alike, and that none can get more."""
        networks = {group.name: (group, network) for group, network in zip(self.groups, self.networks, strict=True)}
        limits = dict(zip(networks, self.limits, strict=True))
        left = {group.name: limits[group.name] / int(group.size) for group in self.groups}
        for proof in self.proofs:
            values = value_by_link(as_link_values(proof.links), self._bandwidths, "link")
            costs = proof.costs()
            for name, limit in proof.bounds.items():
                if name not in networks:
                    raise CertificateError(f"a bound is of group {shown(name)}, which is not among the groups")
                _check_is_of_group(limit, *networks[name], "bound")
            worth = sum(dual * self._bandwidths[pair] for pair, dual in values.items())
            if sum(cost * limits[name] for name, cost in costs.items()) != worth:
                raise CertificateError("the groups' limits do not cost what all links are worth")
            # Rates over sizes of those that are settled now are equal, and least among all that are left.
            smallest = min(left.values(), default=None)
            if {left.pop(name) for name in costs.keys() & left.keys()} != {smallest}:
                raise CertificateError("the groups' limits are not max-min fair")
        if left:
            raise CertificateError(f"no proof settles the limit of group {min(left)!r}")

    def table(self) -> pd.DataFrame:
        """Tabulate the groups.

        Columns: ``group``, ``collective``, ``ranks``, ``size``; ``algbw`` of its plan and ``limit``, GB/s; ``gap`` from
        the one to the other; ``link_share``, the largest part that it takes of the bandwidth of a link; ``alone``, the
        bound of the group without the others, GB/s, and ``loss`` against that.  All figures are exact.
        """
        import pandas as pd

        rows = []
        for number, (group, plan, limit) in enumerate(zip(self.groups, self.plans, self.limits, strict=True)):
            alone = _alone(group, self.networks[number])
            share = max(amount / self._bandwidths[pair] for pair, amount in self.usage(number).items())
            ends = (group.name, str(group.kind), len(group.ranks), group.size)
            rows.append((*ends, plan.algbw, limit, 1 - plan.algbw / limit, share, alone, 1 - plan.algbw / alone))
        names = ["group", "collective", "ranks", "size", "algbw", "limit", "gap", "link_share", "alone", "loss"]
        return pd.DataFrame(rows, columns=names)


def _check_is_of_group(bound: Bound, group: Group, network: Topology, what: str) -> None:
    """Raise `CertificateError` unless a bound is for exactly what a group asks of its network."""
    weights = shard_weights(network, group.kind, group.root, None)
    if (bound.topology.digest, bound.collective, bound.weights) != (network.digest, group.kind, weights):
        raise CertificateError(
            f"the {what} of group {group.name!r} is for other ranks, links, weights, or another collective or root"
        )


def _alone(group: Group, network: Topology) -> Fraction:
    """Bound a group without the others, by a linear program where switches do not give out what they take in."""
    try:
        return bound(network, group.kind, root=group.root).algbw
    except UnsupportedError:
        return lp_bound(network, group.kind, root=group.root).algbw


def plan_groups(topology: Topology, groups: Iterable[Group], *, relay: bool = False) -> GroupPlans:
    """Plan for groups that run at the same time, at max-min fair rates in proportion to their sizes.

    A linear program divides every link among the groups, exactly; each group's plan is for its part.  Switches only
    pass data on.  Raises `UnsupportedError` for groups that cannot be planned, `TopologyError` for unknown or repeated
    ranks and groups of one rank, `BoundError` if a rank of a group cannot reach another, `TooLargeError` for too many
    groups or links.

    Parameters
    ----------
    topology : Topology
        The fabric.
    groups : iterable of Group
        Each with a name of its own; they may have ranks in common.
    relay : bool
        Whether compute nodes outside a group may pass its data on, as with `Topology.restrict`.

    Examples
    --------
    Two pairs on opposite sides of a ring do not meet, unless both go both ways round:

    >>> from collopt.topologies import ring
    >>> pairs = [Group("left", (0, 1), "allgather"), Group("right", (2, 3), "allgather")]
    >>> plans = plan_groups(ring(4, bandwidth=10), pairs)
    >>> [str(plan.algbw) for plan in plans.plans], str(plans.gap)
    (['20', '20'], '0')
    """
    relayed = as_flag(relay, "relay")
    group_list, topology = as_groups(groups), as_topology(topology).without_abilities()
    networks = [group.network(topology, relay=relayed) for group in group_list]
    _check_size(group_list, networks)
    fabric, unit = counted(topology)
    parts = {
        f"part{number}": _Part(group, network, _program(group, group.network(fabric, relay=relayed)))
        for number, (group, network) in enumerate(zip(group_list, networks, strict=True))
    }
    sizes = whole_numbers([Fraction(int(part.group.size), part.scale) for part in parts.values()])
    worth = dict(zip(parts, sizes, strict=True))
    model = sharing.build(fabric, {name: part.program for name, part in parts.items()}, weights=worth)
    model.balance_switches()
    for part in parts.values():
        # That all parts fit a link says more.
        part.program.program.link_bandwidth.deactivate()
    rates, answers = _max_min_rates(model, worth)
    plans = tuple(_plan(part, answers[-1], name, unit) for name, part in parts.items())
    limits = tuple(rates[name] * part.scale * unit for name, part in parts.items())
    group_plans = GroupPlans(
        topology, group_list, relayed, plans, limits, tuple(_proof(parts, answer) for answer in answers)
    )
    group_plans.verify()
    return group_plans


class _Part(NamedTuple):
    """A group, its network, and its part of the program, which counts bandwidths in a unit of its own."""

    group: Group
    network: Topology
    program: Model

    @property
    def weights(self) -> tuple[int, ...]:
        """Weights of the shards, empty for equal ones."""
        return shard_weights(self.network, self.group.kind, self.group.root, None)

    @property
    def scale(self) -> int:
        """Algorithm bandwidth per unit of the program's rate."""
        return 1 if self.group.kind.has_two_phases or self.group.kind.has_one_root else len(self.group.ranks)


def _check_size(groups: Sequence[Group], networks: Sequence[Topology]) -> None:
    flows = 0
    for group, network in zip(groups, networks, strict=True):
        ranks = network.num_ranks
        flows += ranks * (network.num_links + (2 * ranks**2 if group.kind.has_two_phases else 0))
        with group.named_in_errors():
            shard_weights(network, group.kind, group.root, None)
            check_reachable(network, ALLGATHER if group.kind.in_pairs else group.kind, root=group.root)
    if flows > MAX_FLOWS:
        advice = "plan for fewer groups at once, such as those of one box and of one rail, or without relay"
        raise TooLargeError(f"the groups have {flows} flows on links; expected at most {MAX_FLOWS}: {advice}")


def _program(group: Group, network: Topology) -> Model:
    if group.kind.in_pairs:
        return throughput.build_all_to_all(network)
    return build_program(network, group.kind, shard_weights(network, group.kind, group.root, None))


def _max_min_rates(
    model: sharing.SharingModel, worth: Mapping[str, int]
) -> tuple[dict[str, Fraction], list[ExactAnswer]]:
    """Raise all rates alike until some can rise no more, fix these, and go on with the others."""
    program, rates, answers = model.program, dict[str, Fraction](), list[ExactAnswer]()
    while len(rates) < len(worth):
        answers.append(answer := solve_folded(model))
        for name, dual in answer.duals["least_rate"].items():
            if dual and name not in rates:
                rates[name] = worth[name] * answer.objective
                program.least_rate[name].deactivate()
        program.del_component("settled")
        model.add_constraints(
            "settled",
            list(rates),
            rule=lambda name: rates[name].denominator * model.parts[name].rate >= rates[name].numerator,
        )
    return rates, answers


def _plan(part: _Part, answer: ExactAnswer, name: str, unit: Fraction) -> Plan:
    """Plan a group on its part of each link."""
    shares = {link[:2]: Fraction(0) for link in part.network.links}
    block = "transit" if isinstance(part.program, allreduce.AllreduceModel) else "share"
    for key, value in answer.values[f"{name}.{block}"].items():
        shares[key[-2:]] += value * unit
    own = part.network.with_bandwidths(shares).changed(name=f"{part.network.name} for {part.group.name}")
    with part.group.named_in_errors(", on its part of the links"):
        return make_plan(own, part.group.kind, root=part.group.root)


def _proof(parts: Mapping[str, _Part], answer: ExactAnswer) -> SharedBound:
    """Turn the dual values of one round into bounds of the groups that have a part in it."""
    links = {pair: dual for pair, dual in answer.duals["link_shared"].items() if dual}
    rates = answer.duals["least_rate"] | answer.duals.get("settled", {})
    bounds = {}
    for name, part in parts.items():
        if rates.get(name):
            own = {link[:2]: links[link[:2]] for link in part.network.links if link[:2] in links}
            witness = _witness(part, own, answer.duals, name)
            bounds[part.group.name] = Bound.from_witness(part.network, part.group.kind, witness, part.weights)
    return SharedBound(_values(links), bounds)


def _values(duals: Mapping[Pair, Fraction]) -> tuple[LinkValue, ...]:
    return tuple(LinkValue(*pair, dual) for pair, dual in duals.items() if dual)


def _witness(part: _Part, links: Mapping[Pair, Fraction], duals: Mapping[str, Any], name: str) -> Witness:
    """Divide the values of links, past switches, among the ranks of a group."""
    program: Any = part.program
    if part.group.kind.in_pairs:
        return LengthDual(_values(links))
    if part.group.kind.has_two_phases:
        blocks = {block: duals[f"{name}.{block}"] for block in ("broadcast_within", "reduce_within")}
        return cut_dual(program, {"link_bandwidth": links, **blocks})
    own: dict[str, dict[Pair, Fraction]] = {rank: {} for rank in program.topology.compute_nodes}
    for (rank, *pair), dual in duals[f"{name}.flow_in_share"].items():
        own[rank][pair[0], pair[1]] = dual
    # Dual values of a switch that gives out what it takes in cancel out on the ways past it, so these are what counts.
    hops = tuple(_values(hop_limits(program.topology, lengths, frozenset())) for lengths in own.values())
    values = _values(links)
    return CutDual(values, into=hops) if program.direction == "broadcast" else CutDual(values, out_of=hops)
