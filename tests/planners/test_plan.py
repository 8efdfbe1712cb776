"""A plan proves what it claims, and a plan that was changed in any one place proves it no longer."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collopt import Plan, plan
from collopt.errors import CertificateError, TopologyError
from collopt.runtime import interpret_file
from collopt.schedules import Bound, Cut, Forest
from collopt.topologies import Topology, mi250, ring
from oracles.plan_changes import CHANGES, changed_plans
from oracles.slow_check import forest_holds, loads_of, plan_holds
from sample_sizes import examples
from slow_cases import slow_where
from strategies import eulerian_topologies, switch_free_topologies

PLANS = st.one_of(
    eulerian_topologies(max_ranks=5, max_switches=4),
    switch_free_topologies(max_ranks=5),
    eulerian_topologies(max_ranks=3),
).map(lambda topology: plan(topology, "allgather"))

COMPILING = [HealthCheck.too_slow]
"""The first example that is drawn may have to wait for numba."""
SOMETIMES_TRUE = ("weights_of_one_root", "cut", "edge")
"""Changes after which the plan can be as true as before, if not the same plan."""
QUICK = ("path", "weight", "root", "link_load", "inverse_rate", "bound_value", "collective", "topology", "lost_tree")
"""Of the others, one for each part of a plan."""


def star_plan() -> Plan:
    """Three ranks around a switch, one star per root, by hand."""
    star = Topology.from_links(
        [(f"gpu{rank}", "sw", 10) for rank in range(3)],
        compute=[f"gpu{rank}" for rank in range(3)],
        switches=["sw"],
        bidirectional=True,
        name="star",
    )
    trees = [(root, 1, [(root, 3, rank) for rank in range(3) if rank != root]) for root in range(3)]
    bound = Bound(star, "allgather", Fraction(2, 10), Cut(frozenset({"gpu0", "gpu1", "sw"})))
    return Plan(star, "allgather", Forest.from_paths(3, 1, trees), bound, Fraction(1, 5), np.full(6, 2), "by hand")


@given(PLANS)
@settings(suppress_health_check=COMPILING)
def test_plans_prove_what_they_claim(made: Plan) -> None:
    """To the checker and to a slow one; on the same network under another name too."""
    made.verify()
    assert plan_holds(made)
    made.verify(replace(made.topology, name="renamed"))


@pytest.mark.parametrize(
    "name", slow_where([name for name in CHANGES if name not in SOMETIMES_TRUE], lambda name: name not in QUICK)
)
@given(st.data())
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.filter_too_much])
def test_a_plan_with_one_thing_changed_is_refused(name: str, data: st.DataObject) -> None:
    """Whatever it is: weight, root, route, node of a path, load, rate, bound, collective or network."""
    made = data.draw(changed_plans(data.draw(PLANS), [name]))
    with pytest.raises(CertificateError):
        made.verify()


@given(st.data())
@settings(max_examples=examples(150))
def test_a_plan_with_one_edge_changed_is_refused(data: st.DataObject) -> None:
    """Unless the other path passes the same nodes: then it is the same path under another number.

    Any other path has other links, so the loads of the links on just one of the two are wrong.
    """
    before = data.draw(PLANS)
    after = data.draw(changed_plans(before, ["edge"]))
    tree, rank = (int(place) for place in np.argwhere(before.schedule.routes != after.schedule.routes)[0])
    routes = [int(made.schedule.routes[tree, rank]) for made in (before, after)]
    if min(routes) >= 0 and before.schedule.path(routes[0]) == before.schedule.path(routes[1]):
        after.verify()
    else:
        with pytest.raises(CertificateError):
            after.verify()


@pytest.mark.slow
@given(st.data())
@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.filter_too_much])
def test_a_copy_moved_between_two_trees_of_a_root_is_refused(data: st.DataObject) -> None:
    """Unless both trees put the same load on every link: then the plan is another one that is as good."""
    before = data.draw(PLANS)
    after = data.draw(changed_plans(before, ["weights_of_one_root"]))
    if after.schedule.weights.min() > 0 and loads_of(after.schedule, after.topology) == before.link_loads.tolist():
        after.verify()
    else:
        with pytest.raises(CertificateError):
            after.verify()


@given(st.data())
@settings(max_examples=examples(150))
def test_a_plan_with_another_cut_is_refused(data: st.DataObject) -> None:
    """Unless the other cut is a bottleneck too."""
    before = data.draw(PLANS)
    after = data.draw(changed_plans(before, ["cut"]))
    cut, topology = after.bound.witness, after.topology
    assert isinstance(cut, Cut)
    inside = len(cut.nodes & set(topology.compute_nodes))
    leaving = sum(link.bandwidth for link in topology.links if link.tail in cut.nodes and link.head not in cut.nodes)
    is_bottleneck = 0 < inside < topology.num_ranks and inside == before.bound.inverse_rate * leaving
    if is_bottleneck and "stranger" not in cut.nodes:
        after.verify()
    else:
        with pytest.raises(CertificateError):
            after.verify()


@pytest.mark.slow
@given(st.data(), st.booleans())
@settings(max_examples=examples(200))
def test_several_changes_are_accepted_exactly_if_a_slow_checker_accepts_them(
    data: st.DataObject, restated: bool
) -> None:
    """Changes may cancel out, or make another true plan once loads and rate are stated anew."""
    names = ["edge", "edge", "weights_of_one_root", "weights_of_two_roots", "root", "lost_tree", "doubled_tree", "cut"]
    made = data.draw(PLANS)
    for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)):
        made = data.draw(changed_plans(made, [name]))
    if restated and forest_holds(made.schedule, made.topology):
        loads = np.array(loads_of(made.schedule, made.topology))
        made = replace(made, link_loads=loads, inverse_rate=made.schedule.inverse_rate(made.topology))
    if plan_holds(made):
        made.verify()
    else:
        with pytest.raises(CertificateError):
            made.verify()


def test_the_same_path_twice_is_no_matter() -> None:
    """A route to a path's twin means the same."""
    made = star_plan()
    old = made.schedule
    twin = replace(
        old,
        path_starts=np.append(old.path_starts, len(old.path_nodes) + 3),
        path_nodes=np.append(old.path_nodes, old.path(0)),
    )
    routes = old.routes.copy()
    routes[routes == 0] = len(old.path_starts) - 1
    replace(made, schedule=replace(twin, routes=routes)).verify()


