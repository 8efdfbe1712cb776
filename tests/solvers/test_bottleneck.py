"""Bottleneck cuts and fixed tree counts against all cuts of small networks."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import CapacityOverflowError, SolverError
from collopt.solvers.flows.bottleneck import bottleneck_cut, fixed_count_scale, violated_sink
from collopt.solvers.flows.max_flow import paired_network
from collopt.topologies import Topology, mi250
from oracles.brute_force_cuts import largest_ratio, smallest_scale, supplies_fit
from sample_sizes import examples
from strategies import eulerian_topologies, switch_free_topologies

Integers = npt.NDArray[np.int64]
TOPOLOGIES = st.one_of(eulerian_topologies(max_ranks=6, max_switches=4), switch_free_topologies(max_ranks=8))
SMALL = st.one_of(eulerian_topologies(max_ranks=4, max_switches=2), switch_free_topologies(max_ranks=5))


def network(topology: Topology) -> tuple[int, Integers, Integers, Integers]:
    """Number of nodes and the links, as the functions of this room take them."""
    return (len(topology.nodes), *topology.arrays[:3])


@st.composite
def weighted(draw: st.DrawFn, topologies: st.SearchStrategy[Topology]) -> tuple[Topology, Integers]:
    """Draw a topology and a weight for each rank, of which some may be zero."""
    topology = draw(topologies)
    weights = st.lists(st.integers(0, 5), min_size=topology.num_ranks, max_size=topology.num_ranks).filter(any)
    return topology, np.array(draw(weights), dtype=np.int64)


def ones(topology: Topology) -> Integers:
    """Shards of equal size."""
    return np.ones(topology.num_ranks, dtype=np.int64)


@given(weighted(TOPOLOGIES))
def test_ratio_is_the_largest_of_all_cuts_for_unequal_weights(drawn: tuple[Topology, Integers]) -> None:
    """Shards of different sizes."""
    topology, weights = drawn
    best = bottleneck_cut(*network(topology), weights)
    assert Fraction(best.supply, best.capacity) == largest_ratio(*network(topology), weights)


@given(weighted(TOPOLOGIES))
def test_cut_has_the_ratio_claimed(drawn: tuple[Topology, Integers]) -> None:
    """It misses a rank, and what is inside over what leaves is the ratio."""
    topology, weights = drawn
    _, tails, heads, capacities = network(topology)
    best = bottleneck_cut(*network(topology), weights)
    inside = best.source_side
    assert inside.shape == (len(topology.nodes),)
    assert not inside[: len(weights)].all()
    leaving = int(capacities[inside[tails] & ~inside[heads]].sum())
    assert Fraction(int(weights[inside[: len(weights)]].sum()), leaving) == Fraction(best.supply, best.capacity)


@given(weighted(TOPOLOGIES), st.integers(0, 3))
def test_a_sink_is_violated_exactly_if_some_cut_is(drawn: tuple[Topology, Integers], scale: int) -> None:
    """Theorem 1 of ForestColl, for capacities around the critical ones."""
    topology, weights = drawn
    nodes, tails, heads, capacities = network(topology)
    best = bottleneck_cut(nodes, tails, heads, capacities, weights)
    supplies = weights * best.capacity * 3 + scale
    scaled = capacities * best.supply * 3
    sink = violated_sink(paired_network(nodes, tails, heads, scaled), supplies)
    assert (sink < 0) == supplies_fit(nodes, tails, heads, scaled, supplies)
    assert sink < len(supplies)
    assert scale > 0 or sink == -1


def test_bottleneck_of_two_mi250_boxes_is_a_package() -> None:
    """15/166 in GB/s (ForestColl, Table 1: 354 GB/s at k = 83): all but one package, which takes in 332 GB/s."""
    topology = mi250(boxes=2)
    best = bottleneck_cut(*network(topology), ones(topology))
    assert Fraction(best.supply, best.capacity) / topology.arrays.unit == Fraction(15, 166)
    assert best.capacity == 83
    outside = {node for node, inside in zip(topology.nodes, best.source_side.tolist(), strict=True) if not inside}
    assert {node for node in outside if "gpu" in node} in [
        {f"box{box}/gpu{2 * package}", f"box{box}/gpu{2 * package + 1}"} for box in range(2) for package in range(8)
    ]


def test_bandwidths_of_very_different_size_stay_exact() -> None:
    """A millionth of a bandwidth more decides which cut is the bottleneck."""
    tails, heads = np.array([0, 1, 1, 2, 2, 0]), np.array([1, 2, 0, 1, 0, 2])
    big = 10**15
    for more in (2, 4):
        capacities = np.array([big, big, 1, big, big + more, 2])
        best = bottleneck_cut(3, tails, heads, capacities, np.ones(3, dtype=np.int64))
        # Node 0 takes in big + more + 1, node 2 takes in big + 2.
        assert Fraction(best.supply, best.capacity) == Fraction(2, big + 2)
        assert best.source_side.tolist() == [True, True, False]
    capacities[-1] = 6
    best = bottleneck_cut(3, tails, heads, capacities, np.ones(3, dtype=np.int64))
    assert (best.supply, best.capacity, best.source_side.tolist()) == (2, big + 5, [False, True, True])


@given(weighted(SMALL), st.integers(1, 4))
@settings(max_examples=examples(60))
def test_fixed_count_scale_is_the_smallest_feasible_one(drawn: tuple[Topology, Integers], count: int) -> None:
    """Feasible itself, and no smaller candidate j / c is (Algorithm 5; Theorem 12)."""
    topology, weights = drawn
    scale = fixed_count_scale(*network(topology), weights, count)
    assert scale == smallest_scale(*network(topology), weights * count)


@pytest.mark.parametrize("thick", [10**5, 10**5 + 3, 10**9, 10**9 + 7])
def test_many_candidates_are_halved_first(thick: int) -> None:
    """A thin link beside thick ones leaves more candidates than are listed."""
    tails, heads = np.array([0, 1, 1, 2, 2, 0, 3, 0]), np.array([1, 2, 0, 1, 0, 2, 0, 3])
    capacities = np.array([thick, thick - 1, thick - 2, thick - 3, thick - 4, thick - 5, 7, 5])
    weights = np.array([1, 2, 1, 1], dtype=np.int64)
    for count in (1, 2, 3):
        scale = fixed_count_scale(4, tails, heads, capacities, weights, count)
        for candidate, fits in [(scale, True), *((_before(scale, int(c)), False) for c in capacities)]:
            floored = np.array([candidate * c // 1 for c in capacities.tolist()])
            assert supplies_fit(4, tails, heads, floored, weights * count) == fits


def test_candidates_that_coincide_are_not_halved_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """All seven capacities have a candidate at U = 1, so no interval around it holds fewer of them."""
    monkeypatch.setattr("collopt.solvers.flows.bottleneck.MAX_ENUMERATED", 3)
    tails, heads = np.array([0, 1, 1, 2, 2, 3, 3, 0]), np.array([1, 0, 2, 1, 3, 2, 0, 3])
    capacities = np.array([10, 12, 14, 16, 2, 18, 20, 2])
    weights = np.ones(4, dtype=np.int64)
    scale = fixed_count_scale(4, tails, heads, capacities, weights, 1)
    assert scale == smallest_scale(4, tails, heads, capacities, weights) == 1


def _before(scale: Fraction, capacity: int) -> Fraction:
    """The largest candidate j / capacity below `scale`."""
    steps = scale * capacity
    return Fraction(steps.numerator // steps.denominator - (steps.denominator == 1), capacity)


@pytest.mark.parametrize("links", [[(0, 1)], [(0, 1), (1, 0), (1, 2)], [(0, 1), (1, 0)]])
def test_a_rank_out_of_reach_is_refused(links: list[tuple[int, int]]) -> None:
    """The ratio would be infinite."""
    tails, heads = np.array(links).T.copy()
    num_ranks = 2 if links == [(0, 1)] else 3
    with pytest.raises(SolverError, match="cannot be reached"):
        bottleneck_cut(num_ranks, tails, heads, np.ones(len(links), dtype=np.int64), np.ones(num_ranks, dtype=np.int64))


def test_ratios_that_int64_cannot_hold_are_refused() -> None:
    """Capacities times weights beyond 2^62, for the optimum and for a fixed count."""
    tails, heads, weights = np.array([0, 1]), np.array([1, 0]), np.ones(2, dtype=np.int64)
    with pytest.raises(CapacityOverflowError):
        bottleneck_cut(2, tails, heads, np.array([2**60, 2**60]), weights)
    assert bottleneck_cut(2, tails, heads, np.array([2**59, 2**59]), weights)[:2] == (1, 2**59)
    with pytest.raises(CapacityOverflowError):
        fixed_count_scale(2, tails, heads, np.array([1, 1]), weights, 2**61)
    with pytest.raises(CapacityOverflowError):
        bottleneck_cut(2, tails, heads, np.array([1, 1]), weights * 2**61)
