"""Witnesses: their sums against plain loops, what they prove, and what they say nothing about."""

from __future__ import annotations

import warnings
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt import plan
from collopt.errors import CertificateError
from collopt.schedules import (
    ALL_TO_ALL,
    COLLECTIVES,
    Bound,
    Crossing,
    Cut,
    Demands,
    ItemCut,
    ItemCuts,
    LengthDual,
    LoopbackPartition,
    Partition,
    RankCuts,
    TreeDual,
    TreePartition,
    Witness,
)
from collopt.schedules.bounds.bound import WITNESS_KINDS, witness_from_json, witness_to_json
from collopt.schedules.bounds.cuts import rank_cut
from collopt.schedules.bounds.length_duals import CutDual
from collopt.schedules.bounds.witness import LinkValue
from collopt.topologies import SwitchLimits, Topology, ring
from sample_sizes import examples
from strategies import eulerian_topologies, switch_free_topologies

STAR = Topology.from_links(
    [("a", "s", 4), ("s", "a", 1), ("b", "s", 2), ("s", "b", 3), ("c", "s", 1), ("s", "c", 3), ("a", "b", 5)],
    compute="abc",
    switches="s",
)
"""Three ranks at a switch, faster one way than the other, and a shortcut."""


def partition_of(*parts: str) -> Partition:
    """Parts of nodes that are called by single letters."""
    return Partition(tuple(frozenset(part) for part in parts))


@st.composite
def partitions(draw: st.DrawFn, topology: Topology) -> Partition:
    """Any partition with ranks in two parts or more."""
    labels = draw(st.lists(st.integers(0, 4), min_size=len(topology.nodes), max_size=len(topology.nodes)))
    labels[:2] = [0, 1]
    named = [[node for node, label in zip(topology.nodes, labels, strict=True) if label == part] for part in range(5)]
    return Partition(tuple(frozenset(part) for part in named if part))


@given(st.one_of(eulerian_topologies(), switch_free_topologies()), st.data())
def test_cuts_add_up_the_same_from_either_side(topology: Topology, data: st.DataObject) -> None:
    """Over all links one by one, whether few nodes are inside or many."""
    cut = Cut(frozenset(data.draw(st.sets(st.sampled_from(topology.nodes)))))
    leaving = [link.bandwidth for link in topology.links if link.tail in cut.nodes and link.head not in cut.nodes]
    entering = [link.bandwidth for link in topology.links if link.tail not in cut.nodes and link.head in cut.nodes]
    assert (cut.bandwidth(topology), cut.entering_bandwidth(topology)) == (sum(leaving), sum(entering))


@pytest.mark.parametrize(("partition", "amount", "bandwidth"), [
    (partition_of("as", "b", "c"), 4, (2 + 1) + (3 + 5) + 3), (partition_of("a", "b", "c", "s"), 4, 1 + (3 + 5) + 3),
    (partition_of("ab", "c", "s"), 2, (1 + 3) + 3), (partition_of("abs", "c"), 2, 1 + 3),
])  # fmt: skip
def test_partitions_add_up_what_enters_parts_with_ranks(partition: Partition, amount: int, bandwidth: int) -> None:
    """2 (p - 1) times the data; links into a part of switches only do not count."""
    partition.check(STAR)
    crossing = partition.crossing(STAR, "allreduce")
    assert crossing == Crossing(Fraction(3 * amount), Fraction(bandwidth))
    bound = Bound.from_witness(STAR, "allreduce", partition)
    bound.verify()
    assert bound.algbw == Fraction(bandwidth, amount)


@given(st.one_of(eulerian_topologies(), switch_free_topologies()), st.data())
def test_partitions_add_up_as_a_slow_count_does(topology: Topology, data: st.DataObject) -> None:
    """Part by part, link by link."""
    partition = data.draw(partitions(topology))
    partition.check(topology)
    parties = [part for part in partition.parts if part & set(topology.compute_nodes)]
    entering = sum(
        link.bandwidth for part in parties for link in topology.links if link.head in part and link.tail not in part
    )
    crossing = partition.crossing(topology, "allreduce")
    assert crossing == Crossing(Fraction(2 * (len(parties) - 1) * topology.num_ranks), Fraction(entering))


