"""Dual values for trees, against every tree of tiny networks, and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import CertificateError
from collopt.schedules import ALLREDUCE, Bound, LinkValue, TreeDual, link_values
from collopt.topologies import Topology, ring
from looping_star import STAR
from oracles.steiner_trees import best_rate, load_rows
from sample_sizes import examples
from strategies import able_topologies

ALIKE = TreeDual(tuple(LinkValue(link.tail, link.head, Fraction(1)) for link in STAR.links))
DUALS = st.sampled_from([Fraction(0), Fraction(1), Fraction(1, 3), Fraction(5, 2), Fraction(10**20)])


def priced(topology: Topology, duals: list[Fraction]) -> TreeDual:
    """One dual value for each link, in their order."""
    return TreeDual(tuple(LinkValue(*link[:2], dual) for link, dual in zip(topology.links, duals, strict=True)))


@given(able_topologies(max_ranks=3, max_switches=2), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_costs_are_those_of_the_cheapest_of_all_trees(topology: Topology, data: st.DataObject) -> None:
    """Free links, dear ones and switches with loopback included."""
    duals = [data.draw(DUALS) for _ in topology.links]
    witness = priced(topology, duals)
    costs = {
        (rank, direction): min(
            sum(dual * copies for dual, copies in zip(duals, row, strict=True))
            for row in load_rows(topology, rank, direction)
        )
        for rank in topology.compute_nodes
        for direction in ("broadcast", "reduce")
    }
    ranks = topology.compute_nodes
    for collective, direction in (("allgather", "broadcast"), ("reduce_scatter", "reduce")):
        weights = tuple(range(1, len(ranks) + 1))
        amount = sum(weight * costs[rank, direction] for rank, weight in zip(ranks, weights, strict=True))
        assert witness.crossing(topology, collective, weights).amount == amount
    least = min(costs[rank, "broadcast"] + costs[rank, "reduce"] for rank in ranks)
    value = sum(link.bandwidth * dual for link, dual in zip(topology.links, duals, strict=True))
    assert witness.verify(topology, "allreduce") == (len(ranks) * least, value)


@given(able_topologies(max_ranks=3, max_switches=2), st.data())
@settings(max_examples=examples(30), deadline=None)
def test_no_dual_values_prove_more_than_trees_reach(topology: Topology, data: st.DataObject) -> None:
    """Changed dual values are refused, or a true bound."""
    witness = priced(topology, [data.draw(DUALS) for _ in topology.links])
    try:
        bound = Bound.from_witness(topology, "allreduce", witness)
    except CertificateError:
        return
    bound.verify()
    assert float(bound.algbw) >= best_rate(topology, ALLREDUCE) * (1 - 1e-6)


def test_a_tree_pays_for_what_comes_back() -> None:
    """A copy for the rank above the switch, and three for the others."""
    assert ALIKE.verify(STAR, "allreduce") == (3 * (4 + 4), 180)
    assert ALIKE.verify(STAR, "broadcast", (0, 1, 0)) == (4, 180)
    bound = Bound.from_witness(STAR, "allreduce", ALIKE)
    assert bound.algbw == Fraction(45, 2)
    assert {dual for _, _, dual in link_values(bound)} == {Fraction(1, 8)}
    assert bound.scope in ALIKE.reason(STAR, "allreduce")
    assert "\n" not in ALIKE.reason(STAR, "allreduce")


def test_each_direction_has_switches_of_its_own() -> None:
    """Where the switch only multicasts, sums pass it, and the other way round."""
    copying, adding = replace(STAR, aggregation=[], limits=()), replace(STAR, multicast=[], limits=())
    for network, amounts in ((copying, (3 * 3, 3 * 4)), (adding, (3 * 4, 3 * 3))):
        found = tuple(ALIKE.crossing(network, collective).amount for collective in ("allgather", "reduce_scatter"))
        assert found == amounts


def test_trees_split_into_any_sets_of_ranks() -> None:
    """Around two switches, each next to half of the ranks and to the root."""
    ranks = [f"r{number}" for number in range(7)]
    rows = [
        *((rank, "s", 1) for rank in ("r0", "r4", "r5", "r6")),
        *((rank, "t", 1) for rank in ("r1", "r2", "r3", "r6")),
    ]
    network = Topology.from_links(rows, compute=ranks, switches="st", bidirectional=True, multicast="st")
    witness = priced(network, [Fraction(1)] * len(network.links))
    assert witness.verify(network, "broadcast", (0,) * 6 + (1,)) == (2 + 6, 16)


def test_links_without_a_dual_value_are_free() -> None:
    """Copies past the switch pay for two ranks each, sums in it for the root alone."""
    into = TreeDual(tuple(LinkValue("s", rank, Fraction(1)) for rank in "abc"))
    assert into.verify(STAR, "allgather") == (3 * 2, 90)
    assert into.verify(STAR, "reduce_scatter") == (3 * 1, 90)
    assert TreeDual(list(ALIKE.links)) == ALIKE  # type: ignore[arg-type]
    with pytest.raises(CertificateError, match=r"expected \(tail, head, value\)"):
        TreeDual((("a", "s"),))  # type: ignore[arg-type]


WRONG: dict[str, tuple[Any, str]] = {
    "stranger": (TreeDual((LinkValue("a", "b", Fraction(1)),)), "which this topology does not have"),
    "twice": (TreeDual(ALIKE.links + ALIKE.links[:1]), "two dual values for link"),
    "negative": (TreeDual((LinkValue("a", "s", Fraction(-1)),)), "is -1; expected at least 0"),
    "nothing": (TreeDual(()), "which is no bound"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_proves_nothing_is_refused(name: str) -> None:
    """The verification names the reason."""
    witness, message = WRONG[name]
    with pytest.raises(CertificateError, match=message):
        Bound.from_witness(STAR, "allreduce", witness)


def test_what_they_say_nothing_about_is_refused() -> None:
    """All-to-alls, networks that trees do not span, and those too large to look for the cheapest tree."""
    with pytest.raises(CertificateError, match="do not bound 'all_to_all'"):
        Bound.from_witness(STAR, "all_to_all", ALIKE)
    one_way = Topology.from_links([("a", "b", 1)], compute="ab")
    duals = priced(one_way, [Fraction(1)])
    with pytest.raises(CertificateError, match="rank 'b' is not connected with every other"):
        Bound.from_witness(one_way, "allgather", duals)
    with pytest.raises(CertificateError, match="which is no bound"):
        Bound.from_witness(one_way, "allreduce", duals)
    assert Bound.from_witness(one_way, "broadcast", duals, (1, 0)).algbw == 1
    large = ring(13)
    with pytest.raises(CertificateError, match="for 13 ranks; expected at most 12"):
        Bound.from_witness(large, "allreduce", priced(large, [Fraction(1)] * 26))
