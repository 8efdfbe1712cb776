"""Expanded graphs have the nodes and arcs of their definitions, numbered as promised, and speaking names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings

from collopt.errors import TopologyError, UnsupportedError
from collopt.topologies import (
    DirectGraph,
    bidirectional,
    cartesian_power,
    cartesian_product,
    complete,
    degree_expansion,
    diamond,
    hamming,
    hypercube,
    isomorphism,
    kautz,
    line_graph,
    parallel,
    ring,
    torus,
    unidirectional_ring,
)
from regular_graphs import regular_graphs
from sample_sizes import examples

TRIANGLE = DirectGraph.from_arcs(3, [(0, 1), (1, 2), (2, 0)], "UniRing(1, 3)")
COMPLETE = complete(3).direct_graph().renamed("K(3)")


def arcs_of(graph: DirectGraph) -> list[tuple[int, int]]:
    """In the order of the graph."""
    return list(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True))


@given(regular_graphs())
@settings(max_examples=examples(40))
def test_line_graphs_join_arcs_that_follow_each_other(graph: DirectGraph) -> None:
    """By their numbers, parallel arcs apart and self-loops kept; degree and size are as they should be."""
    arcs, lines = arcs_of(graph), line_graph(graph)
    expected = [(a, b) for a, (_, head) in enumerate(arcs) for b, (tail, _) in enumerate(arcs) if head == tail]
    assert arcs_of(lines) == expected
    assert (lines.num_nodes, lines.degree) == (graph.num_nodes * graph.degree, graph.degree)
    assert lines.num_self_loops == graph.num_self_loops
    if graph.degree > 1:
        assert lines.diameter == graph.diameter + 1
    assert arcs_of(line_graph(graph, 2)) == arcs_of(line_graph(lines))


@given(regular_graphs(max_nodes=6))
@settings(max_examples=examples(40))
def test_degree_expansions_join_all_copies(graph: DirectGraph) -> None:
    """Copy i of node v is number 3 v + i; self-loops are refused."""
    if graph.num_self_loops:
        with pytest.raises(UnsupportedError, match="random has a self-loop at node"):
            degree_expansion(graph, 3)
        return
    expected = Counter(
        (3 * tail + i, 3 * head + j) for tail, head in arcs_of(graph) for i in range(3) for j in range(3)
    )
    expanded = degree_expansion(graph, 3)
    assert Counter(arcs_of(expanded)) == expected
    assert expanded.degree == 3 * graph.degree


@given(regular_graphs(max_nodes=5), regular_graphs(max_nodes=5))
@settings(max_examples=examples(40))
def test_products_change_one_entry_along_an_arc(left: DirectGraph, right: DirectGraph) -> None:
    """Pair (x, y) is number x N + y; parallel arcs and self-loops of both stay."""
    size = right.num_nodes
    expected = Counter((tail * size + y, head * size + y) for tail, head in arcs_of(left) for y in range(size))
    expected += Counter(
        (x * size + tail, x * size + head) for x in range(left.num_nodes) for tail, head in arcs_of(right)
    )
    product = cartesian_product(left, right)
    assert Counter(arcs_of(product)) == expected
    assert product.degree == left.degree + right.degree
    assert product.diameter == left.diameter + right.diameter


def test_products_agree_with_networkx_and_are_associative() -> None:
    """Three factors of different sizes, multiplied in either order of operations."""
    pair = DirectGraph.from_arcs(2, [(0, 1), (1, 0)], "K(2)")
    product = cartesian_product(pair, TRIANGLE, COMPLETE)
    assert arcs_of(product) == arcs_of(cartesian_product(pair, cartesian_product(TRIANGLE, COMPLETE)))
    known = [nx.DiGraph(arcs_of(graph)) for graph in (pair, TRIANGLE, COMPLETE)]
    multiply: Any = nx.cartesian_product
    expected = multiply(multiply(known[0], known[1]), known[2])
    numbers = {((x, y), z): (x * 3 + y) * 3 + z for x in range(2) for y in range(3) for z in range(3)}
    assert arcs_of(product) == sorted((numbers[tail], numbers[head]) for tail, head in expected.edges)


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
    """Kautz graphs, Hamming graphs, hypercubes, tori, rings."""
    assert isomorphism(made(), known().direct_graph()) is not None  # type: ignore[arg-type]


def test_parallel_and_opposite_arcs_are_counted() -> None:
    """Each arc so often, or each with its opposite."""
    assert Counter(arcs_of(parallel(TRIANGLE, 3))) == dict.fromkeys(arcs_of(TRIANGLE), 3)
    both = Counter(arcs_of(TRIANGLE)) + Counter(arcs_of(TRIANGLE.transpose()))
    assert Counter(arcs_of(bidirectional(TRIANGLE))) == both
    assert Counter(arcs_of(bidirectional(COMPLETE))) == dict.fromkeys(arcs_of(COMPLETE), 2)


def test_names_are_put_together_as_the_paper_writes_them() -> None:
    """With parentheses where they are needed, and only there."""
    diamonds = diamond().direct_graph().renamed("Diamond")
    square = cartesian_power(diamonds, 2)
    names = {
        "L(K(3))": line_graph(COMPLETE),
        "L^3(K(3))": line_graph(line_graph(COMPLETE), 2),
        "Diamond^□2": square,
        "L^2(Diamond^□2)": line_graph(line_graph(square)),
        "K(3) □ UniRing(1, 3)^□2": cartesian_product(COMPLETE, cartesian_power(TRIANGLE, 2)),
        "(K(3) □ UniRing(1, 3))^□2": cartesian_power(cartesian_product(COMPLETE, TRIANGLE), 2),
        "L(K(3) □ UniRing(1, 3))": line_graph(cartesian_product(COMPLETE, TRIANGLE)),
        "L(K(3)) □ L(K(3))": cartesian_product(line_graph(COMPLETE), line_graph(COMPLETE)),
        "L(L(K(3)) □ L(K(3)))": line_graph(cartesian_product(line_graph(COMPLETE), line_graph(COMPLETE))),
        "UniRing(1, 3)*2": degree_expansion(TRIANGLE, 2),
        "(UniRing(1, 3)*2)*3": degree_expansion(degree_expansion(TRIANGLE, 2), 3),
        "L^2(K(3))*2": degree_expansion(line_graph(COMPLETE, 2), 2),
        "(Diamond^□2)^□2": cartesian_power(square, 2),
        "2·K(3)": parallel(COMPLETE, 2),
        "K(3) ∪ K(3)^T": bidirectional(COMPLETE),
        "(K(3) ∪ K(3)^T) □ K(3)": cartesian_product(bidirectional(COMPLETE), COMPLETE),
    }
    assert {name: graph.name for name, graph in names.items()} == {name: name for name in names}


def test_one_time_one_copy_one_factor_change_nothing() -> None:
    """The same arcs; of degree expansion too."""
    for graph in (
        degree_expansion(COMPLETE, 1),
        cartesian_power(COMPLETE, 1),
        cartesian_product(COMPLETE),
        parallel(COMPLETE, 1),
    ):
        assert arcs_of(graph) == arcs_of(COMPLETE)


def test_the_line_graph_of_an_irregular_graph_is_refused() -> None:
    """Naming where it is irregular."""
    path = DirectGraph.from_arcs(3, [(0, 1), (1, 0), (1, 2), (2, 1)], "path")
    with pytest.raises(UnsupportedError, match="path is not regular: 1 arcs leave node 0, 2 leave and 2 enter node 1"):
        line_graph(path)


@pytest.mark.parametrize(
    ("expand", "message"),
    [
        (lambda: line_graph(COMPLETE, 20), r"L\^20\(K\(3\)\) would have 6291456 links"),
        (lambda: degree_expansion(COMPLETE, 1000), r"K\(3\)\*1000 would have 6000000 links"),
        (lambda: cartesian_power(COMPLETE, 12), r"K\(3\)\^□12 would have 12754584 links"),
        (lambda: cartesian_product(*[COMPLETE] * 60), "links; expected at most 1048576"),
        (lambda: parallel(COMPLETE, 65536 * 16), "times is 1048576"),
        (lambda: parallel(parallel(COMPLETE, 60000), 60), "would have 21600000 links"),
        (lambda: line_graph(COMPLETE, 0), "times is 0"),
        (lambda: degree_expansion(COMPLETE, 1.5), "copies is 1.5"),  # type: ignore[arg-type]
        (lambda: cartesian_power(COMPLETE, True), "n is True"),
    ],
)
def test_sizes_that_make_no_sense_are_refused_before_anything_is_built(
    expand: Callable[[], DirectGraph], message: str
) -> None:
    """Too many links, or not a number of times."""
    with pytest.raises(TopologyError, match=message):
        expand()


def test_what_is_no_graph_is_refused() -> None:
    """A topology is not a graph, and no graphs have no product."""
    expansions: tuple[Callable[[Any], DirectGraph], ...] = (line_graph, bidirectional, cartesian_product)
    for expand in expansions:
        with pytest.raises(UnsupportedError, match="expected a DirectGraph"):
            expand(complete(3))
    with pytest.raises(UnsupportedError, match="at least one"):
        cartesian_product()
