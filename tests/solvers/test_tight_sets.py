"""Tight sets, and the trimming that makes more of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collopt.solvers.flows.bottleneck import bottleneck_cut
from collopt.solvers.flows.max_flow import sweep_sinks
from collopt.solvers.trees.routed_graph import RoutedGraph
from collopt.solvers.trees.tight_sets import LaminarFamily, tight_family, trim_to_tight_sets
from collopt.topologies import Topology, dgx_a100, fat_tree, leaf_spine, mi250
from strategies import eulerian_topologies

Integers = npt.NDArray[np.int64]


def critical(topology: Topology) -> tuple[RoutedGraph, Integers]:
    """Links and supplies scaled to the optimum, where some set is tight."""
    tails, heads, capacities, _ = topology.arrays
    ones = np.ones(topology.num_ranks, dtype=np.int64)
    best = bottleneck_cut(len(topology.nodes), tails, heads, capacities, ones)
    return RoutedGraph(len(topology.nodes), tails, heads, capacities * best.supply), ones * best.capacity


def family_of(graph: RoutedGraph, supplies: Integers, known: Sequence[npt.NDArray[np.bool_]] = ()) -> LaminarFamily:
    """The family of the links that are left."""
    alive = graph.alive()
    links = (graph.tails[alive], graph.heads[alive], graph.units[alive])
    return tight_family(graph.num_nodes, *links, supplies, known)


def check(family: LaminarFamily, graph: RoutedGraph, supplies: Integers) -> None:
    """All that a family promises: nested, tight, proper."""
    assert family.parents[0] == -1
    for number in range(1, len(family.parents)):
        members = family.members(number)
        assert family.parents[number] < number
        assert (family.members(int(family.parents[number])) | ~members).all()
        inside = members[: len(supplies)]
        assert 1 < inside.sum() < len(supplies)
        entering = graph.units[~members[graph.tails] & members[graph.heads]].sum()
        assert entering == supplies[~inside].sum()


@given(eulerian_topologies(max_ranks=8, max_switches=4))
def test_sets_are_nested_and_tight(topology: Topology) -> None:
    """On any network."""
    graph, supplies = critical(topology)
    check(family_of(graph, supplies), graph, supplies)


@given(eulerian_topologies(max_ranks=8, max_switches=4))
def test_trimming_keeps_room_for_all_supplies_and_balance(topology: Topology) -> None:
    """Capacities only fall, switches stay balanced, and every rank still receives everything."""
    graph, supplies = critical(topology)
    before = graph.units.copy()
    trimmed = trim_to_tight_sets(graph, supplies)
    assert (graph.units <= before).all()
    assert trimmed or (graph.units == before).all()
    balance = np.zeros(graph.num_nodes, dtype=np.int64)
    np.add.at(balance, graph.heads, graph.units)
    np.subtract.at(balance, graph.tails, graph.units)
    assert not balance[len(supplies) :].any()
    alive = graph.alive()
    links = (graph.tails[alive], graph.heads[alive], graph.units[alive])
    assert not sweep_sinks(graph.num_nodes, *links, supplies, len(supplies)).deficit.any()
    check(family_of(graph, supplies), graph, supplies)
    check(family_of(graph, supplies, trimmed), graph, supplies)


@given(eulerian_topologies(max_ranks=8, max_switches=4), st.data())
def test_of_the_sets_given_only_tight_ones_are_used(topology: Topology, data: st.DataObject) -> None:
    """Any partition of the nodes may be given."""
    graph, supplies = critical(topology)
    parts = data.draw(st.lists(st.integers(0, 2), min_size=graph.num_nodes, max_size=graph.num_nodes))
    check(family_of(graph, supplies, [np.array(parts) == part for part in range(3)]), graph, supplies)


@pytest.mark.parametrize(
    ("topology", "size"), [(leaf_spine(24, 12, 12), 12), (fat_tree(12), 6)], ids=["leaf-spine", "fat-tree"]
)
def test_the_leaves_of_a_large_fabric_are_tight(topology: Topology, size: int) -> None:
    """Every rank is tight by itself, so no sweep tells of the leaves; trimming does."""
    graph, supplies = critical(topology)
    trimmed = trim_to_tight_sets(graph, supplies)
    assert len(family_of(graph, supplies).parents) == 1
    family = family_of(graph, supplies, trimmed)
    check(family, graph, supplies)
    members = [int(family.members(number)[: topology.num_ranks].sum()) for number in range(1, len(family.parents))]
    assert members == [size] * (topology.num_ranks // size)


@pytest.mark.parametrize(("topology", "size"), [(dgx_a100(boxes=16), 8), (mi250(boxes=8), 16), (mi250(boxes=2), 2)])
def test_the_boxes_of_a_large_cluster_are_tight(topology: Topology, size: int) -> None:
    """Of two MI250 boxes, it is the packages with two GPUs each."""
    family = family_of(*critical(topology))
    members = [int(family.members(number)[: topology.num_ranks].sum()) for number in range(1, len(family.parents))]
    assert members == [size] * (topology.num_ranks // size)


def test_boxes_that_differ_a_little_are_made_tight() -> None:
    """One NIC is slower; without trimming only its box is tight."""
    topology = dgx_a100(boxes=8).derate("box3/nic2", "ib", "0.9").derate("box3/gpu2", "box3/nic2", "0.9")
    graph, supplies = critical(topology)
    assert len(family_of(graph, supplies).parents) == 2
    assert len(trim_to_tight_sets(graph, supplies)) == 8
    assert len(family_of(graph, supplies).parents) == 9
