"""The planners with a pattern of their own: verified everywhere, known values, and why they do not suit a network."""

from __future__ import annotations

from fractions import Fraction

import pytest

import collopt
from collopt.planners.literature.grown_trees import plan_multitree
from collopt.planners.literature.nccl_trees import plan_double_binary_tree
from collopt.planners.literature.rank_offsets import plan_recursive_doubling
from collopt.schedules import StepSchedule
from collopt.solvers import seeded
from collopt.topologies import Topology, complete, dgx1_v100, dgx_a100, dgx_h100, hypercube, mi250, ring, torus
from collopt.topologies.direct_connect.basic_graphs import double_binary_tree_parents
from uneven_mesh import UNEVEN_MESH


@pytest.mark.parametrize(
    ("planner", "topology", "collective", "algbw"),
    [
        # A shard enters each box by one NIC, and goes round it: 14 of 16 shards per hop inside, one per NIC.
        ("hierarchical-ring", dgx_a100(boxes=2), "allgather", Fraction(16, 14) * 300),
        ("hierarchical-ring", dgx_a100(boxes=4), "allgather", Fraction(32, 3) * 25),
        ("hierarchical-ring", dgx_a100(boxes=4), "allreduce", Fraction(32, 6) * 25),
        # One of eight pairs per NIC; each box gets all data once and passes half of it on twice, down and up.
        ("double-binary-tree", dgx_a100(boxes=4), "allreduce", Fraction(200, 2)),
        # Two boxes: each half crosses once down and once up, so the chains inside are slower than the NICs.
        ("double-binary-tree", dgx_a100(boxes=2), "allreduce", Fraction(8, 14) * 300),
        ("double-binary-tree", dgx_a100(), "broadcast", Fraction(300)),
        ("recursive-halving-doubling", hypercube(3), "allgather", Fraction(24, 7)),
        ("recursive-halving-doubling", hypercube(4), "allreduce", Fraction(32, 15)),
        ("recursive-halving-doubling", dgx_a100(boxes=2), "allgather", Fraction(16, 14) * 300),
        # What a complete graph of four lets through in one step.
        ("multitree", complete(4), "allgather", Fraction(4)),
        ("multitree", dgx_a100(boxes=4), "allgather", Fraction(32, 3) * 25),
        # All 31 shards for a GPU without NVLink come in over its NIC, one in each step.
        ("multitree", dgx_h100(boxes=4).without_link("box0/gpu0", "box0/nvswitch"), "allgather", Fraction(32, 31) * 50),
        # Links that do not touch the root carry half of the data down one tree, and half up the other.
        ("blink", ring(4, bandwidth=10), "allreduce", Fraction(10)),
        ("blink", ring(4, bandwidth=10), "broadcast", Fraction(20)),
        ("blink", mi250(boxes=2), "broadcast", Fraction(256)),
        # Only as fast as reduction and broadcast one after the other: the other box's way back is full, too.
        ("blink", mi250(boxes=2), "allreduce", Fraction(128)),
    ],
    ids=str,
)
def test_known_values(planner: str, topology: Topology, collective: str, algbw: Fraction) -> None:
    """Worked out by hand, or from the narrowest cut."""
    root = {"root": 0} if collective == "broadcast" else {}
    assert collopt.plan(topology, collective, planner=planner, **root).algbw == algbw


@pytest.mark.parametrize("topology", [dgx_a100(boxes=2), mi250(boxes=2), ring(6), torus(3, 3)], ids=str)
@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_blink_is_optimal_with_one_root(topology: Topology, collective: str) -> None:
    """Its packing is the optimal one."""
    plan = collopt.plan(topology, collective, planner="blink", root=1)
    assert (plan.gap, plan.options) == (0, {})


def test_blink_sends_everything_through_the_rank_that_it_is_told() -> None:
    """By number or name; in an allreduce the only root, in an allgather the one whose trees all use."""
    plan = collopt.plan(mi250(boxes=2), "allreduce", planner="blink", root="box1/gpu0")
    assert plan.options == {"root": 16}
    assert plan.schedule.root_weights.tolist() == [int(rank == 16) for rank in range(32)]
    gathered = collopt.plan(dgx_a100(boxes=2), "allgather", planner="blink", root=3)
    assert gathered.options == {"root": 3}
    # Every tree has the same edges, whichever its root is.
    shapes = {
        frozenset(frozenset(edge[:2]) for edge in gathered.schedule.forests[0].edges(tree))
        for tree in range(gathered.schedule.num_trees)
    }
    assert len(shapes) <= gathered.schedule.num_trees // 16


@pytest.mark.parametrize("count", range(1, 40))
def test_no_box_is_inner_in_both_trees(count: int) -> None:
    """Both are binary trees below the root, which has one child in each, as high as they have to be."""
    inner = []
    for parents in double_binary_tree_parents(count):
        assert parents[0] == -1
        children = [parents.count(node) for node in range(count)]
        assert children[0] == min(1, count - 1)
        assert all(number <= 2 for number in children[1:])
        inner.append({node for node in range(1, count) if children[node]})
        for node in range(1, count):
            height = 0
            while node > 0:
                node, height = parents[node], height + 1  # noqa: PLW2901 - climbs
            assert node == 0
            assert height <= count.bit_length()
    assert not inner[0] & inner[1]


