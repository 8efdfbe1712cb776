"""Constructions of topologies: what they build is what they say."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from papers.direct_connect_tables import TABLES_4_AND_7, Printed

from collopt.planners.direct_connect.bases import bandwidth_optimal_bases, bases
from collopt.planners.direct_connect.bfb import bfb_cost, bfb_schedule
from collopt.planners.direct_connect.constructions import (
    Base,
    CartesianPower,
    CartesianProduct,
    Construction,
    DegreeExpansion,
    LineGraph,
    Parallel,
    Transpose,
    TwoWay,
    transposed,
)
from collopt.planners.direct_connect.costs import breadth_first_cost
from collopt.schedules import step_cost, verified_loads
from collopt.topologies import Topology, bandwidth_optimum, isomorphism
from graph_symmetry import is_reverse_symmetric

DIAMOND = Base("diamond", (), "Diamond")
KAUTZ = Base("generalized_kautz", (2, 9), "Π(2, 9)")
SQUARE = Base("complete_bipartite", (2,), "K(2, 2)")
TRIANGLE = Base("unidirectional_ring", (1, 3), "UniRing(1, 3)")

SIZES = [
    *((nodes, 4) for nodes in (2, 4, 5, 6, 7, 8, 9, 14, 15, 16, 21, 26, 32, 35, 45)),
    *((nodes, degree) for nodes in (2, 3, 4, 6, 8, 9, 16) for degree in (1, 2, 3)),
]


# Not a test per base: to list them at import compiles kernels, in every process that collects the tests.
@pytest.mark.parametrize(("nodes", "degree"), SIZES)
def test_bases_are_what_the_database_says(nodes: int, degree: int) -> None:
    """Size, hops, properties, and the cost of their schedules."""
    for base in bandwidth_optimal_bases(nodes, degree):  # of which Theorem 13 makes products
        assert base.entry.factor == bandwidth_optimum(nodes)
        assert base.entry.simple
        assert base.entry.breadth_first
    for base in bases(nodes, degree):
        entry, graph = base.entry, base.entry.construction.graph()
        assert (graph.num_nodes, graph.degree) == (nodes, degree), entry
        assert graph.name == entry.construction.name == entry.construction._graph().name
        assert graph.distances.sum() == entry.hops, entry
        assert (graph.is_simple, graph.num_self_loops == 0) == (entry.simple, entry.loop_free), entry
        assert graph.is_bidirectional == base.two_way or not base.two_way, entry
        if base.reverse_symmetric:
            assert is_reverse_symmetric(graph), entry
        back = entry.factor if entry.reduce_factor is None else entry.reduce_factor
        costs = ((entry.steps, entry.factor), (entry.steps, back))
        for schedule, cost in zip(
            (entry.construction.schedule(), entry.construction.schedule("reduce")), costs, strict=True
        ):
            verified_loads(schedule, Topology.from_graph(graph))
            assert step_cost(graph, schedule) == cost, entry


@pytest.mark.parametrize(
    ("construction", "name", "cost"),
    [
        (LineGraph(LineGraph(DIAMOND)), "L^2(Diamond)", (5, Fraction(7, 8) + Fraction(1, 8) + Fraction(1, 16))),
        (DegreeExpansion(SQUARE, 2), "K(2, 2)*2", (3, Fraction(7, 8))),
        (CartesianPower(DIAMOND, 2), "Diamond^□2", (6, Fraction(63, 64))),
        (CartesianProduct((SQUARE, SQUARE, TRIANGLE)), "K(2, 2)^□2 □ UniRing(1, 3)", (6, Fraction(47, 48))),
        (Parallel(DIAMOND, 3), "3·Diamond", (3, Fraction(7, 8))),
        (TwoWay(LineGraph(SQUARE)), "L(K(2, 2)) ∪ L(K(2, 2))^T", (3, 1)),
        (LineGraph(CartesianPower(SQUARE, 2)), "L(K(2, 2)^□2)", (5, Fraction(15, 16) + Fraction(1, 16))),
        (DegreeExpansion(LineGraph(DegreeExpansion(TRIANGLE, 2)), 2), "L(UniRing(1, 3)*2)*2", None),
        (CartesianPower(DegreeExpansion(TRIANGLE, 2), 2), "(UniRing(1, 3)*2)^□2", None),
        (Transpose(DIAMOND), "Diamond^T", (3, Fraction(7, 8))),
        (CartesianPower(Transpose(DIAMOND), 2), "(Diamond^T)^□2", (6, Fraction(63, 64))),
        (LineGraph(Transpose(KAUTZ)), "L(Π(2, 9)^T)", (4, Fraction(10, 9) + Fraction(1, 9))),
    ],
    ids=str,
)
def test_expansions_build_and_cost_what_the_theorems_say(
    construction: Construction, name: str, cost: tuple[int, Fraction] | None
) -> None:
    """Theorems 7, 11, 12 and 13, and appendix A.6."""
    assert construction.name == str(construction) == name
    graph, schedule = construction.graph(), construction.schedule()
    assert graph.name == name
    verified_loads(schedule, Topology.from_graph(graph))
    if cost is not None:
        assert step_cost(graph, schedule) == cost
    back = construction.schedule("reduce")
    assert back.direction == "reduce"
    verified_loads(back, Topology.from_graph(graph))
    if construction.reverse_symmetric or "Diamond" in name:
        assert step_cost(graph, back) == step_cost(graph, schedule)
    elif isinstance(construction, LineGraph):
        assert step_cost(graph, back) == (4, Fraction(14, 9) + Fraction(1, 9))


@pytest.mark.parametrize("base", [DIAMOND, Base("generalized_kautz", (2, 9), "Π(2, 9)"), SQUARE, TRIANGLE])
def test_transposed_constructions_build_transposed_graphs(base: Construction) -> None:
    """Up to the order of the nodes; those that are their own transpose stay as they are."""
    constructions: list[Construction] = [
        base,
        LineGraph(base),
        DegreeExpansion(base, 2),
        CartesianPower(base, 2),
        Parallel(base, 2),
        CartesianProduct((base, TRIANGLE)),
    ]
    for construction in constructions:
        turned = transposed(construction)
        assert (turned == construction) == construction.reverse_symmetric
        assert transposed(turned) == construction
        if base != DIAMOND or not isinstance(construction, CartesianProduct):
            assert isomorphism(turned.graph(), construction.graph().transpose()) is not None
    assert transposed(TwoWay(SQUARE)) == TwoWay(SQUARE)


@pytest.mark.parametrize(
    ("construction", "degree", "count"),
    [
        (TRIANGLE, 1, 1),
        (LineGraph(Base("complete", (4,), "K(4)")), 3, 3),
        (LineGraph(LineGraph(KAUTZ)), 2, 20),
        (DegreeExpansion(LineGraph(SQUARE), 2), 4, 3),
        (LineGraph(DegreeExpansion(TRIANGLE, 3)), 3, 3),
        (CartesianPower(DegreeExpansion(TRIANGLE, 2), 2), 4, 1),
        (CartesianPower(LineGraph(SQUARE), 2), 4, None),
        (CartesianProduct((SQUARE, TRIANGLE)), 3, 1),
        (CartesianProduct((DIAMOND, TRIANGLE)), 3, None),
        (Parallel(LineGraph(SQUARE), 2), 4, 2),
        (TwoWay(LineGraph(SQUARE)), 4, 2),
        (Transpose(KAUTZ), 2, 5),
        (LineGraph(Base("de_bruijn", (3, 1), "DBJ(3, 1)")), 3, 3),
        (Base("de_bruijn", (2, 3), "DBJ(2, 3)"), 2, None),
    ],
    ids=str,
)
def test_orbit_representatives_stand_for_all_nodes(construction: Construction, degree: int, count: int | None) -> None:
    """Every other node has the distances to it that one of them has, and broadcasts load them as they load all."""
    graph = construction.graph()
    assert (graph.degree, construction.orbit_representatives(degree)) == (degree, count)
    profiles = np.sort(graph.distances, axis=0).T
    first = {tuple(row) for row in profiles[:count].tolist()}
    assert {tuple(row) for row in profiles.tolist()} == first
    for each in (graph, graph.transpose()):
        assert breadth_first_cost(each, count) == bfb_cost(each)


def test_a_line_graph_can_do_better_than_theorem_10_says() -> None:
    """L(UniRing(1, 3)^□2) has a breadth-first broadcast of 17/18 M/B, where the theorem has 8/9 + 1/9 at best."""
    base = CartesianPower(TRIANGLE, 2)
    assert bfb_cost(base.graph()) == (4, Fraction(8, 9))
    graph = LineGraph(base).graph()
    assert bfb_cost(graph) == step_cost(graph, bfb_schedule(graph)) == (5, Fraction(17, 18))


@pytest.mark.parametrize(
    "row", [row for row in TABLES_4_AND_7 if row.nodes <= 128], ids=lambda row: str(row.construction)
)
def test_the_verified_schedules_of_tables_4_and_7_cost_what_is_printed(row: Printed) -> None:
    """T_L and T_B come from what the schedule puts on the links; 21/16 is printed as 1.312, rounded to even."""
    graph, schedule = row.construction.graph(), row.construction.schedule()
    assert (graph.num_nodes, graph.degree) == (row.nodes, 4)
    verified_loads(schedule, Topology.from_graph(graph))
    cost = step_cost(graph, schedule)
    assert (cost.steps, f"{float(cost.bandwidth_factor):.3f}") == (row.steps, row.decimals)
