"""How deep trees are, given by whom each rank receives from: many trees at once, by doubling."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...support.arrays import IntArray

__all__ = ["depth_blocks"]


BLOCK_ENTRIES = 2**19
"""Tree entries that are worked on at a time: what fits the processor's cache."""


def depth_blocks(senders: IntArray, routes: npt.NDArray[np.integer], roots: IntArray) -> Iterator[IntArray]:
    """Yield how many hops each rank is from its root, a block of trees after the other.

    Shapes: `senders` int64 (paths + 1,); `routes` (trees, ranks); `roots` int64 (trees,); yields int64 (trees of the
    block, ranks).

    Rank 0 sends to rank 1, which sends to rank 2:

    >>> [block] = depth_blocks(np.array([0, 1, -1]), np.array([[-1, 0, 1]]), np.array([0]))
    >>> block.tolist()
    [[0, 1, 2]]
    """
    trees, ranks = routes.shape
    size = max(1, BLOCK_ENTRIES // max(1, ranks))
    for first in range(0, trees, size):
        block = slice(first, first + size)
        yield _depths(senders[routes[block]], roots[block, None])


def _depths(parents: IntArray, roots: IntArray) -> IntArray:
    """Hops to the root: each round, everyone adds what its ancestor has come so far and takes over its ancestor."""
    count, ranks = parents.shape
    own = np.arange(ranks)
    stays = (own == roots) | (parents < 0) | (parents >= ranks)
    # Places in the flattened block, which are quicker to follow than columns.
    base = np.arange(count)[:, None] * ranks
    ancestors = (np.where(stays, own, parents) + base).ravel()
    hops = (~stays).astype(np.int64).ravel()
    goals = np.broadcast_to(roots + base, parents.shape).ravel()
    for _ in range(ranks.bit_length()):
        arrived = ancestors == goals
        if arrived.all():
            break
        hops += hops[ancestors]
        ancestors = ancestors[ancestors]
    hops[ancestors != goals] = ranks
    depths: IntArray = hops.reshape(parents.shape)
    return depths
