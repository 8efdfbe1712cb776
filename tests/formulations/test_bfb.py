"""The programs of a breadth-first broadcast against exact values, a second spelling, and facts from the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import combinations
from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import UnsupportedError
from collopt.formulations import bfb
from collopt.solvers.lp.session import solve
from collopt.topologies import Topology, complete, dgx_a100, hypercube, ring, torus
from oracles.bfb_cvxpy import least_times
from oracles.bfb_subsets import diameter_of, least_load, least_time, offered_links
from sample_sizes import examples
from strategies import bandwidths, switch_free_topologies


def circulant(size: int, jumps: Iterable[int]) -> Topology:
    """Ranks on a circle with links to those that many places away, both ways."""
    pairs = {(rank, (rank + sign * jump) % size) for rank in range(size) for jump in jumps for sign in (1, -1)}
    return Topology.from_links([(*pair, 1) for pair in sorted(pairs)], compute=range(size), name=f"circulant-{size}")


def kautz(degree: int, size: int) -> Topology:
    """The generalised Kautz graph, without its self-loops: x to -d x - 1, ..., -d x - d."""
    pairs = [(tail, -(degree * tail + step) % size) for tail in range(size) for step in range(1, degree + 1)]
    links = [(tail, head, 1) for tail, head in pairs if tail != head]
    return Topology.from_links(links, compute=range(size), name=f"kautz-{degree}-{size}")


NETWORKS = [
    ring(5, bandwidth=25),
    ring(6, bandwidth="200/3", bidirectional=False),
    torus(3, 4),
    torus(4, 2, bandwidth=2),
    hypercube(4),
    complete(5, bandwidth=7),
    circulant(15, (1, 4, 5)),
    kautz(2, 9),
    kautz(3, 13),
    hypercube(3).derate("gpu0", "gpu1", "1/3"),
]

networks = pytest.mark.parametrize("topology", NETWORKS, ids=lambda topology: topology.name)


def close(value: Fraction | float) -> Any:
    """Equal to 1e-7."""
    return pytest.approx(float(value), rel=1e-7, abs=1e-9)


def with_latencies(topology: Topology, latency: Callable[[], Fraction]) -> Topology:
    """The topology with a new latency on every link."""
    links = [link._replace(latency=latency()) for link in topology.links]
    return Topology.from_links(links, compute=topology.compute_nodes, name="with latencies")


def check_loads(topology: Topology) -> None:
    """At every distance: HiGHS, its exact answer, CVXPY and the worst set of links agree, and prices prove it."""
    for distance in range(1, diameter_of(topology) + 1):
        solution = solve(model := bfb.build(topology, distance))
        exact = {rank: least_load(topology, distance, rank) for rank in topology.compute_nodes}
        again = least_times(topology, distance)
        for rank, value in solution.values["busiest"].items():
            assert value == close(exact[rank])
            assert again[rank] == pytest.approx(float(exact[rank]), rel=1e-6, abs=1e-8)
        assert solution.exact.values["busiest"] == exact
        check_answer(model, solution)


def check_answer(model: bfb.BfbModel, solution: Any) -> None:
    """The conditions of Karush, Kuhn and Tucker, which prove the optimum."""
    topology, shares, busiest = model.topology, solution.values["share"], solution.values["busiest"]
    worths = solution.duals["arrival"]
    # A row is in shards, its price therefore in time per shard; times the bandwidth it is per unit of time.
    prices = {
        link: price * float(topology.link(*link).bandwidth) for link, price in solution.duals["link_load"].items()
    }
    offers = [
        ((topology.compute_nodes.index(rank), place), mask)
        for rank in topology.compute_nodes
        for place, mask in enumerate(offered_links(topology, model.distance, rank))
    ]
    assert len(offers) == len(worths)
    assert len(shares) == sum(len(mask) for _, mask in offers)
    loads = dict.fromkeys(prices, 0.0)
    for (_, tail, head), share in shares.items():
        assert share >= -1e-9
        loads[tail, head] += share / float(topology.link(tail, head).bandwidth)
    for (tail, head), load in loads.items():
        price = -prices[tail, head]
        assert price >= -1e-9
        assert load <= busiest[head] + 1e-7
        assert price * (busiest[head] - load) == pytest.approx(0, abs=1e-7)
    for rank, time in busiest.items():
        total = sum(-price for (_, head), price in prices.items() if head == rank)
        assert total == close(1 if time > 0 else total)
    for (source, tail, head), share in shares.items():
        cost = -prices[tail, head] / float(topology.link(tail, head).bandwidth)
        assert worths[source, head] <= cost + 1e-7
        assert share * (cost - worths[source, head]) == pytest.approx(0, abs=1e-7)
    assert sum(worths.values()) == close(sum(busiest.values()))
    assert solution.objective == close(sum(busiest.values()))


@networks
def test_loads_are_as_even_as_can_be(topology: Topology) -> None:
    """On families and broken families, by three ways of finding out."""
    check_loads(topology)


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(topology=switch_free_topologies(max_ranks=7))
def test_loads_are_as_even_as_can_be_on_random_networks(topology: Topology) -> None:
    """With bandwidths of their own, in directed graphs."""
    check_loads(topology)


@settings(max_examples=examples(25))
@given(topology=switch_free_topologies(max_ranks=6), chunks=st.integers(1, 6))
def test_whole_chunks_need_the_load_rounded_up(topology: Topology, chunks: int) -> None:
    """Integer program (13) on links of equal bandwidth: ceil(P U), exactly."""
    equal = Topology.from_links([(*link[:2], 1) for link in topology.links], compute=topology.compute_nodes)
    for distance in range(1, diameter_of(equal) + 1):
        solution = solve(bfb.build_chunked(equal, distance, chunks))
        for rank, load in solution.values["busiest"].items():
            assert load == close(ceil(chunks * least_load(equal, distance, rank)))
        assert all(abs(share - round(share)) < 1e-6 for share in solution.values["share"].values())


@pytest.mark.slow
@settings(max_examples=examples(30))
@given(topology=switch_free_topologies(max_ranks=5), data=st.data())
def test_times_with_latencies_agree_with_a_second_spelling(topology: Topology, data: st.DataObject) -> None:
    """Linear program (14), every link with its own bandwidth and latency."""
    topology = with_latencies(topology, lambda: data.draw(bandwidths(5)))
    for distance in range(1, diameter_of(topology) + 1):
        values = solve(bfb.build_timed(topology, distance, 2000)).values["busiest"]
        assert values == {
            rank: pytest.approx(time, rel=1e-6) for rank, time in least_times(topology, distance, 2000).items()
        }


@settings(max_examples=examples(40))
@given(topology=switch_free_topologies(max_ranks=5, max_bandwidth=3), data=st.data())
def test_the_best_set_of_links_is_exact(topology: Topology, data: st.DataObject) -> None:
    """Linear program (14) over all sets of links that bring everything: the least is what the formula for sets says."""
    topology = with_latencies(topology, lambda: data.draw(st.sampled_from([Fraction(1), Fraction(2), Fraction(9)])))
    distance = data.draw(st.integers(1, diameter_of(topology)))
    rank = data.draw(st.sampled_from(topology.compute_nodes))
    masks = offered_links(topology, distance, rank)
    every = sorted(frozenset().union(*masks))
    times = [
        solve(bfb.build_timed(topology, distance, 1500, ranks=rank, links=[link[:2] for link in chosen])).objective
        for size in range(1, len(every) + 1)
        for chosen in combinations(every, size)
        if all(mask & set(chosen) for mask in masks)
    ]
    assert min(times, default=0.0) == close(least_time(topology, distance, rank, 1500))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bfb.build(ring(4), 3), "distance is 3; expected a whole number from 1 to 2"),
        (lambda: bfb.build(ring(4), 0), "distance is 0; expected"),
        (lambda: bfb.build(ring(4), 1.0), "distance is 1.0; expected"),
        (
            lambda: bfb.build(ring(4), 1, ranks=["gpu9"]),
            "the ranks have 'gpu9'; expected names of different ranks of ring-4",
        ),
        (lambda: bfb.build(ring(4), 1, ranks=["gpu1", "gpu1"]), "the ranks have 'gpu1'; expected names of different"),
        (lambda: bfb.build(ring(4), 1, ranks=[]), r"the ranks are \[\]; expected names of ranks"),
        (lambda: bfb.build_chunked(ring(4), 1, 0), "chunks is 0; expected a whole number from 1"),
        (lambda: bfb.build_chunked(ring(4), 1, True), "chunks is True; expected"),
        (lambda: bfb.build_timed(ring(4), 1, "1M"), "shard_bytes is '1M'; expected a whole number from 1"),
        (lambda: bfb.build(dgx_a100(), 1), "has switches, such as 'box0/nvswitch'; expected direct links"),
    ],
)
def test_refuses_what_makes_no_sense(make: Callable[[], bfb.BfbModel], message: str) -> None:
    """Each message names the value."""
    with pytest.raises(UnsupportedError, match=message):
        make()


def test_exact_answers_are_those_of_the_bandwidths_as_written() -> None:
    """Neither quotients nor products of bandwidths, latencies and sizes are rounded before they are coefficients."""
    fabric = Topology.from_links([("a", "b", "33.3", "0.7")], compute="ab", bidirectional=True)
    model = bfb.build(fabric, 1, ranks=["b"])
    assert solve(model).exact.objective == Fraction(10, 333)
    model.program.bandwidth["a", "b"] = 33.4
    assert solve(model).exact.objective == Fraction(10, 334)
    assert model.program.bandwidth["a", "b"].value == 33.4
    timed = bfb.build_timed(fabric, 1, 12345, ranks=["b"])
    assert solve(timed).exact.objective == Fraction("0.7") + Fraction("12.345") / Fraction("33.3")
