"""Dispatch of tokens to experts: counts against tokens one by one, the bound, relays and wrong input."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import CertificateError
from collopt.planners import DispatchBound, DispatchCounts, DispatchPlan, count_dispatch, schedule_dispatch
from collopt.planners.all_to_all.dispatch import TOKEN_BYTES
from collopt.schedules.stages.two_tier_cost import H200
from oracles.multicast_flows import least_time
from sample_sizes import examples

IntArray = npt.NDArray[np.int64]


def routing(n: int, m: int, tokens: list[int], seed: int) -> tuple[list[IntArray], IntArray]:
    """Random experts, two per token,and two experts per rank, anywhere."""
    random = np.random.default_rng(seed)
    placement = random.permutation(np.repeat(np.arange(n * m), 2))
    return [random.integers(0, len(placement), (count, 2)) for count in tokens], placement


def class_counts(n: int, *tokens: tuple[int, int, set[int]]) -> DispatchCounts:
    """Counts of servers of one GPU: so many tokens from a server to a set of others."""
    sends, leaving = np.zeros((n, n), dtype=np.int64), np.zeros(n, dtype=np.int64)
    classes = np.zeros((n, 2**n), dtype=np.int64)
    for count, server, others in tokens:
        sends[server, list(others)] += count
        leaving[server] += count
        classes[server, sum(1 << other for other in others)] += count
    return DispatchCounts(sends, leaving, 1, classes)


@settings(max_examples=examples(60))
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32 - 1), st.data())
def test_counts_and_bounds_are_those_of_the_tokens(n: int, m: int, seed: int, data: st.DataObject) -> None:
    """Each token is looked at by itself; relays by all subsets of servers."""
    tokens = data.draw(st.lists(st.integers(0, 12), min_size=n * m, max_size=n * m))
    indices, placement = routing(n, m, tokens, seed)
    counts = count_dispatch(indices, placement, servers=n, gpus_per_server=m)
    wants = [
        (rank // m, {int(placement[expert]) // m for expert in row} - {rank // m})
        for rank, rows in enumerate(indices)
        for row in rows
    ]
    by_server, once = np.zeros((n, n), dtype=np.int64), np.zeros(n, dtype=np.int64)
    for source, servers in wants:
        by_server[source, list(servers)] += 1
        once[source] += bool(servers)
    assert np.array_equal(counts.by_server, by_server)
    assert np.array_equal(counts.once, once)
    plan = schedule_dispatch(counts, stages="fewest")
    plan.verify()
    assert plan.bound.load == Fraction(int(max(by_server.sum(axis=0).max(), once.max())), m)
    assert plan.direct_load <= plan.load <= plan.direct_load + n
    assert plan.columns_decide == (plan.direct_load == plan.bound.load)
    assert plan.gap >= 0
    assert ("optimal" in str(plan)) == (plan.gap == 0)
    subsets = [set(some) for size in range(1, n + 1) for some in combinations(range(n), size)]
    relayed = max(
        Fraction(sum(len(others) if others <= some else 1 for source, others in wants if source in some and others),
                 len(some) * m)
        for some in subsets
    )  # fmt: skip
    assert plan.relayed_load == relayed


def relayed_tokens(plan: DispatchPlan) -> tuple[IntArray, list[IntArray]]:
    """Deliver the tokens of all routes one by one; return how often each class gets to each server, and the sends."""
    n, m = plan.counts.servers, plan.counts.gpus_per_server
    arrivals = np.zeros((n * m, 2**n, n), dtype=np.int64)
    sends = [np.zeros((n * m, n), dtype=np.int64) for _ in plan.rounds]
    for rank, subset, chief, number, tokens in plan.routes.tolist():
        wanting = [server for server in range(n) if subset >> server & 1]
        hops = [(number, rank, server) for server in wanting]
        if chief != rank // m:
            holder = chief * m + rank % m
            hops = [(number, rank, chief), *((number + 1, holder, server) for server in wanting if server != chief)]
        for at, sender, server in hops:
            sends[at][sender, server] += tokens
            arrivals[rank, subset, server] += tokens
    return arrivals, sends


@settings(max_examples=examples(60))
@given(st.integers(2, 4), st.integers(1, 3), st.integers(1, 6), st.integers(0, 2**32 - 1), st.data())
def test_relays_deliver_every_token_once(n: int, m: int, rounds: int, seed: int, data: st.DataObject) -> None:
    """Every token gets to each server that wants it, by routes whose sends are those of the rounds."""
    tokens = data.draw(st.lists(st.sampled_from([0, 1, 5, 40]), min_size=n * m, max_size=n * m))
    indices, placement = routing(n, m, tokens, seed)
    counts = count_dispatch(indices, placement, servers=n, gpus_per_server=m)
    plan = schedule_dispatch(counts, relay_rounds=rounds)
    plan.verify()
    arrivals, sends = relayed_tokens(plan)
    assert counts.classes is not None
    wanted = np.arange(2**n)[:, None] >> np.arange(n) & 1
    assert np.array_equal(arrivals, counts.classes[:, :, None] * wanted)
    for schedule, each in zip(plan.rounds, sends, strict=True):
        assert np.array_equal(schedule.traffic.reshape(n * m, n, m).sum(axis=2), each)
    assert len(plan.rounds) == rounds + 1
    assert plan.load >= plan.bound.load


def test_relays_come_near_the_bound() -> None:
    """Where one server has all tokens, each for all of three others; and chosen by time where servers are uneven."""
    plan = schedule_dispatch(class_counts(4, (600, 0, {1, 2, 3})), relay_rounds=10, stages="plain")
    assert plan.bound.load == 600
    assert plan.load == 640  # What is sent in the last part waits for its relay.
    assert "with relays in 11 rounds" in str(plan)
    indices, placement = routing(4, 2, [40000] * 2 + [4000] * 6, 0)
    counts = count_dispatch(indices, placement, servers=4, gpus_per_server=2)
    direct, chosen = schedule_dispatch(counts, relay_rounds=0), schedule_dispatch(counts)
    assert len(schedule_dispatch(counts, token_bytes=100).rounds) == 1  # which saves less than planning takes
    assert direct.gap > Fraction(1, 3)
    assert chosen.gap < direct.gap / 2
    assert chosen.predicted(H200, TOKEN_BYTES) < direct.predicted(H200, TOKEN_BYTES)


def test_no_relays_where_they_do_not_pay() -> None:
    """Servers that send equally much take none."""
    indices, placement = routing(4, 2, [4000] * 8, 0)
    assert len(schedule_dispatch(count_dispatch(indices, placement, servers=4, gpus_per_server=2)).rounds) == 1


def test_bound_of_relays_may_exceed_that_of_all_schedules() -> None:
    """Four servers on which a helper that wants no token would pay: 8 sends where the bound says 6."""
    tokens = [(3, 0, {1, 2}), (3, 1, {0, 2}), (3, 2, {0, 1}), (2, 0, {3}), (2, 1, {3}), (2, 2, {3})]
    plan = schedule_dispatch(class_counts(4, *tokens), stages="plain")
    assert (plan.bound.load, plan.relayed_load, plan.load) == (6, 8, 8)
    assert plan.optimum(H200, 7000) == 6 * Fraction(7, 50)
    alone = schedule_dispatch(class_counts(4, (6, 0, {1, 2, 3})), stages="plain")
    assert (alone.load, alone.bound.load, alone.gap, alone.columns_decide, alone.relayed_load) == (18, 6, 2, False, 6)
    assert "200.00 % above the bound of all schedules, as servers send unequally" in str(alone)


SENDS = np.array([[0, 3], [0, 1], [2, 0], [0, 0]])
LEAVING = SENDS.sum(axis=1)


def test_wrong_claims_are_found() -> None:
    """A bound of other tokens, and a schedule of others."""
    counts = DispatchCounts(SENDS, LEAVING, 2)
    plan = schedule_dispatch(counts)
    assert plan.relayed_load is None
    relays = schedule_dispatch(class_counts(4, (600, 0, {1, 2, 3})), relay_rounds=3)
    elsewhere = schedule_dispatch(class_counts(4, (600, 0, {1, 2})), relay_rounds=3)
    assert relays.chiefs is not None
    stray = np.zeros((4, 16, 4), dtype=np.int64)
    stray[0, 6, 3] = 600
    other = DispatchCounts(SENDS[[0, 1, 3, 2]], LEAVING[[0, 1, 3, 2]], 2)
    for forged, message in (
        (replace(plan, bound=DispatchBound(1, True, 5, 2)), "which the counts do not show: these are 4 tokens"),
        (replace(plan, counts=other), "of other tokens than its counts"),
        (replace(relays, rounds=relays.rounds[::-1]), "of other tokens than its counts"),
        (replace(relays, chiefs=None), "a dispatch has 4 rounds; expected 1"),
        (replace(relays, chiefs=np.zeros_like(relays.chiefs)), "routes of the dispatch are of other tokens"),
        (replace(relays, chiefs=relays.chiefs[:3]), "chiefs of the dispatch are no numbers of tokens"),
        (replace(relays, chiefs=-relays.chiefs), "chiefs of the dispatch are no numbers of tokens"),
        (replace(elsewhere, chiefs=stray), "by servers that do not want them"),
    ):
        with pytest.raises(CertificateError, match=message):
            forged.verify()


Classes = dict[tuple[int, frozenset[int]], int]
SHAPES = [(2, 2), (3, 1), (4, 1)]


def drawn(n: int, m: int, seed: int, kinds: int) -> Classes:
    """Some classes of a few tokens, sometimes all of one sender."""
    random = np.random.default_rng(seed)
    classes: Classes = {}
    for _ in range(kinds):
        origin = 0 if seed % 3 == 0 else int(random.integers(n * m))
        others = [rank for rank in range(n * m) if rank != origin]
        wanted = random.choice(others, size=random.integers(1, min(4, n * m)), replace=False)
        classes[origin, frozenset(wanted.tolist())] = int(random.integers(1, 9))
    return classes


def dispatched(classes: Classes, n: int, m: int) -> DispatchPlan:
    """Plan the same tokens, each GPU with an expert; a token's own GPU stands for choices that are left."""
    tokens: list[list[list[int]]] = [[] for _ in range(n * m)]
    for (origin, wanted), count in classes.items():
        tokens[origin] += count * [[*wanted, *[origin] * (n * m - len(wanted))]]
    indices = [np.array(each, dtype=np.int64).reshape(-1, n * m) for each in tokens]
    return schedule_dispatch(count_dispatch(indices, np.arange(n * m), servers=n, gpus_per_server=m), stages="plain")


def check_bound(classes: Classes, n: int, m: int) -> None:
    """On up to three servers whose links inside are fast, the bound is the least time over all trees."""
    plan = dispatched(classes, n, m)
    found = least_time(classes, n, m, 18, 1)
    assert found >= float(plan.bound.load) - 1e-6
    if n <= 3:
        assert found == pytest.approx(float(plan.bound.load), abs=1e-6)
    assert plan.relayed_load is not None
    assert found <= float(max(plan.relayed_load, plan.bound.load)) + 1e-6
    if plan.columns_decide:
        assert found == pytest.approx(float(plan.direct_load), abs=1e-6)


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_bound_of_dispatches_is_the_least_time_over_trees(n: int, m: int) -> None:
    """Exactly so on up to three servers; relays are within their own bound on four."""
    for seed in range(8):
        check_bound(drawn(n, m, seed, 4), n, m)
