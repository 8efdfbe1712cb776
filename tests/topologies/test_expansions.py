"""Expanded graphs, bounds for all graphs, and stored schedules that attain them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import UnsupportedError
from collopt.topologies import (
    DirectGraph,
    Topology,
    bandwidth_optimum,
    base_schedule_rows,
    bidirectional,
    bidirectional_ring,
    cartesian_power,
    cartesian_product,
    complete,
    complete_bipartite,
    de_bruijn,
    degree_expansion,
    diamond,
    directed_circulant,
    generalized_kautz,
    hamming,
    hypercube,
    isomorphism,
    kautz,
    line_graph,
    modified_de_bruijn,
    moore_steps,
    parallel,
    reverse_symmetry,
    ring,
    torus,
    undirected_moore_steps,
    unidirectional_ring,
)
from collopt.topologies.direct_connect.optimal_broadcasts import base_transpose_names
from graph_symmetry import is_reverse_symmetric
from regular_graphs import regular_graphs
from sample_sizes import examples

TRIANGLE = DirectGraph.from_arcs(3, [(0, 1), (1, 2), (2, 0)], "UniRing(1, 3)")
COMPLETE = complete(3).direct_graph().renamed("K(3)")


def arc_list(graph: DirectGraph) -> list[tuple[int, int]]:
    """In the order of the graph."""
    return list(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True))


@given(regular_graphs())
@settings(max_examples=examples(40))
def test_line_graphs_join_arcs_that_follow_each_other(graph: DirectGraph) -> None:
    """By their numbers, parallel arcs apart and self-loops kept; degree and size are as they should be."""
    arcs, lines = arc_list(graph), line_graph(graph)
    expected = [(a, b) for a, (_, head) in enumerate(arcs) for b, (tail, _) in enumerate(arcs) if head == tail]
    assert arc_list(lines) == expected
    assert (lines.num_nodes, lines.degree) == (graph.num_nodes * graph.degree, graph.degree)
    assert lines.num_self_loops == graph.num_self_loops
    if graph.degree > 1:
        assert lines.diameter == graph.diameter + 1
    assert arc_list(line_graph(graph, 2)) == arc_list(line_graph(lines))


@given(regular_graphs(max_nodes=6))
@settings(max_examples=examples(40))
def test_degree_expansions_join_all_copies(graph: DirectGraph) -> None:
    """Copy i of node v is number 3 v + i; self-loops are refused."""
    if graph.num_self_loops:
        with pytest.raises(UnsupportedError, match="random has a self-loop at node"):
            degree_expansion(graph, 3)
        return
    expected = Counter(
        (3 * tail + i, 3 * head + j) for tail, head in arc_list(graph) for i in range(3) for j in range(3)
    )
    expanded = degree_expansion(graph, 3)
    assert Counter(arc_list(expanded)) == expected
    assert expanded.degree == 3 * graph.degree


@given(regular_graphs(max_nodes=5), regular_graphs(max_nodes=5))
@settings(max_examples=examples(40))
def test_products_change_one_entry_along_an_arc(left: DirectGraph, right: DirectGraph) -> None:
    """Pair (x, y) is number x N + y; parallel arcs and self-loops of both stay."""
    size = right.num_nodes
    expected = Counter((tail * size + y, head * size + y) for tail, head in arc_list(left) for y in range(size))
    expected += Counter(
        (x * size + tail, x * size + head) for x in range(left.num_nodes) for tail, head in arc_list(right)
    )
    product = cartesian_product(left, right)
    assert Counter(arc_list(product)) == expected
    assert product.degree == left.degree + right.degree
    assert product.diameter == left.diameter + right.diameter


@pytest.mark.parametrize(
    ("made", "known"),
    [
        (lambda: line_graph(COMPLETE, 2), lambda: kautz(2, 2)),
        (lambda: cartesian_power(COMPLETE, 2), lambda: hamming(2, 3)),
        (lambda: cartesian_power(complete(2).direct_graph(), 4), lambda: hypercube(4)),
        (lambda: cartesian_product(ring(3).direct_graph(), ring(5).direct_graph()), lambda: torus(3, 5)),
        (lambda: parallel(TRIANGLE, 4), lambda: unidirectional_ring(4, 3)),
        (lambda: bidirectional(TRIANGLE), lambda: ring(3)),
    ],
)
def test_families_are_expansions_of_smaller_graphs(
    made: Callable[[], DirectGraph], known: Callable[[], object]
) -> None:
    """Kautz graphs, Hamming graphs, hypercubes, tori and rings are expansions."""
    assert isomorphism(made(), known().direct_graph()) is not None  # type: ignore[arg-type]


def test_names_are_put_together_as_the_paper_writes_them() -> None:
    """With parentheses where they are needed, and only there."""
    diamonds = diamond().direct_graph().renamed("Diamond")
    square = cartesian_power(diamonds, 2)
    names = {
        "Diamond^□2": square,
        "L^2(Diamond^□2)": line_graph(line_graph(square)),
        "K(3) □ UniRing(1, 3)^□2": cartesian_product(COMPLETE, cartesian_power(TRIANGLE, 2)),
        "L(K(3) □ UniRing(1, 3))": line_graph(cartesian_product(COMPLETE, TRIANGLE)),
        "L(L(K(3)) □ L(K(3)))": line_graph(cartesian_product(line_graph(COMPLETE), line_graph(COMPLETE))),
        "(UniRing(1, 3)*2)*3": degree_expansion(degree_expansion(TRIANGLE, 2), 3),
        "(Diamond^□2)^□2": cartesian_power(square, 2),
        "2·K(3)": parallel(COMPLETE, 2),
        "(K(3) ∪ K(3)^T) □ K(3)": cartesian_product(bidirectional(COMPLETE), COMPLETE),
    }
    assert {name: graph.name for name, graph in names.items()} == {name: name for name in names}


@given(st.integers(1, 12), st.integers(2, 10**6))
def test_moore_steps_are_the_least_that_reach_all_nodes(degree: int, nodes: int) -> None:
    """Directed, and undirected of degree 2 or more."""
    if degree > 1 or nodes < 60000:
        steps = moore_steps(nodes, degree)
        least = sum(degree**hops for hops in range(steps))
        assert least + degree**steps >= nodes > least
    if degree > 2 or (degree == 2 and nodes < 60000):
        steps = undirected_moore_steps(nodes, degree)
        least = 1 + degree * sum((degree - 1) ** hops for hops in range(steps - 1))
        assert least + degree * (degree - 1) ** (steps - 1) >= nodes > least


def test_the_bounds_are_those_of_the_paper() -> None:
    """Table 4 has 5 steps and 1023/1024 as the least; one node needs none."""
    assert (moore_steps(1024, 4), bandwidth_optimum(1024)) == (5, Fraction(1023, 1024))
    assert [undirected_moore_steps(nodes, 4) for nodes in (21, 189, 728)] == [3, 5, 6]
    assert (moore_steps(1, 3), undirected_moore_steps(1, 3)) == (0, 0)
    assert (moore_steps(7, 1), undirected_moore_steps(2, 1), undirected_moore_steps(7, 2)) == (6, 1, 3)


SYMMETRY = [
    (complete(5), True),
    (complete_bipartite(3), True),
    (kautz(2, 2), True),
    (bidirectional_ring(4, 5), True),
    (unidirectional_ring(2, 5), True),
    (diamond(), False),
    (generalized_kautz(2, 7), False),
    (modified_de_bruijn(2, 3), True),
    (modified_de_bruijn(2, 4), False),
    (modified_de_bruijn(4, 2), False),
    (generalized_kautz(4, 11), False),
    (directed_circulant(4), True),
    (de_bruijn(2, 4), True),
]


@pytest.mark.parametrize(("topology", "expected"), SYMMETRY, ids=lambda value: getattr(value, "name", str(value)))
def test_reverse_symmetry_is_as_in_table_9(topology: object, expected: bool) -> None:
    """By computation; a symmetry that is found reverses every arc."""
    graph = topology.direct_graph()  # type: ignore[arg-type]
    assert is_reverse_symmetric(graph) is expected
    arcs = nx.MultiDiGraph(list(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True)))
    assert nx.is_isomorphic(arcs, arcs.reverse()) is expected
    if (mapping := reverse_symmetry(graph)) is not None:
        turned = sorted(zip(mapping[graph.heads].tolist(), mapping[graph.tails].tolist(), strict=True))
        assert turned == list(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True))


class Stored(NamedTuple):
    """A family's graph or its transpose, and the steps that Table 9 prints for it."""

    graph: DirectGraph
    steps: int
    chunks: int
    loads: list[int]


