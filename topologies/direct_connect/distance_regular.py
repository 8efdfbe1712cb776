"""Distance-regular graphs of degree 4: fifteen symmetric graphs with bandwidth-optimal broadcasts and few hops."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations, product
from typing import NamedTuple, TypeVar

from ...errors import TopologyError
from ...support.sizes_part import as_size
from ...support.validation import Exact
from ..network.direct_graph import DirectGraph
from ..network.topology import Topology
from .arcs import both_ways
from .finite_geometry import (
    affine_plane_of_order_4,
    incidence_edges,
    projective_plane,
    split_cayley_hexagon,
    symplectic_quadrangle,
)

__all__ = ["DISTANCE_REGULAR", "DistanceRegularGraph", "distance_regular"]

Edges = list[tuple[int, int]]
Node = TypeVar("Node")


class DistanceRegularGraph(NamedTuple):
    """A row of Table 8: `title` as printed there, `edges` the function that lists its links, each once."""

    title: str
    edges: Callable[[], Edges]


def distance_regular(n: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Distance-regular graph of degree 4 with n compute nodes, one of fifteen.

    Parameters
    ----------
    n : int
        6 (octahedron), 9 (Paley graph), 10 (K_{5,5} minus a matching), 14 (distance-3 graph of the Heawood graph),
        15 (line graph of the Petersen graph), 16 (4-cube), 21 (line graph of the Heawood graph), 26 (incidence graph
        of PG(2,3)), 32 (that of AG(2,4) minus a parallel class), 35 (odd graph O4), 45 (line graph of Tutte's 8-cage),
        70 (doubled odd graph), 80 (incidence graph of GQ(3,3)), 189 (line graph of Tutte's 12-cage) or 728 (incidence
        graph of GH(3,3)).
    bandwidth : int, float, str or Fraction
        GB/s of each link, in each direction.
    latency : int, float, str or Fraction
        Microseconds of each link.

    Returns
    -------
    Topology

    Raises
    ------
    TopologyError
        If a value is not usable, or the table has no such graph.

    Notes
    -----
    How many nodes are at distances i and j from two nodes depends only on i, j and how far these are from each other
    (direct-connect paper, Definition 17); so a broadcast breadth-first is bandwidth-optimal (section F.3).

    Examples
    --------
    >>> distance_regular(32)
    <Topology 'DistReg(4, 32)': 32 ranks, 128 links>
    >>> distance_regular(32).graph.diameter, DISTANCE_REGULAR[32].title
    (4, 'Incidence graph of AG(2,4) minus a parallel class')
    """
    n = as_size(n, "n", least=2)
    if n not in DISTANCE_REGULAR:
        raise TopologyError(
            f"n is {n}, for which there is no distance-regular graph here; expected one of "
            f"{', '.join(map(str, DISTANCE_REGULAR))}"
        )
    graph = DirectGraph.from_arcs(n, both_ways(DISTANCE_REGULAR[n].edges()), f"DistReg(4, {n})")
    return graph.topology(bandwidth=bandwidth, latency=latency)


def _differing(words: Iterable[tuple[int, ...]]) -> Edges:
    """Words that differ in one place; of two letters and four places, the 4-cube."""
    return _linked(list(words), lambda one, other: sum(a != b for a, b in zip(one, other, strict=True)) == 1)


def _disjoint(size: int, points: int) -> Edges:
    """Sets of `size` out of `points` things, linked if disjoint: Kneser graphs, such as Petersen's."""
    return _linked([frozenset(part) for part in combinations(range(points), size)], frozenset.isdisjoint)


def _linked(nodes: list[Node], rule: Callable[[Node, Node], bool]) -> Edges:
    return [(one, other) for one, other in combinations(range(len(nodes)), 2) if rule(nodes[one], nodes[other])]


def _line_graph(edges: Edges) -> Edges:
    """Links that share an end; unlike that of the expansion, this line graph is undirected."""
    return _linked([frozenset(edge) for edge in edges], lambda one, other: bool(one & other))


def _doubled(edges: Edges, nodes: int) -> Edges:
    """Two copies of every node, a link from the first copy of each node to the second copies of its neighbours."""
    return [(tail, nodes + head) for pair in edges for tail, head in (pair, pair[::-1])]


def _octahedron() -> Edges:
    return _linked(list(range(6)), lambda one, other: other - one != 3)


def _complete_minus_matching() -> Edges:
    return [(left, 5 + right) for left, right in product(range(5), repeat=2) if left != right]


def _heawood_distance_3() -> Edges:
    """Points and lines of PG(2,2) that do not meet."""
    return [
        (point, 7 + number)
        for number, line in enumerate(projective_plane(2))
        for point in range(7)
        if point not in line
    ]


DISTANCE_REGULAR = {
    6: DistanceRegularGraph("Octahedron J(4,2)", _octahedron),
    9: DistanceRegularGraph("Paley graph P9≅H(2,3)", lambda: _differing(product(range(3), repeat=2))),
    10: DistanceRegularGraph("K5,5-I", _complete_minus_matching),
    14: DistanceRegularGraph("Distance-3 graph of Heawood graph", _heawood_distance_3),
    15: DistanceRegularGraph("Line graph of Petersen graph", lambda: _line_graph(_disjoint(2, 5))),
    16: DistanceRegularGraph("4-cube Q4≅H(4,2)", lambda: _differing(product(range(2), repeat=4))),
    21: DistanceRegularGraph("Line graph of Heawood graph", lambda: _line_graph(incidence_edges(projective_plane(2)))),
    26: DistanceRegularGraph("Incidence graph of PG(2,3)", lambda: incidence_edges(projective_plane(3))),
    32: DistanceRegularGraph(
        "Incidence graph of AG(2,4) minus a parallel class", lambda: incidence_edges(affine_plane_of_order_4())
    ),
    35: DistanceRegularGraph("Odd graph O4", lambda: _disjoint(3, 7)),
    45: DistanceRegularGraph(
        "Line graph of Tutte's 8-cage", lambda: _line_graph(incidence_edges(symplectic_quadrangle(2)))
    ),
    70: DistanceRegularGraph("Doubled Odd Graph D(O4)", lambda: _doubled(_disjoint(3, 7), 35)),
    80: DistanceRegularGraph("Incidence graph of GQ(3,3)", lambda: incidence_edges(symplectic_quadrangle(3))),
    189: DistanceRegularGraph(
        "Line graph of Tutte's 12-cage", lambda: _line_graph(incidence_edges(split_cayley_hexagon(2)))
    ),
    728: DistanceRegularGraph("Incidence graph of GH(3,3)", lambda: incidence_edges(split_cayley_hexagon(3))),
}
"""The rows of Table 8 of the direct-connect paper by their numbers of nodes."""
