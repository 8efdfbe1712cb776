"""Allreduce by trees that branch at switches: known boxes, random networks, loopback, rails, the choice of switches."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.planners import steiner_bound
from collopt.planners.trees.strength import plan_strength
from collopt.runtime import lower, run_program
from collopt.schedules import Bound, LoopbackPartition, Partition, TreePartition, verified_loads
from collopt.topologies import SwitchLimits, Topology, dgx_h100, gb200_nvl72, rail
from sample_sizes import examples
from two_way_networks import two_way_topologies


def able(topology: Topology, switches: frozenset[str], loops: frozenset[str] = frozenset()) -> Topology:
    """The network whose `switches` multicast and aggregate, some with loopback."""
    limits = tuple(SwitchLimits(switch, loopback=True) for switch in sorted(loops))
    return replace(topology, multicast=switches, aggregation=switches, limits=limits)


def nvswitches(topology: Topology, *, loopback: bool) -> Topology:
    """The network with NVLink SHARP in its boxes."""
    switches = frozenset(switch for switch in topology.switch_nodes if switch.endswith("nvswitch"))
    return able(topology, switches, switches if loopback else frozenset())


@pytest.mark.parametrize("loopback", [False, True])
@pytest.mark.parametrize(
    ("boxes", "algbw"), [(2, 400), (3, 300), (4, Fraction(800, 3)), (8, Fraction(1600, 7)), (16, Fraction(640, 3))]
)
def test_dgx_h100_reaches_its_bound(boxes: int, algbw: Fraction, loopback: bool) -> None:
    """Of several boxes the fabric is the bottleneck; copies that are looped back have room beside it."""
    plan = plan_strength(nvswitches(dgx_h100(boxes), loopback=loopback))
    assert (plan.algbw, plan.gap) == (algbw, 0)
    assert not isinstance(plan.bound.witness, TreePartition)  # a bound of all schedules, not only of trees


@pytest.mark.parametrize(("loopback", "algbw"), [(False, 450), (True, 400)])
def test_one_box_reaches_its_links_or_n_of_n_plus_one_of_them(loopback: bool, algbw: int) -> None:
    """All trees have the switch in the middle, and are rooted at all ranks alike."""
    plan = plan_strength(nvswitches(dgx_h100(1), loopback=loopback))
    assert (plan.algbw, plan.gap, plan.schedule.depth) == (algbw, 0, 2)
    assert isinstance(plan.bound.witness, LoopbackPartition) is loopback
    assert (plan.scoped_bound, plan.bound.scope) == (None, "all schedules")
    if loopback:
        assert set(plan.schedule.broadcast.root_weights.tolist()) == {1}


@pytest.mark.parametrize("oversubscription", [None, 1])
def test_each_tree_uses_one_of_the_rails(oversubscription: int | None) -> None:
    """Eight boxes receive everything once at 8 x 50 GB/s, which no tree that spans all rails can do."""
    topology = rail(8, oversubscription=oversubscription)
    switches = frozenset(switch for switch in topology.switch_nodes if switch.endswith("nvswitch") or "rail" in switch)
    boxes = frozenset(switch for switch in switches if switch.endswith("nvswitch"))
    plan = plan_strength(able(topology, switches, boxes))
    assert (plan.algbw, plan.gap) == (400, 0)


def test_a_switch_behind_a_thin_link_is_left_out() -> None:
    """A tree that had to reach it would be held up there."""
    links = [(rank, "s", 60) for rank in "abcd"] + [("a", "t", 1), ("b", "t", 1)]
    topology = Topology.from_links(links, compute="abcd", switches="st", bidirectional=True)
    plan = plan_strength(able(topology, frozenset("st")))
    assert plan.algbw >= 60
    assert plan.provenance["spanned_switches"] == 1


def test_neighbors_behind_another_switch_count() -> None:
    """Three links join the switch to five ranks, of which it can serve four, the one above included."""
    links = [("a", "s", 60), ("b", "s", 60), ("s", "nic", 60), *((rank, "nic", 60) for rank in "cde")]
    network = Topology.from_links(links, compute="abcde", switches=["s", "nic"], bidirectional=True)
    for group, spanned in ((4, 0), (5, 1)):
        limits = (SwitchLimits("s", group=group),)
        plan = plan_strength(replace(able(network, frozenset("s")), limits=limits))
        assert plan.provenance["spanned_switches"] == spanned


@given(two_way_topologies(max_ranks=6, max_switches=4), st.data())
@settings(max_examples=examples(150))
def test_plans_of_random_networks_keep_their_promises(topology: Topology, data: st.DataObject) -> None:
    """They verify, are within their bound and never slower than without switches; loads are counted twice."""
    ports = {switch: len(topology.out_links(switch)) for switch in topology.switch_nodes}
    candidates = sorted(switch for switch, count in ports.items() if count > 1)
    switches = frozenset(data.draw(st.sets(st.sampled_from(candidates))) if candidates else ())
    loops = frozenset(data.draw(st.sets(st.sampled_from(sorted(switches)))) if switches else ())
    network = able(topology, switches, loops)
    groups = {switch: data.draw(st.sampled_from([None, 2, 3, 5])) for switch in sorted(switches)}
    limits = tuple(SwitchLimits(switch, switch in loops, group) for switch, group in groups.items())
    network = replace(network, limits=limits)
    plan = plan_strength(network)
    plan.verify()
    assert plan.gap >= 0
    assert np.array_equal(verified_loads(plan.schedule, network), plan.schedule.link_loads(network))
    assert plan.algbw >= plan_strength(network, in_network=False).algbw


@given(two_way_topologies(max_ranks=6, max_switches=4))
@settings(max_examples=examples(60))
def test_without_able_switches_the_bound_for_trees_is_that_of_partitions(topology: Topology) -> None:
    """Ingress and egress together count everything twice."""
    bound = plan_strength(topology).bound
    assert isinstance(bound.witness, Partition)
    same = Bound.from_witness(topology, "allreduce", TreePartition(bound.witness.parts))
    assert same.inverse_rate == bound.inverse_rate


@pytest.mark.parametrize("racks", [2])
def test_racks_are_joined_by_trees_between_stars(racks: int) -> None:
    """Where the best trees would be tens of thousands, because NICs have more than trees between racks take."""
    topology = gb200_nvl72(racks)
    plan = plan_strength(topology)
    assert plan.algbw > 880
    assert plan.schedule.num_trees < 1000
    assert 0 < plan.gap < Fraction(1, 20)


def test_data_of_stars_arrives_everywhere() -> None:
    """Two boxes of three ranks, with stars in each and NICs between them; the interpreter adds up."""
    links = [(f"{box}{rank}", f"s{box}", 90) for box in "ab" for rank in range(3)]
    links += [(f"{box}{rank}", "fabric", 30) for box in "ab" for rank in range(3)]
    ranks = [f"{box}{rank}" for box in "ab" for rank in range(3)]
    topology = Topology.from_links(links, compute=ranks, switches=["sa", "sb", "fabric"], bidirectional=True)
    plan = plan_strength(able(topology, frozenset({"sa", "sb"})))
    assert (plan.algbw, plan.gap) == (90, 0)
    run_program(lower(plan.schedule, "allreduce"), interleavings=3)


@pytest.mark.parametrize(("group", "spanned"), [(None, 1), (4, 1), (3, 0)])
def test_switches_that_cannot_join_all_their_neighbors_are_not_spanned(group: int | None, spanned: int) -> None:
    """A tree might have to join them all."""
    star = Topology.from_links([(rank, "s", 10) for rank in "abcd"], compute="abcd", switches="s", bidirectional=True)
    limited = replace(able(star, frozenset("s")), limits=(SwitchLimits("s", group=group),))
    plan = plan_strength(limited)
    assert plan.provenance["spanned_switches"] == spanned
    assert collopt.plan(limited, "allgather").gap == 0
    assert collopt.plan(limited, "allreduce", planner="allreduce-lp").algbw == plan.algbw


def test_paths_between_boxes_through_ranks_of_others_are_planned_without_stars() -> None:
    """Three boxes in a row, joined by direct links of ranks, of which the middle one has two."""
    links = [(f"{box}{rank}", f"s{box}", 90) for box in "abc" for rank in range(3)]
    links += [("a0", "b0", 30), ("b0", "c0", 30), ("a1", "b1", 30), ("b1", "c1", 30)]
    ranks = [f"{box}{rank}" for box in "abc" for rank in range(3)]
    topology = Topology.from_links(links, compute=ranks, switches=["sa", "sb", "sc"], bidirectional=True)
    plan = plan_strength(able(topology, frozenset({"sa", "sb", "sc"})))
    assert (plan.algbw, plan.gap) == (60, 0)


def looping(links: list[tuple[str, str, int]], ranks: list[str], switches: list[str], loops: list[str]) -> Topology:
    """The network whose switches can all branch trees, some with loopback."""
    network = Topology.from_links(links, compute=ranks, switches=switches, bidirectional=True)
    return able(network, frozenset(switches), frozenset(loops))


HIDDEN = [
    looping([("s", "t", 1), ("a", "t", 20), ("b", "s", 1), ("c", "s", 1)], ["a", "b", "c"], ["s", "t"], ["s", "t"]),
    looping(
        [("a", "t", 1), ("t", "s", 1), ("b", "s", 1), ("c", "s", 1), ("d", "s", 1)],
        ["a", "b", "c", "d"],
        ["t", "s"],
        ["s"],
    ),
    looping(
        [
            ("s1", "s0", 1),
            ("s2", "s1", 1),
            ("s3", "s1", 20),
            ("r0", "s0", 2),
            ("r1", "s3", 1),
            ("r2", "s2", 2),
            ("r3", "s0", 5),
        ],
        ["r0", "r1", "r2", "r3"],
        ["s0", "s1", "s2", "s3"],
        ["s0", "s1", "s3"],
    ),
    looping(
        [(f"h{host}", "xy"[host // 4], 50) for host in range(8)] + [("x", "y", 100)],
        [f"h{host}" for host in range(8)],
        ["x", "y"],
        ["x", "y"],
    ),
]


@pytest.mark.parametrize("network", HIDDEN, ids=["three ranks", "four ranks", "four switches", "two leaves"])
def test_a_switch_above_another_one_is_no_rank_to_loop_back_to(network: Topology) -> None:
    """So the bound counts no copy there, and the best trees do not beat it."""
    plan = plan_strength(network)
    best = steiner_bound(network, "allreduce")
    assert plan.algbw <= best.algbw <= plan.bound.algbw
    assert collopt.plan(network, "allreduce").algbw == best.algbw


@given(two_way_topologies(max_ranks=4, max_switches=3), st.data())
@settings(max_examples=examples(150))
def test_no_trees_beat_the_bound_for_trees(topology: Topology, data: st.DataObject) -> None:
    """Whichever switches reduce and loop back; partitions with such switches in parts and outside."""
    ports = {switch: len(topology.out_links(switch)) for switch in topology.switch_nodes}
    candidates = sorted(switch for switch, count in ports.items() if count > 1)
    switches = frozenset(data.draw(st.sets(st.sampled_from(candidates), min_size=1)) if candidates else ())
    loops = frozenset(data.draw(st.sets(st.sampled_from(sorted(switches)))) if switches else ())
    network = able(topology, switches, loops)
    labels = [data.draw(st.integers(0, 3)) for _ in topology.nodes]
    named = [frozenset(node for node, own in zip(topology.nodes, labels, strict=True) if own == n) for n in range(4)]
    parts = [part for part in named if part]
    if sum(not part.isdisjoint(topology.compute_nodes) for part in parts) > 1 and switches:
        bound = Bound.from_witness(network, "allreduce", TreePartition(tuple(parts)))
        assert steiner_bound(network, "allreduce").algbw <= bound.algbw


def test_a_switch_without_a_way_back_does_not_loop_copies() -> None:
    """The fastest trees of the program would send copies of rank 0 back over a link that is not there."""
    links = [(0, 1, 5), (1, 2, 4), (2, 3, 3), (3, 4, 3), (0, 3, 2), (2, 0, 1), (1, 3, 1), (2, 4, 7)]
    rows = [(f"r{tail}", f"r{head}", width) for tail, head, width in links]
    rows += [("r4", "s", 10), ("s", "t", 10), ("t", "u", 3), ("u", "r0", 3), ("r3", "s", 2), ("s", "r1", 2)]
    rows += [("r1", "t", 2), ("t", "r0", 3), ("r3", "t", 1), ("t", "r2", 7)]
    network = Topology.from_links(rows, compute=[f"r{rank}" for rank in range(5)], switches=["s", "t", "u"])
    limits = tuple(SwitchLimits(switch, loopback=True) for switch in "st")
    network = replace(network, multicast=frozenset("t"), aggregation=frozenset("st"), limits=limits)
    plan = collopt.plan(network, "allreduce", planner="allreduce-lp")
    plan.verify()
    assert plan.algbw <= steiner_bound(network, "allreduce").algbw
