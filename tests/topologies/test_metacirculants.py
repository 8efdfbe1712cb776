"""Metacirculant digraphs: their arcs by permutations, their symmetry, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from collopt.errors import TopologyError
from collopt.planners.direct_connect.costs import low_hop_metacirculants
from collopt.solvers.bfb.circulant_loads import UNREACHABLE, hop_sums
from collopt.topologies import automorphisms, metacirculant_digraph
from collopt.topologies.direct_connect.circulants import Group

GROUPS = [(3, 2, 2), (8, 2, 7), (5, 4, 2), (4, 4, 3), (6, 3, 1), (7, 6, 3)]


def permutations(m: int, k: int, r: int) -> list[tuple[int, ...]]:
    """The element a k + b as a permutation: of the points (i, j) it takes i to a + r^b i, and j to j + b."""
    points = [(i, j) for i in range(m) for j in range(k)]
    return [tuple((a + r**b * i) % m * k + (j + b) % k for i, j in points) for a in range(m) for b in range(k)]


@pytest.mark.parametrize("group", GROUPS)
def test_arcs_are_products_of_permutations(group: tuple[int, int, int]) -> None:
    """From each element to its product by another one."""
    made = permutations(*group)
    number = {each: place for place, each in enumerate(made)}
    for other in range(1, len(made)):
        tails, heads, _ = Group(*group).graph([other]).adjacency
        assert tails.tolist() == list(range(len(made)))
        assert heads.tolist() == [number[tuple(one[point] for point in made[other])] for one in made]


@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize(("nodes", "degree"), [(6, 2), (12, 3), (16, 4), (20, 4), (21, 6)])
def test_the_search_lists_vertex_transitive_digraphs_by_distance(nodes: int, degree: int, two_way: bool) -> None:
    """With a sum of distances that is that of the graph, and an opposite of each link if asked for."""
    found = low_hop_metacirculants(nodes, degree, two_way=two_way)
    sums = []
    for base, graph in found:
        m, k, r, elements = base.arguments
        assert metacirculant_digraph(m, k, r, elements).name == base.name == graph.name
        assert (graph.num_nodes, graph.degree, graph.is_simple) == (nodes, degree, True)
        assert graph.is_bidirectional or not two_way
        row = graph.distances.sum(axis=1)
        assert (row == row[0]).all()
        assert hop_sums(m, Group(m, k, r).powers, np.array([elements])).tolist() == [row[0]]
        sums.append(int(row[0]))
    assert sums == sorted(sums)
    assert sums or two_way


def test_symmetries_are_those_of_the_group() -> None:
    """Multiplication from the left takes any node to any other."""
    graph = metacirculant_digraph(5, 4, 2, [1, 6]).direct_graph()
    images = automorphisms(graph)
    reached, fresh = {0}, [0]
    while fresh:
        fresh = [image for node in fresh for image in images[:, node].tolist() if image not in reached]
        reached.update(fresh)
    assert reached == set(range(20))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 2, 1, [1]), "m of the group is 1; expected a whole number from 2"),
        ((5, 3, 2, [1]), "r is 2, and its power 3 is 3 modulo 5; expected 1"),
        ((5, 4, 5, [1]), "r of the group is 5"),
        ((5, 4, 2, [20]), "an element is 20; expected a whole number from 1 to 19"),
        ((5, 4, 2, [1, 1]), r"the elements are \[1, 1\]; expected one or more, all different"),
        ((5, 4, 2, []), r"the elements are \[\]; expected one or more"),
        ((5, 4, 2, [4, 8]), r"the elements \[4, 8\] generate 5 of 20 of MetaCirc\(5, 4, 2\)"),
        ((2**12, 2**12, 1, [1]), "would have 16777216 links|number of nodes"),
    ],
)
def test_what_is_no_group_or_not_connected_is_refused(arguments: tuple[object, ...], message: str) -> None:
    """In one sentence each; `hop_sums` tells it too."""
    with pytest.raises(TopologyError, match=message):
        metacirculant_digraph(*arguments)
    assert hop_sums(5, Group(5, 4, 2).powers, np.array([[4, 8], [1, 4]])).tolist()[0] == UNREACHABLE
