"""Packed trees must span, be as many as asked for, and fit the links, whether each link is tested or batches are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import networkx as nx
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collopt.errors import SolverError
from collopt.solvers.flows.bottleneck import bottleneck_cut
from collopt.solvers.trees.batch_packing import Room, exchanged_trees, pack_in_batches
from collopt.solvers.trees.tree_packing import Packing, pack_trees
from collopt.topologies import Topology
from oracles.brute_force_cuts import supplies_fit
from sample_sizes import examples
from strategies import switch_free_topologies

Integers = npt.NDArray[np.int64]

Packer = Callable[..., Packing]
either_way = pytest.mark.parametrize("pack", [pack_trees, pack_in_batches])

COMPILING = [HealthCheck.too_slow]
"""The first example that is drawn may have to wait for numba."""


class Problem(NamedTuple):
    """Arguments of `pack_trees`."""

    num_ranks: int
    tails: Integers
    heads: Integers
    capacities: Integers
    supplies: Integers


def critical(topology: Topology, weights: list[int]) -> Problem:
    """Scale the links of a topology until the weights just fit."""
    tails, heads, capacities, _ = topology.arrays
    best = bottleneck_cut(topology.num_ranks, tails, heads, capacities, np.array(weights, dtype=np.int64))
    supplies = np.array(weights, dtype=np.int64) * best.capacity
    return Problem(topology.num_ranks, tails, heads, capacities * best.supply, supplies)


@st.composite
def critical_problems(draw: st.DrawFn) -> Problem:
    """Draw networks, balanced or not, whose bottleneck is full, with unequal supplies."""
    topology = draw(switch_free_topologies(max_ranks=8))
    return critical(
        topology, draw(st.lists(st.integers(1, 4), min_size=topology.num_ranks, max_size=topology.num_ranks))
    )


@st.composite
def unions_of_trees(draw: st.DrawFn) -> Problem:
    """Draw trees at random and add up their links: all capacity is needed, and some ranks supply nothing."""
    num_ranks = draw(st.integers(2, 7))
    links: Counter[tuple[int, int]] = Counter()
    supplies = np.zeros(num_ranks, dtype=np.int64)
    for _ in range(draw(st.integers(1, 8))):
        order, copies = draw(st.permutations(range(num_ranks))), draw(st.integers(1, 5))
        supplies[order[0]] += copies
        for place, rank in enumerate(order[1:], start=1):
            links[order[draw(st.integers(0, place - 1))], rank] += copies
    tails, heads = np.array(list(links)).T.copy()
    return Problem(num_ranks, tails, heads, np.array(list(links.values())), supplies)


@st.composite
def any_problems(draw: st.DrawFn) -> Problem:
    """Draw links and supplies at random, which may fit or not."""
    num_ranks = draw(st.integers(2, 5))
    pairs = [(tail, head) for tail in range(num_ranks) for head in range(num_ranks) if tail != head]
    capacities = draw(st.lists(st.integers(0, 6), min_size=len(pairs), max_size=len(pairs)))
    supplies = draw(st.lists(st.integers(0, 3), min_size=num_ranks, max_size=num_ranks))
    tails, heads = np.array(pairs).T.copy()
    return Problem(num_ranks, tails, heads, np.array(capacities), np.array(supplies))


def check(packing: Packing, problem: Problem) -> None:
    """All that `pack_trees` promises."""
    num_ranks, tails, heads, capacities, supplies = problem
    assert packing.links.shape == (len(packing.roots), num_ranks)
    rooted, used = np.zeros_like(supplies), np.zeros_like(capacities)
    for root, weight, links in zip(packing.roots.tolist(), packing.weights.tolist(), packing.links, strict=True):
        assert weight >= 1
        assert links[root] == -1
        taken = np.delete(links, root)
        assert np.array_equal(heads[taken], np.delete(np.arange(num_ranks), root))
        tree = nx.DiGraph(zip(tails[taken].tolist(), heads[taken].tolist(), strict=True))
        assert nx.is_arborescence(tree)
        assert len(tree) == num_ranks
        rooted[root] += weight
        used[taken] += weight
    assert np.array_equal(rooted, supplies)
    assert (used <= capacities).all()


@either_way
@given(critical_problems())
@settings(suppress_health_check=COMPILING)
def test_trees_span_and_fit_where_the_bottleneck_is_full(pack: Packer, problem: Problem) -> None:
    """Without a condition on balance, and with unequal supplies (Theorem 10 of ForestColl)."""
    check(pack(*problem), problem)


@either_way
@given(unions_of_trees())
def test_trees_are_found_where_no_capacity_is_left_over(pack: Packer, problem: Problem) -> None:
    """Every link is needed up to its last unit; ranks without supplies root no tree."""
    packing = pack(*problem)
    check(packing, problem)
    assert set(packing.roots.tolist()) == set(np.flatnonzero(problem.supplies).tolist())


@either_way
@given(any_problems())
@settings(max_examples=examples(200))
def test_trees_are_packed_exactly_if_every_cut_has_room(pack: Packer, problem: Problem) -> None:
    """Theorem 8, against all cuts; otherwise some rank is named."""
    if supplies_fit(*problem):
        check(pack(*problem), problem)
    else:
        with pytest.raises(SolverError, match=r"^rank \d cannot receive every supply at once"):
            pack(*problem)


@given(any_problems())
def test_a_single_untested_batch_fits_or_is_refused(problem: Problem) -> None:
    """No flow is asked for: trees that fit are the certificate."""
    packing = Room(*problem).grow(np.arange(problem.num_ranks))
    if packing is not None:
        check(packing, problem)


@given(critical_problems(), st.integers(0, 2**32))
@settings(max_examples=examples(100))
def test_exchanged_trees_span_and_account_for_what_is_left(problem: Problem, seed: int) -> None:
    """For any roots: the trees fit, and the capacity left is what they do not use; bandwidths may be zero."""
    chance = np.random.default_rng(seed)
    roots = np.flatnonzero(chance.random(problem.num_ranks) < 0.7)
    supplies = np.where(np.isin(np.arange(problem.num_ranks), roots), problem.supplies, 0)
    order = np.argsort(problem.tails, kind="stable")
    tails, heads = problem.tails[order], problem.heads[order]
    capacities = problem.capacities[order] * (chance.random(len(order)) < 0.9)
    starts = np.searchsorted(tails, np.arange(problem.num_ranks + 1))
    left = capacities.copy()
    found = exchanged_trees(starts, tails, heads, left, roots, supplies[roots])
    if found is not None:
        check(found, Problem(problem.num_ranks, tails, heads, capacities, supplies))
        used = np.zeros_like(left)
        for links, weight in zip(found.links, found.weights, strict=True):
            used[links[links >= 0]] += weight
        assert np.array_equal(left, capacities - used)


@either_way
@given(seed=st.integers(0, 2**32), num_ranks=st.integers(10, 50))
@settings(max_examples=examples(40))
def test_larger_random_networks_are_packed(pack: Packer, seed: int, num_ranks: int) -> None:
    """Unbalanced networks with uneven bandwidths and supplies."""
    chance = np.random.default_rng(seed)
    order = chance.permutation(num_ranks)
    links = {(int(tail), int(head)) for tail, head in zip(order, np.roll(order, -1), strict=True)}
    links |= {(int(a), int(b)) for a, b in chance.integers(0, num_ranks, (4 * num_ranks, 2)) if a != b}
    rows = [(tail, head, int(chance.integers(1, 50))) for tail, head in sorted(links)]
    topology = Topology.from_links(rows, compute=range(num_ranks))
    problem = critical(topology, chance.integers(1, 5, num_ranks).tolist())
    check(pack(*problem), problem)
