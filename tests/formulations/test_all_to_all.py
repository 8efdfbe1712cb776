"""The all-to-all program on networks with known answers, against a second spelling, and as users extend it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import UnsupportedError
from collopt.formulations import all_to_all
from collopt.solvers import Algorithm, HighsOptions, solve
from collopt.topologies import (
    Topology,
    circulant,
    complete,
    complete_bipartite,
    de_bruijn,
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
from oracles.all_to_all_cvxpy import best_rate
from sample_sizes import examples
from slow_cases import slow_where
from strategies import eulerian_topologies, switch_free_topologies

NETWORKS = {
    "ring": ring(5, bandwidth=25),
    "one-way ring": ring(4, bandwidth="200/3", bidirectional=False),
    "dgx1-v100": dgx1_v100(),
    "leaf-spine": leaf_spine(2, 2, 2, 50, oversubscription=2),
    "slow link": ring(4, bandwidth=12).derate("gpu0", "gpu1", "1/2", bidirectional=False),
}

networks = pytest.mark.parametrize("topology", NETWORKS.values(), ids=NETWORKS.keys())


def close(bandwidth: Fraction | float) -> Any:
    """Equal to 1e-7, relatively."""
    return pytest.approx(float(bandwidth), rel=1e-7)


def rate(topology: Topology, traffic: Any = None) -> Fraction:
    """The exact objective of the solved program."""
    objective = solve(all_to_all.build(topology, traffic=traffic)).exact.objective
    assert isinstance(objective, Fraction)
    return objective


def uneven(topology: Topology) -> list[list[int]]:
    """Traffic of 0 to 4 units, none from rank 1."""
    ranks = range(topology.num_ranks)
    return [[0 if rank == 1 else (3 * rank + 2 * other) % 5 for other in ranks] for rank in ranks]


@pytest.mark.parametrize(
    ("topology", "distances"),
    [
        (complete(5, bandwidth=1), 4),
        (hypercube(3, bandwidth=1), 12),
        (ring(5, bandwidth=1), 6),
        (ring(5, bandwidth=1, bidirectional=False), 10),
        (torus(3, 3, bandwidth=1), 12),
    ],
    ids=["complete", "hypercube", "ring", "one-way ring", "torus"],
)
def test_symmetric_networks_are_limited_by_distance(topology: Topology, distances: int) -> None:
    """Every unit of data takes a unit of bandwidth per hop, and all links are alike: f is degree over distances."""
    assert rate(topology) == Fraction(len(topology.out_links(topology.nodes[0])), distances)


@settings(max_examples=examples(30))
@given(topology=st.one_of(eulerian_topologies(max_ranks=5, max_switches=2), switch_free_topologies(max_ranks=5)))
def test_a_second_spelling_agrees_on_random_networks(topology: Topology) -> None:
    """As above, with and without switches and opposites."""
    assert float(rate(topology)) == pytest.approx(best_rate(topology), rel=1e-5)


@networks
def test_prices_of_links_prove_the_rate(topology: Topology) -> None:
    """Strong duality and complementary slackness: only full links have a price, and with bandwidths they add up."""
    solution = solve(all_to_all.build(topology, traffic=uneven(topology)))
    prices = solution.duals["link_bandwidth"]
    bandwidths = np.array([float(link.bandwidth) for link in topology.links])
    used = solution.values["flow"].sum(axis=0)
    assert (prices >= -1e-9).all()
    assert (used <= bandwidths + 1e-6).all()
    assert prices * (bandwidths - used) == pytest.approx(0, abs=1e-6)
    assert prices @ bandwidths == close(solution.objective)


@networks
def test_flows_deliver_the_traffic(topology: Topology) -> None:
    """Each rank keeps its part of each source's flow, and switches keep nothing that anyone needs."""
    model = all_to_all.build(topology, traffic=uneven(topology))
    values = solve(model).values
    tails, heads, _, _ = topology.arrays
    for source, flow in zip(model.sources.tolist(), values["flow"], strict=True):
        for node in range(len(topology.nodes)):
            part = model.shares[source, node] if node < topology.num_ranks else 0
            if node != source:
                assert flow[heads == node].sum() - flow[tails == node].sum() >= values["rate"] * part - 1e-6


@pytest.mark.parametrize(
    ("traffic", "message"),
    [
        ("all", "the traffic is 'all'; expected a matrix"),
        ([[0, 1], [1, 0]], r"of shape \(2, 2\); expected 3 rows of 3 numbers"),
        ([[0, 1, 1], [1, 0], [1, 1, 0]], "expected 3 rows of 3 numbers"),
        ([1, 1, 1], r"of shape \(3,\); expected 3 rows of 3"),
        ([[5, 0, 0], [0, 5, 0], [0, 0, 5]], "all traffic is 0"),
        (
            [[0, -1, 1], [1, 0, 1], [1, 1, 0]],
            "the traffic from rank 0 to rank 1 is -1; expected a number of at least 0",
        ),
        (np.array([[0, -1, 1], [1, 0, 1], [1, 1, 0]]), "the traffic from rank 0 to rank 1 is -1"),
        (np.eye(3, dtype=np.int64), "all traffic is 0"),
        (np.array(1), "expected a matrix|of shape"),
        ([[0, 1, 1], [1, 0, "much"], [1, 1, 0]], "the traffic from rank 1 to rank 2 is 'much'"),
    ],
)
def test_refuses_traffic_that_is_none(traffic: Any, message: str) -> None:
    """Each message names what is wrong."""
    with pytest.raises(UnsupportedError, match=message):
        all_to_all.build(ring(3), traffic=traffic)


