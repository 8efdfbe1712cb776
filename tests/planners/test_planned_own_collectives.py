"""Registered collectives, planned: optimal by cuts and by hand, saved, compared, and refused where they do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.errors import BoundError, CertificateError, UnsupportedError
from collopt.planners import PLANNERS, Plan, load_plan, plan_of_schedule
from collopt.planners.what_if.compare import check_feasible
from collopt.schedules import COLLECTIVES, FlowSchedule
from collopt.topologies import Topology, complete, ring
from own_collectives import GATHER, HALO, SCATTER, SHIFT, registered
from sample_sizes import examples
from strategies import eulerian_topologies, switch_free_topologies


@pytest.fixture(autouse=True, scope="module")
def own_collectives() -> Iterator[None]:
    """All tests of this file know them."""
    with registered(SCATTER, GATHER, SHIFT, HALO):
        yield


def planned(topology: Topology, collective: Any, **options: Any) -> Plan:
    """Plan by a name that type checkers do not know."""
    return collopt.plan(topology, collective, **options)


def by_cuts(topology: Topology, root: int, *, gathers: bool) -> Fraction:
    """The largest ratio over all cuts around the root of ranks outside to bandwidth, which one source attains.

    With a link from every rank to a new node, a maximum flow from the root is a scatter (Ford and Fulkerson).
    """
    nodes = topology.nodes
    others = [node for node in nodes if node != nodes[root]]
    best = Fraction(0)
    for size in range(len(others)):
        for beside in combinations(others, size):
            inside = {nodes[root], *beside}
            outside = sum(rank not in inside for rank in topology.compute_nodes)
            ends = [(link.head, link.tail) if gathers else (link.tail, link.head) for link in topology.links]
            crossing = [
                link.bandwidth
                for link, (tail, head) in zip(topology.links, ends, strict=True)
                if tail in inside and head not in inside
            ]
            best = max(best, outside / sum(crossing, Fraction(0))) if outside else best
    return best


@given(st.one_of(eulerian_topologies(max_ranks=5, max_switches=2), switch_free_topologies(max_ranks=5)), st.data())
@settings(max_examples=examples(30))
def test_scatter_and_gather_are_as_fast_as_their_cuts_allow(topology: Topology, data: st.DataObject) -> None:
    """The bound is the narrowest of all cuts, and plans come as near to it as their chunks let them."""
    root = data.draw(st.integers(0, topology.num_ranks - 1))
    for collective, gathers in ((SCATTER, False), (GATHER, True)):
        made = planned(topology, collective, root=root, chunks=2**12)
        assert made.bound.inverse_rate == by_cuts(topology, root, gathers=gathers)
        assert made.gap < Fraction(1, 200)
        assert collopt.bound(topology, collective, root=root).inverse_rate == made.bound.inverse_rate


@pytest.mark.parametrize("collective", ["scatter", "gather"])
@pytest.mark.parametrize("root", [0, 2])
def test_closed_forms_of_a_ring_and_of_a_star(collective: str, root: int) -> None:
    """All but one of the parts pass the root's links: two on a ring, one at a switch, one way round a one-way ring."""
    ranks = [f"gpu{number}" for number in range(4)]
    star = Topology.from_links([(rank, "sw", 10) for rank in ranks], compute=ranks, switches=["sw"], bidirectional=True)
    for network, rate in (
        (ring(5, bandwidth=25), Fraction(4, 50)),
        (ring(6, bandwidth=25), Fraction(5, 50)),
        (ring(5, bandwidth=25, bidirectional=False), Fraction(4, 25)),
        (star, Fraction(3, 10)),
        (complete(4, bandwidth=10), Fraction(1, 10)),
    ):
        made = planned(network, collective, root=root)
        assert (made.inverse_rate, made.gap) == (rate, 0)
        assert made.algbw == 1 / rate
        assert made.busbw == (network.num_ranks - 1) / rate
    assert by_cuts(star, root, gathers=collective == "gather") == Fraction(3, 10)


