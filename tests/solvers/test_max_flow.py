"""Maximum flows against networkx, and what their callers rely on."""

from __future__ import annotations

from typing import NamedTuple

import networkx as nx
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collopt.errors import CapacityOverflowError
from collopt.solvers.flows.max_flow import (
    CAPACITY_LIMIT,
    max_flow,
    paired_network,
    solve_network,
)


class Instance(NamedTuple):
    """Arguments of `max_flow`."""

    num_nodes: int
    tails: npt.NDArray[np.int64]
    heads: npt.NDArray[np.int64]
    capacities: npt.NDArray[np.int64]
    source: int
    sink: int


@st.composite
def instances(draw: st.DrawFn, max_nodes: int = 10) -> Instance:
    """Random edges, parallel and opposite ones among them, some without capacity and some with much."""
    num_nodes = draw(st.integers(2, max_nodes))
    nodes = st.integers(0, num_nodes - 1)
    capacity = st.one_of(st.integers(0, 9), st.integers(0, 2**50))
    edges = draw(st.lists(st.tuples(nodes, nodes, capacity).filter(lambda edge: edge[0] != edge[1]), max_size=40))
    tails, heads, capacities = np.array(edges, dtype=np.int64).reshape(-1, 3).T.copy()
    source, sink = draw(st.permutations(range(num_nodes)))[:2]
    return Instance(num_nodes, tails, heads, capacities, source, sink)


def networkx_value(instance: Instance) -> int:
    """The same by networkx, which wants parallel edges added up."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(instance.num_nodes))
    for tail, head, capacity in zip(
        instance.tails.tolist(), instance.heads.tolist(), instance.capacities.tolist(), strict=True
    ):
        before = graph.get_edge_data(tail, head, {"capacity": 0})["capacity"]
        graph.add_edge(tail, head, capacity=before + capacity)
    return int(nx.maximum_flow_value(graph, instance.source, instance.sink))


@given(instances())
def test_value_is_that_of_networkx(instance: Instance) -> None:
    """On random multigraphs, through either way of building the network."""
    num_nodes, tails, heads, capacities, source, sink = instance
    expected = networkx_value(instance)
    assert max_flow(*instance).value == expected
    merged: dict[tuple[int, int], int] = {}
    for tail, head, capacity in zip(tails.tolist(), heads.tolist(), capacities.tolist(), strict=True):
        merged[tail, head] = merged.get((tail, head), 0) + capacity
    ends = np.array(list(merged), dtype=np.int64).reshape(-1, 2)
    paired = paired_network(num_nodes, ends[:, 0], ends[:, 1], np.array(list(merged.values()), dtype=np.int64))
    assert solve_network(paired, source, sink).value == expected


@given(instances())
def test_flow_obeys_capacities_and_is_conserved(instance: Instance) -> None:
    """The flow on each edge, read from the residual capacities as documented."""
    num_nodes, tails, heads, capacities, source, sink = instance
    result = max_flow(*instance)
    flow = result.residual[1::2]
    assert ((flow >= 0) & (flow <= capacities)).all()
    assert np.array_equal(result.residual[0::2], capacities - flow)
    gained = np.zeros(num_nodes, dtype=np.int64)
    np.add.at(gained, heads, flow)
    np.subtract.at(gained, tails, flow)
    expected = np.zeros(num_nodes, dtype=np.int64)
    expected[source], expected[sink] = -result.value, result.value
    assert np.array_equal(gained, expected)


@given(instances())
def test_cut_separates_and_is_as_large_as_the_flow(instance: Instance) -> None:
    """Weak duality makes both optimal."""
    _, tails, heads, capacities, source, sink = instance
    result = max_flow(*instance)
    assert result.source_side[source]
    assert not result.source_side[sink]
    leaving = result.source_side[tails] & ~result.source_side[heads]
    assert int(capacities[leaving].sum()) == result.value


def test_largest_sum_of_capacities_is_solved_exactly() -> None:
    """One unit below the limit, where floats would round."""
    result = max_flow(2, np.array([0]), np.array([1]), np.array([CAPACITY_LIMIT - 1]), 0, 1)
    assert result.value == CAPACITY_LIMIT - 1


@pytest.mark.parametrize("capacities", [[2**62, 0], [2**61, 2**61], [2**63 - 1, 2**63 - 1]])
def test_larger_sums_of_capacities_are_refused(capacities: list[int]) -> None:
    """Also where int64 would wrap around to a small sum."""
    with pytest.raises(CapacityOverflowError, match=f"add up to {sum(capacities)}, beyond .* round the bandwidths"):
        max_flow(3, np.array([0, 1]), np.array([1, 2]), np.array(capacities), 0, 2)
    with pytest.raises(CapacityOverflowError):
        paired_network(3, np.array([0, 1]), np.array([1, 0]), np.array(capacities))