def test_double_binary_trees_chain_the_gpus_of_a_box() -> None:
    """A rank receives from its own box unless it is where a tree enters the box."""
    forest = plan_double_binary_tree(dgx_a100(boxes=3), "broadcast", root=9).schedule.forests[0]
    assert forest.num_trees == 16
    for tree in range(forest.num_trees):
        crossing = [edge for edge in forest.edges(tree) if edge.tail // 8 != edge.head // 8]
        assert len(crossing) == 2
        assert {edge.tail % 8 for edge in crossing} == {edge.head % 8 for edge in crossing} == {tree // 2}
        inside = [edge for edge in forest.edges(tree) if edge.tail // 8 == edge.head // 8]
        assert len({edge.tail for edge in inside}) == len(inside) == 21


@pytest.mark.parametrize("topology", [hypercube(3), dgx_a100(boxes=2), complete(4)], ids=str)
def test_steps_of_recursive_doubling_take_what_a_schedule_in_steps_takes(topology: Topology) -> None:
    """The figure in the provenance is the rate of the same exchanges as a `StepSchedule`."""
    plan = plan_recursive_doubling(topology, "allgather")
    forest = plan.schedule.forests[0]
    ranks, parts = forest.num_ranks, forest.trees_per_root
    sends = []
    for tree in range(forest.num_trees):
        part = tree // ranks
        depth = {int(forest.roots[tree]): -1}
        bits = list(range(ranks.bit_length() - 1))[::-1]
        order = bits[part:] + bits[:part]
        for edge in forest.edges(tree):
            depth[edge.head] = order.index((edge.tail ^ edge.head).bit_length() - 1)
            assert depth[edge.tail] < depth[edge.head]
            sends.append((depth[edge.head], int(forest.roots[tree]), part, part + 1, edge.path))
    steps = StepSchedule.from_sends(ranks, parts, sends)
    assert Fraction(str(plan.provenance["stepped_algbw"])) == ranks / steps.inverse_rate(topology)
    both = plan_recursive_doubling(topology, "allreduce").provenance["stepped_algbw"]
    assert 2 * Fraction(str(both)) == ranks / steps.inverse_rate(topology)


def test_multitree_does_not_leave_a_box_to_come_back() -> None:
    """On MI250, where not all GPUs of a box are neighbors and NICs lead everywhere."""
    forest = plan_multitree(mi250(boxes=2), "allgather").schedule.forests[0]
    for tree in range(forest.num_trees):
        for edge in forest.edges(tree):
            assert len(edge.path) == (2 if edge.tail // 16 == edge.head // 16 else 5)


def test_multitree_leaves_a_box_where_nothing_else_leads_on() -> None:
    """Two ranks that only a switch joins, near a third that both can send to but not hear from."""
    links = [("a", "c", 1), ("b", "c", 1), ("c", "s", 2), ("s", "t", 2), ("t", "a", 1), ("t", "b", 1)]
    plan = plan_multitree(Topology.from_links(links, compute="abc", switches="st"), "allgather")
    plan.verify()


@pytest.mark.parametrize(
    ("topology", "chunks", "inverse_rate"),
    [
        (complete(5, bandwidth=10), 1, Fraction(1, 10)),  # everyone tells everyone
        (ring(4, bidirectional=False), 1, Fraction(3)),  # each link carries all but one shard
        (ring(3), 1, Fraction(1)),
        (dgx_a100(), 1, Fraction(8, 300)),  # 56 hops of 8 senders: one of them is left waiting once
    ],
    ids=str,
)
def test_matches_have_the_rate_found_by_hand(topology: Topology, chunks: int, inverse_rate: Fraction) -> None:
    """Whole shards, where there is nothing to choose or choices are alike."""
    assert collopt.plan(topology, "allgather", planner="greedy", chunks=chunks).inverse_rate == inverse_rate


@pytest.mark.parametrize(
    ("topology", "most"),
    [(torus(4, 4), 0), (dgx1_v100(), 0.02), (dgx_a100(boxes=2), 0.03), (UNEVEN_MESH, 0.01)],
    ids=str,
)
def test_few_chunks_come_close_to_the_bound(topology: Topology, most: float) -> None:
    """Also where links are unequal, and a chunk should cross a NIC once and be passed on inside."""
    plan = collopt.plan(topology, "allgather", planner="greedy")
    plan.verify()
    assert plan.trees.forests[0].trees_per_root == 16
    assert 0 <= plan.gap <= most
    whole = collopt.plan(topology, "allgather", planner="greedy", chunks=1)
    assert whole.trees.num_trees == topology.num_ranks
    assert whole.gap > plan.gap


def test_a_fast_link_is_not_left_for_a_slow_one() -> None:
    """Of two ways to a rank the fast one brings what the slow one would bring later."""
    links = [("a", "b", 10), ("b", "a", 10), ("a", "c", 10), ("c", "a", 10), ("b", "c", 1), ("c", "b", 1)]
    plan = collopt.plan(Topology.from_links(links, compute="abc"), "allgather", planner="greedy", chunks=1)
    used = dict(zip((link[:2] for link in plan.topology.links), plan.link_loads.tolist(), strict=True))
    assert used["a", "b"] + used["b", "a"] + used["a", "c"] + used["c", "a"] >= 4
    assert used["b", "c"] <= 1
    assert used["c", "b"] <= 1


def test_seeds_repeat_and_differ() -> None:
    """The same seed gives the same trees."""

    def trees(seed: int) -> object:
        with seeded(seed):
            return collopt.plan(UNEVEN_MESH, "allgather", planner="greedy").to_json()["schedule"]

    assert trees(1) == trees(1) != trees(2)
