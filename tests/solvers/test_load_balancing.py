"""The busiest sets of links against each other, an oracle and hand-made cases; shares against their capacities."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import ceil
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import CapacityOverflowError, SolverError, UnsupportedError
from collopt.solvers.steps.load_balancing import (
    Intake,
    busiest_sets,
    chunk_capacities,
    chunked_times,
    groups_at,
    intake,
    least_chunked_times,
    share_out,
)
from collopt.topologies import Topology, complete
from oracles.bfb_subsets import diameter_of, least_load, offered_links
from sample_sizes import examples
from strategies import switch_free_topologies

METHODS: tuple[Literal["subsets", "newton"], ...] = ("subsets", "newton")


def read(topology: Topology) -> Intake:
    """The arrays of a topology, arranged."""
    return intake(topology.num_ranks, *topology.arrays[:3])


@settings(max_examples=examples(80))
@given(topology=switch_free_topologies(max_ranks=8))
def test_all_sets_and_flows_and_the_oracle_agree(topology: Topology) -> None:
    """For all ranks together, and for each alone, at every distance."""
    network = read(topology)
    unit = topology.arrays.unit * network.divisor
    both = busiest_sets(network, method="subsets"), busiest_sets(network, method="newton")
    assert len(both[0]) == len(both[1]) == network.diameter == diameter_of(topology)
    for distance in range(1, network.diameter + 1):
        exact = [least_load(topology, distance, rank) for rank in topology.compute_nodes]
        for found in both:
            assert found[distance - 1].load / unit == max(exact)
        for number, value in enumerate(exact):
            for method in METHODS:
                alone = busiest_sets(network, np.array([number]), method=method)
                assert (alone[distance - 1].load / unit if distance <= len(alone) else 0) == value


@settings(max_examples=examples(60))
@given(topology=switch_free_topologies(max_ranks=8))
def test_the_busiest_set_can_be_added_up_by_anyone(topology: Topology) -> None:
    """Its links lead to its rank, and as many shards as it says have no other link."""
    network = read(topology)
    for method in METHODS:
        for distance, found in enumerate(busiest_sets(network, method=method), start=1):
            rank = topology.compute_nodes[found.rank]
            links = {topology.links[number] for number in found.links}
            assert {link.head for link in links} == {rank}
            assert sum(mask <= links for mask in offered_links(topology, distance, rank)) == found.shards
            assert sum(link.bandwidth for link in links) == found.width * topology.arrays.unit * network.divisor


@settings(max_examples=examples(60))
@given(topology=switch_free_topologies(max_ranks=7, max_bandwidth=4), chunks=st.integers(1, 7))
def test_shares_are_whole_and_fit(topology: Topology, chunks: int) -> None:
    """Every shard comes once, over links that can bring it, none of which exceeds its capacity."""
    network = read(topology)
    times = chunked_times(network, busiest_sets(network), chunks)
    capacities = chunk_capacities(network, times)
    shares = share_out(network, chunks, capacities)
    loads: Counter[tuple[int, int]] = Counter()
    brought: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for step, source, number, lower, upper in zip(*(column.tolist() for column in shares), strict=True):
        link = topology.links[number]
        head, tail = topology.node_index[link.head], topology.node_index[link.tail]
        assert network.hops[head, source] == network.hops[tail, source] + 1 == step + 1
        loads[step, number] += upper - lower
        brought.setdefault((source, head), []).append((lower, upper))
    assert len(brought) == topology.num_ranks * (topology.num_ranks - 1)
    for intervals in brought.values():
        ends = sorted(intervals)
        assert [lower for lower, _ in ends] + [chunks] == [0] + [upper for _, upper in ends]
    places = {int(number): place for place, number in enumerate(network.links)}
    assert all(load <= capacities[step, places[number]] for (step, number), load in loads.items())


@settings(max_examples=examples(40))
@given(topology=switch_free_topologies(max_ranks=6, max_bandwidth=3), chunks=st.integers(1, 5))
def test_no_less_time_is_enough_for_whole_chunks(topology: Topology, chunks: int) -> None:
    """The capacities just before the time of any step ends are too small."""
    network = read(topology)
    times = chunked_times(network, busiest_sets(network), chunks)
    for step, time in enumerate(times):
        # Just before the time, links that would finish a chunk then have one less.
        shorter = list(times)
        shorter[step] = time - Fraction(1, 10**6)
        with pytest.raises(SolverError, match=f"cannot carry all data that arrives in {step + 1} hops"):
            share_out(network, chunks, chunk_capacities(network, shorter))


@settings(max_examples=examples(40))
@given(topology=switch_free_topologies(max_ranks=7), chunks=st.integers(1, 9))
def test_equal_links_need_their_load_rounded_up(topology: Topology, chunks: int) -> None:
    """The closed form of integer program (13)."""
    equal = Topology.from_links([(*link[:2], 1) for link in topology.links], compute=topology.compute_nodes)
    network = read(equal)
    sets = busiest_sets(network)
    expected = tuple(Fraction(ceil(chunks * found.load)) for found in sets)
    assert chunked_times(network, sets, chunks) == least_chunked_times(network, sets, chunks) == expected


def test_a_set_that_is_not_the_busiest_can_decide_for_whole_chunks() -> None:
    """One of two shards needs the link of bandwidth 4 for 1/4; two links of 3 bring no chunk at all before 1/3."""
    links = [("a", "z", 4), ("b", "z", 3), ("c", "z", 3)]
    links += [(*ends, 24) for ends in ("pa", "qa", "qb", "qc", "zp", "zq")]
    network = read(Topology.from_links(links, compute="abcpqz"))
    sets = busiest_sets(network)
    assert (sets[1].load, sets[1].shards) == (Fraction(1, 4), 1)
    assert least_chunked_times(network, sets, 1)[1] == Fraction(1, 4)
    assert chunked_times(network, sets, 1)[1] == Fraction(1, 3)
    assert chunked_times(network, sets, 12)[1] == 3


def test_masks_of_many_words_tell_sources_apart() -> None:
    """130 ranks that are all linked: 129 sources with one link each, across three words."""
    network = read(complete(130))
    groups = groups_at(network, 7, 1)
    assert network.in_degree == 129
    assert groups.masks.shape == (129, 3)
    assert sorted(groups.members.tolist()) == [rank for rank in range(130) if rank != 7]
    found = busiest_sets(network)
    assert [each.load for each in found] == [1]
    with pytest.raises(UnsupportedError, match="129 links lead into a rank; expected at most 20 to look at all sets"):
        busiest_sets(network, method="subsets")


def test_refuses_what_it_cannot_count() -> None:
    """Numbers beyond 64 bits."""
    pair = np.array([0, 1]), np.array([1, 0])
    with pytest.raises(CapacityOverflowError):
        intake(2, *pair, np.array([2**61, 2**60 + 1]))
    network = intake(2, *pair, np.array([2**40, 2**40 + 1]))
    with pytest.raises(CapacityOverflowError):
        chunked_times(network, busiest_sets(network), 2**20)
    with pytest.raises(CapacityOverflowError):
        chunk_capacities(network, [Fraction(2**30)])
