"""Representative trees of equal parts round a network of switches, and the places that parts take in it.

Where the cut round a part is the bottleneck, every tree enters each other part once.  A network of one part and one
node for all others is small; the trees that enter it there are those of all other parts, turned to the first.  From
one part to the next, trees take a route through the switches between them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...schedules import Forest
from ...schedules.trees.symmetric_forest import SymmetricForest, link_orbits
from ...solvers.flows.bottleneck import Bottleneck
from ...solvers.flows.max_flow import check_capacities, max_flow
from ...support.arrays import IntArray, SmallArray
from ...topologies import Topology
from ...topologies.symmetry.refinement import ColoredNetwork, hops_from
from ..plans.stages import Trace
from .forest import best_forest, bottleneck
from .problem import TreeProblem, tree_problem
from .symmetric_fabric import FabricRoutes, chosen_routes

MAX_ROUTES = 2**29  # entries of the representatives' trees
SEEDS = 4  # loose orders that are tried


class Symmetry(NamedTuple):
    """Generators of a group, and, of a network with switches, the equal parts that it moves."""

    generators: IntArray  # int64 (generators, nodes)
    parts: IntArray  # int64 (products, nodes of a part): the first part and its images
    hosts: IntArray | None = None  # int64 (sites, hosts of each) where ranks, or routers, are linked directly


class PartTrees(NamedTuple):
    """Trees of one part: those of its own ranks, and those that enter it."""

    nodes: IntArray  # int64 (nodes,): of the part, ranks first
    num_ranks: int
    forest: Forest  # of the part and one more rank, the last, for all others; places in `nodes`, but for that rank

    @property
    def outside(self) -> int:
        """The rank that stands for all other parts."""
        return self.num_ranks


def parts_forest(problem: TreeProblem, best: Bottleneck, symmetries: list[Symmetry], trace: Trace) -> SymmetricForest:
    """Build symmetric trees that enter each part once, for the smallest parts that the network allows."""
    for place, symmetry in reversed(list(enumerate(symmetries))):
        if all(_may_enter_often(problem, best, outer, symmetry) for outer in symmetries[:place]):
            trees = _part_trees(problem, best, symmetry.parts[0], trace)
            if trees is not None:
                base = _joined(problem, trees, symmetry.parts, link_orbits(symmetry.generators, problem.topology))
                return SymmetricForest(base, symmetry.generators)
    raise UnsupportedError(
        f"no trees that enter each of the equal parts of {problem.topology} once reach its bound; plan with "
        "'forestcoll'"
    )


def _may_enter_often(problem: TreeProblem, best: Bottleneck, outer: Symmetry, inner: Symmetry) -> bool:
    """Whether every tree can enter an outer part once for each inner part in it."""
    inside = np.zeros(problem.num_nodes, dtype=np.bool_)
    inside[outer.parts[0]] = True
    ranks = problem.topology.num_ranks
    entering = int(problem.capacities[~inside[problem.tails] & inside[problem.heads]].sum())
    times = len(inner.parts) // len(outer.parts)
    return best.capacity * (ranks - int(inside[:ranks].sum())) * times <= entering * best.supply


def _part_trees(problem: TreeProblem, best: Bottleneck, part: IntArray, trace: Trace) -> PartTrees | None:
    """Pack the trees of a part, which all others enter once; None if its links have no room for them."""
    ranks = problem.topology.num_ranks
    # One rank after those of the part stands for all outside of it.
    nodes = np.sort(part)
    own = int((nodes < ranks).sum())
    place = np.full(problem.num_nodes, own)  # one rank for all outside, after those of the part
    place[nodes] = np.arange(len(nodes)) + (np.arange(len(nodes)) >= own)
    tails, heads = place[problem.tails], place[problem.heads]
    kept = tails != heads
    ends, which = np.unique(np.column_stack([tails[kept], heads[kept]]), axis=0, return_inverse=True)
    units = np.zeros(len(ends), dtype=np.int64)
    np.add.at(units, which.ravel(), problem.capacities[kept] * best.supply)
    # What crosses the part's border is trimmed to what its trees need.
    for column in (0, 1):
        crossing = ends[:, column] == own
        trimmed = _trimmed(units[crossing], best.capacity * (ranks - own))
        if trimmed is None:
            return None
        units[crossing] = trimmed
    names = [str(node) for node in range(len(nodes) + 1)]
    small = Topology.from_links(
        [(names[tail], names[head], unit) for (tail, head), unit in zip(ends.tolist(), units.tolist(), strict=True)],
        compute=names[: own + 1],
        switches=names[own + 1 :],
    )
    # Pack the trees of the small network; they have to be as fast as all.
    small_problem = tree_problem(small, "broadcast", (*[1] * own, ranks - own))
    small_best = bottleneck(small_problem)
    if Fraction(small_best.supply, small_best.capacity) / small.arrays.unit != Fraction(1, best.capacity):
        return None
    return PartTrees(nodes, own, best_forest(small_problem, small_best, None, trace))


def _trimmed(units: IntArray, total: int) -> IntArray | None:
    """Lower capacities in proportion, to a given sum; None if they are less already."""
    capacity = int(units.sum())
    if capacity < total:
        return None
    shares = np.array([unit * total // capacity for unit in units.tolist()], dtype=np.int64)
    shares[: total - int(shares.sum())] += 1
    return shares[shares > 0] if (shares > 0).all() else None


class _Units(NamedTuple):
    """What the small forest says, tree by tree and rank by rank."""

    paths: list[IntArray]  # nodes of each path inside the part, by places in its nodes
    entries: list[IntArray]  # nodes of each path from outside, without the node outside
    inside: SmallArray  # (trees, ranks): path inside on which each rank receives, -1 for none
    entry: IntArray  # int64 (trees,): entry of each tree from outside, -1 for none


def _units(trees: PartTrees) -> _Units:
    forest, outside = trees.forest, trees.outside
    place = np.arange(len(trees.nodes) + 1) - (np.arange(len(trees.nodes) + 1) > outside)
    paths: list[IntArray] = []
    entries: list[IntArray] = []
    inside_number, entry_number = np.full((2, len(forest.path_starts)), -1)
    for number in range(len(forest.path_starts) - 1):
        path = np.array(forest.path(number))
        if path[0] == outside:
            entry_number[number] = len(entries)
            entries.append(place[path[1:]])
        elif path[-1] != outside:
            if outside in path:
                raise UnsupportedError("a tree of one part passes through others")
            inside_number[number] = len(paths)
            paths.append(place[path])
    routes = forest.routes[:, : trees.num_ranks]
    entering = np.where(routes >= 0, entry_number[routes], -1)
    if ((entering >= 0).sum(axis=1) != (forest.roots == outside)).any():
        raise UnsupportedError("a tree enters a part more than once")
    return _Units(
        paths, entries, np.where(routes >= 0, inside_number[routes], -1).astype(np.int32), entering.max(axis=1)
    )


def _joined(problem: TreeProblem, trees: PartTrees, parts: IntArray, orbits: IntArray) -> Forest:
    """Let trees of the first part's ranks enter all other parts, one unit of the small forest for each."""
    count, own, units = trees.forest.trees_per_root, trees.num_ranks, _units(trees)
    targets, ranks = len(parts) - 1, problem.topology.num_ranks
    if count * own * ranks > MAX_ROUTES:
        raise UnsupportedError(f"{count} trees for each of {own} representatives are too many to write down")
    images = parts[:, np.argsort(parts[0])]  # int64 (parts, nodes): the node of each part at each place
    # Trees start in the first part, and enter each other part by a tree of the rank outside.
    starting = _unit_trees(trees, range(own), units).reshape(own * count)
    entering = _unit_trees(trees, [own], units).reshape(own * count, targets)
    exits = units.entry[entering]
    fabric = chosen_routes(problem, images, units.entries, exits, orbits, len(parts))
    # Number the routes between parts that occur.
    numbers, pair = np.unique(
        np.ravel_multi_index(
            (exits, np.arange(1, targets + 1)[None], fabric.choices),
            (len(units.entries), targets + 1, fabric.num_candidates),
        ),
        return_inverse=True,
    )
    kept = len(parts) * len(units.paths)
    entered = (kept + pair).reshape(exits.shape)
    # Write down the routes of all trees: inside the first part, inside others, and into these.
    routes = np.full((own * count, ranks), -1, dtype=np.int32)
    shift = np.arange(1, targets + 1)[:, None] * len(units.paths)
    for tree in range(own * count):
        routes[tree, images[0, :own]] = units.inside[starting[tree]]
        below = units.inside[entering[tree]]
        routes[tree, images[1:, :own]] = np.where(below >= 0, below + shift, entered[tree][:, None])
    starts, nodes = _all_paths(images, units, fabric, numbers)
    roots = np.repeat(images[0, :own], count)
    shards = np.zeros(ranks, dtype=np.int64)
    shards[images[0, :own]] = 1
    return Forest(ranks, count, roots, np.ones_like(roots), routes, starts, nodes, shards, problem.direction)


