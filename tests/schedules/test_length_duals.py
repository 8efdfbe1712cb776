"""Bounds of all-to-alls: lengths of links and cuts, against slow sums, and what they refuse."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt import solve
from collopt.errors import CertificateError
from collopt.formulations import all_to_all
from collopt.schedules import Bound, Cut, LengthDual, LinkValue, Partition, link_values
from collopt.topologies import Topology, ring
from sample_sizes import examples
from strategies import eulerian_topologies, switch_free_topologies

ONE_WAY = ring(3, bandwidth=10, bidirectional=False)
ALIKE = LengthDual(tuple(LinkValue(link.tail, link.head, Fraction(1)) for link in ONE_WAY.links))
LENGTHS = st.sampled_from([Fraction(0), Fraction(1), Fraction(1, 3), Fraction(5, 2)])


@given(st.one_of(eulerian_topologies(max_ranks=5), switch_free_topologies()), st.data())
@settings(max_examples=examples(60))
def test_distances_are_those_of_networkx(topology: Topology, data: st.DataObject) -> None:
    """Fractional lengths, 0 included, give its distances for equal and unequal parts."""
    lengths = [data.draw(LENGTHS) for _ in topology.links]
    size = topology.num_ranks
    weights = tuple(data.draw(st.lists(st.integers(0, 3), min_size=size**2, max_size=size**2)))
    graph = nx.DiGraph()
    graph.add_nodes_from(topology.nodes)
    for link, length in zip(topology.links, lengths, strict=True):
        graph.add_edge(link.tail, link.head, weight=length)
    witness = LengthDual(tuple(LinkValue(*link[:2], x) for link, x in zip(topology.links, lengths, strict=True)))
    distances = dict(nx.all_pairs_dijkstra_path_length(graph))
    for collective, parts in (("all_to_all", ()), ("all_to_allv", weights)):
        amount = sum(
            distances[s][d] * (parts[i * size + j] if parts else 1)
            for i, s in enumerate(topology.compute_nodes)
            for j, d in enumerate(topology.compute_nodes)
            if i != j
        )
        value = sum(link.bandwidth * length for link, length in zip(topology.links, lengths, strict=True))
        assert witness.crossing(topology, collective, parts) == (amount, value)


@given(st.one_of(eulerian_topologies(max_ranks=5), switch_free_topologies()), st.data())
@settings(max_examples=examples(40))
def test_no_witness_proves_more_than_the_linear_program_reaches(topology: Topology, data: st.DataObject) -> None:
    """No lengths and no cut prove more; the program's own prices prove as much."""
    best = solve(all_to_all.build(topology)).exact
    lengths = [data.draw(LENGTHS) for _ in topology.links]
    inside = data.draw(st.sets(st.sampled_from(topology.nodes)))
    any_lengths = LengthDual(tuple(LinkValue(*link[:2], x) for link, x in zip(topology.links, lengths, strict=True)))
    for witness in (any_lengths, Cut(frozenset(inside))):
        try:
            bound = Bound.from_witness(topology, "all_to_all", witness)
        except CertificateError:
            continue
        bound.verify()
        assert bound.inverse_rate <= 1 / best.objective
    prices = best.duals["link_bandwidth"].tolist()
    tight = LengthDual(tuple(LinkValue(*link[:2], x) for link, x in zip(topology.links, prices, strict=True)))
    assert Bound.from_witness(topology, "all_to_all", tight).inverse_rate == 1 / best.objective


def test_a_cut_counts_pairs_on_both_sides() -> None:
    """Equal parts, or those that are stated."""
    cut = Cut(frozenset({"gpu0"}))
    assert cut.crossing(ONE_WAY, "all_to_all") == (2, 10)
    assert cut.crossing(ONE_WAY, "all_to_allv", (9, 4, 5, 1, 9, 1, 1, 1, 9)) == (9, 10)
    assert "their traffic to the others" in cut.reason(ONE_WAY, "all_to_all")


def test_prices_say_what_more_bandwidth_is_worth() -> None:
    """A price is in algorithm bandwidth: three units over an amount of nine."""
    bound = Bound.from_witness(ONE_WAY, "all_to_all", ALIKE)
    assert bound.algbw == 10
    assert bound.busbw == Fraction(20, 3)
    assert {price for _, _, price in link_values(bound)} == {Fraction(1, 3)}
    assert "dual lengths of 3 links" in ALIKE.reason(ONE_WAY, "all_to_all")


WRONG: dict[str, tuple[Any, str]] = {
    "stranger": (LengthDual((LinkValue("gpu1", "gpu0", Fraction(1)),)), "which this topology does not have"),
    "twice": (LengthDual(ALIKE.links + ALIKE.links[:1]), "two dual values for link"),
    "negative": (LengthDual((LinkValue("gpu0", "gpu1", Fraction(-1)),)), "is -1; expected at least 0"),
    "nothing": (LengthDual(()), "which is no bound"),
    "huge": (
        LengthDual((*ALIKE.links[:2], LinkValue("gpu2", "gpu0", Fraction(1, 3**40)))),
        "sum to 2\\^53 or more of their common unit",
    ),
    "partition": (Partition((frozenset({"gpu0"}), frozenset({"gpu1", "gpu2"}))), "does not bound 'all_to_all'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_proves_nothing_is_refused(name: str) -> None:
    """The verification names the reason."""
    witness, message = WRONG[name]
    with pytest.raises(CertificateError, match=message):
        Bound.from_witness(ONE_WAY, "all_to_all", witness)


def test_lengths_are_about_pairs_only() -> None:
    """Broadcast data can share links, so lengths do not bound it."""
    with pytest.raises(CertificateError, match="do not bound 'allgather'"):
        Bound.from_witness(ONE_WAY, "allgather", ALIKE)
    alone = Topology.from_links([("a", "b", 1)], compute="ab")
    with pytest.raises(CertificateError, match="rank 'b' cannot reach"):
        Bound.from_witness(alone, "all_to_all", LengthDual((LinkValue("a", "b", Fraction(1)),)))


@pytest.mark.parametrize(("collective", "weights", "message"), [
    ("all_to_all", (1,) * 9, "has weights; expected none, since all parts are equal"),
    ("all_to_allv", (), "has no weights; expected its traffic"), ("all_to_allv", (1, 1, 1), "per pair of ranks"),
    ("all_to_allv", (1,) * 8 + (-1,), "per pair of ranks"), ("all_to_allw", (), "there is no bound for 'all_to_allw'"),
])  # fmt: skip
def test_bounds_of_other_traffic_are_refused(collective: str, weights: tuple[int, ...], message: str) -> None:
    """All-to-alls have none, all-to-allvs one number for each pair."""
    with pytest.raises(CertificateError, match=message):
        Bound(ONE_WAY, collective, Fraction(9, 30), ALIKE, weights).verify()
