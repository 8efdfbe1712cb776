"""Every expanded schedule passes the checker, is what the paper defines, and costs what its theorems say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import CapacityOverflowError, TopologyError, UnsupportedError
from collopt.planners.direct_connect.bfb import bfb_schedule
from collopt.schedules import (
    StepCost,
    StepSchedule,
    bidirectional_schedule,
    cartesian_power_schedule,
    degree_expansion_schedule,
    line_graph_schedule,
    reversed_schedule,
    step_cost,
    verified_loads,
)
from collopt.schedules.steps.step_schedule import Send
from collopt.topologies import (
    DirectGraph,
    Topology,
    base_schedule_rows,
    bidirectional,
    cartesian_power,
    degree_expansion,
    line_graph,
    unidirectional_ring,
)
from collopt.topologies.direct_connect.optimal_broadcasts import base_schedule_names
from graph_symmetry import is_reverse_symmetric
from oracles.breadth_first import first_neighbor_schedule, least_breadth_first_cost
from oracles.expansion_costs import (
    cartesian_power_cost,
    degree_expansion_cost,
    is_line_graph_cost_exact,
    line_graph_cost_bound,
)
from oracles.expansion_definitions import chunk_sends, definition_1, definition_2, definition_14
from oracles.slow_steps import steps_hold
from regular_graphs import BASES, regular_graphs, single_arc_graphs
from sample_sizes import examples

MAX_NODES = 200


def allgather(graph: DirectGraph) -> StepSchedule:
    """A correct one, not the best."""
    return first_neighbor_schedule(graph)


def reduce_scatter(graph: DirectGraph) -> StepSchedule:
    """A correct one, made without the symmetry of the graph."""
    return reversed_schedule(first_neighbor_schedule(graph.transpose()))


def verified_cost(graph: DirectGraph, schedule: StepSchedule) -> StepCost:
    """The cost of a schedule that the checker has passed."""
    verified_loads(schedule, Topology.from_graph(graph))
    return step_cost(graph, schedule)


def no_more(cost: StepCost, bound: StepCost) -> bool:
    """Whether a cost exceeds another in neither figure."""
    return cost.steps <= bound.steps and cost.bandwidth_factor <= bound.bandwidth_factor


def check_both_ways(graph: DirectGraph, schedule: StepSchedule) -> None:
    """The union with the transpose costs the same; less at most where arcs with opposites even out their loads."""
    cost, actual = (
        step_cost(graph, schedule),
        verified_cost(bidirectional(graph), bidirectional_schedule(graph, schedule)),
    )
    assert no_more(actual, cost)
    arcs = set(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True))
    if not any((head, tail) in arcs for tail, head in arcs):
        assert actual == cost


def paley(nodes: int) -> DirectGraph:
    """Arcs by all squares modulo a prime that is 3 modulo 4."""
    squares = sorted({number**2 % nodes for number in range(1, nodes)})
    arcs = [(node, (node + square) % nodes) for node in range(nodes) for square in squares]
    return DirectGraph.from_arcs(nodes, arcs, f"Paley({nodes})")


def stored(name: str) -> tuple[DirectGraph, StepSchedule]:
    """One of the graphs that come with a schedule."""
    record = base_schedule_rows(name)
    rows = record.rows.tolist()
    sends = [(step - 1, source, chunk, chunk + 1, (tail, head)) for source, chunk, tail, head, step in rows]
    return record.graph, StepSchedule.from_sends(record.graph.num_nodes, record.chunks, sends)


@pytest.mark.parametrize("made", [allgather, reduce_scatter])
@pytest.mark.parametrize("graph", BASES, ids=lambda graph: graph.name)
def test_every_expansion_of_every_base_verifies(
    graph: DirectGraph, made: Callable[[DirectGraph], StepSchedule]
) -> None:
    """Line graphs, copies, powers, and the union with the transpose, of up to 200 nodes; costs are as predicted."""
    schedule = made(graph)
    cost = verified_cost(graph, schedule)
    for times in (1, 2, 3):
        if graph.num_nodes * graph.degree**times <= MAX_NODES:
            actual = verified_cost(line_graph(graph, times), line_graph_schedule(graph, schedule, times))
            predicted = line_graph_cost_bound(graph, cost, times)
            assert actual.steps == predicted.steps or graph.degree == 1
            assert actual.bandwidth_factor <= predicted.bandwidth_factor
    for copies in (1, 2, 3):
        if not graph.num_self_loops:
            expanded = degree_expansion_schedule(graph, copies, schedule)
            actual = verified_cost(degree_expansion(graph, copies), expanded)
            assert actual == degree_expansion_cost(graph, cost, copies)
    for n in (1, 2, 3, 4):
        if graph.num_nodes**n <= MAX_NODES:
            actual = verified_cost(cartesian_power(graph, n), cartesian_power_schedule(graph, n, schedule))
            assert actual == cartesian_power_cost(graph, cost, n)
    if is_reverse_symmetric(graph):
        check_both_ways(graph, schedule)


@pytest.mark.parametrize(
    ("name", "power", "steps", "factor"),
    [("Diamond", 6, 7, "1"), ("DBJMod(2, 3)", 8, 9, "1"), ("DBJMod(2, 4)", 10, 11, "1")],
)
def test_stored_schedules_expand_as_table_7_has_them(name: str, power: int, steps: int, factor: str) -> None:
    """The square of a bandwidth-optimal base is optimal again, and its line graph has T_B = 1."""
    graph, schedule = stored(name)
    square, squared = cartesian_power(graph, 2), cartesian_power_schedule(graph, 2, schedule)
    nodes = graph.num_nodes**2
    assert verified_cost(square, squared) == (power, Fraction(nodes - 1, nodes))
    if nodes <= MAX_NODES:
        assert verified_cost(line_graph(square), line_graph_schedule(square, squared)) == (steps, Fraction(factor))


@pytest.mark.parametrize("name", base_schedule_names())
def test_expansions_of_stored_schedules_verify(name: str) -> None:
    """They arrive later than breadth-first, and in several chunks."""
    graph, schedule = stored(name)
    cost = verified_cost(graph, schedule)
    assert no_more(
        verified_cost(line_graph(graph), line_graph_schedule(graph, schedule)), line_graph_cost_bound(graph, cost)
    )
    copied = degree_expansion_schedule(graph, 2, schedule)
    assert verified_cost(degree_expansion(graph, 2), copied) == degree_expansion_cost(graph, cost, 2)


@given(regular_graphs(), st.sampled_from([allgather, reduce_scatter]))
@settings(max_examples=examples(40))
def test_expansions_of_random_graphs_verify(graph: DirectGraph, made: Callable[[DirectGraph], StepSchedule]) -> None:
    """Parallel arcs and self-loops included; the slow checker agrees on the line graph."""
    schedule = made(graph)
    cost = verified_cost(graph, schedule)
    lines, on_lines = line_graph(graph), line_graph_schedule(graph, schedule)
    if graph.degree > 1 or graph.num_nodes > 2:
        assert steps_hold(on_lines, Topology.from_graph(lines))
    assert no_more(verified_cost(lines, on_lines), line_graph_cost_bound(graph, cost))
    square = cartesian_power_schedule(graph, 2, schedule)
    assert verified_cost(cartesian_power(graph, 2), square) == cartesian_power_cost(graph, cost, 2)
    if not graph.num_self_loops:
        copied = degree_expansion_schedule(graph, 3, schedule)
        assert verified_cost(degree_expansion(graph, 3), copied) == degree_expansion_cost(graph, cost, 3)
    if is_reverse_symmetric(graph):
        check_both_ways(graph, schedule)


@st.composite
def wasteful(draw: st.DrawFn) -> tuple[DirectGraph, StepSchedule]:
    """Allgathers that bring parts of shards again, or back to the source."""
    graph = draw(regular_graphs(max_nodes=5))
    schedule = first_neighbor_schedule(graph)
    links = graph.adjacency
    size, count = 6, len(links.tails)
    sends = [Send(step, source, 0, size, path) for step, source, _, _, path in schedule.sends()]
    for _ in range(draw(st.integers(1, 8))):
        link, source = draw(st.integers(0, count - 1)), draw(st.integers(0, graph.num_nodes - 1))
        tail, head = int(links.tails[link]), int(links.heads[link])
        step = draw(st.integers(int(graph.distances[source, tail]), schedule.num_steps))
        lower = draw(st.integers(0, size - 1))
        sends.append(Send(step, source, lower, draw(st.integers(lower + 1, size)), (tail, head)))
    used = sorted({send.step for send in sends})
    order = draw(st.permutations(sends))
    return graph, StepSchedule.from_sends(
        graph.num_nodes, size, [send._replace(step=used.index(send.step)) for send in order]
    )


@given(wasteful())
@settings(max_examples=examples(60))
def test_what_is_sent_in_vain_breaks_nothing(case: tuple[DirectGraph, StepSchedule]) -> None:
    """Expansions still verify and cost no more than predicted; a reversed schedule adds nothing twice."""
    graph, schedule = case
    cost = verified_cost(graph, schedule)
    turned = reversed_schedule(schedule)
    assert no_more(verified_cost(graph.transpose(), turned), cost)
    for expanded in (schedule, reversed_schedule(first_neighbor_schedule(graph.transpose()))):
        verified_cost(line_graph(graph), line_graph_schedule(graph, expanded))
    assert no_more(
        verified_cost(line_graph(graph), line_graph_schedule(graph, schedule)), line_graph_cost_bound(graph, cost)
    )
    square = cartesian_power_schedule(graph, 2, schedule)
    assert no_more(verified_cost(cartesian_power(graph, 2), square), cartesian_power_cost(graph, cost, 2))
    arrivals = square.path_nodes[1::2][square.routes]
    if not any(path[-1] == source for _, source, *_, path in schedule.sends()):
        assert step_cost(cartesian_power(graph, 2), square) == cartesian_power_cost(graph, cost, 2)
    assert (arrivals != square.sources).all()
    if not graph.num_self_loops:
        copied = degree_expansion_schedule(graph, 2, schedule)
        assert no_more(verified_cost(degree_expansion(graph, 2), copied), degree_expansion_cost(graph, cost, 2))


@given(single_arc_graphs())
@settings(max_examples=examples(40))
def test_expanded_schedules_are_those_of_the_definitions(graph: DirectGraph) -> None:
    """Send by send, on graphs without parallel arcs; of Definition 2 the part that leaves no choice."""
    arcs = list(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True))
    schedule = first_neighbor_schedule(graph)
    sends, nodes = chunk_sends(schedule, 1), range(graph.num_nodes)

    numbered = {
        (arcs[a], c, arcs[t], arcs[h], s) for a, c, t, h, s in chunk_sends(line_graph_schedule(graph, schedule), 1)
    }
    assert numbered == definition_1(graph, sends, 1)

    pairs = [(first, second) for first in nodes for second in nodes]
    square = cartesian_power_schedule(graph, 2, schedule)
    numbered_pairs = {(pairs[a], c, pairs[t], pairs[h], s) for a, c, t, h, s in chunk_sends(square, 2)}
    assert numbered_pairs == definition_14(graph, 2, sends, schedule.num_steps, 1)

    if not graph.num_self_loops:
        copies = [(node, copy) for node in nodes for copy in range(2)]
        copied = chunk_sends(degree_expansion_schedule(graph, 2, schedule), 2 * graph.degree)
        main = {(copies[a], copies[t], copies[h], s) for a, _, t, h, s in copied if s < schedule.num_steps}
        assert main == {(a, t, h, s) for a, _, t, h, s in definition_2(graph, 2, sends)}


def test_a_power_of_three_shifts_dimensions_as_defined() -> None:
    """The third power, where shifting left and right differ."""
    graph = DirectGraph.from_arcs(3, [(0, 1), (1, 2), (2, 0)], "UniRing(1, 3)")
    schedule = first_neighbor_schedule(graph)
    triples = [(a, b, c) for a in range(3) for b in range(3) for c in range(3)]
    made = chunk_sends(cartesian_power_schedule(graph, 3, schedule), 3)
    numbered = {(triples[a], c, triples[t], triples[h], s) for a, c, t, h, s in made}
    assert numbered == definition_14(graph, 3, chunk_sends(schedule, 1), 2, 1)


def test_parallel_arcs_share_every_send_equally() -> None:
    """In the line graph of a ring of double arcs, each second node carries half of the old link's load."""
    graph = unidirectional_ring(2, 4).direct_graph()
    expanded = line_graph_schedule(graph, first_neighbor_schedule(graph))
    assert expanded.chunks_per_shard == 2
    loads = verified_loads(expanded, Topology.from_graph(line_graph(graph)))
    # A node is spared its own shard in the last step, which is why the bound is not reached.
    assert [sorted(set(row.tolist())) for row in loads] == [[2], [2], [2], [1]]


