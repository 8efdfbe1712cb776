"""Edge coloring of bipartite graphs with alternating paths (König, 1916)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count


def edge_coloring(edges: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Color the edges of a bipartite graph so that none of one color meet, with as many colors as the largest degree.

    An edge gets a color a that its left vertex lacks.  If its right vertex has a but lacks b, a and b change places on
    the path of these colors that starts there; it cannot end at the left vertex, which it would reach by color a.

    >>> edge_coloring([(0, 1), (1, 2), (2, 0), (0, 2)])
    {(0, 1): 0, (1, 2): 0, (2, 0): 0, (0, 2): 1}
    """
    colors: dict[tuple[int, int], int] = {}
    # The other end of the edge of a color, by vertex: left ones first, then right ones.
    ends: tuple[dict[tuple[int, int], int], ...] = ({}, {})
    for left, right in edges:
        here = next(color for color in count() if (left, color) not in ends[0])
        there = next(color for color in count() if (right, color) not in ends[1])
        path, vertex, side, color = [], right, 1, here
        while here != there and (vertex, color) in ends[side]:
            other = ends[side][vertex, color]
            path.append(((vertex, other) if side == 0 else (other, vertex), here + there - color))
            vertex, side, color = other, 1 - side, here + there - color
        for edge, _ in path:
            for side in (0, 1):
                ends[side].pop((edge[side], colors[edge]), None)
        for edge, color in [*path, ((left, right), here)]:
            colors[edge] = color
            for side in (0, 1):
                ends[side][edge[side], color] = edge[1 - side]
    return colors
