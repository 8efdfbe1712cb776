"""What `Plan.verify` has to find out, once more in plain loops over one tree and one path after the other."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise

import networkx as nx

from collopt.planners import Plan
from collopt.schedules import Bound, Cut, Forest
from collopt.topologies import Topology

__all__ = ["bound_holds", "forest_holds", "loads_of", "plan_holds"]


def plan_holds(plan: Plan) -> bool:
    """Whether everything that the plan of an allgather of equal shards claims is true."""
    if not (str(plan.collective) == str(plan.bound.collective) == "allgather" and plan.topology == plan.bound.topology):
        return False
    if not isinstance(plan.schedule, Forest) or plan.schedule.direction != "broadcast" or plan.bound.weights:
        return False
    if not bound_holds(plan.bound) or not forest_holds(plan.schedule, plan.topology):
        return False
    loads = loads_of(plan.schedule, plan.topology)
    busiest = max(
        Fraction(load, plan.schedule.trees_per_root) / link.bandwidth
        for load, link in zip(loads, plan.topology.links, strict=True)
    )
    return loads == plan.link_loads.tolist() and busiest == plan.inverse_rate >= plan.bound.inverse_rate


def bound_holds(bound: Bound) -> bool:
    """Whether the cut is a cut and has the ratio claimed, for equal shards that have to leave it."""
    assert isinstance(bound.witness, Cut)
    topology, inside = bound.topology, bound.witness.nodes
    leaving = sum(link.bandwidth for link in topology.links if {link.tail} <= inside and not {link.head} <= inside)
    ranks = len(inside & set(topology.compute_nodes))
    known = inside <= set(topology.nodes)
    return known and 0 < ranks < topology.num_ranks and leaving > 0 and bound.inverse_rate * leaving == ranks


def forest_holds(forest: Forest, topology: Topology) -> bool:
    """Whether the arrays describe `trees_per_root` spanning out-trees per rank on links of the topology."""
    starts, ranks = forest.path_starts.tolist(), range(topology.num_ranks)
    bounds = [0, *starts, len(forest.path_nodes)]
    if forest.num_ranks != len(ranks) or bounds != sorted(bounds) or starts[0] != 0 or starts[-1] != bounds[-1]:
        return False
    able = [place for place, node in enumerate(topology.nodes) if node in topology.multicast]
    switches = forest.switches.tolist()
    if len(set(switches)) < len(switches) or not set(switches) <= set(able):
        return False
    paths = [forest.path_nodes[start:stop].tolist() for start, stop in pairwise(starts)]
    if not all(_is_route(path, topology, {*ranks, *switches}) for path in paths):
        return False
    totals: Counter[int] = Counter()
    for root, weight, routes in zip(
        forest.roots.tolist(), forest.weights.tolist(), forest.routes.tolist(), strict=True
    ):
        if weight < 1 or not _is_tree(root, routes, paths, [*ranks, *switches], len(ranks)):
            return False
        if not _keeps_limits([paths[route] for route in routes if route >= 0], topology):
            return False
        totals[root] += weight
    return all(totals[rank] == forest.trees_per_root for rank in ranks) and forest.root_weights.tolist() == [1] * len(
        ranks
    )


def loads_of(forest: Forest, topology: Topology) -> list[int]:
    """Tree copies on each link of the topology."""
    loads: Counter[tuple[int, int]] = Counter()
    for tree, weight in enumerate(forest.weights.tolist()):
        paths = [list(forest.path(route)) for route in forest.routes[tree].tolist() if route >= 0]
        for path in paths + _copies_back(paths, topology):
            for hop in pairwise(path):
                loads[hop] += weight
    index = topology.nodes.index
    return [loads[index(link.tail), index(link.head)] for link in topology.links]


def _copies_back(paths: list[list[int]], topology: Topology) -> list[list[int]]:
    """Paths back to the ranks above switches with loopback that hand data on to several vertices or to a switch."""
    back = []
    for path in paths:
        below = [other[-1] for other in paths if other[0] == path[-1]]
        several = len(below) > 1 or max(below, default=0) >= topology.num_ranks
        loops = topology.nodes[path[-1]] in topology.loopback
        if loops and several and path[0] < topology.num_ranks:
            back.append(path[::-1])
    return back


def _keeps_limits(paths: list[list[int]], topology: Topology) -> bool:
    """Whether a tree of these paths joins no more neighbors than groups have, and its copies have a way back."""
    links = {(topology.nodes.index(link.tail), topology.nodes.index(link.head)) for link in topology.links}
    for limits in topology.limits:
        below = sum(topology.nodes[path[0]] == limits.switch for path in paths)
        if limits.group is not None and below > 1 and below + 1 > limits.group:
            return False
    return all(hop in links for path in _copies_back(paths, topology) for hop in pairwise(path))


def _is_route(path: list[int], topology: Topology, vertices: set[int]) -> bool:
    links = {(topology.nodes.index(link.tail), topology.nodes.index(link.head)) for link in topology.links}
    ends, between = {path[0], path[-1]} if path else set(), path[1:-1]
    return (
        len(path) >= 2
        and len(set(path)) == len(path)
        and ends <= vertices
        and not set(between) & set(range(topology.num_ranks))
        and all(hop in links for hop in pairwise(path))
    )


def _is_tree(root: int, routes: list[int], paths: list[list[int]], vertices: list[int], num_ranks: int) -> bool:
    """Whether the paths of all vertices but the root, and but switches that are left out, form a tree."""
    if not 0 <= root < num_ranks or routes[root] != -1:
        return False
    tree = nx.DiGraph()
    tree.add_nodes_from(range(num_ranks))
    for vertex, route in zip(vertices, routes, strict=True):
        if vertex != root and not (vertex >= num_ranks and route == -1):
            if not 0 <= route < len(paths) or paths[route][-1] != vertex:
                return False
            tree.add_edge(paths[route][0], vertex)
    return nx.is_arborescence(tree)
