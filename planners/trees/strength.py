"""Allreduce at the strength of the network: the best there is where links work both ways.

The bound is a partition of the nodes into parts that must exchange more than their links can carry any faster; the plan
adds up along trees and spreads the sums back along the same trees, so that a link carries as much one way as the other.
Both meet on every network of two-way links whose switches do not add up data: see ``docs/explanation/allreduce.md``,
which proves it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...schedules import ALLREDUCE, Allreduce, Bound, Forest, congestion
from ...solvers.strength.orientation import Orientation, orient
from ...solvers.strength.strength import Strength, strength
from ...solvers.strength.tree_centers import centered
from ...solvers.trees.bottleneck import Bottleneck
from ...support.arrays import IntArray
from ...topologies import Topology
from ..plans.plan import Plan
from ..plans.stages import Trace
from .allreduce_bound import allreduce_bound, partition
from .forest import best_forest
from .problem import TreeProblem, tree_problem


class _Links(NamedTuple):
    """Two-way links, each once: from the end with the smaller number."""

    tails: IntArray
    heads: IntArray
    capacities: IntArray


def strength_bound(topology: Topology) -> Bound:
    """Find the strength of a network: what no allreduce can beat, and a partition that proves it.

    A path of three ranks: two links between three parts.
    """
    links = _two_way_links(topology)
    return _bound(topology, _strength(topology, links))


def plan_strength(topology: Topology) -> Plan:
    """Plan an allreduce at the strength of the network: trees that add up one way and spread the other way.

    A path of three ranks: one tree, rooted in the middle.
    """
    trace = Trace()
    with trace.stage("strength"):
        links = _two_way_links(topology)
        best = _strength(topology, links)
        bound = _bound(topology, best)
    with trace.stage("orientation"):
        room = orient(len(topology.nodes), topology.num_ranks, *links, best)
    spread = _forest(topology, links, room, trace)
    with trace.stage("centering"):
        spread = _centered(spread)
    schedule = Allreduce(replace(spread, direction="reduce"), spread)
    with trace.stage("verification"):
        loads = schedule.link_loads(topology)
        rate = congestion(loads, schedule.trees_per_root, topology)
        plan = Plan(topology, ALLREDUCE, schedule, bound, rate, loads, "strength", {}, trace.provenance)
        plan.verify()
    return plan


def _two_way_links(topology: Topology) -> _Links:
    """Check that every link has its opposite, and keep one of the two."""
    tree_problem(topology, "broadcast", ())  # refuses ranks out of reach
    tails, heads, capacities, unit = topology.arrays
    known = dict(zip(zip(tails.tolist(), heads.tolist(), strict=True), capacities.tolist(), strict=True))
    for (tail, head), capacity in known.items():
        back = known.get((head, tail), 0)
        if back != capacity:
            ends = f"{topology.nodes[tail]!r} to {topology.nodes[head]!r}"
            raise UnsupportedError(
                f"the link from {ends} has {float(capacity * unit):g} GB/s and its reverse link "
                f"{float(back * unit):g} GB/s; expected symmetric bidirectional links: lower the faster one, or use "
                "the planner 'forestcoll'"
            )
    once = tails < heads
    return _Links(tails[once], heads[once], capacities[once])


def _strength(topology: Topology, links: _Links) -> Strength:
    return strength(len(topology.nodes), topology.num_ranks, *links)


def _bound(topology: Topology, best: Strength) -> Bound:
    witness = partition(topology, best.labels)
    # What switches add up outside of all parts, a partition does not see.
    return allreduce_bound(topology) if witness is None else Bound.from_witness(topology, ALLREDUCE, witness)


def _forest(topology: Topology, links: _Links, room: Orientation, trace: Trace) -> Forest:
    """Pack trees into the room, and map them back to routes through switches."""
    size = len(topology.nodes)
    tails, heads, _, _ = topology.arrays
    keys = links.tails * size + links.heads
    order = np.argsort(keys)
    place = order[np.searchsorted(keys[order], np.minimum(tails, heads) * size + np.maximum(tails, heads))]
    capacities = np.where(tails < heads, room.forward[place], room.backward[place])
    count = int(np.gcd.reduce(room.supplies))
    problem = TreeProblem(topology, "broadcast", tails, heads, capacities, room.supplies // count)
    # The room is in whole trees already, so nothing is left to scale but the shards.
    exact = Bottleneck(1, count, np.zeros(size, dtype=np.bool_))
    return best_forest(problem, exact, None, trace)


def _centered(forest: Forest) -> Forest:
    """Root every tree at its center; its routes can be passed both ways."""
    paths = [forest.path(route) for route in range(len(forest.path_starts) - 1)]
    senders = forest.path_nodes[forest.path_starts[:-1]]
    roots, routes = centered(forest.roots, forest.routes, senders)
    paths += [path[::-1] for path in paths]
    used, numbers = np.unique(routes[routes >= 0], return_inverse=True)
    routes[routes >= 0] = numbers
    kept = [paths[route] for route in used.tolist()]
    weights = np.zeros(forest.num_ranks, dtype=np.int64)
    np.add.at(weights, roots, forest.weights)
    count = int(np.gcd.reduce(weights))
    return replace(
        forest,
        trees_per_root=count,
        root_weights=weights // count,
        roots=roots,
        routes=routes,
        path_starts=np.cumsum([0, *map(len, kept)], dtype=np.int64),
        path_nodes=np.array([node for path in kept for node in path], dtype=np.int64),
    )
