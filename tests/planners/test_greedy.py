"""Greedy synthesis: rates by hand, unequal links, chunks, and seeds."""

from __future__ import annotations

from fractions import Fraction

import pytest

import collopt
from collopt.solvers import seeded
from collopt.topologies import Topology, complete, dgx1_v100, dgx_a100, ring, torus
from uneven_mesh import UNEVEN_MESH


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
