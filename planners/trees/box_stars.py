"""Trees of boxes: in each box the switch joins all ranks, and trees between boxes join the stars.

Where ranks have more bandwidth outside of their box than trees between boxes need, the best trees also use it inside,
and there are very many of them.  These are few, and lose only what that gains.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...schedules import Forest
from ...support.arrays import IntArray, joined_rows
from ...topologies import Topology
from .tree_roots import shares_of_roots


class BoxGroups(NamedTuple):
    """Boxes of a network: a spanned switch and the ranks around it each, by node number."""

    switches: IntArray  # int64 (boxes,)
    box_of: IntArray  # int64 (ranks,)


def box_groups(topology: Topology, able: tuple[str, ...]) -> BoxGroups | None:
    """Assign every rank to the only able switch next to it; None if that fails, or there is one box."""
    switches = np.array([topology.node_index[switch] for switch in able], dtype=np.int64)
    tails, heads, _, _ = topology.arrays
    place = np.full(len(topology.nodes), -1)
    place[switches] = np.arange(len(switches))
    inside = place[tails] >= 0
    if len(able) < 2 or not np.array_equal(np.sort(heads[inside]), np.arange(topology.num_ranks)):
        return None
    box_of = np.empty(topology.num_ranks, dtype=np.int64)
    box_of[heads[inside]] = place[tails[inside]]
    return BoxGroups(switches, box_of) if len(np.unique(box_of)) == len(able) else None


def network_of_boxes(topology: Topology, able: tuple[str, ...]) -> Topology:
    """Turn the switches of boxes into the only compute nodes, and ranks into switches that data passes freely."""
    free = max(bandwidth for bandwidth, _ in topology.columns.rates) * topology.num_links
    inside = {*able}
    links = tuple(link._replace(bandwidth=free) if inside & {*link[:2]} else link for link in topology.links)
    others = tuple(node for node in topology.switch_nodes if node not in inside)
    return replace(
        topology,
        compute_nodes=able,
        switch_nodes=topology.compute_nodes + others,
        links=links,
        multicast=frozenset(),
        aggregation=frozenset(),
        limits=(),
    )


def star_rate(network: Topology, able: tuple[str, ...]) -> Fraction:
    """Bandwidth of the thinnest link between a rank and its switch, GB/s."""
    inside = {*able}
    return min(link.bandwidth for link in network.links if not inside.isdisjoint(link[:2]))


def with_stars(forest: Forest, network: Topology, topology: Topology, groups: BoxGroups) -> Forest | None:
    """Put a star of ranks in place of each box of a forest on `network_of_boxes`; None if paths pass ranks."""
    ranks, boxes = topology.num_ranks, len(groups.switches)
    index = np.array([topology.node_index[name] for name in network.nodes])
    nodes = index[forest.path_nodes].tolist()
    between = [tuple(nodes[begin + 1 : end - 1]) for begin, end in pairwise(forest.path_starts.tolist())]
    if any(min(path[1:-1], default=ranks) < ranks for path in between):
        return None
    stars = [(int(groups.switches[box]), rank) for rank, box in enumerate(groups.box_of.tolist())]
    paths = [*between, *stars, *(star[::-1] for star in stars)]
    down = len(between) + np.arange(ranks)  # the path from its switch to each rank; that back has `ranks` more
    firsts = np.array([path[0] for path in between])
    lasts = np.array([path[-1] for path in between])
    members = [np.flatnonzero(groups.box_of == box) for box in range(boxes)]
    routes = np.tile(np.append(down, np.zeros(boxes, dtype=np.int64)), (forest.num_trees, 1)).astype(np.int32)
    roots = np.empty(forest.num_trees, dtype=np.int64)
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
