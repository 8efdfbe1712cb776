"""Trees rerooted at their centers, on bidirectional links.

If the links of a tree work in both directions, its root is free: the height is smallest, the radius, at the middle of
the longest path.  Moving the root reverses the links between the old root and the new one.
"""

from __future__ import annotations

import numba
import numpy as np

from ...support.arrays import IntArray, SmallArray


def centered(roots: IntArray, routes: SmallArray, senders: IntArray) -> tuple[IntArray, SmallArray]:
    """Move every root to the center of its tree, unless that does not lower the tree.

    Shapes: `roots` int64 (trees,); `routes` int32 (trees, ranks); `senders` int64 (paths,).
    """
    moved_roots, moved_routes = roots.copy(), routes.copy()
    _move_roots(moved_roots, moved_routes, senders)
    return moved_roots, moved_routes


@numba.njit(cache=True, nogil=True)
def _move_roots(roots: IntArray, routes: SmallArray, senders: IntArray) -> None:
    trees, ranks = routes.shape
    parent = np.empty(ranks, dtype=np.int64)
    for tree in range(trees):
        for rank in range(ranks):
            parent[rank] = senders[routes[tree, rank]] if routes[tree, rank] >= 0 else -1
        center = _center(roots[tree], parent)
        # Reverse the links from the old root to the new one.
        rank, incoming = center, np.int32(-1)
        while rank >= 0:
            outgoing = routes[tree, rank]
            routes[tree, rank] = incoming
            incoming = np.int32(outgoing + len(senders))
            rank = parent[rank]
        roots[tree] = center


@numba.njit(cache=True, nogil=True)
def _center(root: int, parent: IntArray) -> int:
    """Find the center of a tree: the rank of least eccentricity, nearest to the root."""
    order = _topological_order(root, parent)
    deepest = np.zeros((len(parent), 2), dtype=np.int64)  # the two longest downward paths, through different children
    for place in range(len(order) - 1, 0, -1):
        rank, above = order[place], parent[order[place]]
        length = deepest[rank, 0] + 1
        if length > deepest[above, 0]:
            deepest[above, 1] = deepest[above, 0]
            deepest[above, 0] = length
        else:
            deepest[above, 1] = max(deepest[above, 1], length)
    up = np.zeros(len(parent), dtype=np.int64)  # the longest path that begins upwards
    center, least = root, deepest[root, 0]
    for rank in order[1:]:
        above = parent[rank]
        beside = deepest[above, 1] if deepest[above, 0] == deepest[rank, 0] + 1 else deepest[above, 0]
        up[rank] = 1 + max(up[above], beside)
        farthest = max(up[rank], deepest[rank, 0])
        if farthest < least:
            center, least = rank, farthest
    return center


@numba.njit(cache=True, nogil=True)
def _topological_order(root: int, parent: IntArray) -> IntArray:
    """List the ranks in topological order, parents first."""
    order = np.empty(len(parent), dtype=np.int64)
    placed = np.zeros(len(parent), dtype=np.bool_)
    chain = np.empty(len(parent), dtype=np.int64)
    order[0] = root
    placed[root] = True
    done = 1
    for rank in range(len(parent)):
        length, node = 0, rank
        while not placed[node]:
            chain[length] = node
            length += 1
            node = parent[node]
        for place in range(length - 1, -1, -1):
            order[done] = chain[place]
            placed[chain[place]] = True
            done += 1
    return order
