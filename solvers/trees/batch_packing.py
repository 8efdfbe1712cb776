"""Packing of spanning out-trees by batches of untested trees, each certified by one maximum flow per rank.

`parent_exchange` packs the trees of a batch.  By Theorem 8 of ForestColl, what is left carries the trees still wanted
exactly if every rank can receive all of them at once, which one push-relabel sweep tells.  A batch that fails
is taken back and quartered; after one that fits the next is twice as large.  Where even one root fails, some roots are
packed with a test of every link (`tree_packing`).  Proof: docs/explanation/algorithms.md.
"""

import numpy as np

from ...support import progress
from ...support.arrays import IntArray
from ..flow.max_flow import check_capacities, paired_network
from .bottleneck import violated_sink
from .parent_exchange import exchanged_trees
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
        batch = batch[wanted[batch] > 0]
        found = exchanged_trees(self.starts, self.tails, self.heads, left, batch, wanted[batch])
        wanted[batch] = 0
        if found is None or (wanted.any() and not self._carries(left, wanted)):
            return None
        self.left, self.wanted = left, wanted
        return found._replace(links=self.numbers[found.links])

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
