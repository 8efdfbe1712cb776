"""Traffic that in-network multicast and aggregation make redundant, taken out of trees (ForestColl section 5.6).

In one tree all data is the same.  Once a switch that can multicast has it, a path that passes the switch can begin
there; likewise with switches that can aggregate when data runs towards the root.  The throughput stays,
since every rank still receives every shard over its own links; only the traffic on the way becomes less.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...support.arrays import BoolArray, IntArray
from ...support.kernels import kernel
from ...support.validation import as_kind
from ...topologies import Topology
from .forest import Forest
from .tree_arrays import NumberedRoutes, columns

UNLIMITED = 2**31


class Abilities(NamedTuple):
    """Abilities of each node, shape (nodes,), and the links that a looped copy takes."""

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
    as_kind(forest, Forest, "the forest", hint=", such as one of plan.schedule.forests")
    abilities = _abilities(forest, topology)
    if len(forest.switches) or not abilities.branches.any():
        return forest
    switches = np.flatnonzero(abilities.branches)
    longest = int(np.diff(forest.path_starts).max())
    column = columns(np.arange(len(topology.nodes)), forest.num_ranks, switches)
    pieces = np.full((forest.num_trees, forest.num_ranks + len(switches)), -1, dtype=np.int64)
    numbered = NumberedRoutes(forest.routes, forest.path_starts, forest.path_nodes)
    divide(forest.weights, forest.depths, numbered, abilities, column, longest, pieces)
    return _with_pieces(forest, pieces, switches, longest)


def _abilities(forest: Forest, topology: Topology) -> Abilities:
    names = topology.multicast if forest.direction == "broadcast" else topology.aggregation
    limits = {limit.switch: limit for limit in topology.limits}
    branches = np.array([node in names for node in topology.nodes])
    loops = np.array([node in topology.loopback for node in topology.nodes])
    group = [limits[node].group if node in limits else None for node in topology.nodes]
    reverse = topology.link_places(topology.columns.heads, topology.columns.tails)
    opposite = np.full(len(forest.path_nodes), -1, dtype=np.int64)
    room = np.zeros(topology.num_links, dtype=np.int64)
    if (branches & loops).any():
        last = np.zeros(len(forest.path_nodes), dtype=np.bool_)
        last[forest.path_starts[1:] - 1] = True
        links = forest.path_links(topology)
        opposite[~last] = reverse[links]
        loads = forest.link_loads(topology)
        peak = forest.inverse_rate(topology) * forest.trees_per_root
        room[:] = [int(peak * link.bandwidth) - load for link, load in zip(topology.links, loads.tolist(), strict=True)]
    return Abilities(branches, loops, np.array([size or UNLIMITED for size in group]), opposite, room)


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


@kernel
def divide(
    weights: IntArray,
    depths: IntArray,
    numbered: NumberedRoutes,
    abilities: Abilities,
    column: IntArray,
    longest: int,
    pieces: IntArray,
) -> None:
    """Write for each vertex the piece of a path on which it receives: ``(path * longest + first) * longest + last``.

    Paths to ranks near the root come first, so that no tree becomes higher.

    Shapes: as in a Forest; `column` int64 (nodes,); `pieces` int64 (trees, vertices), -1 where nothing is received.
    """
    routes, starts, nodes = numbered
    ranks = routes.shape[1]
    supplier = np.empty(len(column), dtype=np.int64)  # the rank on whose path each switch receives
    begins = np.empty(len(column), dtype=np.int64)  # how many paths begin at each switch
    first = np.empty(ranks, dtype=np.int64)
    for tree in range(len(weights)):
        supplier[:] = -1
        begins[:] = 0
        # Each path begins at the last switch on it that has the data already.
        for rank in np.argsort(depths[tree], kind="mergesort")[1:]:
            path = routes[tree, rank]
            begin, length = starts[path], starts[path + 1] - starts[path]
            first[rank] = 0
            for place in range(length - 2, 0, -1):
                switch = nodes[begin + place]
                if supplier[switch] >= 0 and _takes(
                    switch, tree, supplier[switch], first, begins[switch], weights[tree], numbered, abilities
                ):
                    first[rank] = place
                    begins[switch] += 1
                    break
            # Further switches on the path have the data from now on.
            for place in range(first[rank] + 1, length - 1):
                switch = nodes[begin + place]
                if abilities.branches[switch] and supplier[switch] < 0:
                    supplier[switch] = rank
        # Paths end, and new ones begin, at the switches where others begin.
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


@kernel
def _takes(
    switch: int,
    tree: int,
    supplier: int,
    first: IntArray,
    begun: int,
    weight: int,
    numbered: NumberedRoutes,
    abilities: Abilities,
) -> bool:
    """Whether one more path may begin at a switch; reserves links for the copy that the first one loops back."""
    if begun + 3 > abilities.group[switch]:
        return False
    if begun > 0 or not abilities.loops[switch] or first[supplier] > 0:
        return True
    begin = numbered.path_starts[numbered.routes[tree, supplier]]
    end = begin
    while numbered.path_nodes[end] != switch:
        end += 1
    back = abilities.opposite[begin:end]
    for link in back:
        if link < 0 or abilities.room[link] < weight:
            return False
    for link in back:
        abilities.room[link] -= weight
    return True
