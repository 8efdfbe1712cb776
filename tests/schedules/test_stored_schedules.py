"""The stored schedules of Diamond and the modified de Bruijn graphs, as allgathers and as reduce-scatters."""

from __future__ import annotations

import numpy as np
import pytest

from collopt.schedules import StepAllreduce, StepCost, base_reduce_scatter, base_schedule, step_cost, verified_loads
from collopt.topologies import DirectGraph, Topology, bandwidth_optimum, diamond, modified_de_bruijn
from collopt.topologies.direct_connect.optimal_broadcasts import base_schedule_names, base_transpose_names

NAMES = (*base_schedule_names(), *base_transpose_names())
STEPS = {"Diamond": 3, "DBJMod(2, 3)": 4, "DBJMod(2, 4)": 5, "DBJMod(3, 2)": 3, "DBJMod(4, 2)": 3}
"""Table 9; the transposes take as many."""


def graph_of(name: str) -> DirectGraph:
    """The graph as its family makes it, not as it is stored."""
    topologies = (diamond(), *(modified_de_bruijn(*size) for size in ((2, 3), (2, 4), (3, 2), (4, 2))))
    graphs = [topology.direct_graph() for topology in topologies]
    return {graph.name: graph for graph in (*graphs, *(graph.transpose() for graph in graphs))}[name]


def optimum(name: str) -> StepCost:
    """The steps of Table 9, and (N - 1) / N."""
    return StepCost(STEPS[name.removesuffix("^T")], bandwidth_optimum(graph_of(name).num_nodes))


@pytest.mark.parametrize("name", NAMES)
def test_allgathers_are_bandwidth_optimal(name: str) -> None:
    """Every link carries the same in each step, on the graph itself."""
    graph, schedule = graph_of(name), base_schedule(name)
    loads = verified_loads(schedule, Topology.from_graph(graph))
    assert np.array_equal(loads.min(axis=1), loads.max(axis=1))
    assert schedule.direction == "broadcast"
    assert step_cost(graph, schedule) == optimum(name)


@pytest.mark.parametrize("name", NAMES)
def test_reduce_scatters_on_the_same_graph_cost_the_same(name: str) -> None:
    """Graphs that are not isomorphic to their transposes have one of the same cost."""
    graph, schedule = graph_of(name), base_reduce_scatter(name)
    loads = verified_loads(schedule, Topology.from_graph(graph))
    assert np.array_equal(loads.min(axis=1), loads.max(axis=1))
    assert schedule.direction == "reduce"
    assert step_cost(graph, schedule) == optimum(name)


@pytest.mark.parametrize("name", NAMES)
def test_both_make_an_allreduce_at_twice_the_cost(name: str) -> None:
    """They cut shards into as many chunks, so that one can follow the other."""
    graph, allreduce = graph_of(name), StepAllreduce(base_reduce_scatter(name), base_schedule(name))
    verified_loads(allreduce, Topology.from_graph(graph))
    steps, factor = optimum(name)
    assert step_cost(graph, allreduce) == StepCost(2 * steps, 2 * factor)
