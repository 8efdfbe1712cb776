"""Max-min fair rates of process groups by linear programs, and plans on each group's part of the links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from ...errors import ColloptError, TooLargeError, UnsupportedError
from ...formulations import allreduce, sharing, throughput
from ...schedules import ALLGATHER, Bound, CutDual, LengthDual, Witness
from ...schedules.bounds.cut_duals import hop_limits
from ...schedules.bounds.witness import LinkValue, Pair
from ...solvers.highs.folding import solve_folded
from ...solvers.lp.exact_optimum import ExactAnswer
from ...support.validation import as_flag
from ...topologies import Topology
from ...topologies.network.topology import as_topology
from ..plans.plan import Plan
from ..registry import plan as make_plan
from ..trees.problem import check_reachable, shard_weights, whole_numbers
from .groups import Group, as_groups
from .lp_bounds import Model, build_program, counted, cut_dual
from .shared_plan import GroupPlans, SharedBound

MAX_FLOWS = 500_000
"""Flows of all groups on all links, which take about a minute and a few GB to state."""


def plan_groups(topology: Topology, groups: Iterable[Group], *, relay: bool = False) -> GroupPlans:
    """Plan for groups that run at the same time, at max-min fair rates in proportion to their sizes.

    A linear program divides every link among the groups, exactly; each group's plan is for its part.  Switches only
    pass data on, whatever else they can.  Raises
    `UnsupportedError` for groups that cannot be planned, `TopologyError` for unknown or repeated ranks and groups of
    one rank, `BoundError` if a rank of a group cannot reach another, `TooLargeError` for too many groups or links.

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
    chosen, relayed = as_groups(groups), as_flag(relay, "relay")
    topology = as_topology(topology).without_abilities()
    networks = [group.network(topology, relay=relayed) for group in chosen]
    _check(chosen, networks)
    fabric, unit = counted(topology)
    parts = {
        f"part{number}": _program(group.network(fabric, relay=relayed), group) for number, group in enumerate(chosen)
    }
    scales = {name: _scale(group) for name, group in zip(parts, chosen, strict=True)}
    worth = whole_numbers([int(group.size) / scale for group, scale in zip(chosen, scales.values(), strict=True)])
    model = sharing.build(fabric, parts, weights=dict(zip(parts, worth, strict=True)))
    model.balance_switches()
    for part in parts.values():
        # That all parts fit a link says more.
        part.program.link_bandwidth.deactivate()
    rates, answers = _max_min_rates(model, dict(zip(parts, worth, strict=True)))
    plans = tuple(
        _plan(group, network, _shares(model, answers[-1], name), unit)
        for group, network, name in zip(chosen, networks, parts, strict=True)
    )
    limits = tuple(rates[name] * scales[name] * unit for name in parts)
    proofs = tuple(
        _proof(model, answer, dict(zip(parts, zip(chosen, networks, strict=True), strict=True))) for answer in answers
    )
    found = GroupPlans(topology, chosen, relayed, plans, limits, proofs)
    found.verify()
    return found


def _check(groups: Iterable[Group], networks: Iterable[Topology]) -> None:
    flows = 0
    for group, network in zip(groups, networks, strict=True):
        ranks = network.num_ranks
        flows += ranks * (network.num_links + 2 * ranks**2 if group.kind.has_two_phases else network.num_links)
        try:
            shard_weights(network, group.kind, group.root, None)
            check_reachable(network, ALLGATHER if group.kind.in_pairs else group.kind, root=group.root)
        except ColloptError as error:
            raise type(error)(f"group {group.name!r}: {error}") from None
    if flows > MAX_FLOWS:
        raise TooLargeError(
            f"the groups have {flows} flows on links in all; expected at most {MAX_FLOWS}: plan for fewer groups at "
            "once, such as those of one box and of one rail, or without relay"
        )


def _program(network: Topology, group: Group) -> Model:
    """State the program of one group; see `collopt.planners.analysis.lp_bounds`."""
    if group.kind.in_pairs:
        return throughput.build_all_to_all(network)
    return build_program(network, group.kind, shard_weights(network, group.kind, group.root, None))