@settings(max_examples=examples(60))
@given(st.one_of(eulerian_topologies(max_ranks=5), switch_free_topologies(max_ranks=5)), st.data())
def test_no_allreduce_is_faster_than_any_partition_allows(topology: Topology, data: st.DataObject) -> None:
    """No plan beats the bound of any partition."""
    made = plan(topology, "allreduce")
    assert made.algbw <= Bound.from_witness(topology, "allreduce", data.draw(partitions(topology))).algbw


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_partitions_are_tight_on_rings_and_stars(ranks: int) -> None:
    """N b / (N - 1) on a two-way ring, half of that at a switch; a ring of two has two links each way."""
    network = ring(ranks, bandwidth=6)
    alone = Partition(tuple(frozenset({node}) for node in network.nodes))
    assert Bound.from_witness(network, "allreduce", alone).algbw == Fraction(6 * ranks, ranks - 1)
    links = [(f"gpu{rank}", "sw", 6) for rank in range(ranks)]
    star = Topology.from_links(links, compute=[link[0] for link in links], switches=["sw"], bidirectional=True)
    alone = Partition(tuple(frozenset({node}) for node in star.nodes))
    proved = replace(plan(star, "allreduce"), bound=Bound.from_witness(star, "allreduce", alone))
    proved.verify()
    assert (proved.gap, proved.algbw) == (0, Fraction(6 * ranks, 2 * (ranks - 1)))


@pytest.mark.parametrize(("partition", "message"), [
    (partition_of("as", "b"), "has no part with 'c'; expected every node in a part"),
    (partition_of("a", "b", "c"), "has no part with 's'; expected every node in a part"),
    (partition_of("as", "bs", "c"), "has 's' in two parts; expected one"),
    (partition_of("as", "b", "cx"), "names 'x', which is not a node of topology"),
    (partition_of("abc", "s"), "one part of the bound's partition contains all ranks; expected ranks in at least two"),
    (partition_of(), "has no part with 'a'"),
])  # fmt: skip
def test_what_is_no_partition_is_refused(partition: Partition, message: str) -> None:
    """One message for each thing that can be wrong."""
    with pytest.raises(CertificateError, match=message):
        partition.check(STAR)
    with pytest.raises(CertificateError, match=message):
        Bound(STAR, "allreduce", Fraction(1), partition).verify()


def test_switches_that_add_up_must_belong_to_ranks() -> None:
    """Outside all parties they could make one arrival of two messages; inside, the party adds up anyway."""
    adding = replace(STAR, aggregation=frozenset("s"))
    with pytest.raises(CertificateError, match="has 's', which can aggregate data, in a part without ranks"):
        partition_of("a", "b", "c", "s").check(adding)
    Bound.from_witness(adding, "allreduce", partition_of("as", "b", "c")).verify()


@pytest.mark.parametrize(("able", "loops", "crossings"), [
    ({}, False, 12), ({"multicast": "s"}, False, 10), ({"multicast": "s", "aggregation": "s"}, False, 8),
    ({"multicast": "s", "aggregation": "s"}, True, 10),
])  # fmt: skip
def test_trees_save_crossings_at_switches_outside_of_parts(able: Any, loops: bool, crossings: int) -> None:
    """Four ranks around one switch: 6 crossings out and 6 in, less 2 for each way in which the switch branches."""
    limits = [SwitchLimits("s", loopback=True)] if loops else []
    links = [(rank, "s", 10) for rank in "abcd"]
    star = Topology.from_links(links, compute="abcd", switches="s", bidirectional=True, limits=limits, **able)
    parts = TreePartition(tuple(frozenset(node) for node in "abcds"))
    assert parts.verify(star, "allreduce") == Crossing(Fraction(4 * crossings), Fraction(80))
    bound = Bound.from_witness(star, "allreduce", parts)
    assert "allreduces by trees" in str(bound)
    assert set(parts.link_weights(star, "allreduce").values()) == {1}
    with pytest.raises(CertificateError, match="a partition does not bound 'allgather'"):
        parts.crossing(star, "allgather")


