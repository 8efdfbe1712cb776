"""Isomorphisms are found and right, and only denied where there are none."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import NoAnswerError, UnsupportedError
from collopt.topologies import (
    DirectGraph,
    automorphisms,
    bidirectional_ring,
    cartesian_power,
    circulant,
    complete,
    de_bruijn,
    diamond,
    generalized_kautz,
    hypercube,
    isomorphism,
    kautz,
    line_graph,
    unidirectional_ring,
)
from collopt.topologies.symmetry import isomorphism as isomorphism_search
from collopt.topologies.symmetry.isomorphism import preserves_arcs
from graph_symmetry import orbits
from regular_graphs import BASES, regular_graphs, renumbered
from sample_sizes import examples


@st.composite
def any_graphs(draw: st.DrawFn) -> DirectGraph:
    """Small graphs, regular or not, connected or not."""
    nodes = draw(st.integers(2, 5))
    node = st.integers(0, nodes - 1)
    return DirectGraph.from_arcs(nodes, draw(st.lists(st.tuples(node, node), min_size=1, max_size=8)), "random")


def mappings(graph: DirectGraph, other: DirectGraph) -> list[tuple[int, ...]]:
    """All isomorphisms, by trying every permutation."""
    arcs = sorted(zip(other.tails.tolist(), other.heads.tolist(), strict=True))
    pairs = list(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True))
    return [
        order
        for order in permutations(range(graph.num_nodes))
        if sorted((order[tail], order[head]) for tail, head in pairs) == arcs
    ]


@given(any_graphs(), any_graphs())
@settings(max_examples=examples(150))
def test_small_graphs_are_told_apart_as_by_brute_force(graph: DirectGraph, other: DirectGraph) -> None:
    """Also a graph and its transpose, which have more in common."""
    for second in (other, graph.transpose()):
        if graph.num_nodes == second.num_nodes:
            known, found = mappings(graph, second), isomorphism(graph, second)
            assert tuple(found.tolist()) in known if found is not None else not known


@given(any_graphs())
@settings(max_examples=examples(100))
def test_orbits_are_those_of_all_automorphisms(graph: DirectGraph) -> None:
    """Each labelled by its least node."""
    known = mappings(graph, graph)
    assert orbits(graph).tolist() == [min(each[node] for each in known) for node in range(graph.num_nodes)]
    found = automorphisms(graph)
    assert {tuple(each) for each in found.tolist()} <= set(known)
    # Each one makes at least two orbits one.
    assert len(found) <= graph.num_nodes - len(np.unique(orbits(graph)))


@given(regular_graphs(max_nodes=12), st.integers(0, 1000))
@settings(max_examples=examples(60))
def test_renumbered_graphs_are_recognised(graph: DirectGraph, seed: int) -> None:
    """The mapping takes arcs to arcs, as often as they are there."""
    other = renumbered(graph, seed)
    found = isomorphism(graph, other)
    assert found is not None
    arcs = sorted(zip(found[graph.tails].tolist(), found[graph.heads].tolist(), strict=True))
    assert arcs == list(zip(other.tails.tolist(), other.heads.tolist(), strict=True))


LARGE: dict[str, Callable[[], DirectGraph]] = {
    "hypercube(10)": lambda: hypercube(10).direct_graph(),
    "DBJ(4, 5)": lambda: de_bruijn(4, 5).direct_graph(),
    "K(4, 4)": lambda: kautz(4, 4).direct_graph(),
    "Pi(4, 100)": lambda: generalized_kautz(4, 100).direct_graph(),
    "Pi(4, 1000)": lambda: generalized_kautz(4, 1000).direct_graph(),
    "C(1024, {22, 23})": lambda: circulant(1024, (22, 23)).direct_graph(),
    "L(UniRing(4, 64))": lambda: line_graph(unidirectional_ring(4, 64).direct_graph()),
    "L(Diamond^2)": lambda: line_graph(cartesian_power(diamond().direct_graph(), 2)),
}


@pytest.mark.parametrize("made", LARGE.values(), ids=LARGE.keys())
def test_large_graphs_are_recognised(made: Callable[[], DirectGraph]) -> None:
    """Symmetric ones, where nothing tells nodes apart at first, ones without symmetry, and ones with many twins."""
    graph = made()
    other = renumbered(graph, 7)
    found = isomorphism(graph, other)
    assert found is not None
    assert preserves_arcs(graph, other, found)


@pytest.mark.parametrize(
    ("graph", "count"),
    [
        (lambda: de_bruijn(4, 4).direct_graph(), 15),
        (lambda: line_graph(circulant(16, (3, 4)).direct_graph(), 3), 32),
        (lambda: cartesian_power(diamond().direct_graph(), 2), 15),
        (lambda: line_graph(cartesian_power(diamond().direct_graph(), 2)), 40),
        (lambda: hypercube(7).direct_graph(), 1),
    ],
)
def test_known_numbers_of_orbits(graph: Callable[[], DirectGraph], count: int) -> None:
    """Of de Bruijn graphs, those of words under renaming letters: set partitions of 4 places."""
    assert len(np.unique(orbits(graph()))) == count


def test_graphs_that_look_alike_to_refinement_are_told_apart() -> None:
    """The 4 x 4 rook's graph and the Shrikhande graph: strongly regular, with the same parameters."""
    rook = cartesian_power(complete(4).direct_graph(), 2)
    steps = [(0, 1), (0, 3), (1, 0), (3, 0), (1, 1), (3, 3)]
    shrikhande = DirectGraph.from_arcs(
        16,
        [(4 * a + b, 4 * ((a + x) % 4) + (b + y) % 4) for a in range(4) for b in range(4) for x, y in steps],
        "Shrikhande",
    )
    assert isomorphism(rook, shrikhande) is None
    assert isomorphism(shrikhande, renumbered(shrikhande, 3)) is not None
    assert not orbits(shrikhande).any()


