"""Trees rooted at their centres: the same links, and the smallest height."""

from __future__ import annotations

import networkx as nx
import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.solvers.trees.height_reduction import centered
from sample_sizes import examples

Integers = npt.NDArray[np.int64]


@st.composite
def forests(draw: st.DrawFn) -> tuple[Integers, npt.NDArray[np.int32], Integers, Integers]:
    """Draw roots, routes and the ends of all paths, one path for each ordered pair of ranks."""
    ranks = draw(st.integers(2, 12))
    senders, receivers = (ends.ravel() for ends in np.indices((ranks, ranks)))
    roots, routes = [], []
    for _ in range(draw(st.integers(1, 4))):
        order = draw(st.permutations(range(ranks)))
        row = [-1] * ranks
        for place in range(1, ranks):
            row[order[place]] = order[draw(st.integers(max(0, place - 3), place - 1))] * ranks + order[place]
        roots.append(order[0])
        routes.append(row)
    return np.array(roots), np.array(routes, dtype=np.int32), senders, receivers


@given(forests())
@settings(max_examples=examples(150))
def test_height_becomes_the_radius_and_the_tree_stays(
    forest: tuple[Integers, npt.NDArray[np.int32], Integers, Integers],
) -> None:
    """Every tree is rooted at a center, the nearest one to its old root, and uses the same links."""
    roots, routes, senders, receivers = forest
    before = roots.copy(), routes.copy()
    moved_roots, moved_routes = centered(roots, routes, senders, routes.shape[1])
    assert np.array_equal(roots, before[0])
    assert np.array_equal(routes, before[1])
    tails, heads = np.concatenate([senders, receivers]), np.concatenate([receivers, senders])
    for tree, root in enumerate(moved_roots.tolist()):
        old = nx.Graph((int(senders[path]), int(receivers[path])) for path in routes[tree] if path >= 0)
        new = nx.DiGraph((int(tails[path]), int(heads[path])) for path in moved_routes[tree] if path >= 0)
        assert moved_routes[tree, root] == -1
        assert all(heads[path] == rank for rank, path in enumerate(moved_routes[tree]) if path >= 0)
        assert nx.is_arborescence(new)
        assert nx.utils.graphs_equal(old, nx.Graph(new.edges))
        centres = nx.center(old)
        assert root in centres
        distance = nx.single_source_shortest_path_length(old, int(roots[tree]))
        assert distance[root] == min(distance[center] for center in centres)


def test_a_star_keeps_its_root() -> None:
    """No root is lower than the middle, and paths keep their numbers."""
    routes = np.array([[-1, 0, 1, 2]], dtype=np.int32)
    roots, moved = centered(np.array([0]), routes, np.zeros(3, dtype=np.int64), routes.shape[1])
    assert roots.tolist() == [0]
    assert np.array_equal(moved, routes)
