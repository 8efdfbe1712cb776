"""Packing of spanning out-trees by batches of untested trees, each certified by one maximum flow per rank.

Trees grow by level along the links with most capacity left.  By Theorem 8 of ForestColl, what is left carries the trees
still wanted exactly if every rank can receive all of them at once, which one push-relabel sweep tells.  A batch that
fails is taken back and quartered; after one that fits the next is twice as large.  Where even one root fails, some
roots are packed with a test of every link (`tree_packing`).  Proof: docs/explanation/algorithms.md.
"""

import numpy as np

from ...support import progress
from ...support.arrays import IntArray, SmallArray
from ...support.compiling.kernels import kernel
from ..flow.max_flow import check_capacities, paired_network
from .bottleneck import violated_sink
from .tree_packing import Packing, pack_roots

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
        left, wanted = self.left.copy(), self.wanted.copy()
        roots, weights, trees = [], [], []
        for root in batch.tolist():
            while wanted[root]:
                tree = np.full(len(wanted), -1, dtype=np.int32)
                copies = _grow_tree(self.starts, self.heads, left, wanted[root], root, tree)
                if not copies:
                    return None
                wanted[root] -= copies
                roots.append(root)
                weights.append(copies)
                trees.append(tree)
        if wanted.any() and not self._carries(left, wanted):
            return None
        self.left, self.wanted = left, wanted
        links = self.numbers[np.array(trees, dtype=np.int32).reshape(-1, len(wanted))]
        return Packing(np.array(roots, dtype=np.int64), np.array(weights, dtype=np.int64), links)

    def _carries(self, left: IntArray, wanted: IntArray) -> bool:
        kept = left > 0
        network = paired_network(len(wanted), self.tails[kept], self.heads[kept], left[kept])
        return violated_sink(network, wanted) < 0

    def grow_tested(self, batch: IntArray) -> Packing:
        """Pack all trees of these roots with a test of every link."""
        kept = np.flatnonzero(self.left)
        links = self.tails[kept], self.heads[kept], self.left[kept]
        packing, self.left[kept] = pack_roots(len(self.wanted), *links, self.wanted, batch)
        self.wanted[batch] = 0
        numbers = np.append(self.numbers[kept], self.numbers[-1:])
        return packing._replace(links=numbers[packing.links])


@kernel
def _grow_tree(starts: IntArray, heads: IntArray, left: IntArray, copies: int, root: int, tree: SmallArray) -> int:
    """Grow one tree of up to `copies` copies, write its links into `tree` and return its copies; 0 if it cannot span.

    Breadth first; each rank takes the link with most capacity left from the level before.  If no link out of the tree
    has room for all copies, it goes on with as many as some link has.
    """
    depths = np.full(len(tree), -1, dtype=np.int64)
    queue = np.empty(len(tree), dtype=np.int64)
    depths[root], queue[0] = 0, root
    done, found = 0, 1
    while True:
        while done < found:
            depth = depths[queue[done]] + 1
            for link in range(starts[queue[done]], starts[queue[done] + 1]):
                head = heads[link]
                if left[link] < copies:
                    continue
                if depths[head] < 0:
                    depths[head], tree[head], queue[found] = depth, link, head
                    found += 1
                elif depths[head] == depth and left[link] > left[tree[head]]:
                    tree[head] = link
            done += 1
        if found == len(tree):
            break
        copies, done = _most_left(starts, heads, left, queue[:found], depths), 0
        if copies == 0:
            return 0
    for link in tree:
        if link >= 0:
            left[link] -= copies
    return copies


@kernel
def _most_left(starts: IntArray, heads: IntArray, left: IntArray, grown: IntArray, depths: IntArray) -> int:
    """Return the largest capacity left of a link from the ranks `grown` to those without a depth."""
    most: int = 0
    for tail in grown:
        for link in range(starts[tail], starts[tail + 1]):
            if depths[heads[link]] < 0:
                most = max(most, left[link])
    return most
