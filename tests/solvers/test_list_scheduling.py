"""Steps of chunks: precedence and what links carry are checked in plain Python, and numbers of steps against bounds."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.solvers.flows.list_scheduling import list_schedule, min_steps, split, step_quotas
from collopt.solvers.flows.path_decomposition import Paths
from collopt.topologies import Topology, complete, hypercube, ring, torus
from sample_sizes import examples

IntArray = np.ndarray


def paths_of(routes: list[list[int]], weights: list[int]) -> Paths:
    """As the solver takes them."""
    starts = np.cumsum([0, *map(len, routes)], dtype=np.int64)
    links = [link for route in routes for link in route]
    return Paths(np.array(weights, dtype=np.int64), starts, np.array(links, dtype=np.int64))


def routes_of(paths: Paths) -> list[list[int]]:
    """Links of each path."""
    return [paths.links[begin:end].tolist() for begin, end in pairwise(paths.starts)]


def one_path_each(topology: Topology, chunks: int) -> tuple[Paths, IntArray]:
    """Chunks of each pair of ranks, on some of its shortest paths; those of a pair take the least busy ones in turn."""
    tails, heads, capacities, _ = topology.arrays
    loads = [0] * len(tails)
    routes = []
    for _ in range(chunks):
        for turn in range(1, topology.num_ranks):
            for source in range(topology.num_ranks):
                routes.append(_lightest(tails, heads, loads, source, (source + turn) % topology.num_ranks))
                for link in routes[-1]:
                    loads[link] += 1
    return paths_of(routes, [1] * len(routes)), capacities


def _lightest(tails: IntArray, heads: IntArray, loads: list[int], source: int, rank: int) -> list[int]:
    """Fewest hops, then the least sum of squared loads."""
    ways: dict[int, tuple[int, list[int]]] = {source: (0, [])}
    layer = set(ways)
    while rank not in ways:
        following: dict[int, tuple[int, list[int]]] = {}
        for link, (tail, head) in enumerate(zip(tails.tolist(), heads.tolist(), strict=True)):
            if tail in layer and head not in ways:
                price = ways[tail][0] + (loads[link] + 1) ** 2
                if head not in following or price < following[head][0]:
                    following[head] = price, [*ways[tail][1], link]
        ways |= following
        layer = set(following)
    return ways[rank][1]


def check(paths: Paths, capacities: IntArray, steps: IntArray, batch: int = 1) -> int:
    """Steps rise along each path, none is left out, and no link carries too much; return how many there are."""
    used = {link for route in routes_of(paths) for link in route}
    narrowest = min((int(capacities[link]) for link in used), default=1)
    carried: Counter[tuple[int, int]] = Counter()
    for path, route in enumerate(routes_of(paths)):
        own = steps[paths.starts[path] : paths.starts[path + 1]].tolist()
        assert all(before < after for before, after in pairwise(own))
        for link, step in zip(route, own, strict=True):
            carried[step, link] += int(paths.weights[path])
    for (_, link), chunks in carried.items():
        assert chunks * narrowest <= batch * int(capacities[link])
    count = len({step for step, _ in carried})
    assert {step for step, _ in carried} == set(range(count))
    return count


@st.composite
def random_paths(draw: st.DrawFn) -> tuple[Paths, IntArray, int]:
    """Any sequences of links, whose capacities need not be multiples of each other, and rows that fit a batch."""
    num_links = draw(st.integers(1, 6))
    route = st.lists(st.integers(0, num_links - 1), min_size=1, max_size=5)
    routes = draw(st.lists(route, min_size=1, max_size=25))
    batch = draw(st.integers(1, 4))
    weights = draw(st.lists(st.integers(1, batch), min_size=len(routes), max_size=len(routes)))
    capacities = draw(st.lists(st.sampled_from([2, 2, 3, 4, 7, 50]), min_size=num_links, max_size=num_links))
    return paths_of(routes, weights), np.array(capacities, dtype=np.int64), batch


@given(case=random_paths(), effort=st.sampled_from([0, 1000]))
@settings(max_examples=examples(200))
def test_no_chunk_is_early_and_no_link_carries_too_much(case: tuple[Paths, IntArray, int], effort: int) -> None:
    """On random paths; and there are no more steps than hops, and at least as many as the bound says."""
    paths, capacities, batch = case
    count = check(paths, capacities, list_schedule(paths, capacities, batch=batch, effort=effort), batch)
    assert min_steps(paths, step_quotas(paths, capacities, batch)) <= count <= len(paths.links)


@given(case=random_paths(), most=st.integers(1, 5))
@settings(max_examples=examples(100))
def test_rows_are_paths_cut_into_few_chunks(case: tuple[Paths, IntArray, int], most: int) -> None:
    """As many rows as needed, with the links of their path; and none for a path without chunks."""
    paths, _, _ = case
    paths = paths._replace(weights=paths.weights * 7 % 13)
    rows, numbers = split(paths, most)
    wanted = []
    for path, (weight, route) in enumerate(zip(paths.weights.tolist(), routes_of(paths), strict=True)):
        wanted += [(path, min(weight - begin, most), route) for begin in range(0, weight, most)]
    assert list(zip(numbers.tolist(), rows.weights.tolist(), routes_of(rows), strict=True)) == wanted


@pytest.mark.parametrize("chunks", [1, 2, 4])
@pytest.mark.parametrize(
    "topology",
    [ring(8), complete(8), hypercube(3), hypercube(4), torus(4, 4), torus(5, 5)],
    ids=lambda topology: topology.name,
)
def test_networks_without_switches_need_no_step_more_than_the_bound(topology: Topology, chunks: int) -> None:
    """Each rank sends to each other."""
    paths, capacities = one_path_each(topology, chunks)
    count = check(paths, capacities, list_schedule(paths, capacities, effort=10**6))
    assert count == min_steps(paths, step_quotas(paths, capacities))


def test_the_bound_counts_the_way_to_a_link_and_from_it() -> None:
    """Three chunks that all take three hops, the second over the same link."""
    paths = paths_of([[0, 3, 4], [1, 3, 5], [2, 3, 6]], [1, 1, 1])
    assert min_steps(paths, np.ones(7, dtype=np.int64)) == 5
    assert check(paths, np.ones(7, dtype=np.int64), list_schedule(paths, np.ones(7, dtype=np.int64))) == 5


def test_a_batch_makes_use_of_links_half_as_wide_again() -> None:
    """Six chunks over a link of 3 and as much as fits over one of 2: at 1 chunk a step half a chunk's time is lost."""
    paths, capacities = paths_of([[0]] * 6 + [[1]] * 4, [1] * 10), np.array([3, 2])
    assert step_quotas(paths, capacities).tolist() == [1, 1]
    assert step_quotas(paths, capacities, 2).tolist() == [3, 2]
    assert check(paths, capacities, list_schedule(paths, capacities)) == 6
    assert check(paths, capacities, list_schedule(paths, capacities, batch=2), 2) == 2
