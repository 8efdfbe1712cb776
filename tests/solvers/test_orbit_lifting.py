"""Flows of all sources from those of one per orbit: they are flows, with the loads that the small program counts."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

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
