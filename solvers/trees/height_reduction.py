"""Lower trees with the same loads: exchanges of subtrees, and other roots on bidirectional links.

A tree whose links work in both directions may move its root to where its height is the radius.  Vertices are ranks, and
after them switches, which are no roots and count for no hop.
"""

from typing import Any, NamedTuple

import numpy as np

from ...support import progress
from ...support.arrays import FloatArray, IntArray, SmallArray
from ...support.kernels import kernel, kernel_with
from .tree_packing import Packing

EXCHANGES_PER_ROUND = 3 * 10**7
"""Exchanges evaluated per round, which bounds the time; one that is made counts as `MOVE_COST` of them per rank."""
MOVE_COST = 16
MAX_ENTRIES = 2**23  # trees times ranks that take part; of larger forests only the tallest trees take part
TALL = 64
"""From this height on, a round aims at several hops: rings would otherwise take as many rounds as they have ranks."""
MAX_GROWTH = 2  # limit of the growth of the number of trees by splitting
MAX_DEPTH = 1000  # larger depths count as this one, which keeps 2^depth a float


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


class _Forest(NamedTuple):
    """Trees in arrays with spare rows, with depths and potentials."""

    roots: IntArray
    weights: IntArray
    links: SmallArray  # (trees, ranks)
    depths: SmallArray  # (trees, ranks)
    potentials: FloatArray  # (trees, ranks): sum of 2^depth over the subtree
    tails: IntArray  # (links,)


