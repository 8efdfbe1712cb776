"""Packing of spanning out-trees by batches of untested trees, each certified by one maximum flow per rank.

By Theorem 8 of ForestColl, what a batch leaves carries the trees still wanted exactly if every rank can receive all of
them at once, which one push-relabel sweep tells.  A batch that fails is quartered; where even one root fails, some
roots are packed with a test of every link (`tree_packing`).  Proof: docs/explanation/algorithms.md.
"""

from typing import NamedTuple

import numpy as np

from ...support import progress
from ...support.arrays import BoolArray, IntArray, SmallArray
from ...support.kernels import kernel
from ..flows.bottleneck import violated_sink
from ..flows.max_flow import check_capacities, paired_network
from .tree_packing import Packing, pack_roots

MOST_ROWS = 2  # trees for each root, after parts of their copies moved
ROUNDS = 8  # in which all ranks even out their links
NEAR, WHOLE, PARTS, MORE = range(4)  # efforts of `_relieve`
MIN_FLOW_ENTRIES = 2**18
"""Ranks times links from which on batches are used; below, tests of all links are quick, and trees a little lower."""
TESTED_ROOTS = 16
"""Roots packed with tests at a time: their flows take as long to set up as a sweep, and then serve all of them."""


def is_large(supplies: IntArray, num_links: int) -> bool:
    """Return whether to pack by batches; trees of few roots are quick to test, and much higher without tests."""
    return int(np.count_nonzero(supplies)) > TESTED_ROOTS and len(supplies) * num_links >= MIN_FLOW_ENTRIES


def pack_in_batches(
    num_ranks: int, tails: IntArray, heads: IntArray, capacities: IntArray, supplies: IntArray, *, seed: int = 0
) -> Packing:
    """Pack spanning out-trees as `tree_packing.pack_trees` does."""
    room = Room(num_ranks, tails, heads, capacities, supplies)
    roots = np.random.default_rng(seed).permutation(num_ranks)
    roots = roots[supplies[roots] > 0]
    packings = [Packing(roots[:0], roots[:0], np.empty((0, num_ranks), dtype=np.int32))]
    done, size = 0, len(roots)
    with progress.task(len(roots)) as reached:
        while done < len(roots):
            packing = room.grow(roots[done : done + size])
            if packing is None and size > 1:
                size = max(1, size // 4)
                continue
            if packing is None:
                size = TESTED_ROOTS
                packing = room.grow_tested(roots[done : done + size])
            packings.append(packing)
            done = min(done + size, len(roots))
            size *= 2
            reached(done)
    return Packing(*map(np.concatenate, zip(*packings, strict=True)))


class Room:
    """The capacity left and the trees wanted; links are sorted by tail."""

    def __init__(
        self, num_ranks: int, tails: IntArray, heads: IntArray, capacities: IntArray, supplies: IntArray
    ) -> None:
        check_capacities(sum(map(int, capacities)) + sum(map(int, supplies)))
        order = np.argsort(tails, kind="stable")
        self.tails, self.heads, self.left, self.wanted = tails[order], heads[order], capacities[order], supplies.copy()
        self.starts = np.searchsorted(self.tails, np.arange(num_ranks + 1))
        self.numbers = np.append(order, -1).astype(np.int32)

    def grow(self, batch: IntArray) -> Packing | None:
        """Pack all trees of these roots untested; None, and nothing changed, if the rest would not fit."""
        left, demands = self.left.copy(), self.wanted.copy()
        batch = batch[demands[batch] > 0]
        packing = exchanged_trees(self.starts, self.tails, self.heads, left, batch, demands[batch])
        demands[batch] = 0
        if packing is None or (demands.any() and not self._carries(left, demands)):
            return None
        self.left, self.wanted = left, demands
        return packing._replace(links=self.numbers[packing.links])

    def _carries(self, left: IntArray, demands: IntArray) -> bool:
        kept = left > 0
        network = paired_network(len(demands), self.tails[kept], self.heads[kept], left[kept])
        return violated_sink(network, demands) < 0

    def grow_tested(self, batch: IntArray) -> Packing:
        """Pack all trees of these roots with a test of every link."""
        kept = np.flatnonzero(self.left)
        links = self.tails[kept], self.heads[kept], self.left[kept]
        packing, self.left[kept] = pack_roots(len(self.wanted), *links, self.wanted, batch)
        self.wanted[batch] = 0
        numbers = np.append(self.numbers[kept], self.numbers[-1:])
        return packing._replace(links=numbers[packing.links])


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
    done, reached = 0, 1
    while done < reached:
        depth = depths[queue[done]] + 1
        for link in range(starts[queue[done]], starts[queue[done] + 1]):
            head = heads[link]
            if usable[link] and depths[head] < 0:
                depths[head], tree[head], queue[reached] = depth, link, head
                reached += 1
            elif usable[link] and depths[head] == depth and left[link] > left[tree[head]]:
                tree[head] = link
        done += 1
    for link in tree:
        if link >= 0:
            left[link] -= trees.weights[row]
    return reached == len(tree)


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
