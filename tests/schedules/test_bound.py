"""Bounds and their cuts: the sums, and every way in which they can be wrong."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt import bound
from collopt.errors import CertificateError
from collopt.schedules import Bound, Cut, CutDual, Partition, RankCuts, link_values
from collopt.topologies import Topology, dgx_a100, mi250, ring
from oracles.slow_check import bound_holds
from sample_sizes import examples
from strategies import eulerian_topologies, switch_free_topologies

ONE_WAY = Topology.from_links(
    [("a", "s", 4), ("s", "b", 3), ("b", "c", "5/2"), ("c", "a", 2), ("c", "s", 1), ("s", "a", 2)],
    compute=["a", "b", "c"],
    switches=["s"],
)


def bound_of(*nodes: str, rate: Fraction | int = 1) -> Bound:
    """A bound on `ONE_WAY` whose cut holds the given nodes."""
    return Bound(ONE_WAY, "allgather", Fraction(rate), Cut(frozenset(nodes)))


@pytest.mark.parametrize(("nodes", "supply", "bandwidth"), [
    (("a",), 1, 4), (("a", "s"), 1, 5 - 0 + 0 - 2), (("b",), 1, Fraction(5, 2)), (("a", "c"), 2, 4 + 1),
    (("a", "c", "s"), 2, 3), (("b", "c", "s"), 2, 4), (("s",), 0, 5), (("a", "b", "c"), 3, 5), ((), 0, 0),
])  # fmt: skip
def test_cuts_add_up_what_leaves(nodes: tuple[str, ...], supply: int, bandwidth: Fraction) -> None:
    """Ranks inside, and links from inside to outside only."""
    cut = Cut(frozenset(nodes))
    assert (cut.supply(ONE_WAY), cut.bandwidth(ONE_WAY)) == (supply, bandwidth)


def test_a_true_bound_is_accepted() -> None:
    """Two shards over 3 GB/s."""
    true = bound_of("a", "c", "s", rate=Fraction(2, 3))
    true.verify()
    assert true.algbw == Fraction(9, 2)
    assert true.busbw == 3
    assert str(true) == "allgather: at most 4.50 GB/s (1/x* = 2/3)"


@pytest.mark.parametrize(("wrong", "message"), [
    (bound_of("a", "c", "x", rate=Fraction(2, 3)), "names 'x', which is not a node of topology"),
    (bound_of("s"), "contains 0 of 3 ranks; expected ranks on both sides"), (bound_of(), "contains 0 of 3 ranks"),
    (bound_of("a", "b", "c", "s"), "contains 3 of 3 ranks"), (bound_of("a", "b", "c"), "contains 3 of 3 ranks"),
    (bound_of("a", "c", "s", rate=Fraction(3, 5)), r"claims 1/x\* = 3/5, .* shows 2 shards over 3 GB/s"),
    (bound_of("a", "c", rate=Fraction(2, 3)), r"claims 1/x\* = 2/3, .* shows 2 shards over 5 GB/s"),
    (replace(bound_of("a", "c", "s", rate=Fraction(2, 3)), collective="alltoall"), "there is no bound for 'alltoall'"),
    (replace(bound_of("a", "c", "s", rate=Fraction(2, 3)), topology=dgx_a100()), "names 'a', which is not a node"),
])  # fmt: skip
def test_a_wrong_bound_is_refused(wrong: Bound, message: str) -> None:
    """One message for each thing that can be wrong."""
    with pytest.raises(CertificateError, match=message):
        wrong.verify()


def cuts_around(*sets: str) -> RankCuts:
    """Cuts of the nodes whose names are the letters of each text."""
    return RankCuts(tuple(Cut(frozenset(nodes)) for nodes in sets))


@pytest.mark.parametrize(("collective", "weights", "witness", "rate"), [
    ("allgather", (3, 0, 1), Cut(frozenset("acs")), Fraction(4, 3)),
    ("broadcast", (0, 0, 1), Cut(frozenset("ac")), Fraction(1, 5)),
    ("reduce_scatter", (), Cut(frozenset("acs")), Fraction(4, 5)),
    ("reduce", (1, 0, 0), Cut(frozenset("acs")), Fraction(2, 5)),
    ("allreduce", (), Cut(frozenset("acs")), Fraction(3, 3)),
    ("allreduce", (), cuts_around("as", "b", "c"), Fraction(2 * 2, 3)),
])  # fmt: skip
def test_other_collectives_are_bound_by_what_crosses_a_cut(
    collective: str, weights: tuple[int, ...], witness: Cut | RankCuts, rate: Fraction
) -> None:
    """Shards inside leave it; sums of shards enter it; everything crosses it in an allreduce."""
    true = Bound(ONE_WAY, collective, rate, witness, weights)
    true.verify()
    with pytest.raises(CertificateError, match=r"claims 1/x\* = "):
        replace(true, inverse_rate=true.inverse_rate / 2).verify()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": (1, 1)}, "weights are not one non-negative number per rank"),
        ({"weights": (1, -1, 1)}, "weights are not one non-negative number per rank"),
        ({"weights": (0, 1, 0)}, "but its witness shows 0 shards"),
        ({"witness": cuts_around("a", "b", "c")}, "cuts around single ranks do not bound 'allgather'"),
        ({"witness": cuts_around("a", "b"), "collective": "allreduce"}, "has 2 cuts; expected one per rank, 3"),
        (
            {"witness": cuts_around("a", "bc", "c"), "collective": "allreduce"},
            "for rank 'b' does not contain this rank alone",
        ),
        (
            {"witness": cuts_around("a", "c", "c"), "collective": "allreduce"},
            "for rank 'b' does not contain this rank alone",
        ),
        ({"witness": cuts_around("a", "bx", "c"), "collective": "allreduce"}, "names 'x', which is not a node"),
    ],
)
def test_wrong_weights_and_cuts_around_ranks_are_refused(changes: dict[str, object], message: str) -> None:
    """One message for each thing that can be wrong."""
    with pytest.raises(CertificateError, match=message):
        replace(bound_of("a", "c", "s", rate=Fraction(2, 3)), **changes).verify()  # type: ignore[arg-type]


@given(st.one_of(eulerian_topologies(), switch_free_topologies()), st.data())
def test_any_cut_is_accepted_exactly_with_its_own_ratio(topology: Topology, data: st.DataObject) -> None:
    """A cut that is no bottleneck is a weaker bound, and a true one."""
    nodes = data.draw(st.sets(st.sampled_from(topology.nodes)))
    rates = [Fraction(shards, room) for shards in range(1, 4) for room in range(1, 12)]
    claimed = Bound(topology, "allgather", data.draw(st.sampled_from(rates)), Cut(frozenset(nodes)))
    leaving = claimed.witness.bandwidth(topology)
    exact = replace(claimed, inverse_rate=claimed.witness.supply(topology) / leaving) if leaving else claimed
    for one in (claimed, exact):
        if bound_holds(one):
            one.verify()
        else:
            with pytest.raises(CertificateError):
                one.verify()


@given(eulerian_topologies())
def test_trees_per_root_are_the_fewest_that_need_no_rounding(topology: Topology) -> None:
    """Every link carries a whole number of them at the bound (ForestColl section 5.2), and with fewer some does not."""
    best = bound(topology, "allgather")

    def whole(count: int) -> bool:
        return all((best.inverse_rate * link.bandwidth * count).denominator == 1 for link in topology.links)

    assert whole(best.trees_per_root)
    assert not any(whole(count) for count in range(1, min(best.trees_per_root, 100)))


def test_trees_per_root_of_the_paper() -> None:
    """k = 83 for two MI250 boxes (ForestColl, Table 1)."""
    assert bound(mi250(boxes=2), "allgather").trees_per_root == 83
    assert bound(dgx_a100(boxes=2), "allgather").trees_per_root == 13


def test_cuts_around_ranks_prove_nothing_where_switches_add() -> None:
    """Theorem 17 counts what ranks send if only ranks add up."""
    links = [(rank, "sw", 1) for rank in "abc"]
    topology = Topology.from_links(links, compute="abc", switches=["sw"], bidirectional=True, aggregation=["sw"])
    alone = RankCuts(tuple(Cut(frozenset({rank})) for rank in "abc"))
    with pytest.raises(CertificateError, match="where switches can aggregate"):
        Bound(topology, "allreduce", Fraction(4), alone).verify()


def test_a_node_named_twice_counts_once() -> None:
    """Three times rank a and rank b hold the shards of two ranks, not of four."""
    names = "abcdefgh"
    links = [("a", "b", 100), ("a", "c", 1), ("b", "c", 10)]
    links += [(tail, head, 100) for tail in "cdefgh" for head in names if tail != head]
    topology = Topology.from_links(links, compute=list(names))
    stated = Bound.from_witness(topology, "allgather", Cut(("a", "a", "a", "b")))  # type: ignore[arg-type]
    assert stated.witness == Cut(frozenset("ab"))
    assert stated.inverse_rate == Fraction(2, 11)
    with pytest.raises(CertificateError, match=r"claims 1/x\* = 4/11"):
        replace(stated, inverse_rate=Fraction(4, 11)).verify()


@pytest.mark.parametrize(("changes", "message"), [
    ({"witness": None}, "the bound's witness is None; expected a witness such as a Cut"),
    ({"witness": Cut}, "the bound's witness is <class .*; expected a witness such as a Cut"),
    ({"inverse_rate": 1.5}, "claims .* = 1.5; expected an exact Fraction"),
    ({"inverse_rate": None}, "claims .* = None; expected an exact Fraction"),
    ({"topology": None}, "the bound is about None; expected a Topology"),
    ({"collective": None}, "there is no bound for None"),
    ({"weights": None}, "weights are None; expected a tuple of integers"),
    ({"weights": (1.0, 1.0, 1.0)}, "weights are .*; expected a tuple of integers"),
    ({"weights": ("1", "1", "1")}, "weights are .*; expected a tuple of integers"),
    ({"weights": tuple(np.full(3, 2**62))}, "weights are .*; expected a tuple of integers"),
])  # fmt: skip
def test_what_is_not_of_the_form_proves_nothing(changes: dict[str, Any], message: str) -> None:
    """A value of another type in place of a witness, a figure or weights is refused."""
    stated = bound_of("a", rate=Fraction(1, 4))
    stated.verify()
    with pytest.raises(CertificateError, match=message) as caught:
        replace(stated, **changes).verify()
    assert "\n" not in str(caught.value)


def widened(topology: Topology, tail: str, head: str, extra: Fraction) -> Topology:
    """The same network with one link wider."""
    links = tuple(
        link._replace(bandwidth=link.bandwidth + extra) if link[:2] == (tail, head) else link for link in topology.links
    )
    return replace(topology, links=links)


@settings(max_examples=examples(40))
@given(
    topology=switch_free_topologies(max_ranks=5),
    collective=st.sampled_from(["allgather", "reduce_scatter", "allreduce"]),
    number=st.integers(0, 100),
)
def test_a_wider_link_gains_no_more_than_its_price(topology: Topology, collective: str, number: int) -> None:
    """The witness on the wider network gives exactly the figure of its price."""
    bound = collopt.bound(topology, collective)
    prices = {(tail, head): price for tail, head, price in link_values(bound)}
    link = topology.links[number % len(topology.links)]
    wider = widened(topology, link.tail, link.head, Fraction(1, 2))
    allowed = bound.algbw + prices.get(link[:2], Fraction(0)) / 2
    assert collopt.bound(wider, collective).algbw <= allowed
    assert Bound.from_witness(wider, collective, bound.witness).algbw == allowed


def test_all_links_together_are_worth_the_bandwidth() -> None:
    """Price times bandwidth adds up to the bound, for every kind of witness."""
    topology = ring(4, bandwidth=25)
    alone = tuple(frozenset({rank}) for rank in topology.compute_nodes)
    bounds = [
        Bound.from_witness(topology, "allgather", Cut(alone[0] | alone[1])),
        Bound.from_witness(topology, "reduce", Cut(alone[2]), (0, 0, 1, 0)),
        Bound.from_witness(topology, "allreduce", Partition(alone)),
        collopt.planners.lp_bound(topology, "allreduce"),
    ]
    for stated in bounds:
        frame = stated.sensitivity()
        assert frame.columns.tolist() == ["tail", "head", "bandwidth", "dual"]
        assert len(frame) == len(topology.links)
        assert frame["dual"].tolist() == sorted(frame["dual"], reverse=True)
        assert (frame["dual"] * frame["bandwidth"]).sum() == stated.algbw


def test_every_widest_cut_around_a_rank_counts() -> None:
    """The bound rises with the widest of them, and with no other."""
    topology = dgx_a100(boxes=2).derate("box0/gpu0", "box0/nvswitch", "1/2")
    around = tuple(Cut(frozenset({rank})) for rank in topology.compute_nodes)
    bound = Bound.from_witness(topology, "allreduce", RankCuts(around))
    prices = {(tail, head): price for tail, head, price in link_values(bound)}
    assert prices["box0/gpu1", "box0/nvswitch"] == Fraction(16, 30)
    assert ("box0/gpu0", "box0/nvswitch") not in prices


def test_bound_tells_its_scope_and_its_links() -> None:
    """A cut speaks of all schedules; the prices of an allreduce by trees say that they speak of less."""
    network = ring(4, bandwidth=25)
    cut = Bound.from_witness(network, "allgather", Cut(frozenset({"gpu0", "gpu1", "gpu2"})))
    assert cut.scope == "all schedules"
    assert cut.scope not in str(cut)
    prices = CutDual((), ((),) * 4, ((),) * 4, frozenset())
    assert "at one rank" in Bound(network, "allreduce", Fraction(1), prices).scope
    assert "at one rank" in str(Bound(network, "allreduce", Fraction(1), prices))
