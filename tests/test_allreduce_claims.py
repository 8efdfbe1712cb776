"""Claims of the papers on allreduce, and allreduce on one-way networks and with adding switches, in `examples`."""

from __future__ import annotations

import sys
from fractions import Fraction
from itertools import product

import adding_switches as adding
import allreduce_claims as claims
import networkx as nx
import one_way_allreduce as one_way
import pytest

from collopt import bound, plan
from collopt.planners import steiner_bound
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


def test_adding_switches_leave_a_gap() -> None:
    """Fewest links of a tree as a witness, trees that reach it, and the best partition of four ranks."""
    plans = [plan(adding.network(2), "allreduce", planner="steiner"), adding.turned_trees()]
    for k, found in enumerate(plans, start=2):
        found.verify()
        limit = adding.links_bound(found.topology)
        limit.verify()
        assert found.algbw == limit.algbw == adding.closed_form(k)[1]
    assert adding.partition_bound(plans[0].topology) == adding.closed_form(2)[0] == 2
    assert (plans[1].bound.algbw, plans[1].gap) == (adding.closed_form(3)[0], Fraction(1, 8))


@pytest.mark.parametrize("k", [2, 3, 4])
def test_every_part_without_the_root_is_entered_by_half_of_the_switches(k: int) -> None:
    """Paths without common links from the root to every other rank, all along links away from the root."""
    graph = nx.DiGraph()
    for link in adding.network(k).links:
        if link.tail == "r" or link.head.startswith("p"):
            graph.add_edge(link.tail, link.head, capacity=1)
    flows = {rank: nx.maximum_flow_value(graph, "r", rank) for rank in graph if rank.startswith("p")}
    assert set(flows.values()) == {adding.closed_form(k)[0]} == {2 ** (k - 1)}


def test_no_allreduce_of_four_ranks_takes_fewer_than_ten_messages() -> None:
    """Every order of messages over 18 links, so that 9/5 is the rate of the best algorithm."""
    topology = adding.network(2)
    price, way = one_way.cheapest_way(topology, [Fraction(1)] * topology.num_links)
    assert (topology.num_links, price, len(way)) == (18, 10, 10)


@pytest.mark.parametrize(("ranks", "switches"), [(3, 2), (4, 3)])
def test_trees_of_ranks_are_within_twice_the_bound_by_partitions(ranks: int, switches: int) -> None:
    """And trees that branch at switches between the two."""
    for network in adding.drawn(ranks, switches, 4, 1):
        most = adding.partition_bound(network)
        assert most * ranks / (2 * (ranks - 1)) <= plan(network.without_abilities(), "allreduce").algbw
        assert plan(network.without_abilities(), "allreduce").algbw <= steiner_bound(network, "allreduce").algbw <= most


def test_one_switch_loses_all_that_it_can() -> None:
    """Eight ranks around it: 2 - 2/8 without its help."""
    ranks = list("abcdefgh")
    star = Topology.from_links(
        [(rank, "s", 1) for rank in ranks], compute=ranks, switches="s", bidirectional=True, aggregation="s"
    )
    assert adding.partition_bound(star) == Fraction(7, 4) * plan(star.without_abilities(), "allreduce").algbw == 1


def test_best_partition_is_below_the_bound_that_is_computed() -> None:
    """With the switch beside its widest neighbor, which `bound` does not try."""
    links = [("a", "b", 3), ("a", "s", 4), ("b", "s", 3), ("c", "s", 6)]
    able = {"multicast": "s", "aggregation": "s"}
    network = Topology.from_links(links, compute="abc", switches="s", bidirectional=True, **able)
    assert adding.partition_bound(network) == steiner_bound(network, "allreduce").algbw == 5
    assert bound(network, "allreduce").algbw == 6


def test_networks_with_adding_switches_are_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As people run it."""
    monkeypatch.setattr(sys, "argv", ["adding_switches.py", "--networks", "4"])
    assert adding.main() == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == "k = 2: bound 2, trees 9/5, all algorithms 9/5 GB/s"
    assert last.startswith("4 drawn: bound above the best trees on ")
