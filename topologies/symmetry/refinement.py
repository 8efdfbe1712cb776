"""Color refinement of nodes by the colors around them, with hashes over arrays, for networks of a million nodes.

Colliding hashes may keep nodes together that differ: whoever uses the colors has to check what follows from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...support.arrays import IntArray, RandomArray, places_of
from ...support.kernels import kernel
from ..network.topology import Topology


def node_kinds(topology: Topology) -> IntArray:
    """Number nodes, 0 for ranks, switches by their abilities and limits, int64 (nodes,)."""
    kinds = (np.arange(len(topology.nodes)) >= topology.num_ranks).astype(np.int64)
    limits = {limit.switch: limit[1:] for limit in topology.limits}
    numbers: dict[object, int] = {}
    for node in topology.multicast.union(topology.aggregation, limits):
        abilities = node in topology.multicast, node in topology.aggregation, limits.get(node)
        kinds[topology.node_index[node]] = numbers.setdefault(abilities, len(numbers) + 2)
    return kinds


class Adjacency(NamedTuple):
    """Links by their nodes, those out of each first, then those into each."""

    starts: IntArray  # int64 (2, nodes + 1): where the links of each node begin
    neighbors: IntArray  # int64 (2, links): the other ends
    kinds: IntArray  # int64 (2, links)


class ColoredNetwork:
    """Nodes and links with numbers that a symmetry has to keep. Shapes: int64 (links,), and (nodes,) for `colors`."""

    def __init__(self, tails: IntArray, heads: IntArray, kinds: IntArray, colors: IntArray) -> None:
        self.tails, self.heads, self.kinds, self.colors = tails, heads, kinds, colors
        self.num_nodes = len(colors)

    @classmethod
    def of(cls, topology: Topology) -> ColoredNetwork:
        """Number the kinds of links and switches of a topology."""
        tails, heads, kinds, _ = topology.columns
        return cls(tails, heads, kinds, node_kinds(topology))

    @cached_property
    def adjacency(self) -> Adjacency:
        """Links sorted by their ends."""
        ends = (self.tails, self.heads), (self.heads, self.tails)
        orders = [np.argsort(own, kind="stable") for own, _ in ends]
        starts = [np.concatenate([[0], np.cumsum(np.bincount(own, minlength=self.num_nodes))]) for own, _ in ends]
        neighbors = [other[order] for (_, other), order in zip(ends, orders, strict=True)]
        return Adjacency(np.array(starts), np.array(neighbors), np.array([self.kinds[order] for order in orders]))

    def has_symmetry(self, mapping: IntArray) -> bool:
        """Whether a permutation of the nodes, int64 (nodes,), takes links and nodes to equal ones."""
        if (self.colors[mapping] != self.colors).any():
            return False
        keys = self.tails * self.num_nodes + self.heads
        images = places_of(keys, mapping[self.tails] * self.num_nodes + mapping[self.heads])
        return bool((images >= 0).all() and (self.kinds[images] == self.kinds).all())

    def around(self, inside: IntArray) -> tuple[ColoredNetwork, IntArray]:
        """Return the network of the links of some nodes, which are its first nodes, and colors for refinement.

        All nodes that these links lead to come after them, each with a color of its own.
        """
        is_inside = np.zeros(self.num_nodes, dtype=np.bool_)
        is_inside[inside] = True
        kept = is_inside[self.tails] | is_inside[self.heads]
        ends = np.concatenate([self.tails[kept], self.heads[kept]])
        outside = np.unique(ends[~is_inside[ends]])
        place = np.empty(self.num_nodes, dtype=np.int64)
        place[inside] = np.arange(len(inside))
        place[outside] = len(inside) + np.arange(len(outside))
        own = self.colors.max() + 1 + np.arange(len(outside))
        colors = np.concatenate([self.colors[inside], own])
        return ColoredNetwork(place[self.tails[kept]], place[self.heads[kept]], self.kinds[kept], colors), colors.copy()


def refined(network: ColoredNetwork, colors: IntArray) -> IntArray:
    """Refine colors until nothing changes; int64 (nodes,), numbered from 0 by values that no name decides."""
    *_, last = refinements(network, colors)
    return last


def refinements(network: ColoredNetwork, colors: IntArray) -> Iterator[IntArray]:
    """Yield colors, each time refined once more, until nothing changes; shapes and numbers as of `refined`."""
    count = 0
    while True:
        values, colors = np.unique(colors, return_inverse=True)
        yield colors
        if len(values) in (count, len(colors)):
            return
        count = len(values)
        colors = _around(*network.adjacency, colors.astype(np.uint64)).view(np.int64)


def signature(network: ColoredNetwork, colors: IntArray) -> RandomArray:
    """Hash colors with those two links around them, sorted; uint64 (nodes,).  Equal where a symmetry joins colors."""
    hashes = colors.astype(np.uint64)
    for _ in range(2):
        hashes = _around(*network.adjacency, hashes)
    return np.sort(hashes)


def hops_from(network: ColoredNetwork, start: int) -> IntArray:
    """Links from a node, int64 (nodes,), -1 where there is no way."""
    starts, neighbors, _ = network.adjacency
    return _hops(starts[0], neighbors[0], start)


@kernel
def _hops(starts: IntArray, neighbors: IntArray, start: int) -> IntArray:
    distances = np.full(len(starts) - 1, -1, dtype=np.int64)
    queue = np.empty(len(distances), dtype=np.int64)
    # Breadth-first search: the queue holds nodes by distance, `end` is its length.
    distances[start], queue[0], end = 0, start, 1
    for place in range(len(distances)):
        if place == end:
            break
        node = queue[place]
        for link in range(starts[node], starts[node + 1]):
            if distances[neighbors[link]] < 0:
                distances[neighbors[link]] = distances[node] + 1
                queue[end] = neighbors[link]
                end += 1
    return distances


@kernel
def mixed(value: Any) -> Any:
    """Hash 64-bit values by the finalizer of SplitMix64, so that sums of different multisets rarely collide."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@kernel
def _around(starts: IntArray, neighbors: IntArray, kinds: IntArray, colors: RandomArray) -> RandomArray:
    """Hash the color of each node with those of its neighbors. Shapes: uint64 (nodes,)."""
    hashes = np.empty_like(colors)
    for node in range(len(colors)):
        # Hashes of (neighbor, kind of link) are added up, so that their order does not matter.
        value = mixed(colors[node] + np.uint64(1))
        for side in range(2):
            total = np.uint64(0)
            for place in range(starts[side, node], starts[side, node + 1]):
                salt = mixed(np.uint64(kinds[side, place] + 1))
                total += mixed(mixed(colors[neighbors[side, place]] + np.uint64(1)) + salt)
            value = mixed(value * np.uint64(3) + total)
        hashes[node] = value
    return hashes
