"""Roots for trees on symmetric links: low trees, and copies that switches loop back spread over the ranks."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import lcm
from typing import NamedTuple

import numpy as np

from ...schedules import Forest
from ...schedules.trees.switch_vertices import columns
from ...solvers.trees.tree_centers import centered, eccentricities, move_root, parents_of
from ...support.arrays import IntArray, SmallArray, joined_rows
from ...support.kernels import kernel
from ...topologies import Topology

MAX_FACTOR = 2**16  # how much weights are multiplied at most, so that trees can be divided among roots


class _RootedTree(NamedTuple):
    """A tree of the forest, the root that it gets, and how many copies of it do."""

    tree: int
    root: int
    weight: int


def rooted_at_centers(forest: Forest) -> Forest:
    """Reroot every tree at its center; its routes can be used in both directions."""
    senders = _vertex_senders(forest)
    roots, routes = centered(forest.roots, forest.routes, senders, forest.num_ranks)
    return _with_roots(forest, roots, routes, forest.weights)


def rooted_for_loopback(forest: Forest, topology: Topology, algbw: Fraction) -> Forest:
    """Root every tree near its center, but where links have room for looped-back copies at the rate `algbw`."""
    forest = _multiplied(forest, topology, algbw)
    spare = _Spare(forest, topology, algbw)
    senders = _vertex_senders(forest)
    rooted = [row for tree in range(forest.num_trees) for row in spare.place(tree, senders)]
    routes = forest.routes[[row.tree for row in rooted]].copy()
    for route, row in zip(routes, rooted, strict=True):
        move_root(route, senders, row.root)
    return _with_roots(forest, np.array([row.root for row in rooted]), routes, np.array([row.weight for row in rooted]))


def _multiplied(forest: Forest, topology: Topology, algbw: Fraction) -> Forest:
    """Multiply all weights so that links have room for whole numbers of copies, if that takes no large factor."""
    total = int(forest.weights.sum())
    factor = lcm(*((bandwidth * total / algbw).denominator for bandwidth, _ in topology.columns.rates))
    factor = factor if factor <= MAX_FACTOR else 1
    return replace(forest, weights=forest.weights * factor, trees_per_root=forest.trees_per_root * factor)


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

    def place(self, tree: int, senders: IntArray) -> list[_RootedTree]:
        """Choose roots for all copies of a tree."""
        forest = self._forest
        parent = parents_of(forest.routes[tree], senders)
        root, ranks = int(forest.roots[tree]), forest.num_ranks
        farthest = eccentricities(root, parent, ranks)[:ranks]
        branching = [switch for switch in self._loops if (parent == switch).sum() >= 2]
        above = [neighbors_towards(parent, switch)[:ranks] for switch in branching]
        rows, left = list[_RootedTree](), int(forest.weights[tree])
        while left:
            room = np.full(ranks, left)
            for switch, neighbors in zip(branching, above, strict=True):
                room = np.minimum(room, self._room_at(tree, parent, switch, neighbors, left))
            fits = room > 0
            order = np.lexsort((-room, farthest, ~fits))
            best = int(order[0])
            count = int(room[best]) if fits[best] else left
            for switch, neighbors in zip(branching, above, strict=True):
                for hop in self._hops(tree, parent, int(neighbors[best]), switch):
                    self._room[hop] -= count
            rows.append(_RootedTree(tree, best, count))
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
