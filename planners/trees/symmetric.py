"""Planner of symmetric networks: trees of representative roots, for up to a million ranks.

A product of commuting symmetries takes every rank to every other of its orbit.  One maximum flow for each orbit gives
the bound, and the trees of one rank of each orbit give all others; docs/explanation/symmetry.md has the proofs.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...formulations.allreduce_cuts import opposite_links
from ...schedules import ALLGATHER, ALLREDUCE, REDUCE_SCATTER, Bound, Collective, Cut, Forest
from ...schedules.bounds.witness import Witness
from ...schedules.collective import EVERY_ROOT, AnyCollective, as_collective
from ...schedules.trees.symmetric_forest import SymmetricAllreduce, SymmetricForest, link_orbits
from ...solvers.flows.bottleneck import Bottleneck, bottleneck_cut
from ...solvers.flows.max_flow import check_capacities, max_flow
from ...support.arrays import IntArray, orbits
from ...topologies import Topology
from ...topologies.network.topology import as_topology
from ...topologies.symmetry.refinement import ColoredNetwork, hops_from
from ...topologies.symmetry.translations import hosts_of_sites, nested_turns, site_symmetries
from ..plans.plan import Plan, proved_plan
from ..plans.registry import register_planner
from ..plans.stages import Trace
from .problem import TreeProblem, tree_problem
from .strength import allreduce_bound, node_names, partition
from .symmetric_parts import MAX_ROUTES, Symmetry, parts_forest

MANY_RANKS = 1024  # above which the best bound of an allreduce is not sought
SEEDS = 4  # loose orders that are tried


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
        advice = "expected equal boxes, a fat tree, a torus or the like: plan with 'forestcoll'"
        raise UnsupportedError(f"no symmetries of {topology} move its ranks, or equal parts of it; {advice}")
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


class _Sites(NamedTuple):
    """Ranks, or routers, with the links between them, sorted by heads and orbits."""

    hosts: IntArray  # int64 (sites, hosts of each): a rank itself, or the ranks of a router
    first: int  # node of the first site
    tails: IntArray  # int64 (links,)
    heads: IntArray  # int64 (links,)
    orbits: IntArray  # int64 (links,)
    limits: IntArray  # int64 (orbits,): units that the links of each orbit carry in the trees of all representatives
    senders: IntArray  # int64 (orbits,): orbit of sites that the links come from
    room: IntArray  # int64 (orbits of sites,): units that sites can send to others
    roots: IntArray  # int64 (representatives,): their sites


def direct_forest(
    problem: TreeProblem, best: Bottleneck, symmetry: Symmetry, hosts: IntArray, link_orbits: IntArray
) -> Forest:
    """Pack the trees of representative roots; `hosts` int64 (sites, hosts of each) and `link_orbits` int64 (links,)."""
    count, roots = best.capacity, symmetry.parts[0]
    if count * len(roots) * len(problem.root_weights) > MAX_ROUTES:
        raise UnsupportedError(f"{count} trees for each of {len(roots)} representatives are too many to write down")
    sites = _sites(problem, best, symmetry, hosts, link_orbits)
    for orders in _orders(sites):
        links = _chosen_links(sites, _earlier_links(sites, orders), count)
        if links is not None:
            return _forest(problem, sites, links, count)
    raise UnsupportedError(
        "no order of the ranks was found in which trees of representatives reach the bound; plan with 'forestcoll'"
    )


def _sites(
    problem: TreeProblem, best: Bottleneck, symmetry: Symmetry, hosts: IntArray, link_orbits: IntArray
) -> _Sites:
    size, representatives = symmetry.parts.shape
    width, first = hosts.shape[1], problem.num_nodes - len(hosts)
    check_capacities(int(problem.capacities.max()) * best.supply * len(link_orbits))
    between = np.flatnonzero((problem.tails >= first) & (problem.heads >= first))
    _, orbits = np.unique(link_orbits[between], return_inverse=True)
    between = between[order := np.lexsort((orbits, problem.heads[between]))]
    tails, heads, orbits = problem.tails[between] - first, problem.heads[between] - first, orbits[order]
    capacities, senders = np.empty((2, orbits.max() + 1), dtype=np.int64)
    capacities[orbits] = problem.capacities[between]
    site, orbit = np.empty((2, len(problem.root_weights)), dtype=np.int64)
    site[hosts] = np.arange(len(hosts))[:, None]
    orbit[symmetry.parts] = np.arange(representatives)
    senders[orbits] = orbit[hosts[tails, 0]]
    room = np.full(representatives, best.capacity * representatives * len(hosts))
    if first:  # a host sends what it can, less what goes to others of its router
        leaving = np.flatnonzero(problem.tails < first)
        room[orbit[problem.tails[leaving]]] = problem.capacities[leaving] * best.supply
        room -= best.capacity * representatives * (size // width) * (width - 1)
    limits = capacities * best.supply * np.bincount(orbits) // size
    return _Sites(hosts, first, tails, heads, orbits, limits, senders, room, site[symmetry.parts[0]])


def _orders(sites: _Sites) -> Iterator[list[IntArray]]:
    """Yield positions of the sites, int64 (sites,) for each root: levels, then levels with ties broken at random.

    Where bandwidths differ, distances over links that are the longer the slower they are take the place of levels.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra

    nothing = np.zeros(len(sites.hosts), dtype=np.int64)
    network = ColoredNetwork(sites.tails, sites.heads, np.zeros_like(sites.tails), nothing)
    levels = [hops_from(network, int(root)) for root in sites.roots]
    yield levels
    room = (sites.limits // np.bincount(sites.orbits))[sites.orbits] + 1
    if (room != room[0]).any():
        lengths = coo_array((room.max() // room, (sites.tails, sites.heads)), shape=(len(nothing),) * 2)
        levels = list(dijkstra(lengths.tocsr(), indices=sites.roots))
        yield levels
    for seed in range(SEEDS):
        random = np.random.default_rng(seed)
        yield [np.argsort(np.lexsort((random.random(len(level)), level))) for level in levels]


def _earlier_links(sites: _Sites, orders: list[IntArray]) -> IntArray:
    """Links over which sites can receive in an order for each root, one of each orbit; (roots, sites, links), or -1."""
    tables = []
    for root, order in zip(sites.roots.tolist(), orders, strict=True):
        links = np.flatnonzero((order[sites.tails] < order[sites.heads]) & (sites.heads != root))
        heads, orbits = sites.heads[links], sites.orbits[links]
        fresh = np.ones(len(links), dtype=np.bool_)
        fresh[1:] = (np.diff(heads) != 0) | (np.diff(orbits) != 0)
        links, heads = links[fresh], heads[fresh]
        counts = np.bincount(heads, minlength=len(order))
        place = np.arange(len(links)) - (np.cumsum(counts) - counts)[heads]
        rows = np.full((len(order), counts.max()), -1)
        rows[heads, place] = links
        tables.append(rows)
    width = max(rows.shape[1] for rows in tables)
    return np.array([np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=-1) for rows in tables])


def _chosen_links(sites: _Sites, links: IntArray, count: int) -> IntArray | None:
    """Choose the link on which each site receives in each tree, (roots, trees, sites); None if they carry too little.

    Sites that can receive from the same orbits are one node of the flow network, and the j-th unit of each is tree j.
    """
    # Sites that can receive from the same orbits are one kind.
    width = links.shape[2]
    rows = links.reshape(-1, width)
    receiving = np.flatnonzero(rows[:, 0] >= 0)
    rows = rows[receiving]
    table = np.where(rows >= 0, sites.orbits[rows], -1).astype(np.int32)
    orbit_sets, kinds = np.unique(table, axis=0, return_inverse=True)
    members = np.bincount(kinds.ravel())
    units = _flow(sites, orbit_sets.astype(np.int64), count * members)
    if units is None:
        return None
    # Deal the units of each kind to its sites and trees.
    order = np.argsort(kinds.ravel(), kind="stable")
    starts = np.cumsum(members) - members
    kind = kinds.ravel()[order]
    unit = count * starts[kind] + np.arange(len(order)) - starts[kind] + np.arange(count)[:, None] * members[kind]
    slots = np.searchsorted(np.cumsum(units), unit, side="right") % width
    receiving_links = np.full((count, links.shape[0] * links.shape[1]), -1)
    receiving_links[:, receiving[order]] = rows[order, slots]
    return receiving_links.reshape(count, *links.shape[:2]).transpose(1, 0, 2)


def _flow(sites: _Sites, orbit_sets: IntArray, demands: IntArray) -> IntArray | None:
    """Units that each kind of site takes from each of its orbits, (kinds, places); None if they are too few."""
    kinds, places = np.nonzero(orbit_sets >= 0)
    if (sites.room < 0).any():
        return None
    senders = 2 + np.arange(len(sites.room))
    orbits = 2 + len(senders) + np.arange(len(sites.limits))
    own = 2 + len(senders) + len(orbits) + np.arange(len(orbit_sets))
    arcs = [
        (orbits[orbit_sets[kinds, places]], own[kinds], demands[kinds]),
        (own, np.ones_like(own), demands),
        (senders[sites.senders], orbits, sites.limits),
        (np.zeros_like(senders), senders, sites.room),
    ]
    tails, heads, capacities = (np.concatenate(column) for column in zip(*arcs, strict=True))
    flow = max_flow(int(own[-1]) + 1, tails, heads, capacities, 0, 1)
    if flow.value < demands.sum():
        return None
    units = np.zeros(orbit_sets.shape, dtype=np.int64)
    units[kinds, places] = flow.residual[1::2][: len(kinds)]
    return units


def _forest(problem: TreeProblem, sites: _Sites, links: IntArray, count: int) -> Forest:
    """Write down trees by the links between sites, `links` (roots, trees, sites); equal trees become one."""
    ranks, receivers, first = len(problem.root_weights), sites.hosts[:, 0], sites.first
    # Equal trees become one.
    distinct = [Counter(row.tobytes() for row in rows) for rows in links]
    table = np.frombuffer(b"".join(row for rows in distinct for row in rows), dtype=np.int64).reshape(
        -1, len(receivers)
    )
    weights = np.array([copies for rows in distinct for copies in rows.values()])
    used = np.unique(table[table >= 0])
    number = np.full(len(sites.tails) + 1, -1)
    number[used] = np.arange(len(used))
    tails, heads = sites.tails[used], sites.heads[used]
    routers = [first + tails, first + heads] if first else []
    # Paths between sites, and from routers to their other hosts.
    paths = np.column_stack([receivers[tails], *routers, receivers[heads]])
    local_hosts = sites.hosts[:, 1:]
    near = np.repeat(np.arange(len(local_hosts)), local_hosts.shape[1])
    local = np.column_stack([receivers[near], first + near, local_hosts.ravel()])
    routes = np.empty((len(table), ranks), dtype=np.int32)
    routes[:, receivers] = number[table]
    routes[:, local_hosts.ravel()] = len(used) + np.arange(len(local))
    lengths = np.repeat([paths.shape[1], 3], [len(used), len(local)])
    shards = np.zeros(ranks, dtype=np.int64)
    roots = receivers[sites.roots]
    shards[roots] = 1
    return Forest(
        ranks,
        count,
        np.repeat(roots, [len(rows) for rows in distinct]),
        weights,
        routes,
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate([paths.ravel(), local.ravel()]),
        shards,
        problem.direction,
    )
