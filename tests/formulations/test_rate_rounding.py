"""Rounding to multiples of 1/k: nothing grows, trees still fit, and the loss is what is promised."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import chain, combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import UnsupportedError
from collopt.formulations import allreduce
from collopt.formulations.allreduce_rounding import RoundedRates, round_flow, round_rates
from collopt.solvers import solve
from collopt.topologies import Topology, leaf_spine, ring
from sample_sizes import examples
from strategies import switch_free_topologies

NETWORKS = {
    "ring": ring(4, bandwidth=10),
    "slow link": ring(5, bandwidth=7).derate("gpu0", "gpu1", "1/2", bidirectional=False),
    "leaf-spine": leaf_spine(2, 2, 2, 50, oversubscription=2),
}


def rounded(values: Mapping[str, Any], k: int) -> RoundedRates:
    """Round the values of a solved allreduce program."""
    return round_rates(values["root_rate"], values["broadcast_share"], values["reduce_share"], k)


def proper_sets(ranks: tuple[str, ...]) -> list[set[str]]:
    """All sets of ranks but none and all."""
    return [set(chosen) for chosen in chain.from_iterable(combinations(ranks, size) for size in range(1, len(ranks)))]


def assert_trees_fit(result: RoundedRates, ranks: tuple[str, ...]) -> None:
    """Every set of ranks lets out, and in, all that is rooted in it: by LP (5), trees with these rates exist."""
    for inside in proper_sets(ranks):
        rooted = sum(result.root_rates[rank] for rank in inside)
        leaving = sum(share for (u, v), share in result.broadcast_shares.items() if u in inside and v not in inside)
        entering = sum(share for (u, v), share in result.reduce_shares.items() if u not in inside and v in inside)
        assert rooted <= leaving
        assert rooted <= entering


@pytest.mark.parametrize("k", [1, 3, 64, 10**6])
@pytest.mark.parametrize("topology", NETWORKS.values(), ids=NETWORKS.keys())
def test_trees_fit_what_is_left_of_exact_solutions(topology: Topology, k: int) -> None:
    """All are multiples of 1/k, none grows, every cut is wide enough, and the loss is within its bound."""
    values = solve(allreduce.build(topology)).exact.values
    result = rounded(values, k)
    lost = []
    for kind, shares in (("broadcast", result.broadcast_shares), ("reduce", result.reduce_shares)):
        given_shares = values[f"{kind}_share"]
        assert all((share * k).denominator == 1 and share <= given_shares[pair] for pair, share in shares.items())
        lost.append(sum(share != given_shares[pair] for pair, share in shares.items()))
    assert_trees_fit(result, topology.compute_nodes)
    before = sum(values["root_rate"].values())
    assert result.loss == before - result.rate
    assert 0 <= result.loss <= Fraction(topology.num_ranks * (max(lost) + 1), k)


@settings(max_examples=examples(25))
@given(topology=switch_free_topologies(max_ranks=4), k=st.integers(1, 200))
def test_trees_fit_on_random_networks(topology: Topology, k: int) -> None:
    """As above, with one-way links and uneven bandwidths."""
    result = rounded(solve(allreduce.build(topology)).exact.values, k)
    assert all((rate * k).denominator == 1 and rate >= 0 for rate in result.root_rates.values())
    assert_trees_fit(result, topology.compute_nodes)


@settings(max_examples=examples(60))
@given(data=st.data(), k=st.integers(1, 50))
def test_rounded_flows_are_balanced_and_never_larger(data: st.DataObject, k: int) -> None:
    """Flows that solvers leave unbalanced, with circles: out of the origin, through switches, to ends."""
    nodes = ["o", "s", "t", "u", "x", "y"]
    links = [(tail, head) for tail in nodes[:4] for head in nodes[1:] if tail != head]
    flow = {link: data.draw(st.floats(0, 5)) for link in links}
    left = round_flow(flow, "o", {"x", "y"}, k)
    for link, amount in left.items():
        assert 0 < amount <= flow[link]
        assert (amount * k).denominator == 1
    for switch in ("s", "t", "u"):
        net = sum(amount * ((head == switch) - (tail == switch)) for (tail, head), amount in left.items())
        assert net == 0


def test_loss_of_a_flow_is_less_than_one_multiple_per_link() -> None:
    """What reaches the ends of a balanced flow falls by less than 1/k per path, of which there are few."""
    flow = {("o", "s"): Fraction(5, 3), ("s", "x"): Fraction(2, 3), ("s", "y"): Fraction(1), ("o", "x"): Fraction(1, 7)}
    left = round_flow(flow, "o", {"x", "y"}, 10)
    arrived = sum(amount for (_, head), amount in left.items() if head in "xy")
    assert Fraction(5, 3) + Fraction(1, 7) - Fraction(len(flow), 10) < arrived


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1, None, "many"])
def test_refuses_rates_and_flows_that_are_no_amounts(wrong: Any) -> None:
    """Each message has the place and the value; what a solver's tolerance is below 0 counts as 0."""
    with pytest.raises(UnsupportedError, match=f"root_rates at 'a' is {wrong!r}; expected a number of at least 0"):
        round_rates({"a": wrong}, {}, {}, 2)
    with pytest.raises(UnsupportedError, match=f"reduce_shares at .* is {wrong!r}"):
        round_rates({"a": 1}, {}, {("a", "b"): wrong}, 2)
    with pytest.raises(UnsupportedError, match=f"flow at .* is {wrong!r}"):
        round_flow({("a", "b"): wrong}, "a", {"b"}, 2)
    assert round_rates({"a": -1e-9}, {}, {}, 2).rate == 0