def transpose(topology: Topology) -> DirectGraph:
    """The family's graph with all arcs reversed."""
    return topology.direct_graph().transpose()


FORWARD = [
    Stored(diamond().direct_graph(), 3, 2, [2, 2, 3]),
    Stored(modified_de_bruijn(2, 3).direct_graph(), 4, 2, [1, 2, 2, 2]),
    Stored(modified_de_bruijn(2, 4).direct_graph(), 5, 2, [1, 2, 3, 4, 5]),
    Stored(modified_de_bruijn(3, 2).direct_graph(), 3, 3, [2, 2, 4]),
    Stored(modified_de_bruijn(4, 2).direct_graph(), 3, 4, [2, 5, 8]),
]
BACKWARD = [
    Stored(transpose(diamond()), 3, 2, [2, 2, 3]),
    Stored(transpose(modified_de_bruijn(2, 4)), 5, 2, [2, 2, 3, 4, 4]),
    Stored(transpose(modified_de_bruijn(3, 2)), 3, 3, [2, 2, 4]),
    Stored(transpose(modified_de_bruijn(4, 2)), 3, 4, [2, 5, 8]),
]
STORED = FORWARD + BACKWARD


@pytest.mark.parametrize("stored", STORED, ids=lambda stored: stored.graph.name)
def test_every_node_receives_every_chunk_once_from_one_that_has_it(stored: Stored) -> None:
    """Over arcs of the family's graph, and not before the sender received it itself."""
    schedule = base_schedule_rows(stored.graph.name)
    graph = schedule.graph
    assert (graph.name, graph.num_nodes, arc_list(graph)) == (
        stored.graph.name,
        stored.graph.num_nodes,
        arc_list(stored.graph),
    )
    assert (schedule.num_steps, schedule.chunks) == (stored.steps, stored.chunks)
    assert schedule.rows.shape == (graph.num_nodes * (graph.num_nodes - 1) * stored.chunks, 5)
    arcs = set(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True))
    since = {(source, chunk, source): 0 for source in range(graph.num_nodes) for chunk in range(stored.chunks)}
    for source, chunk, tail, head, step in sorted(schedule.rows.tolist(), key=lambda row: row[-1]):
        assert (tail, head) in arcs
        assert since[source, chunk, tail] < step
        assert (source, chunk, head) not in since
        since[source, chunk, head] = step
    assert len(since) == graph.num_nodes**2 * stored.chunks
    assert max(since.values()) == stored.steps


@pytest.mark.parametrize("stored", STORED, ids=lambda stored: stored.graph.name)
def test_all_links_carry_as_much_in_every_step(stored: Stored) -> None:
    """So the total is the bandwidth bound: (N - 1) P chunks into each node over d links."""
    schedule = base_schedule_rows(stored.graph.name)
    nodes = schedule.graph.num_nodes
    for step, load in enumerate(stored.loads, start=1):
        tails, heads = schedule.rows[schedule.rows[:, 4] == step, 2:4].T
        assert set(np.unique(tails * nodes + heads, return_counts=True)[1].tolist()) == {load}
    assert schedule.graph.degree * sum(stored.loads) == (nodes - 1) * stored.chunks


def test_exactly_the_graphs_that_no_renumbering_reverses_have_a_schedule_of_the_transpose() -> None:
    """For the others, their own schedule serves both ways."""
    needed = [stored.graph.transpose().name for stored in FORWARD if not is_reverse_symmetric(stored.graph)]
    assert list(base_transpose_names()) == needed