def _unit_trees(trees: PartTrees, roots: Iterable[int], units: _Units) -> IntArray:
    """Trees of some roots of the small forest, each as often as it weighs, by root or by where they enter."""
    forest = trees.forest
    tree_sets = [np.flatnonzero(forest.roots == root) for root in roots]
    receiver = np.array([entry[-1] for entry in units.entries] + [-1])
    ordered = [
        tree_numbers[np.argsort(receiver[units.entry[tree_numbers]], kind="stable")] for tree_numbers in tree_sets
    ]
    return np.concatenate([np.repeat(tree_numbers, forest.weights[tree_numbers]) for tree_numbers in ordered])


def _all_paths(images: IntArray, units: _Units, fabric: FabricRoutes, numbers: IntArray) -> tuple[IntArray, IntArray]:
    """Paths inside all parts, those of a part after each other, then those between the first part and others."""
    inside = np.concatenate([*units.paths, np.empty(0, dtype=np.int64)]).astype(np.int64)
    lengths = np.tile([len(path) for path in units.paths], len(images))
    entry, part, choice = np.unravel_index(numbers, (len(units.entries), len(images), fabric.num_candidates))
    rows, spans = [], []
    for number, nodes in enumerate(units.entries):
        of = np.flatnonzero(entry == number)
        between = fabric.routes[number][part[of], choice[of]]
        out = np.broadcast_to(images[0, nodes[::-1]], (len(of), len(nodes)))
        rows.append(np.hstack([out, between, images[part[of]][:, nodes]]))
        spans.append(of)
    nodes, counts = _in_order(rows, spans, len(numbers))
    starts = np.concatenate([[0], np.cumsum(np.concatenate([lengths, counts]).astype(np.int64))])
    return starts, np.concatenate([images[:, inside].ravel(), nodes])


def _in_order(rows: list[IntArray], places: list[IntArray], size: int) -> tuple[IntArray, IntArray]:
    """Arrange rows of several widths by their places, leaving out -1; their nodes, and how many each has."""
    width = max(block.shape[1] for block in rows)
    table = np.full((size, width), -1)
    for block, place in zip(rows, places, strict=True):
        table[place, : block.shape[1]] = block
    there = table >= 0
    return table[there], there.sum(axis=1)


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
