"""Twisted tori and twisted hypercubes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from collopt.errors import TopologyError
from collopt.topologies import Topology, hypercube, torus, twisted_hypercube, twisted_torus


def pairs(topology: Topology) -> set[tuple[int, int]]:
    """Tails and heads."""
    graph = topology.direct_graph()
    return set(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True))


@pytest.mark.parametrize("shape", [(3, 4), (5, 3), (2, 6)])
def test_without_a_twist_it_is_the_torus(shape: tuple[int, int]) -> None:
    """The same links in the same numbering."""
    ours, plain = twisted_torus(*shape, twist=0).direct_graph(), torus(*shape).direct_graph()
    assert np.array_equal(ours.tails, plain.tails)
    assert np.array_equal(ours.heads, plain.heads)


@pytest.mark.parametrize(("rows", "columns", "twist"), [(3, 5, 2), (4, 8, 4), (2, 7, 3), (5, 4, 1)])
def test_the_twist_moves_links_that_go_round_the_first_dimension(rows: int, columns: int, twist: int) -> None:
    """Written out by coordinates."""
    expected = set()
    for row in range(rows):
        for column in range(columns):
            moved = column + (twist if row == rows - 1 else 0)
            for other in ((row, (column + 1) % columns), ((row + 1) % rows, moved % columns)):
                one, two = row * columns + column, other[0] * columns + other[1]
                expected |= {(one, two), (two, one)}
    assert pairs(twisted_torus(rows, columns, twist=twist)) == expected


def test_sizes_k_and_2_k_are_twisted_by_k() -> None:
    """Of two dimensions, whichever is the longer."""
    assert pairs(twisted_torus(3, 6)) == pairs(twisted_torus(3, 6, twist=3))
    place = np.arange(18).reshape(3, 6)
    turned = {(int(place.T.flat[a]), int(place.T.flat[b])) for a, b in pairs(twisted_torus(6, 3))}
    assert turned == pairs(twisted_torus(3, 6))


@pytest.mark.parametrize(("k", "diameter"), [(2, 3), (3, 4), (4, 6), (5, 7), (6, 9)])
def test_twisted_tori_of_three_dimensions_have_fewer_hops(k: int, diameter: int) -> None:
    """Both shapes of TPU v4; the untwisted ones have 2 k and 5 k / 2."""
    for shape in ((k, k, 2 * k), (k, 2 * k, 2 * k)):
        graph = twisted_torus(*shape).direct_graph()
        assert (graph.degree, graph.is_simple, graph.is_bidirectional) == (6, True, True)
        assert graph.diameter == diameter < torus(*shape).direct_graph().diameter


@pytest.mark.parametrize("shape", [(3, 6), (2, 2, 4), (3, 3, 6), (2, 4, 4), (3, 6, 6)])
def test_twisted_tori_look_the_same_from_every_node(shape: tuple[int, ...]) -> None:
    """They are Cayley graphs, so every node has as many nodes at each distance as any other."""
    distances = twisted_torus(*shape).direct_graph().distances
    counts = np.sort(distances, axis=1)
    assert (counts == counts[0]).all()


@pytest.mark.parametrize("dimension", range(3, 9))
def test_a_twisted_hypercube_crosses_two_links(dimension: int) -> None:
    """All others stay, and the diameter is smaller by one."""
    twisted, plain = twisted_hypercube(dimension), hypercube(dimension)
    assert pairs(plain) - pairs(twisted) == {(0, 1), (1, 0), (2, 3), (3, 2)}
    assert pairs(twisted) - pairs(plain) == {(0, 3), (3, 0), (1, 2), (2, 1)}
    assert twisted.direct_graph().diameter == dimension - 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (twisted_torus, r"the shape of the twisted torus is \[\]; expected sizes k and 2 k"),
        (lambda: twisted_torus(4, 4), r"is \[4, 4\]; expected sizes k and 2 k, both of them"),
        (lambda: twisted_torus(3, 4, 6), r"is \[3, 4, 6\]"),
        (lambda: twisted_torus(4, 1), "dimension 1 of the torus is 1; expected a whole number from 2"),
        (lambda: twisted_torus(4, True), "dimension 1 of the torus is True"),
        (lambda: twisted_torus(2, 2, 4, twist=2), r"twist goes with two dimensions; .* not \[2, 2, 4\]"),
        (lambda: twisted_torus(3, 5, twist=5), "twist is 5; expected a whole number from 0 to 4"),
        (lambda: twisted_torus(3, 5, twist=-1), "twist is -1"),
        (lambda: twisted_torus(3, 5, twist="1"), "twist is '1'"),
        (lambda: twisted_torus(100, 200, 200), r"number of nodes of TwistedTorus\(100, 200, 200\) is 4000000"),
        (lambda: twisted_hypercube(2), "dimension is 2; expected a whole number from 3 to 15"),
        (lambda: twisted_hypercube(16), "dimension is 16"),
    ],
)
def test_wrong_arguments_are_refused(call: Callable[[], Topology], message: str) -> None:
    """In one line that says what was expected."""
    with pytest.raises(TopologyError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
