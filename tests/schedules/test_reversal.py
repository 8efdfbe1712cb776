"""Schedules that are renumbered or turned round stay correct, cost the same, and undo each other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

from collopt.errors import UnsupportedError
from collopt.schedules import (
    StepAllreduce,
    StepCost,
    StepSchedule,
    allreduce_schedule,
    base_reduce_scatter,
    base_schedule,
    reduce_scatter_schedule,
    reversed_schedule,
    step_cost,
    verified_loads,
    without_repeats,
)
from collopt.topologies import (
    DirectGraph,
    Topology,
    bandwidth_optimum,
    diamond,
    modified_de_bruijn,
    unidirectional_ring,
)
from collopt.topologies.direct_connect.optimal_broadcasts import base_schedule_names, base_transpose_names
from graph_symmetry import is_reverse_symmetric
from oracles.breadth_first import first_neighbor_schedule
from oracles.slow_steps import steps_hold
from regular_graphs import BASES, regular_graphs
from sample_sizes import examples


def columns(schedule: StepSchedule) -> list[tuple[object, ...]]:
    """All sends, sorted."""
    return sorted(schedule.sends())


@pytest.mark.parametrize("graph", BASES, ids=lambda graph: graph.name)
def test_an_allgather_makes_a_reduce_scatter_and_an_allreduce(graph: DirectGraph) -> None:
    """A graph isomorphic to its transpose gets both at the same cost; others are refused."""
    schedule = first_neighbor_schedule(graph)
    if not is_reverse_symmetric(graph):
        for make in (reduce_scatter_schedule, allreduce_schedule):
            with pytest.raises(UnsupportedError, match="is not isomorphic to its transpose; for a reduce-scatter"):
                make(graph, schedule)
        return
    both = allreduce_schedule(graph, schedule)
    verified_loads(both, Topology.from_graph(graph))
    assert both.reduce.direction == "reduce"
    assert step_cost(graph, both.reduce) == step_cost(graph, schedule)
    assert columns(reduce_scatter_schedule(graph, schedule)) == columns(both.reduce)


@given(regular_graphs())
@settings(max_examples=examples(40))
def test_reversing_gives_the_other_collective_on_the_transpose(graph: DirectGraph) -> None:
    """Theorem 1, both ways; the slow checker agrees."""
    schedule = first_neighbor_schedule(graph)
    turned = reversed_schedule(schedule)
    assert steps_hold(turned, Topology.from_graph(graph.transpose()))
    verified_loads(turned, Topology.from_graph(graph.transpose()))
    again = reversed_schedule(turned)
    assert again.direction == "broadcast"
    assert columns(again) == columns(schedule)


RING = unidirectional_ring(1, 3).direct_graph()
REPEATS = [
    (0, 0, 0, 6, (0, 1)),
    (0, 1, 0, 6, (1, 2)),
    (0, 2, 0, 6, (2, 0)),
    (1, 0, 0, 4, (1, 2)),
    (1, 0, 2, 5, (1, 2)),
    (2, 0, 1, 6, (1, 2)),
    (1, 1, 0, 6, (2, 0)),
    (1, 2, 0, 6, (0, 1)),
    (2, 1, 3, 4, (0, 1)),
    (3, 2, 0, 1, (0, 1)),
]
"""Rank 2 gets parts of the shard of rank 0 up to three times, and rank 1 a part of its own."""


def test_of_repeated_arrivals_the_first_is_kept() -> None:
    """The first listed of one step stays, and a step without sends goes."""
    schedule = StepSchedule.from_sends(3, 6, REPEATS)
    verified_loads(schedule, Topology.from_graph(RING))
    kept = without_repeats(schedule)
    assert [tuple(send) for send in kept.sends()] == [
        *REPEATS[:4],
        (1, 0, 4, 5, (1, 2)),
        (2, 0, 5, 6, (1, 2)),
        *REPEATS[6:8],
    ]
    assert kept.num_steps == 3
    verified_loads(reversed_schedule(schedule), Topology.from_graph(RING.transpose()))


def test_a_send_may_be_cut_into_several() -> None:
    """A send whose middle has arrived before is cut."""
    rows = [(0, 0, 2, 3, (0, 1)), (0, 1, 0, 6, (1, 0)), (1, 0, 0, 6, (0, 1))]
    kept = without_repeats(StepSchedule.from_sends(2, 6, rows))
    assert [tuple(send) for send in kept.sends()] == [*rows[:2], (1, 0, 0, 2, (0, 1)), (1, 0, 3, 6, (0, 1))]


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


@pytest.mark.parametrize("make", [base_schedule, base_reduce_scatter], ids=["broadcast", "reduce"])
@pytest.mark.parametrize("name", NAMES)
def test_both_directions_are_bandwidth_optimal_on_the_same_graph(
    name: str, make: Callable[[str], StepSchedule]
) -> None:
    """Every link carries the same in each step, though not all graphs are isomorphic to their transposes."""
    graph, schedule = graph_of(name), make(name)
    loads = verified_loads(schedule, Topology.from_graph(graph))
    assert np.array_equal(loads.min(axis=1), loads.max(axis=1))
    assert schedule.direction == ("broadcast" if make is base_schedule else "reduce")
    assert step_cost(graph, schedule) == optimum(name)


@pytest.mark.parametrize("name", NAMES)
def test_both_make_an_allreduce_at_twice_the_cost(name: str) -> None:
    """They cut shards into as many chunks, so that one can follow the other."""
    graph, allreduce = graph_of(name), StepAllreduce(base_reduce_scatter(name), base_schedule(name))
    verified_loads(allreduce, Topology.from_graph(graph))
    steps, factor = optimum(name)
    assert step_cost(graph, allreduce) == StepCost(2 * steps, 2 * factor)