def test_switches_next_to_each_other_save_as_one() -> None:
    """Two switches that reduce on one link, with two ranks each: four parts around one component."""
    links = [("a", "s", 10), ("b", "s", 10), ("s", "t", 10), ("t", "c", 10), ("t", "d", 10)]
    pairs = Topology.from_links(
        links, compute="abcd", switches="st", bidirectional=True, multicast="st", aggregation="st"
    )
    parts = TreePartition(tuple(frozenset(node) for node in "abcdst"))
    assert parts.verify(pairs, "allreduce") == Crossing(Fraction(4 * (12 - 2 * 2)), Fraction(80))


def test_switches_inside_parts_save_nothing_at_their_borders() -> None:
    """Two pairs, each with a switch that reduces of its own, on one link: that of the bound without switches."""
    links = [("a", "s", 10), ("b", "s", 10), ("s", "t", 3), ("t", "c", 10), ("t", "d", 10)]
    pairs = Topology.from_links(
        links, compute="abcd", switches="st", bidirectional=True, multicast="st", aggregation="st"
    )
    parts = TreePartition((frozenset("abs"), frozenset("cdt")))
    assert parts.verify(pairs, "allreduce") == Crossing(Fraction(16), Fraction(12))
    assert parts.link_weights(pairs, "allreduce") == {("s", "t"): 2, ("t", "s"): 2}


def test_where_switches_copy_cuts_around_ranks_count_what_enters() -> None:
    """One sending can be received by all others, so what a rank sends proves nothing then."""
    cuts = RankCuts(tuple(Cut(frozenset(rank)) for rank in "abc"))
    assert cuts.crossing(STAR, "allreduce") == Crossing(Fraction(4), Fraction(4 + 5))
    copying = replace(STAR, multicast=frozenset("s"))
    assert cuts.crossing(copying, "allreduce") == Crossing(Fraction(4), Fraction(3 + 5))
    assert "some rank sends" in cuts.reason(STAR, "allreduce")
    assert "some rank receives" in cuts.reason(copying, "allreduce")


@pytest.mark.parametrize("weights", [(5, 0, 2), (1, 1, 1)])
def test_the_bound_of_an_allreduce_has_no_weights(weights: tuple[int, ...]) -> None:
    """They would only change its unit, so a file could state anything there."""
    even = Bound.from_witness(STAR, "allreduce", partition_of("as", "b", "c"))
    with pytest.raises(CertificateError, match=r"the bound of an allreduce has weights \[.*; expected none"):
        Bound.from_witness(STAR, "allreduce", even.witness, weights)
    with pytest.raises(CertificateError, match=r"the bound of an allreduce has weights"):
        replace(even, weights=weights, inverse_rate=even.inverse_rate * Fraction(sum(weights), 3)).verify()


def test_a_bound_without_bandwidth_is_refused() -> None:
    """It would be an infinite time, or none."""
    dead_end = Topology.from_links([("a", "b", 1)], compute="ab")
    with pytest.raises(CertificateError, match="the witness shows 2 shards over 0 GB/s, which is no bound"):
        Bound.from_witness(dead_end, "allreduce", Cut(frozenset("b")))
    with pytest.raises(CertificateError, match="over 0 GB/s"):
        Bound(dead_end, "allreduce", Fraction(1), Cut(frozenset("b"))).verify()


