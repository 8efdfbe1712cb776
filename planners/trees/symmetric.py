"""Planner of symmetric networks: trees of representative roots, for up to a million ranks.

A product of commuting symmetries takes every rank to every other of its orbit.  One maximum flow for each orbit gives
the bound, and the trees of one rank of each orbit give all others; docs/explanation/symmetry.md has the proofs.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from ...errors import UnsupportedError
from ...formulations.allreduce_cuts import opposite_links
from ...schedules import ALLGATHER, ALLREDUCE, REDUCE_SCATTER, Bound, Collective, Cut
from ...schedules.bounds.witness import Witness
from ...schedules.collective import EVERY_ROOT, AnyCollective, as_collective
from ...schedules.trees.symmetric_forest import SymmetricAllreduce, SymmetricForest, link_orbits
from ...solvers.flows.bottleneck import Bottleneck, bottleneck_cut
from ...support.arrays import IntArray, orbits
from ...topologies import Topology
from ...topologies.network.topology import as_topology
from ...topologies.symmetry.refinement import ColoredNetwork
from ...topologies.symmetry.translations import hosts_of_sites, nested_turns, site_symmetries
from ..plans.plan import Plan, proved_plan
from ..plans.registry import register_planner
from ..plans.stages import Trace
from .problem import TreeProblem, tree_problem
from .strength import allreduce_bound, node_names, partition
from .symmetric_parts import Symmetry, direct_forest, parts_forest

MANY_RANKS = 1024  # above which the best bound of an allreduce is not sought


def bound_symmetric(topology: Topology, collective: AnyCollective) -> Bound:
    """Bound a collective of equal shards by one flow for each orbit of ranks.

    Raises `UnsupportedError` without symmetries, or if an allreduce may have a better bound than this.
    """
    collective = as_collective(collective, EVERY_ROOT, "symmetric trees do not implement")
    symmetries = _checked_symmetries(topology)
    if not collective.has_two_phases:
        return _phase_bound(topology, collective, symmetries)
    there = _phase_bound(topology, ALLGATHER, symmetries)
    back = there if opposite_links(topology) is not None else _phase_bound(topology, REDUCE_SCATTER, symmetries)
    bound = _allreduce_bound(there, symmetries)
    if bound.inverse_rate != there.inverse_rate + back.inverse_rate:
        raise UnsupportedError("reduce-scatter and allgather together do not reach this bound")
    return bound


@register_planner("symmetric", EVERY_ROOT)
def plan_symmetric(topology: Topology, collective: AnyCollective) -> Plan:
    """Plan trees of a few ranks whose images under symmetries are all others, for up to a million ranks."""
    collective = as_collective(collective, EVERY_ROOT, "symmetric trees do not implement")
    trace = Trace()
    with trace.stage("symmetries"):
        symmetries = _checked_symmetries(topology)
    if not collective.has_two_phases:
        forest, bound = _directed(topology, collective, symmetries, trace)
        return proved_plan(topology, collective, forest, "symmetric", {}, trace, bound)
    broadcast, bound = _directed(topology, ALLGATHER, symmetries, trace)
    if opposite_links(topology) is None:
        reduction, _ = _directed(topology, REDUCE_SCATTER, symmetries, trace)
    else:
        reduction = replace(broadcast, base=replace(broadcast.base, direction="reduce"))
    schedule = SymmetricAllreduce(reduction, broadcast)

    def bound_at(rate: Fraction) -> Bound:
        best = _allreduce_bound(bound, symmetries)
        return best if best.inverse_rate == rate or topology.num_ranks > MANY_RANKS else allreduce_bound(topology)

    return proved_plan(topology, collective, schedule, "symmetric", {}, trace, bound_at)


def _checked_symmetries(topology: Topology) -> list[Symmetry]:
    as_topology(topology)
    symmetries = list(_symmetries(topology))
    if not symmetries:
        raise UnsupportedError(
            f"no symmetries of {topology} were found that move its ranks, or equal parts of it; expected equal "
            "boxes, a fat tree, a torus or the like: plan with 'forestcoll'"
        )
    return symmetries


def _symmetries(topology: Topology) -> Iterator[Symmetry]:
    """Yield groups that move parts of a network with switches, smallest first, or one that moves ranks or routers."""
    network = ColoredNetwork.of(topology)
    hosts = hosts_of_sites(network, topology.num_ranks)
    if hosts is not None:
        generators = np.array(list(site_symmetries(network, hosts)), dtype=np.int64)
        if len(generators):
            of_ranks = orbits(generators[:, : topology.num_ranks])
            yield Symmetry(generators, np.argsort(of_ranks, kind="stable").reshape(of_ranks.max() + 1, -1).T, hosts)
        return
    turned: list[IntArray] = []
    for turn in nested_turns(network, topology.num_ranks):
        turned.append(turn.mapping)
        yield Symmetry(np.array(turned), turn.parts)


def _directed(
    topology: Topology, collective: Collective, symmetries: list[Symmetry], trace: Trace
) -> tuple[SymmetricForest, Bound]:
    (direction,) = collective.phases
    problem = tree_problem(topology, direction, ())
    with trace.stage("bottleneck"):
        bound, best = _directed_bound(problem, collective, symmetries)
    with trace.stage("tree packing"):
        symmetry = symmetries[0]
        if symmetry.hosts is None:
            return parts_forest(problem, best, symmetries, trace), bound
        base = direct_forest(problem, best, symmetry, symmetry.hosts, link_orbits(symmetry.generators, topology))
        return SymmetricForest(base, symmetry.generators), bound


def _phase_bound(topology: Topology, collective: Collective, symmetries: list[Symmetry]) -> Bound:
    (direction,) = collective.phases
    return _directed_bound(tree_problem(topology, direction, ()), collective, symmetries)[0]


def _directed_bound(
    problem: TreeProblem, collective: Collective, symmetries: list[Symmetry]
) -> tuple[Bound, Bottleneck]:
    topology, first = problem.topology, symmetries[-1].parts[0]
    best = bottleneck_cut(
        problem.num_nodes,
        problem.tails,
        problem.heads,
        problem.capacities,
        problem.root_weights,
        np.sort(first[first < topology.num_ranks]).tolist(),
    )
    rate = Fraction(best.supply, best.capacity) / topology.arrays.unit
    return Bound(topology, collective, rate, Cut(node_names(topology, best.source_side))), best


def _allreduce_bound(bound: Bound, symmetries: list[Symmetry]) -> Bound:
    """Bound an allreduce by the cut of an allgather, or by the ingress of single ranks or of equal parts."""
    topology = bound.topology
    witnesses: list[Witness] = [bound.witness]
    alone = np.arange(topology.num_ranks)[:, None]
    for parts in (alone, *(symmetry.parts for symmetry in symmetries if topology.switch_nodes)):
        labels = np.full(len(topology.nodes), -1)
        labels[parts] = np.arange(len(parts))[:, None]
        witness = partition(topology, labels)
        if witness is not None:
            witnesses.append(witness)
    rates = [Fraction(*witness.crossing(topology, ALLREDUCE)) for witness in witnesses]
    place = rates.index(max(rates))
    return Bound(topology, ALLREDUCE, rates[place], witnesses[place])
