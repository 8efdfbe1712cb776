"""Points and lines of finite geometries, the source of many distance-regular graphs.

A geometry is given by its lines, each a tuple of point numbers.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt

__all__ = [
    "affine_plane_of_order_4",
    "incidence_edges",
    "projective_plane",
    "split_cayley_hexagon",
    "symplectic_quadrangle",
]

Lines = list[tuple[int, ...]]
Edges = list[tuple[int, int]]
IntArray = npt.NDArray[np.int64]

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
    """Return an edge between every point and every line through it; lines are numbered after the points.

    Examples
    --------
    >>> incidence_edges([(0, 1), (1, 2)])
    [(0, 3), (1, 3), (1, 4), (2, 4)]
    """
    points = 1 + max(map(max, lines))
    return [(point, points + number) for number, line in enumerate(lines) for point in line]


def projective_plane(order: int) -> Lines:
    """Return the lines of PG(2, q) for a prime q; each is the set of points orthogonal to one point."""
    points = _projective_points(3, order)
    return [tuple(np.flatnonzero(points @ line % order == 0).tolist()) for line in points]


def affine_plane_of_order_4() -> Lines:
    """Return the lines y = m x + b of AG(2, 4): all but those of one parallel class.  Point (x, y) is 4 x + y."""
    return [tuple(4 * x + (PRODUCTS_GF4[m][x] ^ b) for x in range(4)) for m, b in product(range(4), repeat=2)]


def symplectic_quadrangle(order: int) -> Lines:
    """Return the lines of the generalized quadrangle W(q), of order (q, q), for a prime q.

    Its points are those of PG(3, q), its lines those with x0 y1 - x1 y0 + x2 y3 - x3 y2 = 0 for all points x, y.
    """
    points = _projective_points(4, order)
    form = np.array([[0, 1, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 1], [0, 0, -1, 0]])
    return _lines_through(points @ form @ points.T % order == 0)


def split_cayley_hexagon(order: int) -> Lines:
    """Return the lines of the generalized hexagon H(q), of order (q, q), for a prime q.

    Its points are those of the quadric x0 x4 + x1 x5 + x2 x6 = x3**2 in PG(6, q).  Its lines are the lines on the
    quadric whose Grassmann coordinates satisfy six equations, after Tits and as in Van Maldeghem's book "Generalized
    Polygons".
    """
    space = _projective_points(7, order)
    x0, x1, x2, x3, x4, x5, x6 = space.T
    points = space[(x0 * x4 + x1 * x5 + x2 * x6 - x3 * x3) % order == 0]
    polar = points[:, [4, 5, 6, 3, 0, 1, 2]] * [1, 1, 1, -2, 1, 1, 1]
    joined = points @ polar.T % order == 0
    for one, other in HEXAGON_LINES:
        joined &= (_grassmann(points, *one) - _grassmann(points, *other)) % order == 0
    return _lines_through(joined)


def _projective_points(size: int, order: int) -> IntArray:
    """Vectors over the prime field whose first entry other than 0 is 1, shape (points, size)."""
    vectors = [vector for vector in product(range(order), repeat=size) if next(filter(None, vector), 0) == 1]
    return np.array(vectors, dtype=np.int64)


def _grassmann(points: IntArray, row: int, column: int) -> IntArray:
    """Minor of two coordinates for every two points, shape (points, points)."""
    minor: IntArray = np.multiply.outer(points[:, row], points[:, column])
    return minor - minor.T


def _lines_through(joined: npt.NDArray[np.bool_]) -> Lines:
    """Lines of a geometry without triangles: with two joined points, all that are joined to both."""
    pairs = np.argwhere(np.triu(joined, 1))
    return sorted({tuple(np.flatnonzero(joined[one] & joined[other]).tolist()) for one, other in pairs})
