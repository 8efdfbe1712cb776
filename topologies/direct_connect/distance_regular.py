"""Distance-regular graphs of degree 4, many of them from finite geometries.

A geometry is given by its lines, each a tuple of point numbers.
"""

from collections.abc import Callable, Iterable
from itertools import combinations, product
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ...errors import TopologyError
from ...support.arrays import IntArray
from ...support.quantities import Exact
from ...support.validation import as_size
from ..network.topology import Topology
from .arcs import bidirectional_arcs, topology_from_arcs

Lines = list[tuple[int, ...]]
Edges = list[tuple[int, int]]

PRODUCTS_GF4 = ((0, 0, 0, 0), (0, 1, 2, 3), (0, 2, 3, 1), (0, 3, 1, 2))
"""The field of 4 elements, 2 and 3 being the roots of x**2 + x + 1; addition is exclusive or."""

HEXAGON_LINES = (
    ((1, 2), (3, 4)),
    ((5, 4), (3, 2)),
    ((2, 0), (3, 5)),
    ((6, 5), (3, 0)),
    ((0, 1), (3, 6)),
    ((4, 6), (3, 1)),
)
"""Pairs of Grassmann coordinates that agree on the lines of the split Cayley hexagon, after Tits."""


def incidence_edges(lines: Lines) -> Edges:
    """Return an edge between every point and every line through it; lines are numbered after the points."""
    points = 1 + max(map(max, lines))
    return [(point, points + number) for number, line in enumerate(lines) for point in line]


def projective_plane(order: int) -> Lines:
    """Return the lines of the projective plane PG(2, q) for a prime q: the points orthogonal to each point."""
    points = _projective_points(3, order)
    return [tuple(np.flatnonzero(points @ line % order == 0).tolist()) for line in points]


def affine_plane_of_order_4() -> Lines:
    """Return the lines y = m x + b of AG(2, 4): all but those of one parallel class.  Point (x, y) is 4 x + y."""
    return [tuple(4 * x + (PRODUCTS_GF4[m][x] ^ b) for x in range(4)) for m, b in product(range(4), repeat=2)]


def symplectic_quadrangle(order: int) -> Lines:
    """Return the lines of the generalized quadrangle W(q), q prime: x0 y1 - x1 y0 + x2 y3 - x3 y2 = 0 in PG(3, q)."""
    points = _projective_points(4, order)
    form = np.array([[0, 1, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 1], [0, 0, -1, 0]])
    return _lines_through(points @ form @ points.T % order == 0)


def split_cayley_hexagon(order: int) -> Lines:
    """Return the lines of the generalized hexagon H(q), q prime, on x0 x4 + x1 x5 + x2 x6 = x3**2 in PG(6, q).

    Grassmann coordinates of its lines satisfy six equations, after Tits and as in Van Maldeghem's "Generalized
    Polygons".
    """
    space = _projective_points(7, order)
    x0, x1, x2, x3, x4, x5, x6 = space.T
    points = space[(x0 * x4 + x1 * x5 + x2 * x6 - x3 * x3) % order == 0]
    # Two points are joined if they are orthogonal, and their Grassmann coordinates agree.
    polar = points[:, [4, 5, 6, 3, 0, 1, 2]] * [1, 1, 1, -2, 1, 1, 1]
    joined = points @ polar.T % order == 0
    for one, other in HEXAGON_LINES:
        joined &= (_grassmann(points, *one) - _grassmann(points, *other)) % order == 0
    return _lines_through(joined)


def _projective_points(size: int, order: int) -> IntArray:
    """Return the vectors over the prime field whose first nonzero entry is 1, shape (points, size)."""
    vectors = [vector for vector in product(range(order), repeat=size) if next(filter(None, vector), 0) == 1]
    return np.array(vectors, dtype=np.int64)


def _grassmann(points: IntArray, row: int, column: int) -> IntArray:
    """Return the minors of two coordinates for all pairs of points, shape (points, points)."""
    minor: IntArray = np.multiply.outer(points[:, row], points[:, column])
    return minor - minor.T


def _lines_through(joined: npt.NDArray[np.bool_]) -> Lines:
    """Return the lines of a geometry without triangles from its collinearity matrix, shape (points, points)."""
    pairs = np.argwhere(np.triu(joined, 1))
    return sorted({tuple(np.flatnonzero(joined[one] & joined[other]).tolist()) for one, other in pairs})


Node = TypeVar("Node")


class DistanceRegularGraph(NamedTuple):
    """A row of Table 8: `title` as printed there, `edges` the function that lists its links, each once."""

    title: str
    edges: Callable[[], Edges]


