"""Trees that span switches: in a network of their own, switches that reduce are ranks without data.

The best trees of boxes also use what bandwidth ranks have left outside of their box, and there are very many of them.
Stars in boxes, joined by trees between boxes, are few, and lose only what that gains.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import gcd, lcm
from typing import NamedTuple

import numpy as np

from ...schedules import Forest
from ...schedules.trees.tree_arrays import columns
from ...solvers.trees.height_reduction import centered, eccentricities, move_root, parents_of
from ...support.arrays import IntArray, SmallArray, joined_rows
from ...support.kernels import kernel
from ...topologies import Link, Topology

MAX_SLICES = 64  # switches that are alike, of which each slice spans one
MAX_SINGLE = 16  # switches of which leaving out each one is tried
MAX_FACTOR = 2**16  # how much weights are multiplied at most, so that trees can be divided among roots


def spannable(topology: Topology) -> tuple[str, ...]:
    """Switches that multicast and aggregate among all their neighbors, so that trees may span them freely.

    Copies that a switch loops back go against the way that data came, so its links need opposites.
    """
    reducing = topology.multicast & topology.aggregation
    groups = {limits.switch: limits.group for limits in topology.limits if limits.group is not None}
    ends = reducing | set(topology.compute_nodes)
    return tuple(
        switch
        for switch in topology.switch_nodes
        if switch in reducing
        and (switch not in groups or len(_reached(topology, switch) & ends) <= groups[switch])
        and (switch not in topology.loopback or _symmetric(topology, {switch, *_reached(topology, switch)}))
    )


def _symmetric(topology: Topology, nodes: set[str]) -> bool:
    """Whether each link of the switches among these nodes has an opposite."""
    pairs = {link[:2] for link in topology.links if nodes.intersection(link[:2]).difference(topology.compute_nodes)}
    return all((head, tail) in pairs for tail, head in pairs)


def _reached(topology: Topology, switch: str) -> set[str]:
    """All other nodes that links in any direction join to a switch, past switches only."""
    ranks, reached, level = set(topology.compute_nodes), {switch}, {switch}
    while level:
        ends = [link[:2] for node in level - ranks for link in (*topology.out_links(node), *topology.in_links(node))]
        level = {end for pair in ends for end in pair} - reached
        reached |= level
    return reached - {switch}


def spanning_network(topology: Topology, switches: tuple[str, ...]) -> Topology:
    """Turn switches into compute nodes, after the ranks, that trees must reach; loopback takes bandwidth."""
    spanned = frozenset(switches)
    return replace(
        topology.without_abilities(),
        compute_nodes=topology.compute_nodes + switches,
        switch_nodes=tuple(node for node in topology.switch_nodes if node not in spanned),
        links=_reserved(topology, spanned),
    )


def _reserved(topology: Topology, spanned: frozenset[str]) -> tuple[Link, ...]:
    """Links less what copies that are looped back may take."""
    ranks = set(topology.compute_nodes)
    shares: dict[str, Fraction] = {}
    for switch in spanned & topology.loopback:
        links = (*topology.out_links(switch), *topology.in_links(switch))
        around = ranks.intersection(end for link in links for end in link[:2])
        shares[switch] = Fraction(len(around), len(around) + 1)
    return tuple(
        link._replace(bandwidth=link.bandwidth * share)
        if (share := shares.get(link.tail if link.head in ranks else link.head)) and {*link[:2]} & ranks
        else link
        for link in topology.links
    )


Choice = list[tuple[Topology, tuple[str, ...]]]
"""Parts of a network, each with the switches that its trees span."""


def span_choices(topology: Topology, switches: tuple[str, ...]) -> Iterator[Choice]:
    """Yield ways to span switches: all; slices with one of those that are alike; none of those; all but one."""
    yield [(topology, switches)]
    groups = _switch_kinds(topology, switches)
    for group in groups:
        if 1 < len(group) <= MAX_SLICES:
            remaining = tuple(switch for switch in switches if switch not in group)
            yield [(part, (*remaining, switch)) for part, switch in zip(_slices(topology, group), group, strict=True)]
    for group in groups:
        if len(group) < len(switches):
            yield [(topology, tuple(switch for switch in switches if switch not in group))]
    if len(switches) <= MAX_SINGLE:
        for switch in switches:
            yield [(topology, tuple(other for other in switches if other != switch))]


def _switch_kinds(topology: Topology, switches: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Group switches whose links have the same bandwidths and lead to nodes of the same kinds."""
    ranks = set(topology.compute_nodes)
    groups: dict[object, list[str]] = {}
    for switch in switches:
        links = sorted((link.head in ranks, link.bandwidth) for link in topology.out_links(switch))
        groups.setdefault((tuple(links), switch in topology.loopback), []).append(switch)
    return [tuple(group) for group in groups.values()]


