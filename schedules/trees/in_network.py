"""Traffic that in-network multicast and aggregation make redundant, taken out of trees (ForestColl section 5.6).

In one tree all data is the same.  Once a switch that can multicast has it, a path that passes the switch can begin
there; likewise with switches that can aggregate when data runs towards the root.  The throughput stays what it was,
since every rank still receives every shard over its own links; what becomes less is the traffic on the way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numba
import numpy as np

from ...errors import UnsupportedError
from ...support.arrays import BoolArray, IntArray, SmallArray
from ...support.validation import shown
from ...topologies import Topology
from ..paths.congestion import path_links
from .forest import Forest
from .switch_vertices import columns

UNLIMITED = 2**31


class _Abilities(NamedTuple):
    """What each node can do, shape (nodes,), and links that a copy takes which is looped back."""

    branches: BoolArray  # whether it copies, or adds where data runs towards the root
    loops: BoolArray  # whether a copy goes back to the rank above it
    group: IntArray  # neighbors in a tree at most
    opposite: IntArray  # int64 (hops of all paths,): the opposite link of each hop, -1 for none
    room: IntArray  # int64 (links,): copies for which each link has room; those of a tree are taken off


def in_network(forest: Forest, topology: Topology) -> Forest:
    """Let trees branch at switches that multicast (or aggregate, for reduce trees) wherever paths of a tree meet there.

    A switch that loops copies back branches a tree only where its links have room, so that no link becomes a
    bottleneck that was none.

    Parameters
    ----------
    forest : Forest
        Left alone; returned if nothing can be saved, or if its trees branch at switches already.
    topology : Topology
        Its `multicast` and `aggregation` say which switches are able, its `limits` how far.

    Returns
    -------
    Forest

    Examples
    --------
    Two leaves behind one switch receive from the same root; the second copy starts at the switch:

    >>> links = [(rank, "sw", 1) for rank in "abc"]
    >>> topology = Topology.from_links(links, compute="abc", switches=["sw"], bidirectional=True, multicast=["sw"])
    >>> trees = [(root, 1, [(root, 3, rank) for rank in range(3) if rank != root]) for root in range(3)]
    >>> forest = Forest.from_paths(3, 1, trees)
    >>> [int(each.link_loads(topology).sum()) for each in (forest, in_network(forest, topology))]
    [12, 9]
    """
    if not isinstance(forest, Forest):
        raise UnsupportedError(
            f"the forest is {shown(forest)}; expected a Forest, such as one of plan.schedule.forests"
        )
    able = _abilities(forest, topology)
    if len(forest.switches) or not able.branches.any():
        return forest
    switches = np.flatnonzero(able.branches)
    longest = int(np.diff(forest.path_starts).max())
    column = columns(np.arange(len(topology.nodes)), forest.num_ranks, switches)
    pieces = np.full((forest.num_trees, forest.num_ranks + len(switches)), -1, dtype=np.int64)
    arrays = forest.roots, forest.weights, forest.routes, forest.parents, forest.path_starts, forest.path_nodes
    _divide(*arrays, able, column, longest, pieces)
    return _with_pieces(forest, pieces, switches, longest)


def _abilities(forest: Forest, topology: Topology) -> _Abilities:
    names = topology.multicast if forest.direction == "broadcast" else topology.aggregation
    limits = {limit.switch: limit for limit in topology.limits}
    branches = np.array([node in names for node in topology.nodes])
    loops = np.array([node in topology.loopback for node in topology.nodes])
    group = [limits[node].group if node in limits else None for node in topology.nodes]
    index = {(link.tail, link.head): number for number, link in enumerate(topology.links)}
    reverse = np.array([index.get((link.head, link.tail), -1) for link in topology.links])
    opposite = np.full(len(forest.path_nodes), -1, dtype=np.int64)
    room = np.zeros(len(topology.links), dtype=np.int64)
    if (branches & loops).any():
        last = np.zeros(len(forest.path_nodes), dtype=np.bool_)
        last[forest.path_starts[1:] - 1] = True
        links = path_links(forest.path_starts, forest.path_nodes, topology, forest.direction)
        opposite[~last] = reverse[links]
        loads = forest.link_loads(topology)
        most = forest.congestion(topology) * forest.trees_per_root
        room[:] = [int(most * link.bandwidth) - load for link, load in zip(topology.links, loads.tolist(), strict=True)]
    return _Abilities(branches, loops, np.array([each or UNLIMITED for each in group]), opposite, room)


@numba.njit(cache=True, nogil=True)
def _divide(
    roots: IntArray,
    weights: IntArray,
    routes: SmallArray,
    parents: IntArray,
    starts: IntArray,
    nodes: IntArray,
    able: _Abilities,
    column: IntArray,
    longest: int,
    pieces: IntArray,
) -> None:
    """Write for each vertex the piece of a path on which it receives: ``(path * longest + first) * longest + last``.

    Shapes: as in a Forest; `column` int64 (nodes,); `pieces` int64 (trees, vertices), -1 where nothing is received.
    """
    ranks = routes.shape[1]
    supplier = np.empty(len(column), dtype=np.int64)  # the rank on whose path each switch receives
    begins = np.empty(len(column), dtype=np.int64)  # how many paths begin at each switch
    first = np.empty(ranks, dtype=np.int64)
    for tree in range(len(roots)):
        supplier[:] = -1
        begins[:] = 0
        for rank in _outwards(roots[tree], parents[tree]):
            path = routes[tree, rank]
            begin, length = starts[path], starts[path + 1] - starts[path]
            first[rank] = 0
            for place in range(length - 2, 0, -1):
                switch = nodes[begin + place]
                if supplier[switch] >= 0 and _takes(
                    switch, tree, supplier[switch], first, begins, weights, routes, starts, nodes, able
                ):
                    first[rank] = place
                    begins[switch] += 1
                    break
            for place in range(first[rank] + 1, length - 1):
                switch = nodes[begin + place]
                if able.branches[switch] and supplier[switch] < 0:
                    supplier[switch] = rank
        for rank in range(ranks):
            path = routes[tree, rank]
            if path < 0:
                continue
            begin, length, since = starts[path], starts[path + 1] - starts[path], first[rank]
            for place in range(first[rank] + 1, length):
                node = nodes[begin + place]
                if place == length - 1 or (supplier[node] == rank and begins[node] > 0):
                    pieces[tree, column[node]] = (path * longest + since) * longest + place
                    since = place


@numba.njit(cache=True, nogil=True)
def _takes(
    switch: int,
    tree: int,
    supplier: int,
    first: IntArray,
    begins: IntArray,
    weights: IntArray,
    routes: SmallArray,
    starts: IntArray,
    nodes: IntArray,
    able: _Abilities,
) -> bool:
    """Whether one more path may begin at a switch; reserves links for what the first one makes it loop back."""
    if begins[switch] + 3 > able.group[switch]:
        return False
    if begins[switch] > 0 or not able.loops[switch] or first[supplier] > 0:
        return True
    hop = starts[routes[tree, supplier]]
    while nodes[hop] != switch:
        if able.opposite[hop] < 0 or able.room[able.opposite[hop]] < weights[tree]:
            return False
        hop += 1
    hop = starts[routes[tree, supplier]]
    while nodes[hop] != switch:
        able.room[able.opposite[hop]] -= weights[tree]
        hop += 1
    return True


@numba.njit(cache=True, nogil=True)
def _outwards(root: int, parent: IntArray) -> IntArray:
    """List the ranks of a tree but its root, each after the one above it; shape (ranks - 1,)."""
    order = np.empty(len(parent), dtype=np.int64)
    placed = np.zeros(len(parent), dtype=np.bool_)
    placed[root] = True
    chain = np.empty(len(parent), dtype=np.int64)
    done = 0
    for rank in range(len(parent)):
        length, node = 0, rank
        while not placed[node]:
            chain[length] = node
            length += 1
            node = parent[node]
        for place in range(length - 1, -1, -1):
            order[done] = chain[place]
            placed[chain[place]] = True
            done += 1
    return order[:done]


def _with_pieces(forest: Forest, pieces: IntArray, switches: IntArray, longest: int) -> Forest:
    """Number the pieces as paths, and keep the switches where trees branch."""
    used = pieces >= 0
    kinds, numbers = np.unique(pieces[used], return_inverse=True)
    routes = np.full(pieces.shape, -1, dtype=np.int32)
    routes[used] = numbers
    paths, first, last = kinds // longest**2, kinds // longest % longest, kinds % longest
    lengths = last - first + 1
    starts = np.concatenate([[0], np.cumsum(lengths)])
    within = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
    kept: BoolArray = np.atleast_1d(used.any(axis=0))
    kept[: forest.num_ranks] = True
    return replace(
        forest,
        routes=routes[:, kept],
        path_starts=starts,
        path_nodes=forest.path_nodes[np.repeat(forest.path_starts[paths] + first, lengths) + within],
        switches=switches[kept[forest.num_ranks :]],
    )