def test_the_line_graph_of_a_ring_of_single_arcs_needs_no_further_step() -> None:
    """It is the same ring: the last step would bring every shard to its source."""
    graph = unidirectional_ring(1, 5).direct_graph()
    expanded = line_graph_schedule(graph, first_neighbor_schedule(graph))
    assert verified_cost(line_graph(graph), expanded) == (4, Fraction(4, 5))


@given(regular_graphs(max_nodes=7, min_degree=2))
@settings(max_examples=examples(60))
def test_the_least_cost_on_a_line_graph_is_as_predicted_where_that_is_said(graph: DirectGraph) -> None:
    """No BFB schedule costs more than the bound, and none less where the bound is said to be exact."""
    least, bound = (
        least_breadth_first_cost(line_graph(graph)),
        line_graph_cost_bound(graph, least_breadth_first_cost(graph)),
    )
    assert least <= bound
    if is_line_graph_cost_exact(graph):
        assert least == bound


@pytest.mark.parametrize(
    ("graph", "least", "theorem"),
    [
        (paley(7), Fraction(20, 21), 1),
        (paley(11), Fraction(54, 55), 1),
        (
            DirectGraph.from_arcs(8, [(node, (node + step) % 8) for node in range(8) for step in (1, 3)], "i+1, i+3"),
            Fraction(15, 16),
            1,
        ),
    ],
    ids=lambda value: value.name if isinstance(value, DirectGraph) else str(value),
)
def test_theorem_10_does_not_hold_where_all_out_neighbors_are_equally_far_back(
    graph: DirectGraph, least: Fraction, theorem: int
) -> None:
    """Arcs lead from every node to several, but the line graph has a cheaper BFB schedule: a bandwidth-optimal one."""
    cost = least_breadth_first_cost(graph)
    assert cost.bandwidth_factor == Fraction(graph.num_nodes - 1, graph.num_nodes)
    assert line_graph_cost_bound(graph, cost).bandwidth_factor == theorem
    lines = line_graph(graph)
    assert least_breadth_first_cost(lines).bandwidth_factor == least == Fraction(lines.num_nodes - 1, lines.num_nodes)
    assert not is_line_graph_cost_exact(graph)