def _slices(topology: Topology, group: tuple[str, ...]) -> list[Topology]:
    """Divide the network: links that lead to one switch of the group alone are its own, the others equally shared."""
    ranks = set(topology.compute_nodes)
    owner = {switch: switch for switch in group}
    near: dict[str, set[str]] = {}
    for link in topology.links:
        near.setdefault(link.tail, set()).add(link.head)
    for node in topology.switch_nodes:
        neighbors = near.get(node, set()) - ranks
        if node not in owner and len(neighbors) == 1 and (only := next(iter(neighbors))) in group:
            owner[node] = only
    parts: dict[str, list[Link]] = {switch: [] for switch in group}
    for link in topology.links:
        owners = {owner[end] for end in link[:2] if end in owner}
        if len(owners) > 1:
            continue  # between two of the group, of which every slice spans one
        for switch in owners or group:
            share = Fraction(1, 1 if owners else len(group))
            parts[switch].append(link._replace(bandwidth=link.bandwidth * share))
    return [replace(topology, links=tuple(links)) for links in parts.values()]


def in_original_numbers(forest: Forest, network: Topology, topology: Topology) -> Forest:
    """Number the nodes of a forest on `spanning_network` as the topology does; its last vertices become switches."""
    index: IntArray = np.array([topology.node_index[name] for name in network.nodes], dtype=np.int64)
    return replace(
        forest,
        num_ranks=topology.num_ranks,
        path_nodes=index[forest.path_nodes],
        root_weights=forest.root_weights[: topology.num_ranks],
        switches=index[topology.num_ranks : network.num_ranks],
    )