def test_graphs_of_different_sizes_are_not_isomorphic() -> None:
    """In nodes, in arcs, or only in how the arcs are parallel."""
    ring, larger = bidirectional_ring(2, 4).direct_graph(), bidirectional_ring(2, 5).direct_graph()
    doubled = DirectGraph.from_arcs(4, [(0, 1), (0, 1), (1, 0), (1, 0), (2, 3), (2, 3), (3, 2), (3, 2)], "doubled")
    assert isomorphism(ring, larger) is None
    assert isomorphism(ring, complete(4).direct_graph()) is None
    assert isomorphism(ring, doubled) is None
    assert not preserves_arcs(ring, larger, np.arange(4))


def test_a_search_that_takes_too_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than answering that there is no isomorphism."""
    monkeypatch.setattr(isomorphism_search, "MAX_ATTEMPTS", 2)
    cube = hypercube(4).direct_graph()
    with pytest.raises(NoAnswerError, match="2 attempts"):
        isomorphism(cube, renumbered(cube, 1))


@pytest.mark.parametrize("graph", BASES, ids=lambda graph: graph.name)
def test_orbits_agree_with_an_isomorphism_that_maps_one_node_to_another(graph: DirectGraph) -> None:
    """Nodes of one orbit see the same numbers of nodes at each distance."""
    labels = orbits(graph)
    seen = [tuple(np.bincount(row, minlength=graph.diameter + 1).tolist()) for row in graph.distances]
    assert all(seen[node] == seen[label] for node, label in enumerate(labels.tolist()))
    assert all(label <= node for node, label in enumerate(labels.tolist()))


def test_what_is_no_graph_is_refused() -> None:
    """Topologies have to be read first."""
    with pytest.raises(UnsupportedError, match="expected a DirectGraph"):
        isomorphism(complete(3), complete(3))  # type: ignore[arg-type]
