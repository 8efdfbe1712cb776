"""Traffic that in-network multicast and aggregation make redundant, taken out of trees (ForestColl section 5.6).

In one tree all data is the same.  Once a switch that can multicast has it, a path that passes the switch can begin
there; likewise with switches that can aggregate when data runs towards the root.  The throughput stays,
since every rank still receives every shard over its own links; only the traffic on the way becomes less.
"""

from dataclasses import replace

import numpy as np

from ...support.arrays import BoolArray, IntArray
from ...support.validation import as_kind
from ...topologies import Topology
from .forest import Forest
from .switch_vertices import Abilities, NumberedRoutes, columns

UNLIMITED = 2**31


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
    from .tree_arrays import divide

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
