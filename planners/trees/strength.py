"""Bounds of an allreduce by cuts and partitions, and the optimal plan on symmetric links by network strength.

The plan reduces along trees and broadcasts along the same ones, which meets the best partition wherever switches do not
reduce: see ``docs/explanation/allreduce.md``, and ``docs/explanation/in-network.md`` for trees that span switches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import BoundError, CapacityOverflowError, CertificateError, SolverError, UnsupportedError
from ...schedules import ALLREDUCE, Allreduce, Bound, Cut, Forest, LoopbackPartition, Partition, TreePartition, Witness
from ...solvers.flows.bottleneck import Bottleneck
from ...solvers.trees.strength import Orientation, Strength, orient, strength
from ...support.arrays import IntArray, components
from ...topologies import Topology
from ..plans.plan import Plan, proved_plan
from ..plans.registry import register_planner
from ..plans.stages import Trace
from .forest import best_forest, bottleneck
from .problem import TreeProblem, check_request, cut_problem, tree_options, tree_problem
from .spanned_switches import (
    BoxGroups,
    box_groups,
    in_original_numbers,
    joined_forests,
    network_of_boxes,
    rooted_at_centers,
    rooted_for_loopback,
    span_choices,
    spannable,
    spanning_network,
    star_rate,
    with_stars,
)

MAX_COPIES = 2**13  # of trees; where the best packing has more, stars in boxes are packed instead, even if slower


def allreduce_bound(topology: Topology) -> Bound:
    """Bound the speed of an allreduce."""
    check_request(topology, ALLREDUCE)
    tree_problem(topology, "broadcast", ())  # refuses ranks out of reach, and unbalanced switches
    return unchecked_bound(topology)


def unchecked_bound(topology: Topology) -> Bound:
    """Bound the speed of an allreduce, also where switches are unbalanced."""
    size = len(topology.nodes)
    partitions = [_best_partition(topology, np.arange(size))]
    if partitions[0] is None:
        # Switches outside of its parts can reduce data, so two that contain them are tried.
        partitions += [_best_partition(topology, _joined(topology, count)) for count in (size, 1)]
    witnesses: list[Witness] = [narrowest_cut(topology), *filter(None, partitions)]
    bounds = [Bound.from_witness(topology, ALLREDUCE, witness) for witness in witnesses]
    return max([*bounds, *_loopback_bounds(topology)], key=lambda bound: bound.inverse_rate)


def _loopback_bounds(topology: Topology) -> Iterator[Bound]:
    """Bound by the best partition between ranks and switches that loop back, and by single ranks, if these do."""
    switches = tuple(switch for switch in topology.switch_nodes if switch in topology.loopback)
    if not switches:
        return
    partitions = [(*(frozenset({rank}) for rank in topology.compute_nodes), frozenset(topology.switch_nodes))]
    with suppress(CapacityOverflowError):
        if best := _best_partition(spanning_network(topology, switches), np.arange(len(topology.nodes))):
            partitions.append(best.parts)
    for parts in partitions:
        with suppress(CertificateError):
            yield Bound.from_witness(topology, ALLREDUCE, LoopbackPartition(parts))


def node_names(topology: Topology, inside: npt.NDArray[np.bool_]) -> frozenset[str]:
    """Names of the nodes in a mask over ``topology.nodes``."""
    return frozenset(topology.nodes[number] for number in np.flatnonzero(inside))


def partition(topology: Topology, labels: npt.NDArray[np.int64]) -> Partition | None:
    """Partition nodes by label; None if switches with label -1, in no part, can reduce data."""
    names = np.array(topology.nodes, dtype=np.object_)
    order = np.argsort(labels, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    if labels.min() < 0 and not topology.aggregation.isdisjoint(names[parts[0]]):
        return None
    return Partition(tuple(frozenset(names[part]) for part in sorted(parts, key=lambda part: int(part[0]))))


def narrowest_cut(topology: Topology) -> Cut:
    """Find the minimum cut with ranks on both sides, with rank 0 inside or outside."""
    first = (1, *(0 for _ in topology.compute_nodes[1:]))
    away = node_names(topology, bottleneck(cut_problem(topology, "broadcast", first)).source_side)
    # Seen against the links' direction, what is outside the cut has to leave.
    back = node_names(topology, bottleneck(cut_problem(topology, "reduce", first)).source_side)
    cuts = [Cut(away), Cut(frozenset(topology.nodes) - back)]
    return min(cuts, key=lambda cut: cut.bandwidth(topology))


def _joined(topology: Topology, count: int) -> npt.NDArray[np.int64]:
    """Number groups of nodes, those with ranks first; a switch that reduces is grouped with `count` neighbors."""
    tails, heads, _, _ = topology.arrays
    joins: list[tuple[int, int]] = []
    for switch in sorted(map(topology.node_index.__getitem__, topology.aggregation)):
        near = np.unique(heads[tails == switch])[:count]
        joins += [(switch, node) for node in near.tolist()]
    # Groups are numbered by their first nodes, so those with ranks, which come first, stay in front.
    return components(len(topology.nodes), joins)


def _best_partition(topology: Topology, groups: npt.NDArray[np.int64]) -> Partition | None:
    """Find the best partition that divides no group, or None.

    Two-way links as fast as both directions together stand for the network: what enters all parts together is then
    twice what it was, whatever the parts, as what one part takes in another one, or a balanced switch, gives out.
    """
    tails, heads, capacities, _ = topology.arrays
    links = np.sort(np.stack([groups[tails], groups[heads]]), axis=0)
    outside = links[0] != links[1]
    ends, numbers = np.unique(links[:, outside], axis=1, return_inverse=True)
    both = np.zeros(ends.shape[1], dtype=np.int64)
    np.add.at(both, numbers.ravel(), capacities[outside])
    holders = len(np.unique(groups[: topology.num_ranks]))
    if holders < 2:
        return None
    try:
        best = strength(int(groups.max()) + 1, holders, ends[0], ends[1], both)
    except CapacityOverflowError:
        return None  # the cut needs less room
    return partition(topology, best.labels[groups])


class _Links(NamedTuple):
    """Two-way links, each once, from the node with the smaller number."""

    tails: IntArray
    heads: IntArray
    capacities: IntArray


def strength_bound(topology: Topology) -> Bound:
    """Compute the strength of a network, which bounds any allreduce, with the partition that proves it."""
    return _bound(topology, _slice(topology).best)


@register_planner("strength", ALLREDUCE)
def plan_strength(topology: Topology, *, in_network: bool = True) -> Plan:
    """Plan an optimal allreduce on symmetric bidirectional links, by network strength.

    Each tree reduces to its root and broadcasts back.

    With `in_network`, trees also span switches that multicast and aggregate, where that makes the plan faster.
    """
    trace = Trace()
    choices, bounds = _choices(topology, trace, in_network=in_network)
    return _planned(topology, choices, bounds, trace, in_network=in_network)


def plan_with_switches(topology: Topology) -> Plan | None:
    """Plan as `plan_strength`; None, and quickly, where trees that span switches are no faster than any others."""
    if not spannable(topology):
        return None
    trace = Trace()
    choices, bounds = _choices(topology, trace, in_network=True)
    if len(choices) == 1:
        return None
    plan = _planned(topology, choices, bounds, trace, in_network=True)
    return plan if plan.algbw > choices[-1][0].algbw else None


def _choices(topology: Topology, trace: Trace, *, in_network: bool) -> tuple[list[list[_Slice]], Bounds]:
    """Find the ways of planning, the last of which spans no switches, and the bounds."""
    with trace.stage("strength"):
        plain = [_slice(topology)]
        best, bounds = _best_slices(topology, plain, in_network=in_network)
        return [plain] if best is plain else [*_simpler(topology, best), best, plain], bounds


def _planned(
    topology: Topology, choices: list[list[_Slice]], bounds: Bounds, trace: Trace, *, in_network: bool
) -> Plan:
    """Plan the first choice that is faster than the last one, which spans no switches, or that."""
    *spanning, plain = choices
    for parts in spanning:
        schedule = _schedule(topology, parts, trace)
        # It is not faster where copies that are looped back do not fit.
        if schedule is not None and schedule.total_weight / schedule.inverse_rate(topology) > plain[0].algbw:
            break
    else:
        parts, schedule = plain, _schedule(topology, plain, trace)
    assert schedule, "trees from rank to rank are always packed"
    trace.note("spanned_switches", len({switch for part in parts for switch in part.switches}))
    return proved_plan(topology, ALLREDUCE, schedule, "strength", tree_options(in_network), trace, *bounds)


def _schedule(topology: Topology, parts: list[_Slice], trace: Trace) -> Allreduce | None:
    """Pack the trees of all slices; None if stars in boxes do not fit the trees between them."""
    packed = [_sliced_forest(topology, part, trace) for part in parts]
    forests = [forest for forest in packed if forest]
    if len(forests) < len(packed):
        return None
    with trace.stage("centering"):
        forest = joined_forests(forests, [part.algbw for part in parts])
        if topology.loopback.intersection(topology.nodes[node] for node in forest.switches.tolist()):
            forest = rooted_for_loopback(forest, topology, sum((part.algbw for part in parts), Fraction(0)))
    return Allreduce(replace(forest, direction="reduce"), forest)


Bounds = tuple[Bound, Bound | None]
"""Of every schedule, and the lower one of schedules by trees if there is one."""


class _Slice(NamedTuple):
    """A part of the network, the switches that its trees span, and its strength."""

    switches: tuple[str, ...]
    network: Topology
    links: _Links
    best: Strength
    boxes: BoxGroups | None  # whose switches are the only compute nodes of the network
    limit: Fraction | None  # GB/s of links that it does not have

    @property
    def algbw(self) -> Fraction:
        """What its trees reach, but for copies that are looped back where there is no room."""
        reached = self.best.value * self.network.arrays.unit
        return reached if self.limit is None else min(reached, self.limit)


def _best_slices(topology: Topology, plain: list[_Slice], *, in_network: bool) -> tuple[list[_Slice], Bounds]:
    """Choose the switches to span: none, if `plain` is as fast as anything tried here; return the bounds too."""
    best = plain
    spannable_switches = spannable(topology) if in_network else ()
    if not spannable_switches:
        return best, (_bound(topology, best[0].best), None)
    bound, scoped = allreduce_bound(topology), None
    for networks in span_choices(topology, spannable_switches):
        if sum(part.algbw for part in best) >= (scoped or bound).algbw:
            break
        try:
            parts = [_slice(spanning_network(part, switches), switches) for part, switches in networks]
        except (BoundError, SolverError):
            continue  # a part that does not connect the ranks
        own = _tree_bound(topology, parts[0]) if len(parts) == 1 else None
        if own and own.algbw < (scoped or bound).algbw:
            scoped = own
        best = max(best, parts, key=lambda slices: sum(part.algbw for part in slices))
    return best, (bound, scoped)


def _slice(
    network: Topology, switches: tuple[str, ...] = (), boxes: BoxGroups | None = None, limit: Fraction | None = None
) -> _Slice:
    links = _two_way_links(network)
    best = strength(len(network.nodes), network.num_ranks, *links)
    return _Slice(switches, network, links, best, boxes, limit)


def _simpler(topology: Topology, parts: list[_Slice]) -> list[list[_Slice]]:
    """Stars in boxes and trees between them, where there would be very many trees, or trees that are no faster."""
    switches = parts[0].switches
    if len(parts) > 1 or (boxes := box_groups(topology, switches)) is None:
        return []
    network = network_of_boxes(topology, switches)
    stars = _slice(network, switches, boxes, star_rate(parts[0].network, switches))
    as_fast = stars.algbw >= parts[0].algbw
    return [[stars]] if as_fast or _orientation(parts[0]).supplies.sum() > MAX_COPIES else []


def _orientation(part: _Slice) -> Orientation:
    return orient(len(part.network.nodes), part.network.num_ranks, *part.links, part.best)


def _tree_bound(topology: Topology, spanning: _Slice) -> Bound | None:
    """Bound trees by the partition that has the strength; None if it says nothing of them."""
    with suppress(CertificateError):
        if best := partition(spanning.network, spanning.best.labels):
            return Bound.from_witness(topology, ALLREDUCE, TreePartition(best.parts))
    return None


def _sliced_forest(topology: Topology, part: _Slice, trace: Trace) -> Forest | None:
    """Pack the trees of a part, rooted at centers."""
    network = part.network
    with trace.stage("orientation"):
        orientation = _orientation(part)
    forest = _forest(network, part.links, orientation, trace)
    with trace.stage("centering"):
        if part.boxes:
            return with_stars(forest, network, topology, part.boxes)
        return rooted_at_centers(in_original_numbers(forest, network, topology)).tidied()


def _two_way_links(topology: Topology) -> _Links:
    """Check that all links are symmetric, and keep one of each pair."""
    tree_problem(topology, "broadcast", ())  # refuses ranks out of reach
    tails, heads, capacities, unit = topology.arrays
    bandwidths = dict(zip(zip(tails.tolist(), heads.tolist(), strict=True), capacities.tolist(), strict=True))
    for (tail, head), capacity in bandwidths.items():
        back = bandwidths.get((head, tail), 0)
        if back != capacity:
            ends = f"{topology.nodes[tail]!r} to {topology.nodes[head]!r}"
            raise UnsupportedError(
                f"the link from {ends} has {float(capacity * unit):g} GB/s and its reverse link "
                f"{float(back * unit):g} GB/s; expected symmetric bidirectional links: lower the faster one, or use "
                "the planner 'forestcoll'"
            )
    once = tails < heads
    return _Links(tails[once], heads[once], capacities[once])


def _bound(topology: Topology, best: Strength) -> Bound:
    witness = partition(topology, best.labels)
    if witness is None or topology.loopback:  # what switches do outside of all parts, a partition does not see
        return allreduce_bound(topology)
    return Bound.from_witness(topology, ALLREDUCE, witness)


def _forest(topology: Topology, links: _Links, orientation: Orientation, trace: Trace) -> Forest:
    """Pack trees into the oriented capacities, and map them back to routes through switches."""
    size = len(topology.nodes)
    tails, heads, _, _ = topology.arrays
    keys = links.tails * size + links.heads
    order = np.argsort(keys)
    place = order[np.searchsorted(keys[order], np.minimum(tails, heads) * size + np.maximum(tails, heads))]
    capacities = np.where(tails < heads, orientation.forward[place], orientation.backward[place])
    count = int(np.gcd.reduce(orientation.supplies))
    problem = TreeProblem(topology, "broadcast", tails, heads, capacities, orientation.supplies // count)
    # The capacities are in whole trees already, so nothing is left to scale but the shards.
    exact = Bottleneck(1, count, np.zeros(size, dtype=np.bool_))
    return best_forest(problem, exact, None, trace)
