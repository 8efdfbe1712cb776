"""Points and lines of finite geometries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations

import networkx as nx
import pytest

from collopt.topologies.direct_connect.distance_regular import (
    PRODUCTS_GF4,
    Lines,
    affine_plane_of_order_4,
    incidence_edges,
    projective_plane,
    split_cayley_hexagon,
    symplectic_quadrangle,
)


@pytest.mark.parametrize(
    ("geometry", "order", "points", "gonality"),
    [
        (projective_plane, 2, 7, 3),
        (projective_plane, 3, 13, 3),
        (symplectic_quadrangle, 2, 15, 4),
        (symplectic_quadrangle, 3, 40, 4),
        (split_cayley_hexagon, 2, 63, 6),
        (split_cayley_hexagon, 3, 364, 6),
    ],
)
def test_incidence_graphs_of_generalized_polygons_have_twice_their_diameter_as_girth(
    geometry: Callable[[int], Lines], order: int, points: int, gonality: int
) -> None:
    """Which defines a generalized n-gon; order (q, q) means q + 1 points on each line and lines through each point."""
    lines = geometry(order)
    assert len(lines) == points
    assert {len(set(line)) for line in lines} == {order + 1}
    assert Counter(Counter(point for line in lines for point in line).values()) == {order + 1: points}
    graph = nx.Graph(incidence_edges(lines))
    assert nx.diameter(graph) == gonality
    assert nx.girth(graph) == 2 * gonality


def test_lines_of_the_affine_plane_meet_once_unless_they_are_parallel() -> None:
    """Four classes of four parallel lines; the class x = constant is left out."""
    lines = affine_plane_of_order_4()
    assert len(set(lines)) == 16
    common = Counter(len(set(one) & set(other)) for one, other in combinations(lines, 2))
    assert common == {0: 4 * 6, 1: 6 * 16}
    columns = [{4 * x + y for y in range(4)} for x in range(4)]
    assert all(len(column & set(line)) == 1 for column in columns for line in lines)


def test_the_field_of_four_elements_has_inverses_and_distributes() -> None:
    """Over addition, which is exclusive or."""
    for a in range(4):
        assert a == 0 or sorted(PRODUCTS_GF4[a]) == [0, 1, 2, 3]
        for b in range(4):
            assert PRODUCTS_GF4[a][b] == PRODUCTS_GF4[b][a]
            for c in range(4):
                assert PRODUCTS_GF4[a][b ^ c] == PRODUCTS_GF4[a][b] ^ PRODUCTS_GF4[a][c]
                assert PRODUCTS_GF4[PRODUCTS_GF4[a][b]][c] == PRODUCTS_GF4[a][PRODUCTS_GF4[b][c]]
