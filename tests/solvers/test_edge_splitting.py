"""Switch removal: what is left must be routes of the original network and still carry everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from collopt.errors import SolverError
from collopt.solvers.flows.bottleneck import bottleneck_cut, violated_sink
from collopt.solvers.flows.max_flow import paired_network
from collopt.solvers.trees.routed_graph import RoutedGraph
from collopt.solvers.trees.switch_removal import (
    RemoveAll,
    join_pass_through,
    remove_all_switches,
    remove_switches,
    split_all_switches,
    split_pairs,
)
from collopt.solvers.trees.tight_sets import LaminarFamily, tight_family
from collopt.topologies import Topology
from oracles.brute_force_cuts import supplies_fit
from strategies import eulerian_topologies

Integers = npt.NDArray[np.int64]
Network = tuple[int, Integers, Integers, Integers, Integers]
Cycles = Sequence[tuple[Sequence[int], int]]

COMPILING = [HealthCheck.too_slow]
"""The first example that is drawn may have to wait for numba."""


class LogicalNetwork(NamedTuple):
    """Links between ranks, each with the path of the original network that it stands for; equal paths added up."""

    tails: Integers
    heads: Integers
    capacities: Integers
    path_starts: Integers
    path_nodes: Integers


def logical_network(graph: RoutedGraph) -> LogicalNetwork:
    """What is left of a graph once its switches are gone."""
    alive = graph.alive()
    routes = graph.routes(alive)
    merged: Counter[tuple[int, ...]] = Counter()
    for (start, stop), units in zip(pairwise(routes.starts.tolist()), graph.units[alive].tolist(), strict=True):
        merged[tuple(routes.nodes[start:stop].tolist())] += units
    paths = list(merged)
    return LogicalNetwork(
        np.array([path[0] for path in paths], dtype=np.int64),
        np.array([path[-1] for path in paths], dtype=np.int64),
        np.array(list(merged.values()), dtype=np.int64),
        np.cumsum([0, *map(len, paths)]),
        np.array([node for path in paths for node in path], dtype=np.int64),
    )


def split_switches(
    num_nodes: int, tails: Integers, heads: Integers, capacities: Integers, supplies: Integers
) -> LogicalNetwork:
    """Remove every switch exactly, without tight sets: the general way."""
    graph = RoutedGraph(num_nodes, tails, heads, capacities)
    whole = LaminarFamily(np.array([-1]), np.zeros(num_nodes, dtype=np.int64))
    remove_switches(graph, supplies, whole, split_all_switches)
    return logical_network(graph)


def critical(num_nodes: int, tails: Integers, heads: Integers, capacities: Integers, weights: Integers) -> Network:
    """Scale capacities and weights so that the weights just fit: arguments of `split_switches`."""
    best = bottleneck_cut(num_nodes, tails, heads, capacities, weights)
    return num_nodes, tails, heads, capacities * best.supply, weights * best.capacity


def network_of(topology: Topology, weights: Sequence[int] | None = None) -> Network:
    """Scale the links of a topology until the weights, 1 for each rank by default, just fit."""
    tails, heads, capacities, _ = topology.arrays
    weights = [1] * topology.num_ranks if weights is None else weights
    return critical(len(topology.nodes), tails, heads, capacities, np.array(weights, dtype=np.int64))


def circulation(num_nodes: int, cycles: Cycles, weights: Sequence[int]) -> Network:
    """Add up directed cycles with capacities and scale them until the weights just fit."""
    capacities: Counter[tuple[int, int]] = Counter()
    for nodes, capacity in cycles:
        for hop in pairwise([*nodes, nodes[0]]):
            capacities[hop] += capacity
    tails, heads = np.array(sorted(capacities)).T.copy()
    amounts = np.array([capacities[hop] for hop in sorted(capacities)])
    return critical(num_nodes, tails, heads, amounts, np.array(weights))


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Draw Eulerian networks with unequal supplies, sometimes with room to spare."""
    topology = draw(eulerian_topologies(max_ranks=5, max_switches=5))
    num_nodes, tails, heads, capacities, supplies = network_of(
        topology, draw(st.lists(st.integers(1, 3), min_size=topology.num_ranks, max_size=topology.num_ranks))
    )
    return num_nodes, tails, heads, capacities * draw(st.integers(2, 3)), supplies * 2


def paths_of(logical: LogicalNetwork) -> list[list[int]]:
    """The original path of each logical link."""
    return [logical.path_nodes[start:stop].tolist() for start, stop in pairwise(logical.path_starts.tolist())]


