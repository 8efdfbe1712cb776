"""Tree packing along tight sets: pack every level by itself, then compose the packings into trees of the whole network.

Each tree enters a tight set exactly once (`collopt.solvers.trees.tight_sets`), so at every level of the family the
children of a set are packed as if they were single ranks, where child c is the root of as many trees as start in it or
enter it from outside the set.  A tree of the whole network is then put together from the top: where a level's tree
leads from child A to child B, some link between them that has units left is taken, from the rank of A that has the data
first; inside B the tree continues as one of the trees rooted where that link arrives.  Units are counted down, and a
tree gets as many copies as all its parts have left.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from ...errors import SolverError
from .level_packing import Levels, pack_levels
from .routed_graph import RoutedGraph
from .tight_sets import Family
from .tree_packing import Packing

__all__ = ["pack_forest"]

IntArray = npt.NDArray[np.int64]
SmallArray = npt.NDArray[np.int32]

ROWS_AT_ONCE = 2**22
"""Entries of a block of trees; blocks keep the memory for an unknown number of trees linear in the result."""


def pack_forest(graph: RoutedGraph, supplies: IntArray, family: Family, *, seed: int = 0) -> tuple[Packing, IntArray]:
    """Pack ``supplies[i]`` spanning out-trees from each rank i into a network without switches.

    Parameters
    ----------
    graph : RoutedGraph
        Its links with units lead between ranks.
    supplies : ndarray of int64, shape (ranks,)
        Trees wanted per root.
    family : Family
        Tight sets of the graph.
    seed : int
        As for `pack_trees`.

    Returns
    -------
    packing : Packing
        ``links[t, v]`` counts in `links`, -1 at the root; int32 to save memory.
    links : ndarray of int64
        Numbers of the graph's links that are used.

    Raises
    ------
    SolverError
        If the network cannot carry the supplies, or a set of the family is not tight.
    """
    alive = graph.alive()
    levels = pack_levels(graph, alive, supplies, family, seed)
    roots, weights, blocks = [], [], []
    left = supplies.copy()
    rows = max(1, ROWS_AT_ONCE // len(supplies))
    while left.any():
        block = np.full((rows, len(supplies)), -1, dtype=np.int32)
        root, weight = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
        count = _compose(levels, left, root, weight, block)
        if count < 0:
            raise SolverError("the packings of two levels do not fit together: a set of the family is not tight")
        roots.append(root[:count])
        weights.append(weight[:count])
        blocks.append(block[:count].copy() if count < rows else block)
    used = np.zeros(len(alive) + 1, dtype=np.bool_)
    for block in blocks:
        used[block] = True
    used[-1] = False
    number = np.cumsum(used, dtype=np.int32) - np.int32(1)
    number[-1] = -1
    links = np.concatenate([number[block] for block in blocks])
    return Packing(np.concatenate(roots), np.concatenate(weights), links), alive[used[:-1]]


@numba.njit(cache=True, nogil=True)
def _compose(levels: Levels, left: IntArray, roots: IntArray, weights: IntArray, block: SmallArray) -> int:
    """Fill the rows of `block` with trees while roots have trees left; return how many, -1 if a part is missing."""
    ranks, sets = levels.num_ranks, len(levels.num_steps)
    depth = np.empty(ranks, dtype=np.int64)
    frames = np.empty((sets + 1, 3), dtype=np.int64)  # set, tree, next step
    trees = np.empty(sets, dtype=np.int64)
    row = 0
    for root in range(ranks):
        while left[root] > 0 and row < len(block):
            num_trees = _put_together(levels, root, block[row], depth, frames, trees)
            if num_trees < 0:
                return -1
            copies = left[root]
            for tree in trees[:num_trees]:
                copies = min(copies, levels.tree_left[tree])
            for port in block[row]:
                if port >= 0:
                    copies = min(copies, levels.port_left[port])
            for tree in trees[:num_trees]:
                levels.tree_left[tree] -= copies
            for port in block[row]:
                if port >= 0:
                    levels.port_left[port] -= copies
            left[root] -= copies
            roots[row], weights[row] = root, copies
            row += 1
    return row


@numba.njit(cache=True, nogil=True)
def _put_together(
    levels: Levels, root: int, row: SmallArray, depth: IntArray, frames: IntArray, trees: IntArray
) -> int:
    """Write one tree into `row` and the level trees that it uses into `trees`; return their number, or -1."""
    depth[root] = 0
    height = _enter(levels, 0, root, frames, 0, trees, 0)
    num_trees = height
    while height > 0:
        frame = frames[height - 1]
        if frame[2] == levels.num_steps[frame[0]]:
            height -= 1
            continue
        step = levels.steps[levels.tree_steps[frame[1]] + frame[2]]
        connection = levels.first_connection[frame[0]] + step
        frame[2] += 1
        port = _best_port(levels, connection, depth)
        if port < 0:
            return -1
        head = levels.port_heads[port]
        depth[head] = depth[levels.port_tails[port]] + 1
        row[head] = port
        key = levels.heads[connection]
        if key >= levels.num_ranks:
            deeper = _enter(levels, key - levels.num_ranks, head, frames, height, trees, num_trees)
            if deeper < 0:
                return -1
            num_trees += deeper - height
            height = deeper
    return num_trees


@numba.njit(cache=True, nogil=True)
def _enter(levels: Levels, number: int, rank: int, frames: IntArray, height: int, trees: IntArray, used: int) -> int:
    """Choose a tree in set `number` and in each smaller one around `rank`; return the new height of `frames`, or -1."""
    first = height
    key = rank
    while True:
        around = levels.parents[key]
        while levels.first_tree[key] < levels.last_tree[key] and levels.tree_left[levels.first_tree[key]] == 0:
            levels.first_tree[key] += 1
        if levels.first_tree[key] == levels.last_tree[key]:
            return -1
        frames[height, 0], frames[height, 1], frames[height, 2] = around, levels.first_tree[key], 0
        trees[used + height - first] = levels.first_tree[key]
        height += 1
        if around == number:
            break
        key = levels.num_ranks + around
    # The smallest set comes on top: its ranks have the data first.
    for place in range((height - first) // 2):
        for column in range(3):
            other = height - 1 - place
            swapped = frames[first + place, column]
            frames[first + place, column] = frames[other, column]
            frames[other, column] = swapped
    return height


@numba.njit(cache=True, nogil=True)
def _best_port(levels: Levels, connection: int, depth: IntArray) -> int:
    """Of a connection's links with units left: one whose tail has the data first, then one with most units."""
    best = -1
    for place in range(levels.first_port[connection], levels.first_port[connection + 1]):
        port = levels.ports[place]
        if levels.port_left[port] == 0:
            continue
        if best >= 0:
            mine, its = depth[levels.port_tails[port]], depth[levels.port_tails[best]]
            if mine > its or (mine == its and levels.port_left[port] <= levels.port_left[best]):
                continue
        best = port
    return best