def test_theorem_10_fails_for_six_nodes_already() -> None:
    """No graph of fewer nodes without self-loops and parallel arcs does; here no schedule is bandwidth-optimal."""
    heads = [(1, 2), (0, 3), (1, 4), (0, 5), (3, 5), (2, 4)]
    graph = DirectGraph.from_arcs(6, [(tail, head) for tail, pair in enumerate(heads) for head in pair], "six")
    assert line_graph_cost_bound(graph, least_breadth_first_cost(graph)) == (4, Fraction(7, 6))
    assert least_breadth_first_cost(line_graph(graph)) == (4, Fraction(13, 12))
    assert not is_line_graph_cost_exact(graph)


@pytest.mark.parametrize("graph", [graph for graph in BASES if graph.num_nodes <= 9], ids=lambda graph: graph.name)
def test_expanding_the_best_breadth_first_schedule_gives_the_best_where_that_is_said(graph: DirectGraph) -> None:
    """Theorem 10 for the schedules themselves."""
    schedule = bfb_schedule(graph)
    cost = verified_cost(graph, schedule)
    assert cost == least_breadth_first_cost(graph)
    actual = verified_cost(line_graph(graph), line_graph_schedule(graph, schedule))
    assert no_more(actual, line_graph_cost_bound(graph, cost))
    if is_line_graph_cost_exact(graph):
        assert actual == line_graph_cost_bound(graph, cost) == least_breadth_first_cost(line_graph(graph))