def distance_regular(n: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Distance-regular graph of degree 4 with n compute nodes, one of fifteen.

    The number of nodes at distances i and j from two nodes depends only on i, j and the distance of these two
    (direct-connect paper, Definition 17); so breadth-first broadcasts are bandwidth-optimal (section F.3).

    Parameters
    ----------
    n : int
        6, 9, 10, 14, 15, 16, 21, 26, 32, 35, 45, 70, 80, 189 or 728; `DISTANCE_REGULAR` has their titles.
    bandwidth, latency : int, float, str or Fraction
        GB/s and µs of each link, in each direction.

    Examples
    --------
    >>> distance_regular(32).graph.diameter, DISTANCE_REGULAR[32].title
    (4, 'Incidence graph of AG(2,4) minus a parallel class')
    """
    n = as_size(n, "n", low=2)
    if n not in DISTANCE_REGULAR:
        raise TopologyError(
            f"n is {n}, for which there is no distance-regular graph here; expected one of "
            f"{', '.join(map(str, DISTANCE_REGULAR))}"
        )
    arcs = bidirectional_arcs(DISTANCE_REGULAR[n].edges())
    return topology_from_arcs(n, arcs, f"DistReg(4, {n})", bandwidth, latency)


def _hamming_edges(words: Iterable[tuple[int, ...]]) -> Edges:
    """Return the edges between words that differ in one place."""
    return _edges_where(list(words), lambda one, other: sum(a != b for a, b in zip(one, other, strict=True)) == 1)


def _kneser_edges(size: int, points: int) -> Edges:
    """Return the edges of a Kneser graph: subsets of `size` of `points`, adjacent if disjoint."""
    return _edges_where([frozenset(part) for part in combinations(range(points), size)], frozenset.isdisjoint)


def _edges_where(nodes: list[Node], rule: Callable[[Node, Node], bool]) -> Edges:
    return [(one, other) for one, other in combinations(range(len(nodes)), 2) if rule(nodes[one], nodes[other])]


def _line_graph(edges: Edges) -> Edges:
    """Return the edges of the undirected line graph."""
    return _edges_where([frozenset(edge) for edge in edges], lambda one, other: bool(one & other))


def _bipartite_double(edges: Edges, nodes: int) -> Edges:
    """Return the edges of the bipartite double graph."""
    return [(tail, nodes + head) for pair in edges for tail, head in (pair, pair[::-1])]


def _heawood_distance_3() -> Edges:
    """Return the pairs of a point and a line of PG(2, 2) that are not incident."""
    return [
        (point, 7 + number)
        for number, line in enumerate(projective_plane(2))
        for point in range(7)
        if point not in line
    ]


DISTANCE_REGULAR = {
    6: DistanceRegularGraph("Octahedron J(4,2)", lambda: _edges_where([*range(6)], lambda a, b: b - a != 3)),
    9: DistanceRegularGraph("Paley graph P9≅H(2,3)", lambda: _hamming_edges(product(range(3), repeat=2))),
    10: DistanceRegularGraph("K5,5-I", lambda: [(a, 5 + b) for a, b in product(range(5), repeat=2) if a != b]),
    14: DistanceRegularGraph("Distance-3 graph of Heawood graph", _heawood_distance_3),
    15: DistanceRegularGraph("Line graph of Petersen graph", lambda: _line_graph(_kneser_edges(2, 5))),
    16: DistanceRegularGraph("4-cube Q4≅H(4,2)", lambda: _hamming_edges(product(range(2), repeat=4))),
    21: DistanceRegularGraph("Line graph of Heawood graph", lambda: _line_graph(incidence_edges(projective_plane(2)))),
    26: DistanceRegularGraph("Incidence graph of PG(2,3)", lambda: incidence_edges(projective_plane(3))),
    32: DistanceRegularGraph(
        "Incidence graph of AG(2,4) minus a parallel class", lambda: incidence_edges(affine_plane_of_order_4())
    ),
    35: DistanceRegularGraph("Odd graph O4", lambda: _kneser_edges(3, 7)),
    45: DistanceRegularGraph(
        "Line graph of Tutte's 8-cage", lambda: _line_graph(incidence_edges(symplectic_quadrangle(2)))
    ),
    70: DistanceRegularGraph("Doubled Odd Graph D(O4)", lambda: _bipartite_double(_kneser_edges(3, 7), 35)),
    80: DistanceRegularGraph("Incidence graph of GQ(3,3)", lambda: incidence_edges(symplectic_quadrangle(3))),
    189: DistanceRegularGraph(
        "Line graph of Tutte's 12-cage", lambda: _line_graph(incidence_edges(split_cayley_hexagon(2)))
    ),
    728: DistanceRegularGraph("Incidence graph of GH(3,3)", lambda: incidence_edges(split_cayley_hexagon(3))),
}
"""The rows of Table 8 of the direct-connect paper by their numbers of nodes."""
