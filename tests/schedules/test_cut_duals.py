"""Dual values as witnesses: they never prove too much, and what does not add up is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.errors import CertificateError
from collopt.schedules import Bound, CutDual, LinkValue
from collopt.schedules.bounds.bound import witness_from_json, witness_to_json
from collopt.schedules.bounds.length_duals import hop_limits
from collopt.topologies import Topology, ring
from sample_sizes import examples
from strategies import eulerian_topologies, switch_free_topologies

ONE_WAY = ring(3, bandwidth=10, bidirectional=False)


def incoming(topology: Topology = ONE_WAY) -> CutDual:
    """Every rank of a one-way ring pays 1 for its own incoming link."""
    links = tuple(LinkValue(link.tail, link.head, Fraction(1)) for link in topology.links)
    into = tuple(tuple(dual for dual in links if dual.head == rank) for rank in topology.compute_nodes)
    return CutDual(links, into)


def random_duals(data: st.DataObject, topology: Topology) -> CutDual:
    """Any duals of links, and for both kinds shares of them that add up to no more than they may."""
    numbers = st.fractions(0, 5, max_denominator=4)
    links = {(link.tail, link.head): data.draw(numbers) for link in topology.links}
    relays = frozenset(topology.switch_nodes) if data.draw(st.booleans()) else frozenset()
    sides = []
    for _ in range(2):
        own: list[list[LinkValue]] = [[] for _ in topology.compute_nodes]
        for (tail, head), limit in hop_limits(topology, links, relays).items():
            parts = [data.draw(st.integers(0, 3)) for _ in own]
            for duals, part in zip(own, parts, strict=True):
                duals.append(LinkValue(tail, head, limit * part / max(1, sum(parts))))
        sides.append(tuple(tuple(duals) for duals in own))
    return CutDual(tuple(LinkValue(*pair, dual) for pair, dual in links.items()), *sides, relays)


@settings(max_examples=examples(60))
@given(data=st.data())
def test_no_duals_prove_more_than_the_best_cut(data: st.DataObject) -> None:
    """Weak duality on random networks, in every collective but allreduce."""
    topology = data.draw(st.one_of(eulerian_topologies(max_ranks=4), switch_free_topologies(max_ranks=4)))
    duals = random_duals(data, topology)
    duals.check(topology)
    for collective in ("allgather", "reduce_scatter", "broadcast", "reduce"):
        sizes = tuple(int(rank == 1) for rank in range(topology.num_ranks))
        weights = sizes if collective in ("broadcast", "reduce") else ()
        root = 1 if weights else None
        amount, value = duals.crossing(topology, collective, weights)
        best = collopt.bound(topology, collective, root=root)
        assert amount <= value * best.inverse_rate


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(data=st.data())
def test_no_duals_prove_more_than_plans_of_trees_reach(data: st.DataObject) -> None:
    """An allreduce by trees is never faster than duals allow."""
    topology = data.draw(eulerian_topologies(max_ranks=4, max_switches=2))
    duals = random_duals(data, topology)
    amount, value = duals.crossing(topology, "allreduce")
    assert amount * collopt.plan(topology, "allreduce").algbw <= value * topology.num_ranks


def test_a_bound_is_verified_by_its_duals() -> None:
    """The figure that they prove, no other, and in words."""
    bound = Bound.from_witness(ONE_WAY, "allgather", incoming())
    bound.verify()
    assert bound.algbw == 15
    assert incoming().reason(ONE_WAY, "allgather") == (
        "weighted by dual values, the links offer 30, and all schedules use at least 6 per unit of rate"
    )
    with pytest.raises(CertificateError, match="claims"):
        replace(bound, inverse_rate=Fraction(1, 3)).verify()


def test_both_ways_of_an_allreduce_share_the_links() -> None:
    """On a line, the first link carries the data that its rank roots, and the rank's part of all other data."""
    line = Topology.from_links([("a", "b", 10), ("b", "c", 10)], compute="abc", bidirectional=True)
    first = (LinkValue("a", "b", Fraction(1)),)
    duals = CutDual(first, ((), first, ()), (first, (), ()))
    bound = Bound.from_witness(line, "allreduce", duals)
    bound.verify()
    assert bound.algbw == 10
    assert "at one rank" in duals.scope("allreduce")
    assert "all schedules" not in duals.reason(line, "allreduce")
    spread_alone = CutDual(first, ((), first, ()), ((), (), ()))
    with pytest.raises(CertificateError, match="which is no bound"):
        Bound.from_witness(line, "allreduce", spread_alone)


def test_hops_past_switches_are_worth_their_cheapest_way() -> None:
    """Three GPUs around a switch that can only pass on: every hop uses a link in and a link out."""
    rows = [(rank, "s", 30) for rank in "abc"]
    star = Topology.from_links(rows, compute="abc", switches="s", bidirectional=True)
    duals = {(link.tail, link.head): Fraction(1) for link in star.links}
    assert set(hop_limits(star, duals, frozenset()).values()) == {Fraction(2)}
    assert set(hop_limits(star, duals, frozenset("s")).values()) == {Fraction(1)}
    assert ("a", "s") not in hop_limits(star, duals, frozenset())


def test_a_rank_out_of_reach_has_no_bound() -> None:
    """A rank without a path has no dual; a rank without data does not matter."""
    line = Topology.from_links([("a", "b", 10), ("b", "c", 10)], compute="abc")
    duals = CutDual(tuple(LinkValue(*link[:2], Fraction(1)) for link in line.links), ((), (), ()), ((), (), ()))
    with pytest.raises(CertificateError, match="rank 'b' is not connected with every other"):
        duals.crossing(line, "allgather")
    with pytest.raises(CertificateError, match="which is no bound"):
        Bound.from_witness(line, "allreduce", duals)
    own = CutDual(duals.links, ((), (LinkValue("a", "b", Fraction(1)),), (LinkValue("b", "c", Fraction(1)),)))
    bound = Bound.from_witness(line, "broadcast", own, (1, 0, 0))
    bound.verify()
    assert bound.algbw == 10