SHIFTS = {size: (np.roll(np.eye(size, dtype=np.int64), 1, axis=1) * 3 + 1) for size in (6, 8, 12)}
ALIKE: dict[str, tuple[Topology, Any]] = {
    "hypercube": (hypercube(4), None),
    "larger hypercube": (hypercube(6), None),
    "torus": (torus(4, 4, bandwidth=25), None),
    "oblong torus": (torus(3, 5, bandwidth=7), None),
    "three-dimensional torus": (torus(3, 3, 4), None),
    "one-way ring": (ring(12, bandwidth="10/3", bidirectional=False), None),
    "complete bipartite": (complete_bipartite(4), None),
    "generalised Kautz": (generalized_kautz(2, 12), None),
    "larger generalised Kautz": (generalized_kautz(3, 20), None),
    "de Bruijn": (de_bruijn(2, 4), None),
    "Diamond": (diamond(), None),
    "circulant": (circulant(14, (3, 4)), None),
    "dgx1-v100": (dgx1_v100(), None),
    "boxes with switches": (dgx_a100(boxes=2), None),
    "leaf-spine": (leaf_spine(2, 4, 2, 50, oversubscription=2), None),
    "slow link": (torus(3, 3, bandwidth=12).derate(*torus(3, 3).links[0][:2], "1/3"), None),
    "shift on a ring": (ring(12, bandwidth=5), SHIFTS[12]),
    "shift on a cube": (hypercube(3), SHIFTS[8]),
    "shift on boxes": (leaf_spine(2, 2, 3, 50, oversubscription=3), SHIFTS[6]),
}


@pytest.mark.parametrize(
    ("topology", "traffic"), slow_where(ALIKE.values(), lambda case: case[0].num_ranks > 20), ids=ALIKE.keys()
)
def test_one_source_of_each_kind_tells_the_rate(topology: Topology, traffic: Any) -> None:
    """Exactly the optimum of all sources, which has been solved without symmetries."""
    small = all_to_all.build(topology, traffic=traffic, symmetries=symmetries(topology, traffic))
    assert len(small.sources) < topology.num_ranks
    assert small.orbits.counts.sum() == topology.num_ranks
    options = HighsOptions(algorithm=Algorithm.IPM)
    whole = solve(all_to_all.build(topology, traffic=traffic), options).exact.objective
    assert solve(small, options).exact.objective == whole


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(topology=eulerian_topologies(max_bandwidth=2), data=st.data())
def test_symmetries_change_no_rate_on_random_networks(topology: Topology, data: st.DataObject) -> None:
    """With few bandwidths and amounts, so that something is alike now and then; amounts may be fractions and zero."""
    ranks = topology.num_ranks
    rows = st.lists(st.sampled_from([Fraction(1, 3)] * 6 + [Fraction(0), Fraction(2)]), min_size=ranks, max_size=ranks)
    traffic = data.draw(st.lists(rows, min_size=ranks, max_size=ranks))
    traffic[0][1] = Fraction(1, 3)
    numbers = [[int(3 * amount) for amount in row] for row in traffic]
    small = all_to_all.build(topology, traffic=traffic, symmetries=symmetries(topology, numbers))
    assert solve(small).exact.objective == rate(topology, traffic)


@pytest.mark.parametrize("name", ["de Bruijn", "boxes with switches", "slow link", "shift on boxes"])
def test_prices_of_link_orbits_are_those_of_links(name: str) -> None:
    """Spread over the links they prove the rate: times bandwidths they add up to f, distances over traffic to 1."""
    topology, traffic = ALIKE[name]
    small = all_to_all.build(topology, traffic=traffic, symmetries=symmetries(topology, traffic))
    exact = solve(small).exact
    prices = small.link_duals(np.array(exact.duals["link_bandwidth"]))
    tails, heads, capacities, unit = topology.arrays
    assert prices @ (capacities * unit) == exact.objective
    size, ranks = len(topology.nodes), topology.num_ranks
    distances = np.full((size, size), Fraction(10**9), dtype=object)
    distances[np.arange(size), np.arange(size)] = Fraction(0)
    distances[tails, heads] = prices
    for node in range(size):
        distances = np.minimum(distances, distances[:, [node]] + distances[[node]])
    shares = np.array([[Fraction(share) for share in row] for row in small.shares.tolist()])
    assert (shares * distances[:ranks, :ranks]).sum() == 1
    # Potentials of one source count for all of its orbit.
    delivered = -np.array(exact.duals["delivery"])[:, :ranks]
    assert (delivered <= small.orbits.counts[:, None] * distances[small.sources, :ranks]).all()
    assert (shares[small.sources] * delivered).sum() == 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1, 2]], r"the symmetries have shape \(1, 2\); expected rows with the image of each of 3 nodes"),
        ([1, 2, 0], "the symmetries have shape"),
        ([[1.5, 2, 0]], "the symmetries are"),
        ([[1, 1, 0]], "row 0 of the symmetries is no permutation"),
        ([[1, 2, 0], [0, 2, 1]], "row 1 of the symmetries does not take every demand to an equal one"),
    ],
)
def test_refuses_symmetries_that_are_none(rows: Any, message: str) -> None:
    """Each message names what is wrong."""
    with pytest.raises(UnsupportedError, match=message):
        all_to_all.build(ring(3), traffic=[[0, 2, 1], [1, 0, 2], [2, 1, 0]], symmetries=rows)
