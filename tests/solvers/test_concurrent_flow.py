"""Concurrent flows: every claim is checked from the arrays alone, and against the linear program."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt import solve
from collopt.errors import BoundError, UnsupportedError
from collopt.formulations import all_to_all
from collopt.solvers.flows.concurrent_flow import ConcurrentFlow, concurrent_flow, source_flows
from collopt.topologies import (
    DirectGraph,
    Topology,
    circulant,
    de_bruijn,
    diamond,
    generalized_kautz,
    line_graph,
)
from collopt.topologies.symmetry.isomorphism import automorphisms
from sample_sizes import examples
from strategies import eulerian_topologies, switch_free_topologies

Network = tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def equal_demands(graph: DirectGraph) -> Network:
    """All pairs of nodes alike."""
    return graph.num_nodes, *graph.adjacency, np.broadcast_to(1, (graph.num_nodes, graph.num_nodes))


def ring(capacities: list[int], demands: list[list[int]]) -> Network:
    """A one-way ring, of which some nodes after the ranks may be switches."""
    nodes = np.arange(len(capacities))
    return len(nodes), nodes, np.roll(nodes, -1), np.array(capacities), np.array(demands)


def network_of(topology: Topology, demands: np.ndarray) -> Network:
    """As the solver takes it; capacities are in the topology's unit."""
    tails, heads, capacities, _ = topology.arrays
    return len(topology.nodes), tails, heads, capacities, demands


def exact_rate(topology: Topology, demands: np.ndarray) -> Fraction:
    """By the linear program: what a demand of 1 gets, in the topology's unit."""
    exact = solve(all_to_all.build(topology, traffic=demands)).exact
    assert exact is not None
    return Fraction(exact.objective) / topology.arrays.unit / int(demands.max())


def distances_from(source: int, network: Network, lengths: list[int]) -> list[int | None]:
    """Bellman and Ford's, in integers of any size."""
    num_nodes, tails, heads, _, _ = network
    found: list[int | None] = [None] * num_nodes
    found[source] = 0
    changed = True
    while changed:
        changed = False
        for tail, head, length in zip(tails.tolist(), heads.tolist(), lengths, strict=True):
            here, there = found[tail], found[head]
            if here is not None and (there is None or here + length < there):
                found[head] = here + length
                changed = True
    return found


def check_bounds(network: Network, found: ConcurrentFlow) -> None:
    """Both bounds follow from loads and lengths."""
    _, _, _, capacities, demands = network
    used = np.flatnonzero(found.loads)
    assert found.lower == min(int(capacities[link]) * found.amount / int(found.loads[link]) for link in used)
    lengths = found.lengths.tolist()
    volume = sum(length * capacity for length, capacity in zip(lengths, capacities.tolist(), strict=True))
    needed = 0
    for source, row in enumerate(demands.tolist()):
        distances = distances_from(source, network, lengths)
        for rank, demand in enumerate(row):
            if demand and rank != source:
                distance = distances[rank]
                assert distance is not None
                needed += demand * distance
    assert found.upper == Fraction(volume, needed)
    assert 0 < found.lower <= found.upper


def check_flows(network: Network, found: ConcurrentFlow, flows: np.ndarray) -> Fraction:
    """What arrives and is not passed on is at least the demand, at switches nothing is left; return the rate."""
    num_nodes, tails, heads, capacities, demands = network
    assert flows.min() >= 0
    for source, flow in enumerate(flows.tolist()):
        kept = [0] * num_nodes
        for tail, head, part in zip(tails.tolist(), heads.tolist(), flow, strict=True):
            kept[tail] -= part
            kept[head] += part
        for node in range(num_nodes):
            if node == source:
                assert kept[node] <= 0
            elif node < len(demands):
                assert kept[node] >= found.amount * int(demands[source, node])
            else:
                assert kept[node] == 0
    loads = flows.sum(axis=0).tolist()
    return min(
        capacity * found.amount / load for capacity, load in zip(capacities.tolist(), loads, strict=True) if load
    )


