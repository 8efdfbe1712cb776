"""The certificate in words: its sums are the witness's own, exact, for every kind of witness and collective."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.planners import lp_bound
from collopt.report.pages.page import certificate
from collopt.schedules import Bound, Cut, CutDual, LengthDual
from collopt.topologies import Topology, ring, torus
from sample_sizes import examples
from strategies import eulerian_topologies

ONE_WAY = [("allgather", "leave"), ("reduce_scatter", "enter"), ("allreduce", "leave"), ("all_to_all", "leave")]


def stated(equation: str, unit: str) -> Fraction:
    """Read the exact result of an equation, whose decimal has to be within its last digit of the fraction beside it."""
    found = re.search(rf" = (\S+) {unit}(?: \((\d+/\d+)\))?(?: per byte of .*)?$", equation)
    assert found, equation
    decimal, exact = Fraction(found[1]), Fraction(found[2] or found[1])
    assert abs(decimal - exact) <= (Fraction(1, 200) if exact >= 1 else exact / 200)
    return exact


def check_sums(bound: Bound) -> None:
    """What stands on the page adds up to what the witness says, and divides to what the bound says."""
    proof = certificate(bound)
    amount, bandwidth = bound.witness.crossing(bound.topology, bound.collective, bound.weights)
    assert proof.total == bandwidth
    assert sum(term.links for term in proof.terms) == len(proof.links)
    time, algbw = proof.divisions
    assert time.startswith(f"time ≥ {amount} / ")
    assert stated(time, "ns") == amount / bandwidth
    assert stated(algbw, "GB/s") == bound.algbw


@settings(max_examples=examples(40))
@given(eulerian_topologies(), st.data())
def test_sums_of_every_cut_are_exact(topology: Topology, data: st.DataObject) -> None:
    """Random cuts add up exactly in both directions."""
    ranks = topology.num_ranks
    inside = data.draw(st.integers(1, ranks - 1))
    switches = data.draw(st.sets(st.sampled_from(topology.switch_nodes))) if topology.switch_nodes else set()
    cut = Cut(frozenset(topology.compute_nodes[:inside]) | frozenset(switches))
    for collective, _ in ONE_WAY:
        check_sums(Bound.from_witness(topology, collective, cut))


@pytest.mark.parametrize(("collective", "way"), ONE_WAY)
def test_a_cut_says_which_way_data_passes_it(collective: str, way: str) -> None:
    """Shards leave a cut, terms of sums enter it, and the counted links follow."""
    network = Topology.from_links([("a", "b", 10), ("b", "c", 20), ("c", "a", 30)], compute="abc")
    proof = certificate(Bound.from_witness(network, collective, Cut(frozenset("a"))))
    assert proof.links == ((("c", "a"),) if way == "enter" else (("a", "b"),))
    assert f"must {way}" in proof.reasons[1]
    assert proof.total == (30 if way == "enter" else 10)


def test_lengths_of_links_are_multiplied_by_bandwidth() -> None:
    """Every link with a length has a term."""
    bound = collopt.bound(torus(3, 3, bandwidth=25), "all_to_all")
    assert isinstance(bound.witness, LengthDual)
    check_sums(bound)
    proof = certificate(bound)
    assert proof.weighted
    assert all(term.dual > 0 for term in proof.terms)


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "allreduce"])
def test_prices_are_multiplied_by_bandwidth(collective: str) -> None:
    """The text names the schedules that the bound is about."""
    bound = lp_bound(ring(4, bandwidth=25), collective)
    assert isinstance(bound.witness, CutDual)
    check_sums(bound)
    assert any(bound.scope in reason for reason in certificate(bound).reasons)
