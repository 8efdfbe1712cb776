"""Exact bounds from floats hold however bad these are, and are close where they are good."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import BoundError, CapacityOverflowError, SolverError
from collopt.formulations import all_to_all
from collopt.solvers import Algorithm, HighsOptions, solve
from collopt.solvers.flows.concurrent_flow import rate_certificate
from collopt.topologies import Topology, dgx_a100, generalized_kautz, symmetries, torus
from collopt.topologies.symmetry.isomorphism import trivial_link_orbits
from sample_sizes import examples
from strategies import eulerian_topologies


def bounds(topology: Topology, demands: np.ndarray, *, noise: float = 0.0, seed: int = 0) -> list[Fraction]:
    """Lower bound, exact rate in units of capacity, and upper bound; floats are off by factors around 1."""
    alike = symmetries(topology, demands)
    model = all_to_all.build(topology, traffic=demands, symmetries=alike)
    solution = solve(model, HighsOptions(algorithm=Algorithm.IPM))
    random, largest = np.random.default_rng(seed), int(model.largest)
    flows, duals = solution.values["flow"], solution.duals["link_bandwidth"]
    tails, heads, capacities, unit = topology.arrays
    lower, upper = rate_certificate(
        len(topology.nodes),
        tails,
        heads,
        capacities,
        demands,
        model.orbits,
        flows * np.exp(noise * random.normal(size=flows.shape)) + noise * random.random(flows.shape),
        float(solution.values["rate"]) / largest,
        duals * np.exp(noise * random.normal(size=duals.shape)) + noise * 1e-3,
    )
    return [lower, solution.exact.objective / largest / unit, upper]


@pytest.mark.parametrize("topology", [torus(4, 5), generalized_kautz(3, 20), dgx_a100(boxes=2)], ids=lambda it: it.name)
def test_bounds_are_close_where_floats_are(topology: Topology) -> None:
    """To a millionth, with and without switches."""
    lower, exact, upper = bounds(topology, np.ones((topology.num_ranks,) * 2, dtype=np.int64))
    assert lower <= exact <= upper
    assert 1 - lower / upper < Fraction(1, 10**6)


@given(eulerian_topologies(max_bandwidth=3), st.sampled_from([0.0, 1e-6, 0.1, 1.0]), st.integers(0, 100), st.data())
@settings(max_examples=examples(80))
def test_bounds_hold_however_bad_the_floats_are(
    topology: Topology, noise: float, seed: int, data: st.DataObject
) -> None:
    """Flows that go in circles, deliver too little or far too much, and any duals."""
    amounts = st.sampled_from([0, 1, 1, 1, 1, 10**6])
    ranks = topology.num_ranks
    rows = st.lists(amounts, min_size=ranks, max_size=ranks)
    demands = np.array(data.draw(st.lists(rows, min_size=ranks, max_size=ranks)), dtype=np.int64)
    demands[0, 1] = 1
    lower, exact, upper = bounds(topology, demands, noise=noise, seed=seed)
    assert 0 < lower <= exact <= upper


RING: dict[str, Any] = {
    "num_nodes": 3,
    "tails": np.array([0, 1, 2]),
    "heads": np.array([1, 2, 0]),
    "capacities": np.array([6, 6, 6]),
    "demands": np.ones((3, 3), dtype=np.int64),
    "orbits": trivial_link_orbits(3, np.ones((3, 3), dtype=np.int64)),
    "flows": np.array([[4.0, 2.0, 0.0], [0.0, 4.0, 2.0], [2.0, 0.0, 4.0]]),
    "rate": 2.0,
    "duals": np.ones(3),
}


def test_nothing_at_all_is_a_flow_and_unequal_prices_are_prices() -> None:
    """All is sent along trees of fewest hops then."""
    assert rate_certificate(**RING) == (2, 2)
    assert rate_certificate(**{**RING, "flows": np.zeros((3, 3))}) == (2, 2)
    assert rate_certificate(**{**RING, "flows": -RING["flows"], "duals": np.array([-1.0, 0.0, 3.0])}) == (2, 2)
    assert rate_certificate(**{**RING, "flows": RING["flows"] + 1})[0] == Fraction(4, 3)


def test_a_rank_out_of_reach_and_sums_beyond_64_bits_are_refused() -> None:
    """As by the concurrent flow."""
    with pytest.raises(BoundError, match="rank 0 cannot reach"):
        rate_certificate(**{**RING, "heads": np.array([1, 0, 0])})
    with pytest.raises(CapacityOverflowError, match="larger units"):
        rate_certificate(**{**RING, "demands": np.full((3, 3), 2**55)})
    with pytest.raises(SolverError, match="expected no source to send much more"):
        rate_certificate(**{**RING, "flows": np.full((3, 3), 1e12)})