def joined_forests(forests: Sequence[Forest], algbws: Sequence[Fraction]) -> Forest:
    """Put forests side by side, whose copies then all run at the same rate; `algbws` in GB/s."""
    if len(forests) == 1:
        return forests[0]
    rates = [algbw / int(forest.weights.sum()) for forest, algbw in zip(forests, algbws, strict=True)]
    scale = lcm(*(rate.denominator for rate in rates))
    copies = [int(rate * scale) for rate in rates]
    common = gcd(*copies)
    switches = np.unique(np.concatenate([forest.switches for forest in forests]))
    ranks = forests[0].num_ranks
    routes, starts, weights = [], [np.zeros(1, dtype=np.int64)], []
    paths = 0
    # Columns of switches that a forest does not span stay empty.
    for forest, count in zip(forests, copies, strict=True):
        columns = np.append(np.arange(ranks), ranks + np.searchsorted(switches, forest.switches))
        wide = np.full((forest.num_trees, ranks + len(switches)), -1, dtype=np.int32)
        wide[:, columns] = np.where(forest.routes >= 0, forest.routes + paths, -1)
        routes.append(wide)
        starts.append(forest.path_starts[1:] + starts[-1][-1])
        paths += len(forest.path_starts) - 1
        weights.append(forest.weights * (count // common))
    roots, together = np.concatenate([forest.roots for forest in forests]), np.concatenate(weights)
    per_root, shares = shares_of_roots(roots, together, ranks)
    of_paths = np.concatenate(routes), np.concatenate(starts), np.concatenate([forest.path_nodes for forest in forests])
    return Forest(ranks, per_root, roots, together, *of_paths, shares, forests[0].direction, switches)


class BoxGroups(NamedTuple):
    """Boxes of a network: a spanned switch and the ranks around it each, by node number."""

    switches: IntArray  # int64 (boxes,)
    box_of: IntArray  # int64 (ranks,)


def box_groups(topology: Topology, spanned: tuple[str, ...]) -> BoxGroups | None:
    """Assign every rank to the only spanned switch next to it; None if that fails, or there is one box."""
    switches = np.array([topology.node_index[switch] for switch in spanned], dtype=np.int64)
    tails, heads, _, _ = topology.arrays
    place = np.full(len(topology.nodes), -1)
    place[switches] = np.arange(len(switches))
    inside = place[tails] >= 0
    if len(spanned) < 2 or not np.array_equal(np.sort(heads[inside]), np.arange(topology.num_ranks)):
        return None
    box_of = np.empty(topology.num_ranks, dtype=np.int64)
    box_of[heads[inside]] = place[tails[inside]]
    return BoxGroups(switches, box_of) if len(np.unique(box_of)) == len(spanned) else None


def network_of_boxes(topology: Topology, spanned: tuple[str, ...]) -> Topology:
    """Turn the switches of boxes into the only compute nodes, and ranks into switches that data passes freely."""
    free = max(bandwidth for bandwidth, _ in topology.columns.rates) * topology.num_links
    inside = {*spanned}
    links = tuple(link._replace(bandwidth=free) if inside & {*link[:2]} else link for link in topology.links)
    plain_switches = tuple(node for node in topology.switch_nodes if node not in inside)
    switches = topology.compute_nodes + plain_switches
    return replace(topology.without_abilities(), compute_nodes=spanned, switch_nodes=switches, links=links)


def star_rate(network: Topology, spanned: tuple[str, ...]) -> Fraction:
    """Bandwidth of the thinnest link between a rank and its switch, GB/s."""
    inside = {*spanned}
    return min(link.bandwidth for link in network.links if not inside.isdisjoint(link[:2]))


def with_stars(forest: Forest, network: Topology, topology: Topology, groups: BoxGroups) -> Forest | None:
    """Put a star of ranks in place of each box of a forest on `network_of_boxes`; None if paths pass ranks."""
    ranks, boxes = topology.num_ranks, len(groups.switches)
    index = np.array([topology.node_index[name] for name in network.nodes])
    nodes = index[forest.path_nodes].tolist()
    between = [tuple(nodes[begin + 1 : end - 1]) for begin, end in pairwise(forest.path_starts.tolist())]
    if any(min(path[1:-1], default=ranks) < ranks for path in between):
        return None
    # Paths: those between boxes, and from each switch to its ranks and back.
    stars = [(int(groups.switches[box]), rank) for rank, box in enumerate(groups.box_of.tolist())]
    paths = [*between, *stars, *(star[::-1] for star in stars)]
    down = len(between) + np.arange(ranks)  # the path from its switch to each rank; that back has `ranks` more
    firsts = np.array([path[0] for path in between])
    lasts = np.array([path[-1] for path in between])
    members = [np.flatnonzero(groups.box_of == box) for box in range(boxes)]
    routes = np.tile(np.append(down, np.zeros(boxes, dtype=np.int64)), (forest.num_trees, 1)).astype(np.int32)
    roots = np.empty(forest.num_trees, dtype=np.int64)
    # In each box the rank that a tree enters feeds the switch, which feeds the others.
    for tree in range(forest.num_trees):
        for box in range(boxes):
            route = int(forest.routes[tree, box])
            if route < 0:
                leaving = [firsts[other] for other in forest.routes[tree] if other >= 0]
                entry = next(int(rank) for rank in [*leaving, members[box][0]] if groups.box_of[rank] == box)
                roots[tree] = entry
            else:
                entry = int(lasts[route])
            routes[tree, entry] = route
            routes[tree, ranks + box] = down[entry] + ranks
    per_root, shares = shares_of_roots(roots, forest.weights, ranks)
    columns = roots, forest.weights, routes, *joined_rows(paths)
    return Forest(ranks, per_root, *columns, shares, forest.direction, groups.switches)


def rooted_at_centers(forest: Forest) -> Forest:
    """Reroot every tree at its center; its routes can be used in both directions."""
    senders = _vertex_senders(forest)
    roots, routes = centered(forest.roots, forest.routes, senders, forest.num_ranks)
    return _with_roots(forest, roots, routes, forest.weights)


def rooted_for_loopback(forest: Forest, topology: Topology, algbw: Fraction) -> Forest:
    """Root every tree near its center, but where links have room for looped-back copies at the rate `algbw`."""
    # Weights are multiplied so that links have room for whole numbers of copies, if that takes no large factor.
    total = int(forest.weights.sum())
    factor = lcm(*((bandwidth * total / algbw).denominator for bandwidth, _ in topology.columns.rates))
    factor = factor if factor <= MAX_FACTOR else 1
    forest = replace(forest, weights=forest.weights * factor, trees_per_root=forest.trees_per_root * factor)
    spare, senders = _Spare(forest, topology, algbw), _vertex_senders(forest)
    rows = [row for tree in range(forest.num_trees) for row in spare.place(tree, senders)]
    trees, roots, weights = (np.array(column) for column in zip(*rows, strict=True))
    routes = forest.routes[trees]
    for route, root in zip(routes, roots.tolist(), strict=True):
        move_root(route, senders, root)
    return _with_roots(forest, roots, routes, weights)


class _Spare:
    """Copies for which links have room beside the trees themselves."""

    def __init__(self, forest: Forest, topology: Topology, algbw: Fraction) -> None:
        self._forest = forest
        total = int(forest.weights.sum())
        names, index = topology.nodes, topology.node_index
        loops = [place for place, node in enumerate(forest.switches.tolist()) if names[node] in topology.loopback]
        self._loops = [forest.num_ranks + place for place in loops]
        # A tree takes every link that it uses once in each direction.
        loads = forest.link_loads(replace(topology, limits=()))
        used: dict[tuple[int, int], int] = {}
        for link, load in zip(topology.links, loads.tolist(), strict=True):
            ends = index[link.tail], index[link.head]
            used[ends] = used.get(ends, 0) + load
            used[ends[::-1]] = used.get(ends[::-1], 0) + load
        places = [(index[link.tail], index[link.head]) for link in topology.links]
        limits = [int(link.bandwidth * total / algbw) for link in topology.links]
        self._room = {ends: limit - used[ends] for ends, limit in zip(places, limits, strict=True)}

    def place(self, tree: int, senders: IntArray) -> list[tuple[int, int, int]]:
        """Choose roots for all copies of a tree; rows of the tree, a root, and how many copies have it."""
        forest = self._forest
        parent = parents_of(forest.routes[tree], senders)
        root, ranks = int(forest.roots[tree]), forest.num_ranks
        farthest = eccentricities(root, parent, ranks)[:ranks]
        branching = [switch for switch in self._loops if (parent == switch).sum() >= 2]
        above = [neighbors_towards(parent, switch)[:ranks] for switch in branching]
        rows, left = list[tuple[int, int, int]](), int(forest.weights[tree])
        while left:
            room = np.full(ranks, left)
            for switch, neighbors in zip(branching, above, strict=True):
                room = np.minimum(room, self._room_at(tree, parent, switch, neighbors, left))
            fits = room > 0
            best = int(np.lexsort((-room, farthest, ~fits))[0])
            count = int(room[best]) if fits[best] else left
            for switch, neighbors in zip(branching, above, strict=True):
                for hop in self._hops(tree, parent, int(neighbors[best]), switch):
                    self._room[hop] -= count
            rows.append((tree, best, count))
            left -= count
        return rows

    def _room_at(self, tree: int, parent: IntArray, switch: int, neighbors: IntArray, limit: int) -> IntArray:
        """How many copies may be looped back if each rank is the root, shape (ranks,)."""
        rooms = {}
        for vertex in np.unique(neighbors).tolist():
            hops = self._hops(tree, parent, vertex, switch)
            rooms[vertex] = min((self._room[hop] for hop in hops), default=limit)
        return np.array([rooms[vertex] for vertex in neighbors.tolist()])

    def _hops(self, tree: int, parent: IntArray, vertex: int, switch: int) -> list[tuple[int, int]]:
        """Hops between a switch and the vertex above it, both ways along a link alike; none if that is a switch."""
        if vertex >= self._forest.num_ranks:
            return []
        below = switch if parent[switch] == vertex else vertex
        path = self._forest.path(int(self._forest.routes[tree, below]))
        return [*pairwise(path), *pairwise(path[::-1])]


@kernel
def neighbors_towards(parent: IntArray, switch: int) -> IntArray:
    """Neighbor of a vertex of a tree on the way to each other vertex, shape (vertices,); its own is the one above."""
    towards = np.full(len(parent), parent[switch])
    for vertex in range(len(parent)):
        node, below = np.int64(vertex), np.int64(-1)
        while node >= 0 and node != switch:
            below, node = node, parent[node]
        if node == switch and below >= 0:
            towards[vertex] = below
    return towards


def _vertex_senders(forest: Forest) -> IntArray:
    """Vertex that each path begins at, shape (paths,)."""
    return columns(forest.path_nodes[forest.path_starts[:-1]], forest.num_ranks, forest.switches)


def shares_of_roots(roots: IntArray, weights: IntArray, num_ranks: int) -> tuple[int, IntArray]:
    """Return the trees per root, and the weights of the shards (ranks,), that give each root its trees."""
    trees = np.zeros(num_ranks, dtype=np.int64)
    np.add.at(trees, roots, weights)
    per_root = int(np.gcd.reduce(trees))
    return per_root, trees // per_root


def _with_roots(forest: Forest, roots: IntArray, routes: SmallArray, weights: IntArray) -> Forest:
    """Put other trees into a forest, whose routes may have the number of a path plus that of all for its reverse."""
    paths = [forest.path(route) for route in range(len(forest.path_starts) - 1)]
    paths += [path[::-1] for path in paths]
    used, numbers = np.unique(routes[routes >= 0], return_inverse=True)
    routes[routes >= 0] = numbers
    starts, nodes = joined_rows([paths[route] for route in used.tolist()])
    per_root, shares = shares_of_roots(roots, weights, forest.num_ranks)
    return replace(
        forest,
        trees_per_root=per_root,
        root_weights=shares,
        roots=roots,
        weights=weights,
        routes=routes,
        path_starts=starts,
        path_nodes=nodes,
    )