@pytest.mark.parametrize(("collective", "root", "rate"), [("broadcast", 0, 10), ("reduce", 2, 10)])
def test_the_cut_around_one_rank_is_not_that_of_a_root_without_links_for_its_need(
    collective: str, root: int, rate: int
) -> None:
    """A root needs nothing of others, which over no links is no number."""
    chain = Topology.from_links([("a", "b", 10), ("b", "c", 10)], compute="abc")
    record, weights = COLLECTIVES[collective], tuple(int(rank == root) for rank in range(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cut = rank_cut(chain, record, weights)
    assert Bound.from_witness(chain, record, cut, weights).algbw == rate


WITNESSES: dict[str, Witness] = {
    "cut": Cut(frozenset("sa")),
    "rank_cuts": RankCuts((Cut(frozenset("as")), Cut(frozenset("b")), Cut(frozenset("c")))),
    "partition": partition_of("as", "c", "b"),
    "loopback_partition": LoopbackPartition((frozenset("as"), frozenset("c"), frozenset("b"))),
    "tree_partition": TreePartition((frozenset("as"), frozenset("c"), frozenset("b"))),
    "prices": CutDual(
        (LinkValue("a", "s", Fraction(1, 3)), LinkValue("s", "b", Fraction(0))),
        ((), (LinkValue("a", "b", Fraction(1, 3)),), ()),
        (),
        frozenset("s"),
    ),
    "lengths": LengthDual((LinkValue("a", "s", Fraction(1, 3)), LinkValue("s", "b", Fraction(0)))),
    "tree_dual": TreeDual((LinkValue("a", "s", Fraction(1, 3)), LinkValue("s", "b", Fraction(0)))),
    "item_cuts": ItemCuts((LinkValue("a", "s", Fraction(1, 3)),), ((ItemCut(Fraction(1, 3), frozenset("bc")),), ())),
}


@pytest.mark.parametrize("field", tuple(WITNESS_KINDS))
def test_witnesses_come_back_as_they_were(field: str) -> None:
    """JSON has one field of lists in a fixed order."""
    witness = WITNESSES[field]
    written = witness_to_json(witness)
    assert list(written) == [field]
    assert witness_from_json(field, written[field]) == witness
    assert witness_to_json(partition_of("sa", "b")) == {"partition": [["a", "s"], ["b"]]}


def test_only_cuts_and_cuts_of_items_bound_demands() -> None:
    """One item takes less than data of all ranks for all, which other witnesses count."""
    links = tuple(LinkValue(link.tail, link.head, Fraction(1)) for link in STAR.links)
    parts = tuple(frozenset(node) for node in STAR.nodes)
    hops, alone = ((LinkValue("a", "b", Fraction(1)),), (), ()), tuple(map(Cut, parts[:3]))
    witnesses = [LengthDual(links), TreeDual(links), CutDual(links, hops, (), frozenset()), RankCuts(alone)]
    witnesses += [kind(parts) for kind in (Partition, TreePartition, LoopbackPartition)]
    for witness in witnesses:
        with pytest.raises(CertificateError, match="not bound 'demands'"):
            Bound.from_witness(STAR, Demands([("item", 1, ["a"], ["c"])]), witness)


@pytest.mark.parametrize("kind", ["cut", "rank_cuts", "partition"])
def test_reasons_are_one_line_with_the_bandwidth(kind: str) -> None:
    """The reason states the counted bandwidth."""
    witness = WITNESSES[kind]
    reason = witness.reason(STAR, "allreduce")
    assert "\n" not in reason
    assert f" {witness.crossing(STAR, 'allreduce').bandwidth} GB/s" in reason


def test_views_of_duals_have_all_links_with_a_dual_value() -> None:
    """Small dual values count as well, and 0 does not."""
    network = ring(3, bandwidth=10)
    duals = LengthDual((LinkValue("gpu0", "gpu1", Fraction(1, 2)), LinkValue("gpu1", "gpu2", Fraction(0))))
    view = duals.view(network, ALL_TO_ALL)
    assert view.links == {("gpu0", "gpu1")}
    assert view.words == "link with a dual length in the bound"
