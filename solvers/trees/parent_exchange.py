"""Packing of spanning out-trees by exchange of parents: grown untested, then moved off the links that are too full.

Every root has one tree of shortest paths.  A tree stays one if a rank in it receives from another neighbor that is not
below it, and the loads of links into other ranks stay, so each rank evens out its links by itself.  Most ranks are
leaves of most trees, which leaves much choice; where it is not enough, there is no answer.
"""

from typing import NamedTuple

import numpy as np

from ...support.arrays import BoolArray, IntArray, SmallArray
from ...support.compiling.kernels import kernel
from .tree_packing import Packing

MOST_ROWS = 2  # trees for each root, after parts of their copies moved
ROUNDS = 8  # in which all ranks even out their links
NEAR, WHOLE, PARTS, MORE = range(4)  # efforts of `_relieve`


class _Trees(NamedTuple):
    """Trees of a network; links are sorted by tail."""

    tails: IntArray
    into: IntArray  # into[entered[v]:entered[v + 1]] are the links into rank v
    entered: IntArray
    left: IntArray  # capacities, less the loads; negative where a link is too full
    roots: IntArray
    weights: IntArray  # copies
    links: SmallArray  # int32 (trees, ranks): number of the link on which each rank receives; -1 at the root


def exchanged_trees(
    starts: IntArray, tails: IntArray, heads: IntArray, left: IntArray, roots: IntArray, copies: IntArray
) -> Packing | None:
    """Pack trees of some roots within the capacities `left`, and lower these; None if some link stays too full.

    Links are sorted by tail, and those of each rank begin at `starts`, int64 (ranks + 1,).
    """
    rows, into = MOST_ROWS * len(roots), np.argsort(heads, kind="stable")
    entered = np.searchsorted(heads[into], np.arange(len(starts)))
    origins, weights = np.zeros((2, rows), dtype=np.int64)
    origins[: len(roots)], weights[: len(roots)] = roots, copies
    trees = _Trees(tails, into, entered, left, origins, weights, np.empty((rows, len(starts) - 1), dtype=np.int32))
    usable = left > 0  # before any tree is grown
    if not all(_grow(trees, starts, heads, usable, row) for row in range(len(roots))):
        return None
    count = _exchange(trees, len(roots))
    return None if count < 0 else Packing(origins[:count], weights[:count], trees.links[:count])


@kernel
def _grow(trees: _Trees, starts: IntArray, heads: IntArray, usable: BoolArray, row: int) -> bool:
    """Grow one tree, breadth first, and return whether it spans.

    Each rank takes the link with most capacity left from the level before, also where that is too little.
    """
    left, tree = trees.left, trees.links[row]
    tree[:] = -1
    depths = np.full(len(tree), -1, dtype=np.int64)
    queue = np.empty(len(tree), dtype=np.int64)
    depths[trees.roots[row]], queue[0] = 0, trees.roots[row]
    done, found = 0, 1
    while done < found:
        depth = depths[queue[done]] + 1
        for link in range(starts[queue[done]], starts[queue[done] + 1]):
            head = heads[link]
            if usable[link] and depths[head] < 0:
                depths[head], tree[head], queue[found] = depth, link, head
                found += 1
            elif usable[link] and depths[head] == depth and left[link] > left[tree[head]]:
                tree[head] = link
        done += 1
    for link in tree:
        if link >= 0:
            left[link] -= trees.weights[row]
    return found == len(tree)


@kernel
def _exchange(trees: _Trees, count: int) -> int:
    """Relieve the links into all ranks in turn; return the number of trees, or -1 if that is not enough."""
    for _ in range(ROUNDS):
        for rank in range(len(trees.entered) - 1):
            for effort in (NEAR, WHOLE, PARTS, MORE):
                if (trees.left[trees.into[trees.entered[rank] : trees.entered[rank + 1]]] < 0).any():
                    count = _relieve(trees, count, rank, effort)
        if (trees.left >= 0).all():
            return count
    return -1


@kernel
def _relieve(trees: _Trees, count: int, rank: int, effort: int) -> int:
    """Move trees from links into a rank that are too full to others, and return how many trees there are then.

    With the effort `NEAR` whole trees move if the rank is one hop further from the root at most, with `WHOLE` in any
    case, with `PARTS` only some of their copies, and with more, ranks between the new sender and this one move first.
    """
    left, weights = trees.left, trees.weights
    for tree, link in enumerate(trees.links[:count, rank].copy()):
        if link < 0:
            continue
        for other in trees.into[trees.entered[rank] : trees.entered[rank + 1]]:
            if left[link] >= 0:
                break
            moved = weights[tree] if left[other] >= weights[tree] else min(left[other], -left[link])
            if moved <= 0 or (moved < weights[tree] and effort < PARTS):
                continue
            depth = _depth(trees, tree, trees.tails[other], rank)
            if (depth < 0 and effort <= PARTS) or (effort == NEAR and depth > _depth(trees, tree, rank, -1)):
                continue
            row = tree
            if moved < weights[tree]:
                if count == len(weights):
                    return count
                row = count
                trees.links[row], trees.roots[row], weights[row] = trees.links[tree], trees.roots[tree], moved
                weights[tree] -= moved
                count += 1
            if depth < 0 and not _detach(trees, row, trees.tails[other], rank):
                continue
            trees.links[row, rank] = other
            left[link] += moved
            left[other] -= moved
            if row == tree:
                break
    return count


@kernel
def _detach(trees: _Trees, row: int, node: int, rank: int) -> bool:
    """Let a node below a rank receive otherwise, by the link with most capacity left into it or above it."""
    tree, best, moving = trees.links[row], -1, -1
    while node != rank:
        for link in trees.into[trees.entered[node] : trees.entered[node + 1]]:
            if (best < 0 or trees.left[link] > trees.left[best]) and _depth(trees, row, trees.tails[link], rank) >= 0:
                best, moving = link, node
        node = trees.tails[tree[node]]
    if best < 0:
        return False
    trees.left[tree[moving]] += trees.weights[row]
    trees.left[best] -= trees.weights[row]
    tree[moving] = best
    return True


@kernel
def _depth(trees: _Trees, row: int, node: int, rank: int) -> int:
    """Count the hops from the root to a node; -1 if it is a rank or receives through it."""
    tree, hops = trees.links[row], 0
    while node != rank and tree[node] >= 0:
        node = trees.tails[tree[node]]
        hops += 1
    return -1 if node == rank else hops
