"""Figures of generalized Kautz graphs by arithmetic, against breadth-first search and all sets of links."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import UnsupportedError
from collopt.planners.direct_connect.bfb import bfb_cost
from collopt.solvers.steps.graph_costs import kautz_figures
from collopt.topologies import DirectGraph
from sample_sizes import examples


def kautz_graph(degree: int, size: int) -> DirectGraph:
    """Definition 16, written out."""
    arcs = [(x, (-degree * x - a) % size) for x in range(size) for a in range(1, degree + 1)]
    return DirectGraph.from_arcs(size, arcs, f"Π({degree}, {size})")


def figures_by_subsets(graph: DirectGraph) -> tuple[int, Fraction, int]:
    """The largest c(S) / |S| over every set S of arcs into every node, at every distance."""
    distances, degree = graph.distances, graph.degree
    loads = [Fraction(0)] * (graph.diameter + 1)
    for node in range(graph.num_nodes):
        tails = graph.tails[graph.heads == node]
        for hops in range(1, graph.diameter + 1):
            sources = distances[:, node] == hops
            masks = [
                sum(1 << int(bit) for bit in (distances[source, tails] == hops - 1).nonzero()[0])
                for source in sources.nonzero()[0]
            ]
            for chosen in range(1, 1 << degree):
                inside = sum(mask & ~chosen == 0 for mask in masks)
                loads[hops] = max(loads[hops], Fraction(inside, chosen.bit_count()))
    return graph.diameter, Fraction(degree, graph.num_nodes) * sum(loads), int(distances.sum())


@pytest.mark.parametrize(("degree", "largest"), [(2, 40), (3, 40), (4, 30), (5, 16)])
def test_all_small_graphs_agree_with_the_sets_of_links(degree: int, largest: int) -> None:
    """T_L, T_B and the sum of distances, self-loops or not."""
    for size in range(degree + 1, largest + 1):
        assert kautz_figures(degree, size) == figures_by_subsets(kautz_graph(degree, size)), size


@given(st.integers(2, 16), st.integers(18, 400))
@settings(max_examples=examples(25))
def test_larger_graphs_agree_with_the_general_kernel(degree: int, size: int) -> None:
    """At any degree."""
    graph = kautz_graph(degree, size)
    steps, factor, hops = kautz_figures(degree, size)
    assert (steps, factor) == bfb_cost(graph)
    assert hops == graph.distances.sum()


def test_figures_of_the_paper() -> None:
    """Tables 4 and 7, as fractions."""
    assert kautz_figures(4, 1024)[:2] == (5, Fraction(341, 256))
    assert kautz_figures(4, 64)[:2] == (3, Fraction(21, 16))


@pytest.mark.parametrize(("degree", "size"), [(1, 5), (4, 4), (2, 10**6)])
def test_graphs_that_there_are_not_are_refused(degree: int, size: int) -> None:
    """In one sentence."""
    with pytest.raises(UnsupportedError, match="expected a degree of 2 or more"):
        kautz_figures(degree, size)