def test_a_worse_plan_is_a_plan_with_a_gap() -> None:
    """A chain instead of a star loads the chain's middle twice; it proves its own rate and nothing better."""
    made = star_plan()
    trees = [(root, 1, [(root, 3, rank) for rank in range(3) if rank != root]) for root in range(2)]
    trees.append((2, 1, [(2, 3, 0), (0, 3, 1)]))
    worse = replace(
        made,
        schedule=Forest.from_paths(3, 1, trees),
        link_loads=np.array([3, 2, 2, 2, 1, 2]),
        inverse_rate=Fraction(3, 10),
    )
    worse.verify()
    assert (worse.gap, worse.algbw) == (Fraction(1, 3), 10)
    with pytest.raises(CertificateError, match=r"^the plan claims 1/x = 1/5; its busiest link gives 3/10$"):
        replace(worse, inverse_rate=Fraction(1, 5)).verify()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"collective": "reduce"}, "^the plan's bound is for allgather on star"),
        ({"topology": ring(3)}, "^the plan's bound is for allgather on star"),
        (
            {"link_loads": np.array([2, 2, 2, 1, 2, 2])},
            "^the trees put 2 copies on the link from 'sw' to 'gpu1'; the plan states 1$",
        ),
        ({"link_loads": np.full(5, 2)}, r"^the plan states link loads of shape \(5,\)"),
        ({"inverse_rate": Fraction(1, 4)}, "^the plan claims 1/x = 1/4; its busiest link gives 1/5$"),
        ({"schedule": Forest.from_paths(3, 1, [(0, 1, [(0, 3, 1), (0, 3, 2)])])}, "^the trees of root 1 weigh 0"),
    ],
)
def test_messages_say_what_is_wrong(changes: dict[str, object], message: str) -> None:
    """With the claim and the truth."""
    with pytest.raises(CertificateError, match=message):
        replace(star_plan(), **changes).verify()  # type: ignore[arg-type]


def test_a_plan_that_beats_its_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a bound that is wrong in a way its cut does not show could be beaten; the plan is not trusted then."""
    made = replace(star_plan(), bound=replace(star_plan().bound, inverse_rate=Fraction(1, 4)))
    monkeypatch.setattr(Bound, "verify", lambda bound: None)
    with pytest.raises(CertificateError, match=r"claims algbw = 15, which beats its bound: allgather: at most 12\.00"):
        made.verify()


def test_another_network_is_refused() -> None:
    """The message names both, and says to plan again."""
    made = star_plan()
    made.verify(made.topology)
    with pytest.raises(TopologyError, match=r"made for star .*, not for ring-3 .*; plan again"):
        made.verify(ring(3))
    slower = made.topology.derate("gpu0", "sw", "1/2")
    with pytest.raises(TopologyError, match="plan again"):
        made.verify(slower)


def test_figures_are_those_of_nccl_tests() -> None:
    """Gathered bytes over time: 3 shards in 1/5 ns per byte of shard; bus bandwidth counts what each rank receives."""
    made = star_plan()
    assert (made.algbw, made.busbw, made.gap) == (15, 10, 0)
    assert (made.bound.algbw, made.bound.busbw) == (15, 10)
    assert str(made) == ("allgather on star by by hand: 15.00 GB/s, optimal; 3 trees, 1 per root by weight")
    assert repr(made) == f"<Plan {made}>"
    fixed = plan(mi250(boxes=2), "allgather", trees_per_root=1)
    assert "320.00 GB/s, 9.64 % below the bound" in str(fixed)
    assert fixed.gap == 1 - 320 / fixed.bound.algbw


@given(eulerian_topologies(max_ranks=4, max_switches=3, max_bandwidth=2))
@settings(max_examples=examples(25))
def test_the_interpreter_accepts_the_xml_of_every_plan(topology: Topology) -> None:
    """Executed chunk by chunk under several interleavings, every rank ends up with every shard."""
    made = plan(topology, "allgather")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.xml"
        made.to_msccl_xml(path)
        interpret_file(path, interleavings=3)
