"""Claims of the papers on allreduce, and allreduce on one-way networks, in `examples`."""

from __future__ import annotations

import sys
from fractions import Fraction
from itertools import product

import allreduce_claims as claims
import one_way_allreduce as one_way
import pytest

from collopt import bound, plan
from collopt.planners.trees.allreduce_lp import best_rates
from collopt.schedules import Cut
from collopt.topologies import Topology, complete, ring

GAPS = {
    "bound 5": ([(0, 1, 6), (0, 3, 5), (1, 0, 6), (2, 1, 5), (2, 3, 5), (3, 2, 5)], "5", "11/3"),
    "bound 1": ([(0, 1, 3), (0, 2, 5), (1, 3, 1), (2, 0, 1), (3, 1, 6), (3, 2, 2)], "1", "2/3"),
    "bound 7/2": ([(0, 3, 4), (1, 2, 4), (2, 0, 5), (3, 0, 3), (3, 1, 5)], "7/2", "8/3"),
}
"""Drawn networks whose trees stay below the bound."""


def test_both_claims_fail(capsys: pytest.CaptureFixture[str]) -> None:
    """Once more with every plan and every program."""
    assert claims.main() == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("allgather 104 GB/s; allreduce 128 GB/s, gap 0")


def test_packages_limit_each_phase_of_eight_and_eight() -> None:
    """14 of 16 shards over 3 x 50 + 32 GB/s; the witness of 128 GB/s is a cut of four NICs."""
    topology = claims.half_of_each_box()
    package = {"box0/gpu4", "box0/gpu5"}
    entering = sum(link.bandwidth for link in topology.links if link.head in package and link.tail not in package)
    assert entering == 182
    assert bound(topology, "allgather").algbw == entering * Fraction(16, 14)
    witness = bound(topology, "allreduce").witness
    assert isinstance(witness, Cut)
    assert witness.crossing(topology, "allreduce").bandwidth == 4 * 32


def test_blink_beats_a_reduce_scatter_followed_by_an_allgather() -> None:
    """On three ranks in a row, with one root."""
    assert plan(claims.PATH, "allreduce", planner="blink").algbw == 1
    assert claims.in_turn(claims.PATH, "reduce_scatter", "allgather") == Fraction(3, 4)


def test_three_messages_cross_the_priced_links() -> None:
    """Shortest paths through all states of what ranks know confirm the proof of 10/3."""
    network = one_way.example()
    assert one_way.cheapest_way(network, one_way.PRICES)[0] == 1
    assert one_way.priced_bound(network, one_way.PRICES) == best_rates(network).rate == Fraction(10, 3)
    assert bound(network, "allreduce").algbw == 4


@pytest.mark.parametrize("name", GAPS)
def test_trees_are_best_where_the_bound_is_not_reached(name: str) -> None:
    """By prices that are found and checked exactly."""
    links, limit, rate = GAPS[name]
    network = Topology.from_links([(str(tail), str(head), width) for tail, head, width in links], compute="0123")
    assert bound(network, "allreduce").algbw == Fraction(limit)
    assert best_rates(network).rate == one_way.priced_bound(network, one_way.best_prices(network)) == Fraction(rate)


@pytest.mark.parametrize("topology", [ring(4, bidirectional=False), ring(4), complete(4)], ids=lambda each: each.name)
def test_a_way_takes_two_messages_less_than_twice_the_ranks(topology: Topology) -> None:
    """As known of one-way gossip."""
    price, way = one_way.cheapest_way(topology, [Fraction(1)] * topology.num_links)
    assert (price, len(way)) == (6, 6)


def test_cheapest_ways_of_three_ranks_are_those_of_all_sequences() -> None:
    """Every sequence of four links, for uneven prices."""
    network = ring(3)
    prices = [Fraction(price) for price in (1, 4, 2, 9, 3, 5)]
    ends = [(network.compute_nodes.index(link.tail), network.compute_nodes.index(link.head)) for link in network.links]

    def complete_after(way: tuple[int, ...]) -> bool:
        known = [{0}, {1}, {2}]
        for link in way:
            tail, head = ends[link]
            known[head] |= known[tail]
        return all(len(each) == 3 for each in known)

    ways = [way for count in (4, 5) for way in product(range(6), repeat=count) if complete_after(way)]
    cheapest = min(sum(prices[link] for link in way) for way in ways)
    assert one_way.cheapest_way(network, prices)[0] == cheapest


def test_drawn_networks_are_compared(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As people run it."""
    monkeypatch.setattr(sys, "argv", ["one_way_allreduce.py", "--networks", "8", "--ranks", "3"])
    assert one_way.main() == 0
    example, drawn = capsys.readouterr().out.splitlines()
    assert example == "example: bound 4, trees 10/3, all algorithms 10/3 GB/s"
    assert drawn.endswith("trees proved best on 8")