def _scale(group: Group) -> Fraction:
    """Algorithm bandwidth per unit of the program's rate."""
    return Fraction(1 if group.kind.has_two_phases or group.kind.has_one_root else len(group.ranks))


def _max_min_rates(
    model: sharing.SharingModel, worth: Mapping[str, int]
) -> tuple[dict[str, Fraction], list[ExactAnswer]]:
    """Raise all rates alike until some can rise no more, fix these, and go on with the others."""
    rates: dict[str, Fraction] = {}
    answers = []
    while len(rates) < len(worth):
        answers.append(answer := solve_folded(model))
        duals = answer.duals["least_rate"]
        for name in [name for name, dual in duals.items() if dual and name not in rates]:
            rates[name] = worth[name] * answer.objective
            model.program.least_rate[name].deactivate()
            whole = rates[name].denominator * model.parts[name].rate >= rates[name].numerator
            model.constrain(f"settled_{name}", whole)
    return rates, answers


def _shares(model: sharing.SharingModel, answer: ExactAnswer, name: str) -> dict[Pair, Fraction]:
    """Return a group's part of each link, in the units of the program."""
    part = model.parts[name]
    shares: dict[Pair, Fraction] = {link[:2]: Fraction(0) for link in part.topology.links}
    block = "transit" if isinstance(part, allreduce.AllreduceModel) else "share"
    for key, value in answer.values[f"{name}.{block}"].items():
        shares[key[-2:]] += value
    return shares


def _plan(group: Group, network: Topology, shares: Mapping[Pair, Fraction], unit: Fraction) -> Plan:
    own = network.with_bandwidths({pair: share * unit for pair, share in shares.items()})
    try:
        return make_plan(own.changed(name=f"{network.name} for {group.name}"), group.kind, **_root(group))
    except ColloptError as error:
        raise UnsupportedError(f"group {group.name!r} has no plan on its part of the links: {error}") from None


def _root(group: Group) -> dict[str, Any]:
    return {} if group.root is None else {"root": group.root}


def _proof(
    model: sharing.SharingModel, answer: ExactAnswer, groups: Mapping[str, tuple[Group, Topology]]
) -> SharedBound:
    """Turn the dual values of one round into bounds of the groups that have a part in it."""
    links = {pair: dual for pair, dual in answer.duals["link_shared"].items() if dual}
    rates = answer.duals["least_rate"] | {
        name: answer.duals[f"settled_{name}"] for name in groups if f"settled_{name}" in answer.duals
    }
    bounds = {}
    for name, (group, network) in groups.items():
        if not rates.get(name):
            continue
        own = {link[:2]: links[link[:2]] for link in network.links if link[:2] in links}
        witness = _witness(model.parts[name], group, own, answer.duals, name)
        weights = () if group.kind.in_pairs else shard_weights(network, group.kind, group.root, None)
        bounds[group.name] = Bound.from_witness(network, group.kind, witness, weights)
    return SharedBound(tuple(LinkValue(tail, head, dual) for (tail, head), dual in links.items()), bounds)


def _witness(part: Any, group: Group, links: Mapping[Pair, Fraction], duals: Mapping[str, Any], name: str) -> Witness:
    """Divide the values of links, past switches, among the ranks of a group."""
    values = tuple(LinkValue(tail, head, dual) for (tail, head), dual in links.items())
    if group.kind.in_pairs:
        return LengthDual(values)
    if group.kind.has_two_phases:
        blocks = {block: duals[f"{name}.{block}"] for block in ("broadcast_within", "reduce_within")}
        return cut_dual(part, {"link_bandwidth": links, **blocks})
    own: dict[str, dict[Pair, Fraction]] = {rank: {} for rank in part.topology.compute_nodes}
    for (rank, *pair), dual in duals[f"{name}.flow_in_share"].items():
        own[rank][pair[0], pair[1]] = dual
    # Dual values of a switch that gives out what it takes in cancel out on the ways past it, so these are what counts.
    hops = tuple(
        tuple(LinkValue(*hop, dual) for hop, dual in hop_limits(part.topology, lengths, frozenset()).items() if dual)
        for lengths in own.values()
    )
    return CutDual(values, into=hops) if part.direction == "broadcast" else CutDual(values, out_of=hops)