def lower_trees(packing: Packing, tails: IntArray) -> Packing:
    """Exchange links between trees until no exchange lowers the potential; split trees if that lowers the tallest."""
    trees, ranks = packing.links.shape
    if ranks < 3:
        return packing
    # Of large forests only the tallest trees take part.
    limit, tallest = max(2, MAX_ENTRIES // ranks), np.arange(trees)
    if trees > limit:
        tallest = np.argsort(-_heights(packing.roots, packing.links, tails), kind="stable")[:limit]
    count, capacity = len(tallest), min(MAX_GROWTH * len(tallest), limit + len(tallest))
    columns, tables = np.zeros((2, capacity), dtype=np.int64), np.zeros((2, capacity, ranks), dtype=np.int32)
    forest = _Forest(columns[0], columns[1], tables[0], tables[1], np.zeros((capacity, ranks)), tails)
    before: tuple[Any, ...] = packing  # roots, weights and links, as in the forest
    parts: tuple[Any, ...] = forest[:3]
    for column, values in zip(parts, before, strict=True):
        column[:count] = values[tallest]
    _measure_all(forest, count)
    with progress.status() as report:
        report(f"height {int(forest.depths[:count].max())} hops")
        count = _exchange(forest, count, ranks, EXCHANGES_PER_ROUND)
        height, lowest, kept = ranks, int(forest.depths[:count].max()), parts
        while lowest < height:
            height = lowest
            report(f"height {height} hops")
            kept = tuple(column[:count].copy() for column in parts)
            count = _exchange(forest, count, height - 1 - height // TALL, EXCHANGES_PER_ROUND)
            lowest = int(forest.depths[:count].max())
    untouched = np.delete(np.arange(trees), tallest)
    return Packing(*(np.concatenate([column[untouched], own]) for column, own in zip(before, kept, strict=True)))


@kernel
def _heights(roots: IntArray, links: SmallArray, tails: IntArray) -> IntArray:
    trees, ranks = links.shape
    heights = np.zeros(trees, dtype=np.int64)
    depth = np.empty(ranks, dtype=np.int32)
    for tree in range(trees):
        heights[tree] = _find_depths(roots[tree], links[tree], tails, depth)
    return heights


@kernel
def _find_depths(root: int, links: SmallArray, tails: IntArray, depth: SmallArray) -> int:
    """Fill in the depth of every rank by climbing to the nearest known one; return the height."""
    depth[:] = -1
    depth[root] = 0
    height: int = 0
    for rank in range(len(links)):
        node, hops = rank, 0
        while depth[node] < 0:
            node = tails[links[node]]
            hops += 1
        hops += depth[node]
        height = max(height, hops)
        node = rank
        while depth[node] < 0:
            depth[node] = hops
            hops -= 1
            node = tails[links[node]]
    return height


@kernel
def _measure(forest: _Forest, tree: int) -> None:
    """Recompute depths and potentials of one tree."""
    root, links, depth, potential = forest.roots[tree], forest.links[tree], forest.depths[tree], forest.potentials[tree]
    height = _find_depths(root, links, forest.tails, depth)
    # Counting sort by depth: potentials accumulate from the deepest ranks up.
    ranks = len(links)
    starts = np.zeros(height + 2, dtype=np.int64)
    for rank in range(ranks):
        starts[depth[rank] + 1] += 1
        potential[rank] = 2.0 ** min(depth[rank], MAX_DEPTH)
    starts = np.cumsum(starts)
    order = np.empty(ranks, dtype=np.int64)
    for rank in range(ranks):
        order[starts[depth[rank]]] = rank
        starts[depth[rank]] += 1
    for place in range(ranks - 1, 0, -1):
        rank = order[place]
        potential[forest.tails[links[rank]]] += potential[rank]


@kernel
def _measure_all(forest: _Forest, count: int) -> None:
    for tree in range(count):
        _measure(forest, tree)


@kernel_with(lambda forest, count, _, effort: 3 * min(effort, count * count * int(forest.depths[:count].max())))
def _exchange(forest: _Forest, count: int, goal: int, effort: int) -> int:
    """Improve trees, tallest first, until no exchange helps; those above `goal` may split; return their number."""
    ranks = forest.links.shape[1]
    improved = True
    while improved and effort > 0:
        improved = False
        # Tallest trees first.
        heights = np.empty(count, dtype=np.int64)
        for tree in range(count):
            heights[tree] = forest.depths[tree].max()
        for tree in np.argsort(-heights, kind="mergesort"):
            # Try the deepest rank and those above it, up to the root.
            rank = int(np.argmax(forest.depths[tree]))
            while rank != forest.roots[tree] and effort > 0:
                split = forest.depths[tree].max() > goal and count + 2 <= len(forest.roots)
                effort -= count
                other = _best_partner(forest, count, tree, rank, split)
                if other < 0:
                    rank = forest.tails[forest.links[tree, rank]]
                    continue
                # Exchange the links on which both trees reach the rank.
                effort -= MOVE_COST * ranks
                count = _equalize_copies(forest, count, tree, other)
                mine = forest.links[tree, rank]
                forest.links[tree, rank] = forest.links[other, rank]
                forest.links[other, rank] = mine
                _measure(forest, tree)
                _measure(forest, other)
                improved = True
                rank = int(np.argmax(forest.depths[tree]))
    return count


@kernel
def _best_partner(forest: _Forest, count: int, tree: int, rank: int, split: bool) -> int:
    """Find the tree whose link into `rank` lowers the potential most, or -1."""
    # Local names: numba counts references whenever a field of a tuple is looked up.
    roots, weights, links, depths, potentials, tails = forest
    best, partner = -1e-9, -1
    link = links[tree, rank]
    sender = tails[link]
    for other in range(count):
        if roots[other] == rank or links[other, rank] == link:
            continue
        if weights[other] != weights[tree] and not split:
            continue
        rise = depths[tree, rank] - depths[tree, tails[links[other, rank]]] - 1
        if rise <= 0:
            continue
        fall = depths[other, sender] + 1 - depths[other, rank]
        change = potentials[tree, rank] * (2.0**-rise - 1) + potentials[other, rank] * (2.0**fall - 1)
        change *= min(weights[tree], weights[other])
        if change < best:
            # No exchange if the sender is below the rank there; here it is above, since `rise` is positive.
            node = sender
            while depths[other, node] > depths[other, rank]:
                node = tails[links[other, node]]
            if node != rank:
                best, partner = change, other
    return partner


@kernel
def _equalize_copies(forest: _Forest, count: int, tree: int, other: int) -> int:
    """Split the heavier of two trees so that both have equally many copies; return the number of trees."""
    weight = min(forest.weights[tree], forest.weights[other])
    for heavy in (tree, other):
        if forest.weights[heavy] > weight:
            forest.roots[count] = forest.roots[heavy]
            forest.weights[count] = forest.weights[heavy] - weight
            forest.links[count] = forest.links[heavy]
            forest.depths[count] = forest.depths[heavy]
            forest.potentials[count] = forest.potentials[heavy]
            forest.weights[heavy] = weight
            count += 1
    return count
