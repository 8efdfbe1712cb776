"""Trees with other roots, on bidirectional links.

If the links of a tree work in both directions, its root is free.  Moving it reverses the hops between the old root and
the new one; the height is smallest, the radius, where the farthest rank is nearest.  Vertices are ranks, and after them
switches, which are no roots and count for no hop.
"""

import numpy as np

from ...support.arrays import IntArray, SmallArray
from ...support.kernels import kernel


def centered(roots: IntArray, routes: SmallArray, senders: IntArray, num_ranks: int) -> tuple[IntArray, SmallArray]:
    """Move every root to the center of its tree, unless that does not lower the tree; reversed hops have new paths.

    Shapes: `roots` int64 (trees,); `routes` int32 (trees, vertices); `senders`, where each path begins, int64 (paths,).
    """
    moved_roots, moved_routes = roots.copy(), routes.copy()
    _center_all(moved_roots, moved_routes, senders, num_ranks)
    return moved_roots, moved_routes


@kernel
def _center_all(roots: IntArray, routes: SmallArray, senders: IntArray, num_ranks: int) -> None:
    for tree in range(len(roots)):
        parent = parents_of(routes[tree], senders)
        farthest = eccentricities(roots[tree], parent, num_ranks)
        center = roots[tree]
        lowest = farthest[center] if center < num_ranks else 2 * len(farthest)
        for rank in _topological_order(roots[tree], parent):
            if rank < num_ranks and farthest[rank] < lowest:
                center, lowest = rank, farthest[rank]
        move_root(routes[tree], senders, center)
        roots[tree] = center


@kernel
def parents_of(route: SmallArray, senders: IntArray) -> IntArray:
    """Vertex above each vertex of a tree, -1 at the root and outside, shape (vertices,)."""
    parent = np.full(len(route), -1, dtype=np.int64)
    for vertex in range(len(route)):
        if route[vertex] >= 0:
            parent[vertex] = senders[route[vertex]]
    return parent


@kernel
def move_root(route: SmallArray, senders: IntArray, root: int) -> None:
    """Reverse the hops from the old root to the new one, in place; `route` int32 (vertices,)."""
    vertex, incoming = root, np.int32(-1)
    while vertex >= 0:
        outgoing = route[vertex]
        above = senders[outgoing] if outgoing >= 0 else -1
        route[vertex] = incoming
        incoming = np.int32(outgoing + len(senders))
        vertex = above


@kernel
def eccentricities(root: int, parent: IntArray, num_ranks: int) -> IntArray:
    """Twice the hops between ranks from each vertex to the rank farthest from it, shape (vertices,).

    The way between two vertices counts one for each end of its edges that is a rank.
    """
    order = _topological_order(root, parent)
    far = np.int64(-4 * len(parent))
    # The two longest ways down to ranks, through different children.
    deepest = np.full((len(parent), 2), far)
    for place in range(len(order) - 1, -1, -1):
        vertex = order[place]
        own = deepest[vertex, 0]
        if vertex < num_ranks:
            own = max(own, 0)
        above = parent[vertex]
        if above >= 0:
            length = own + int(vertex < num_ranks) + int(above < num_ranks)
            if length > deepest[above, 0]:
                deepest[above, 1] = deepest[above, 0]
                deepest[above, 0] = length
            else:
                deepest[above, 1] = max(deepest[above, 1], length)
    up = np.full(len(parent), far)  # the longest way that begins upwards
    farthest = np.zeros(len(parent), dtype=np.int64)
    for vertex in order:
        above = parent[vertex]
        if above >= 0:
            step = int(vertex < num_ranks) + int(above < num_ranks)
            own = max(deepest[vertex, 0], 0) if vertex < num_ranks else deepest[vertex, 0]
            sideways = deepest[above, 1] if deepest[above, 0] == own + step else deepest[above, 0]
            if above < num_ranks:
                sideways = max(sideways, 0)
            up[vertex] = step + max(up[above], sideways)
        farthest[vertex] = max(up[vertex], deepest[vertex, 0], 0)
    return farthest


@kernel
def _topological_order(root: int, parent: IntArray) -> IntArray:
    """List the vertices of a tree in topological order, parents first."""
    order = np.empty(len(parent), dtype=np.int64)
    placed = np.zeros(len(parent), dtype=np.bool_)
    chain = np.empty(len(parent), dtype=np.int64)
    order[0] = root
    placed[root] = True
    done = 1
    for vertex in range(len(parent)):
        length, node = 0, vertex
        while node >= 0 and not placed[node]:
            chain[length] = node
            length += 1
            node = parent[node]
        if node < 0:
            continue  # not part of the tree
        for place in range(length - 1, -1, -1):
            order[done] = chain[place]
            placed[chain[place]] = True
            done += 1
    return order[:done]