def test_a_known_symmetry_is_used_and_a_wrong_one_refused() -> None:
    """The mirror image of a one-way ring; not the identity."""
    graph = unidirectional_ring(1, 4).direct_graph()
    schedule = first_neighbor_schedule(graph)
    expanded = bidirectional_schedule(graph, schedule, symmetry=[0, 3, 2, 1])
    assert verified_cost(bidirectional(graph), expanded) == (3, Fraction(3, 4))
    with pytest.raises(UnsupportedError, match="does not map"):
        bidirectional_schedule(graph, schedule, symmetry=[0, 1, 2, 3])
    with pytest.raises(UnsupportedError, match="each number from 0 to 3 once"):
        bidirectional_schedule(graph, schedule, symmetry=[0, 1, 2, 2])


EXPANSIONS: dict[str, Callable[[DirectGraph, Any], object]] = {
    "line graph": line_graph_schedule,
    "copies": lambda graph, schedule: degree_expansion_schedule(graph, 2, schedule),
    "power": lambda graph, schedule: cartesian_power_schedule(graph, 2, schedule),
    "both ways": bidirectional_schedule,
}


@pytest.mark.parametrize("expand", EXPANSIONS.values(), ids=EXPANSIONS.keys())
def test_schedules_for_something_else_are_refused(expand: Callable[[DirectGraph, Any], object]) -> None:
    """Other ranks, links or directions, a path through a third rank, and no schedule are refused."""
    ring = unidirectional_ring(1, 4).direct_graph()
    schedule = first_neighbor_schedule(ring)
    larger = first_neighbor_schedule(unidirectional_ring(1, 5).direct_graph())
    with pytest.raises(UnsupportedError, match=r"for 5 ranks; expected one for the 4 of UniRing\(1, 4\)"):
        expand(ring, larger)
    backwards = first_neighbor_schedule(ring.transpose())
    with pytest.raises(UnsupportedError, match="from rank 2 to rank 1, which is no link"):
        expand(ring, backwards)
    with pytest.raises(UnsupportedError, match="from rank 1 to rank 0, which is no link"):
        expand(ring, reversed_schedule(schedule))
    with pytest.raises(UnsupportedError, match=r"the path \(0, 1, 2\)"):
        expand(ring, StepSchedule.from_sends(4, 1, [(0, 0, 0, 1, (0, 1, 2))]))
    with pytest.raises(UnsupportedError, match="expected a StepSchedule"):
        expand(ring, "allgather")
    with pytest.raises(UnsupportedError, match="sources are not all from 0 to 3"):
        expand(ring, replace(schedule, sources=schedule.sources + 1))
    with pytest.raises(UnsupportedError, match="do not fit together"):
        expand(ring, replace(schedule, sources=schedule.sources[1:]))
    with pytest.raises(UnsupportedError, match="which is no link"):
        expand(ring, replace(schedule, path_nodes=schedule.path_nodes + 1))