def test_a_plan_is_found_again_in_its_file(tmp_path: Path) -> None:
    """With the record; where nobody registered it, and with another one's traffic, the file is refused."""
    path = tmp_path / "plan.json"
    for collective, options in (("scatter", {"root": 1}), ("gather", {"root": 3}), ("halo", {})):
        made = planned(ring(4, bandwidth=25), collective, **options)
        made.save(path)
        again = load_plan(path)
        assert again.to_json() == made.to_json()
        assert again.collective is COLLECTIVES[collective]
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(f'"{collective}"', '"shift"'), encoding="utf-8")
        with pytest.raises(CertificateError, match="the traffic is not that of the collective 'shift'"):
            load_plan(path)
        path.write_text(text.replace(f'"{collective}"', '"all_to_allv"'), encoding="utf-8")
        assert load_plan(path).inverse_rate == made.inverse_rate
        path.write_text(text.replace(f'"{collective}"', '"sprinkle"'), encoding="utf-8")
        problem = r"plan.json: the collective 'sprinkle' is not registered"
        with pytest.raises(UnsupportedError, match=problem):
            load_plan(path)


def test_a_given_flow_is_for_a_collective_by_its_traffic() -> None:
    """The root is found; traffic that is no root's is refused, as is that of a collective without roots."""
    network = ring(4, bandwidth=25)
    flow = planned(network, SCATTER, root=2).schedule
    assert isinstance(flow, FlowSchedule)
    made = plan_of_schedule(network, SCATTER, flow)
    assert (made.gap, made.bound.weights) == (0, tuple(flow.traffic.ravel().tolist()))
    assert flow.problem(SCATTER) == {"root": 2}
    for collective in (GATHER, HALO):
        with pytest.raises(UnsupportedError, match=f"the traffic is not that of the collective '{collective}'"):
            plan_of_schedule(network, collective, flow)
    with pytest.raises(UnsupportedError, match="expected uniform traffic"):
        plan_of_schedule(network, "all_to_all", flow)
    halo = planned(network, HALO).schedule
    assert halo.problem(HALO) == {}
    assert plan_of_schedule(network, HALO, halo).gap == 0


def test_planners_and_bounds_of_pairs_are_compared() -> None:
    """None of trees, and from the root that was asked for."""
    table = collopt.compare(ring(4, bandwidth=25), SCATTER, root="gpu3")
    assert table["planner"].tolist() == ["multicommodity", "fast", "multicommodity", "shortest-paths"]
    assert table["algbw_exact"].dropna().astype(str).tolist() == ["50/3", "50/3", "25/2"]
    assert {made.schedule.problem(SCATTER)["root"] for made in table["plan"].dropna()} == {3}


def test_planners_of_pairs_plan_registered_collectives() -> None:
    """As all-to-alls, with the root if there is one; planners of trees do not."""
    for name in ("auto", "multicommodity", "shortest-paths", "fast"):
        assert {"scatter", "halo", "all_to_all"} <= set(map(str, PLANNERS[name].collectives))
        assert PLANNERS[name].takes("scatter", "root")
    assert not PLANNERS["forestcoll"].plans("scatter")
    assert not PLANNERS["multicommodity"].takes("allgather", "chunks")


def test_only_ranks_that_have_something_to_send_must_reach_others() -> None:
    """A scatter needs a way out of its root, and none into it."""
    network = Topology.from_links([("a", "b", 1), ("b", "c", 1)], compute=["a", "b", "c"])
    assert planned(network, "scatter", root="a").inverse_rate == 2
    check_feasible(network, SCATTER, root="a")
    for collective in ("gather", "all_to_all"):
        with pytest.raises(BoundError):
            planned(network, collective, **({"root": "a"} if collective == "gather" else {}))
    with pytest.raises(BoundError):
        check_feasible(network, GATHER, root="a")