def check(logical: LogicalNetwork, network: Network) -> None:
    """All that switch removal promises."""
    _, tails, heads, capacities, supplies = network
    ranks, paths = len(supplies), paths_of(logical)
    assert len(paths) == len(logical.tails) == len(logical.heads) == len(logical.capacities)
    assert len({tuple(path) for path in paths}) == len(paths)
    assert (logical.capacities > 0).all()
    room = Counter(dict(zip(zip(tails.tolist(), heads.tolist(), strict=True), capacities.tolist(), strict=True)))
    for path, tail, head, units in zip(
        paths, logical.tails.tolist(), logical.heads.tolist(), logical.capacities.tolist(), strict=True
    ):
        assert (path[0], path[-1]) == (tail, head)
        assert max(tail, head) < ranks <= min(path[1:-1], default=ranks)
        assert len(set(path)) == len(path)
        for hop in pairwise(path):
            room[hop] -= units
    assert min(room.values()) >= 0
    keys, places = np.unique(logical.tails * ranks + logical.heads, return_inverse=True)
    merged = np.zeros(len(keys), dtype=np.int64)
    np.add.at(merged, places, logical.capacities)
    assert violated_sink(paired_network(ranks, keys // ranks, keys % ranks, merged), supplies) == -1


@pytest.mark.parametrize("remove", [remove_all_switches, split_all_switches])
@given(networks(), st.booleans())
@settings(suppress_health_check=COMPILING)
def test_logical_links_are_routes_that_still_carry_all_supplies(
    remove: RemoveAll, network: Network, shortcut: bool
) -> None:
    """Paths join up through switches, fit into the original links, and every rank can still receive everything.

    Guessed or exact, along tight sets, with and without pass-through switches joined before.
    """
    num_nodes, tails, heads, capacities, supplies = network
    graph = RoutedGraph(num_nodes, tails, heads, capacities)
    if shortcut:
        join_pass_through(graph, len(supplies))
    alive = graph.alive()
    family = tight_family(num_nodes, graph.tails[alive], graph.heads[alive], graph.units[alive], supplies)
    remove_switches(graph, supplies, family, remove)
    check(logical_network(graph), network)


@pytest.mark.parametrize(
    ("num_nodes", "cycles", "weights"),
    [
        (5, [([4, 1], 1), ([2, 3], 2), ([4, 3, 0], 2)], [1, 2, 1]),
        (5, [([2, 1], 2), ([1, 3], 2), ([0, 2, 4, 3], 3), ([0, 4], 1)], [1, 1, 1]),
        (5, [([4, 1], 1), ([3, 2], 3), ([3, 1, 2, 0, 4], 1), ([0, 4], 2), ([4, 3, 1], 2)], [2, 1, 1]),
        (5, [([3, 0], 2), ([2, 1, 4, 3], 1), ([1, 0, 4], 2), ([0, 4, 3], 2), ([2, 3], 4)], [1, 2, 1]),
        (5, [([1, 4], 1), ([1, 0, 4, 3, 2], 2), ([3, 0, 1, 2], 2)], [1, 1, 1]),
    ],
)
def test_two_sinks_that_object_to_one_pair_leave_one_tight_cut(
    num_nodes: int, cycles: Cycles, weights: list[int]
) -> None:
    """The cut of the first one has room again once the second got its units back, and forbids nothing.

    Each of these networks could not be split while it did.
    """
    network = circulation(num_nodes, cycles, weights)
    check(split_switches(*network), network)


def test_one_neighbor_may_hold_more_than_half_of_a_switch() -> None:
    """What it cannot send to others goes back to itself and is thrown away."""
    network = circulation(4, [([0, 3], 10), ([1, 3], 1), ([2, 3], 1)], [1, 1, 1])
    check(split_switches(*network), network)


def test_dead_ends_and_islands_of_switches_disappear() -> None:
    """Switch 2 hangs on rank 0 alone, 3 and 4 on nothing but each other, 5 on nothing at all."""
    network = circulation(6, [([0, 1], 1), ([0, 2], 5), ([3, 4], 7)], [1, 1])
    logical = split_switches(*network)
    assert sorted(paths_of(logical)) == [[0, 1], [1, 0]]


def test_paths_do_not_come_back_to_a_switch() -> None:
    """Switch 2, removed last, reaches rank 1 only over 3; paths that went 2, 3, 2 are cut short."""
    network = circulation(4, [([0, 2], 6), ([2, 3], 6), ([3, 1], 6)], [1, 1])
    assert sorted(paths_of(split_switches(*network))) == [[0, 2, 3, 1], [1, 3, 2, 0]]


def test_an_unbalanced_switch_is_refused() -> None:
    """The message names the switch; callers check balance before."""
    tails, heads, capacities = np.array([0, 1, 2, 2]), np.array([2, 2, 0, 1]), np.array([3, 1, 2, 1])
    with pytest.raises(SolverError, match=r"isolate switch number \d+: is its ingress equal to its egress\?"):
        split_switches(3, tails, heads, capacities, np.array([1, 1]))


@given(networks(), st.data())
@settings(suppress_health_check=COMPILING)
def test_pairs_of_one_switch_keep_every_sink_supplied(network: Network, data: st.DataObject) -> None:
    """All of one switch is paired, also where the last ranks only send, and nothing else changes."""
    num_nodes, tails, heads, capacities, supplies = network
    assume(num_nodes > len(supplies))
    switch = data.draw(st.integers(len(supplies), num_nodes - 1))
    num_sinks = data.draw(st.integers(1, len(supplies)))
    pairs, left = split_pairs(network[:4], network[4], num_sinks=num_sinks, switch=switch)
    assert left == 0
    links = Counter(dict(zip(zip(tails.tolist(), heads.tolist(), strict=True), capacities.tolist(), strict=True)))
    for into, out, units in pairs.tolist():
        assert units > 0
        links[into, switch] -= units
        links[switch, out] -= units
        links[into, out] += units * (into != out)
    assert all(units >= 0 and (units == 0 or switch not in hop) for hop, units in links.items())
    after_tails, after_heads = np.array(list(links)).T.copy()
    after = np.array(list(links.values()))
    assert supplies_fit(num_nodes, after_tails, after_heads, after, supplies, num_sinks)