def test_graphs_that_cannot_be_expanded_are_refused() -> None:
    """Irregular ones, self-loops, no symmetry, and numbers of times that are none."""
    path = DirectGraph.from_arcs(3, [(0, 1), (1, 0), (1, 2), (2, 1)], "path")
    with pytest.raises(UnsupportedError, match="not regular"):
        line_graph_schedule(path, first_neighbor_schedule(path))
    names = {graph.name: graph for graph in BASES}
    loops, lopsided = names["DBJ(2, 3)"], names["Diamond"]
    with pytest.raises(UnsupportedError, match="self-loops"):
        degree_expansion_schedule(loops, 2, first_neighbor_schedule(loops))
    with pytest.raises(UnsupportedError, match="not isomorphic to its transpose"):
        bidirectional_schedule(lopsided, first_neighbor_schedule(lopsided))
    with pytest.raises(TopologyError, match="times is 0"):
        line_graph_schedule(lopsided, first_neighbor_schedule(lopsided), 0)


def test_schedules_that_would_be_too_large_are_refused_before_they_are_built() -> None:
    """Too many sends, and too many chunks for 64 bits."""
    graph = unidirectional_ring(1, 4).direct_graph()
    schedule = first_neighbor_schedule(graph)
    with pytest.raises(UnsupportedError, match="would have 1878933504 sends"):
        cartesian_power_schedule(graph, 7, schedule)
    fine = replace(schedule, chunks_per_shard=2**60, upper=np.full_like(schedule.upper, 2**60 - 1))
    with pytest.raises(CapacityOverflowError, match="chunks per shard"):
        cartesian_power_schedule(graph, 2, fine)