@st.composite
def demand_matrices(draw: st.DrawFn, ranks: int) -> np.ndarray:
    """Many zeros, a few large ones, and something on the diagonal, which does not count."""
    values = st.sampled_from([0, 0, 1, 2, 7, 10**6])
    rows = draw(st.lists(st.lists(values, min_size=ranks, max_size=ranks), min_size=ranks, max_size=ranks))
    demands = np.array(rows, dtype=np.int64)
    if not (demands - np.diag(np.diagonal(demands))).any():
        demands[0, 1] = 1
    return demands


@pytest.mark.slow
@given(st.one_of(eulerian_topologies(), switch_free_topologies()), st.data())
@settings(max_examples=examples(60))
def test_the_exact_rate_lies_between_and_the_flow_is_one(topology: Topology, data: st.DataObject) -> None:
    """With unequal capacities, switches and demands of which many are 0."""
    demands = data.draw(demand_matrices(topology.num_ranks))
    network = network_of(topology, demands)
    found = concurrent_flow(*network, gap=0.05, max_rounds=600)
    check_bounds(network, found)
    apart = demands - np.diag(np.diagonal(demands))
    assert found.lower <= exact_rate(topology, apart) <= found.upper
    flows = source_flows(*network, found, np.arange(topology.num_ranks))
    assert (flows.sum(axis=0) == found.loads).all()
    assert check_flows(network, found, flows) == found.lower


@pytest.mark.parametrize(
    ("graph", "optimum", "gap"),
    [
        (generalized_kautz(4, 64).graph, 2.17077e-2, 0.003),
        (de_bruijn(4, 4).graph, 4.0371e-3, 0.005),
        (line_graph(circulant(16, [3, 4]).graph), 2 / 95, 0.005),
        (diamond().graph, 0.15, 0.005),
    ],
    ids=["Kautz", "de Bruijn", "line graph", "Diamond"],
)
def test_known_optima_are_met_with_symmetries(graph: DirectGraph, optimum: float, gap: float) -> None:
    """The optima are those of linear program (3), from an interior-point method."""
    network = equal_demands(graph)
    found = concurrent_flow(*network, gap=gap, automorphisms=automorphisms(graph))
    check_bounds(network, found)
    assert found.gap <= gap
    assert found.lower <= Fraction(optimum) * (1 + Fraction(1, 10**5))
    assert found.upper >= Fraction(optimum) * (1 - Fraction(1, 10**5))


def test_it_stops_at_the_gap_or_when_the_rounds_are_used_up() -> None:
    """A smaller gap takes more steps; with few rounds the bounds hold all the same."""
    network = equal_demands(generalized_kautz(4, 30).graph)
    rough, fine = (concurrent_flow(*network, gap=gap) for gap in (0.1, 0.005))
    assert rough.gap <= Fraction(1, 10)
    assert fine.gap <= Fraction(5, 1000)
    early = concurrent_flow(*network, gap=1e-6, max_rounds=1)
    assert early.gap > Fraction(1, 10**6)
    check_bounds(network, early)
    useless = concurrent_flow(*network, gap=1e-6, floor=rough.upper)
    assert fine.lower < useless.upper <= rough.upper
    assert useless.gap > Fraction(1, 10**6)
    check_bounds(network, useless)


def test_ranks_out_of_reach_are_told() -> None:
    """A line, along which nothing goes back."""
    line = np.array([0, 1]), np.array([1, 2]), np.array([1, 1])
    assert concurrent_flow(3, *line, np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]])).upper == Fraction(1, 2)
    with pytest.raises(BoundError, match="rank 2 cannot reach"):
        concurrent_flow(3, *line, np.array([[0, 1, 1], [0, 0, 1], [0, 1, 0]]))


@pytest.mark.parametrize("options", [{"gap": 0}, {"gap": 1}, {"gap": -0.1}, {"gap": float("nan")}, {"max_rounds": 0}])
def test_a_gap_that_cannot_be_met_is_refused(options: dict[str, float]) -> None:
    """Only exact methods end at 0."""
    with pytest.raises(UnsupportedError, match="expected a gap between 0 and 1"):
        concurrent_flow(*ring([1, 1], [[0, 1], [1, 0]]), **options)  # type: ignore[arg-type]
