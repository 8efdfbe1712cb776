"""Forests by hand: what their methods say about a few trees through a switch."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collopt.errors import CertificateError
from collopt.planners import plan
from collopt.schedules import Forest
from collopt.schedules.trees import tree_arrays as forests
from collopt.topologies import Topology, dgx_a100
from oracles.slow_check import loads_of
from strategies import eulerian_topologies

STAR = Topology.from_links(
    [(f"gpu{rank}", "sw", 3) for rank in range(4)]
    + [("sw", f"gpu{rank}", 4) for rank in range(4)]
    + [("gpu0", "gpu1", 1)],
    compute=[f"gpu{rank}" for rank in range(4)],
    switches=["sw"],
)
"""Four ranks around a switch, node 4, and one direct link."""


def chain_and_star() -> Forest:
    """Two trees of rank 0, a chain and a star, and one chain of rank 2 that weighs two."""
    return Forest.from_paths(
        4,
        2,
        [
            (0, 1, [(0, 1), (1, 4, 2), (2, 4, 3)]),
            (0, 1, [(0, 4, 1), (0, 4, 2), (0, 4, 3)]),
            (2, 2, [(2, 4, 3), (3, 4, 0), (0, 1)]),
        ],
    )


def test_depths_and_heights_count_hops_between_ranks() -> None:
    """A path through the switch is one hop."""
    forest = chain_and_star()
    assert forest.depths.tolist() == [[0, 1, 2, 3], [0, 1, 1, 1], [2, 3, 0, 1]]
    assert forest.heights.tolist() == [3, 1, 3]


def test_ranks_on_a_cycle_have_no_depth() -> None:
    """They get the number of ranks, more than any depth there is."""
    forest = Forest.from_paths(4, 1, [(0, 1, [(0, 1), (3, 2), (2, 3)])])
    assert forest.depths.tolist() == [[0, 1, 4, 4]]


@given(eulerian_topologies())
def test_edges_of_a_plan_bring_every_rank_the_data_once(topology: Topology) -> None:
    """Senders have the data before they send it on."""
    forest = plan(topology, "allgather").schedule
    for tree in range(forest.num_trees):
        informed = [int(forest.roots[tree])]
        for edge in forest.edges(tree):
            assert edge.tail in informed
            assert edge.head not in informed
            assert (edge.path[0], edge.path[-1]) == (edge.tail, edge.head)
            informed.append(edge.head)
        assert sorted(informed) == list(range(topology.num_ranks))


@given(eulerian_topologies())
def test_loads_are_those_of_a_slow_count(topology: Topology) -> None:
    """One tree, one path and one hop after the other."""
    forest = plan(topology, "allgather").schedule
    assert forest.link_loads(topology).tolist() == loads_of(forest, topology)


def test_congestion_is_the_largest_share_of_a_link() -> None:
    """Three copies out of two per root on the direct link of 1 GB/s."""
    assert chain_and_star().inverse_rate(STAR) == Fraction(3, 2)
    assert chain_and_star().inverse_rate(STAR.derate("sw", "gpu3", "1/8")) == Fraction(4, 2) / Fraction(4, 8)


def test_rings_over_two_dgx_a100_boxes_cross_the_fabric_twice() -> None:
    """Eight rings that share the NICs take 62.5 % longer than the bound of 3/65 (ForestColl on arXiv, section 5.3)."""
    topology = dgx_a100(boxes=2)
    node, nvswitch, ib = topology.node_index, "box{}/nvswitch", "ib"
    trees = []
    for start in range(8):
        order = [8 * box + (start + step) % 8 for box in range(2) for step in range(8)]
        for place, root in enumerate(order):
            paths = []
            for step in range(15):
                tail, head = order[(place + step) % 16], order[(place + step + 1) % 16]
                here, there = tail // 8, head // 8
                through = [nvswitch.format(here)]
                if here != there:
                    through = [f"box{here}/nic{tail % 8}", ib, f"box{there}/nic{head % 8}"]
                paths.append((tail, *(node[name] for name in through), head))
            trees.append((root, 1, paths))
    assert Forest.from_paths(16, 8, trees).inverse_rate(topology) == Fraction(3, 65) * Fraction(1625, 1000)


def test_a_route_without_a_link_has_no_load() -> None:
    """`verified_loads` says which link is missing."""
    forest = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])
    one_way = Topology.from_links([("a", "b", 1)], compute=["a", "b"])
    with pytest.raises(CertificateError, match="a link that the topology does not have"):
        forest.link_loads(one_way)
    beyond = Forest.from_paths(3, 1, [(0, 1, [(1, 2)])])
    cycle = Topology.from_links([("a", "b", 1), ("b", "a", 1)], compute=["a", "b"])
    with pytest.raises(CertificateError, match="a link that the topology does not have"):
        beyond.inverse_rate(cycle)


def walked_depths(forest: Forest) -> list[list[int]]:
    """Follow the senders of every rank one by one."""
    depths = []
    for root, parents in zip(forest.roots.tolist(), forest.parents.tolist(), strict=True):
        row = []
        for rank in range(forest.num_ranks):
            place, hops = rank, 0
            while place != root and 0 <= place < forest.num_ranks and hops < forest.num_ranks:
                place, hops = parents[place], hops + 1
            row.append(hops if place == root else forest.num_ranks)
        depths.append(row)
    return depths


@given(st.data(), st.integers(1, 9), st.integers(1, 30))
def test_depths_are_those_of_a_walk_to_the_root(data: st.DataObject, ranks: int, block: int) -> None:
    """Any array of senders, cycles included, has the depths of a walk, however trees fall into blocks."""
    routes = data.draw(st.lists(st.lists(st.integers(-1, ranks), min_size=ranks, max_size=ranks), max_size=6))
    roots = data.draw(st.lists(st.integers(0, ranks - 1), min_size=len(routes), max_size=len(routes)))
    forest = Forest(
        ranks,
        1,
        np.array(roots, dtype=np.int64),
        np.ones(len(routes), dtype=np.int64),
        np.array(routes, dtype=np.int32).reshape(-1, ranks),
        np.arange(ranks + 2),
        np.arange(ranks + 1),  # path p starts at node p, the last one at a switch
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forests, "BLOCK_ENTRIES", block)
        assert forest.depths.tolist() == walked_depths(forest)
        assert forest.heights.tolist() == [max(row) for row in walked_depths(forest)]


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 9])
def test_latency_adds_all_hops_of_chains(count: int) -> None:
    """Chains of any number of hops with unequal latencies, in both directions."""
    hops = [(f"gpu{rank}", f"gpu{rank + 1}", 1, 1 + rank**2) for rank in range(count - 1)]
    network = Topology.from_links(hops, compute=[f"gpu{rank}" for rank in range(count)], bidirectional=True)
    chain = Forest.from_paths(count, 1, [(0, 1, [(rank, rank + 1) for rank in range(count - 1)])])
    longest = sum(1 + rank**2 for rank in range(count - 1))
    assert chain.latency(network) == replace(chain, direction="reduce").latency(network) == longest


def test_trees_iterate_have_numbers_and_a_length() -> None:
    """Those of an allreduce are first the reduction's; their shares add up to all data in each direction."""
    made = plan(dgx_a100(boxes=2), "allreduce").trees
    trees = list(made)
    assert len(made) == len(trees) == made.num_trees
    assert [tree.direction for tree in trees] == sorted((tree.direction for tree in trees), reverse=True)
    for direction in ("reduce", "broadcast"):
        assert sum(tree.share for tree in trees if tree.direction == direction) == 1
    assert made[-1] == trees[-1]
    assert made[1:-1:3] == tuple(trees[1:-1:3])
    assert made[::-1] == tuple(reversed(trees))
    assert trees[0].edges == tuple(made.forests[0].edges(0))
    assert {edge.head for edge in trees[0].edges} | {trees[0].root} == set(range(16))
    assert repr(trees[0]) == f"<Tree of rank {trees[0].root}: reduce of {trees[0].share} of all data over 15 edges>"
    with pytest.raises(IndexError, match=f"there is no tree {len(trees)}; the schedule has {len(trees)}"):
        made[len(trees)]
    with pytest.raises(IndexError):
        made[-len(trees) - 1]
