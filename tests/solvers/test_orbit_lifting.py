"""Flows of all sources from those of one per orbit: they are flows, with the loads that the small program counts."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from collopt.errors import CapacityOverflowError
from collopt.formulations import all_to_all
from collopt.solvers import solve
from collopt.solvers.flows.path_decomposition import lift_flows
from collopt.topologies import (
    Topology,
    complete_bipartite,
    dgx1_v100,
    dgx_a100,
    diamond,
    generalized_kautz,
    hypercube,
    leaf_spine,
    ring,
    symmetries,
    torus,
)
from sample_sizes import examples
from strategies import eulerian_topologies

SHIFT = np.roll(np.eye(9, dtype=np.int64), 2, axis=1) * 3 + 1
NETWORKS: dict[str, tuple[Topology, Any]] = {
    "hypercube": (hypercube(4, bandwidth=1), None),
    "torus": (torus(3, 4, bandwidth=5), None),
    "shift on a ring": (ring(9, bandwidth=7), SHIFT),
    "complete bipartite": (complete_bipartite(3), None),
    "generalised Kautz": (generalized_kautz(2, 10), None),
    "Diamond": (diamond(), None),
    "dgx1-v100": (dgx1_v100(), None),
    "boxes": (dgx_a100(boxes=2), None),
    "leaf-spine": (leaf_spine(2, 2, 2, 50, oversubscription=2), None),
}


def check_all_sources(topology: Topology, traffic: Any) -> None:
    """Solve the small program exactly, lift its flows, and check conservation, demand and every load."""
    found = symmetries(topology, traffic)
    model = all_to_all.build(topology, traffic=traffic, symmetries=found)
    exact = solve(model).exact
    tails, heads, capacities, unit = topology.arrays
    flows, scale = lift_flows(
        topology.num_ranks, tails, heads, capacities, found, model.sources, np.array(exact.values["flow"])
    )
    ranks = range(topology.num_ranks)
    for rank in ranks:
        for node in range(len(topology.nodes)):
            kept = Fraction(int(flows[rank, heads == node].sum() - flows[rank, tails == node].sum()), scale)
            if node != rank:
                assert kept >= (exact.objective * Fraction(model.shares[rank, node]) if node in ranks else 0)
    loads = [Fraction(load, scale) for load in flows.sum(axis=0).tolist()]
    bandwidths = [capacity * unit for capacity in capacities.tolist()]
    assert all(load <= bandwidth for load, bandwidth in zip(loads, bandwidths, strict=True))
    # Some link limits the rate, so that the busiest one carries exactly its bandwidth.
    assert max(load / bandwidth for load, bandwidth in zip(loads, bandwidths, strict=True)) == 1
    for number in range(len(model.orbits.sizes)):
        assert len({load for load, row in zip(loads, model.orbits.classes, strict=True) if row == number}) == 1


@pytest.mark.parametrize(("topology", "traffic"), NETWORKS.values(), ids=NETWORKS.keys())
def test_lifted_flows_reach_the_rate_of_the_small_program(topology: Topology, traffic: Any) -> None:
    """All ranks are alike in some networks, and only some in others; loads are equal on links that are alike."""
    check_all_sources(topology, traffic)


@given(eulerian_topologies(max_bandwidth=2))
@settings(max_examples=examples(40))
def test_lifted_flows_are_flows_on_random_networks(topology: Topology) -> None:
    """With few bandwidths, so that there is something to lift."""
    check_all_sources(topology, None)


def test_a_lopsided_flow_is_made_even_before_it_is_lifted() -> None:
    """Rank 0 uses only its first links; 2 x 2 x 2 corners that all keep 0 are averaged over."""
    topology = hypercube(3)
    tails, heads, capacities, _ = topology.arrays
    # All symmetries: adding to the corner's number, and exchanging its bits.
    corners = np.arange(8)
    rows = [corners ^ 1, corners ^ 2, corners ^ 4]
    bits = [(corners >> place) & 1 for place in range(3)]
    rows += [bits[1] + 2 * bits[0] + 4 * bits[2], bits[0] + 2 * bits[2] + 4 * bits[1]]
    flow = np.zeros((1, len(tails)), dtype=np.int64)
    flow[0, np.flatnonzero((tails == 0) & (heads == 1))] = 4
    flow[0, np.flatnonzero((tails == 1) & (heads == 3))] = 1
    lifted, scale = lift_flows(8, tails, heads, capacities, np.array(rows), np.array([0]), flow)
    assert scale == 6
    assert (lifted.sum(axis=0) == (4 + 1) * 8 * scale // 24).all()
    assert lifted[0, tails == 0].tolist() == [8, 8, 8]


RING: dict[str, Any] = {
    "num_ranks": 3,
    "tails": np.array([0, 1, 2]),
    "heads": np.array([1, 2, 0]),
    "capacities": np.array([1, 1, 1]),
    "symmetries": np.array([[1, 2, 0]]),
    "sources": np.array([0]),
    "flows": np.array([[2, 1, 0]]),
}


@pytest.mark.parametrize(
    "flow", [[Fraction(1, 2**62), Fraction(1, 3), Fraction(1)], [2**62, 2**62, 2**62], [2**70, 0, 0]]
)
def test_sums_beyond_64_bits_are_refused(flow: list[Any]) -> None:
    """Of scaled flows, and of the loads that they add up to."""
    with pytest.raises(CapacityOverflowError, match="larger units"):
        lift_flows(**{**RING, "flows": np.array([flow], dtype=object)})