def dearer(duals: CutDual) -> CutDual:
    """One rank pays more for a hop than its link is worth."""
    return replace(duals, into=((duals.into[0][0]._replace(dual=Fraction(5, 4)),), *duals.into[1:]))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (dearer, r"dual values of hop \('gpu2', 'gpu0'\) sum to 5/4; expected at most that of its links, 1"),
        (lambda duals: replace(duals, into=duals.into[:2]), "dual values for 2 ranks; expected one list per rank, 3"),
        (lambda duals: replace(duals, links=duals.links[:2]), "sum to 1; expected at most that of its links, 0"),
        (lambda duals: replace(duals, links=duals.links * 2), r"two dual values for link \('gpu0', 'gpu1'\)"),
        (
            lambda duals: replace(duals, links=(*duals.links, LinkValue("gpu1", "gpu0", Fraction(1)))),
            r"a dual value for link \('gpu1', 'gpu0'\), which this topology does not have",
        ),
        (
            lambda duals: replace(duals, into=((LinkValue("gpu1", "gpu0", Fraction(1)),), *duals.into[1:])),
            r"a dual value for hop \('gpu1', 'gpu0'\), which this topology does not have",
        ),
        (
            lambda duals: replace(duals, links=(duals.links[0]._replace(dual=Fraction(-1)), *duals.links[1:])),
            "is -1; expected at least 0",
        ),
        (lambda duals: replace(duals, relays=frozenset({"gpu0"})), "relay 'gpu0' is not a switch"),
    ],
)
def test_refuses_duals_that_do_not_add_up(spoil: Callable[[CutDual], CutDual], message: str) -> None:
    """Each with what is wrong."""
    incoming().check(ONE_WAY)
    with pytest.raises(CertificateError, match=message):
        spoil(incoming()).check(ONE_WAY)


@pytest.mark.parametrize("ability", ["multicast", "aggregation"])
def test_refuses_hops_past_switches_that_can_do_more(ability: str) -> None:
    """A switch that copies or adds up has to be a relay."""
    rows = [(rank, "s", 30) for rank in "abc"]
    abilities: dict[str, Any] = {ability: ["s"]}
    star = Topology.from_links(rows, compute="abc", switches="s", bidirectional=True, **abilities)
    with pytest.raises(CertificateError, match="leaves out of its relays 's'"):
        CutDual((), ((), (), ())).check(star)
    CutDual((), ((), (), ()), relays=frozenset("s")).check(star)


def test_duals_are_written_and_read() -> None:
    """Plain lists and text, and back to the same."""
    duals = replace(incoming(), out_of=((), (), (LinkValue("gpu2", "gpu0", Fraction(1, 3)),)))
    ((field, value),) = json.loads(json.dumps(witness_to_json(duals))).items()
    assert witness_from_json(field, value) == duals


def test_refuses_what_the_duals_are_not_about() -> None:
    """Other collectives, and the kind of data without duals, are refused."""
    with pytest.raises(CertificateError, match="dual values of trees do not bound 'all_to_all'"):
        incoming().crossing(ONE_WAY, "all_to_all")
    for collective in ("reduce_scatter", "reduce", "allreduce"):
        with pytest.raises(CertificateError, match="no dual values for what ranks send"):
            incoming().crossing(ONE_WAY, collective)
    with pytest.raises(CertificateError, match="no dual values for what ranks receive"):
        CutDual(incoming().links, out_of=incoming().into).crossing(ONE_WAY, "allgather")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"links": None}, "list of dual values is None; expected a collection of dual values"),
        (
            {"links": [("gpu0", "gpu1", 0.5)]},
            r"dual value of \('gpu0', 'gpu1'\) is 0.5; expected a Fraction or an integer",
        ),
        ({"links": [("gpu0", "gpu1", "1/2")]}, "is '1/2'; expected a Fraction or an integer"),
        ({"links": [("gpu0", "gpu1", True)]}, "is True; expected a Fraction or an integer"),
        ({"links": [("gpu0", "gpu1")]}, r"contains \('gpu0', 'gpu1'\); expected \(tail, head, value\)"),
        ({"links": [(0, 1, 1)]}, r"contains \(0, 1, 1\); expected"),
        ({"links": [None]}, "contains None; expected"),
        ({"links": (), "into": None}, "dual values into is None"),
        ({"links": (), "into": [None, (), ()]}, "list of dual values is None"),
        ({"links": (), "out_of": [[("gpu0", "gpu1", 0.5)], (), ()]}, "is 0.5; expected a Fraction or an integer"),
        ({"links": (), "relays": None}, "relays is None; expected a collection of names of nodes"),
        ({"links": (), "relays": [1]}, "relays contains 1; expected names of nodes"),
    ],
)
def test_what_are_no_duals_is_refused(fields: dict[str, Any], message: str) -> None:
    """Rounded numbers above all: what is proved is proved exactly."""
    with pytest.raises(CertificateError, match=message):
        CutDual(**fields).check(ONE_WAY)


def test_lists_and_whole_numbers_make_the_same_duals() -> None:
    """Lists and integers stand for tuples and fractions."""
    rows = [(dual.tail, dual.head, 1) for dual in incoming().links]
    into = [[row for row in rows if row[1] == rank] for rank in ONE_WAY.compute_nodes]
    assert CutDual(rows, into) == incoming()  # type: ignore[arg-type]
