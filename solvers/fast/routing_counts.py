"""Counts of routed tokens: which GPUs of each server want a token, tokens sorted by that, and sums over subsets.

The GPUs of one server that want a token are the bits of one byte.  All copies of tokens inside servers follow from the
number of tokens of each byte, as tokens go in the order of their bytes.
"""

import numpy as np
import numpy.typing as npt

from ...support.arrays import IntArray
from ...support.kernels import runtime_kernel

MaskArray = npt.NDArray[np.uint8]


@runtime_kernel
def destination_masks(indices: IntArray, homes: IntArray, servers: int, gpus: int) -> MaskArray:
    """Return the GPUs that want each token, by server; shapes (tokens, choices) and (experts,) to (tokens, servers)."""
    masks = np.zeros((len(indices), servers), dtype=np.uint8)
    server, bit = homes // gpus, (1 << homes % gpus).astype(np.uint8)
    for token in range(len(indices)):
        for expert in indices[token]:
            masks[token, server[expert]] |= bit[expert]
    return masks


@runtime_kernel
def sorted_by_mask(masks: MaskArray, gpus: int) -> tuple[IntArray, IntArray, IntArray]:
    """Count tokens by server and mask, and sort each server's by mask, then number.

    Shapes: returns int64 (servers, 2^gpus), with 0 for the empty mask; the sorted tokens, server by server; and where
    each server's begin, int64 (servers + 1,).
    """
    tokens, servers = masks.shape
    histogram = np.zeros((servers, 1 << gpus), dtype=np.int64)
    for token in range(tokens):
        for server in range(servers):
            histogram[server, masks[token, server]] += 1
    histogram[:, 0] = 0
    places = np.zeros((servers, 1 << gpus), dtype=np.int64)
    begins = np.zeros(servers + 1, dtype=np.int64)
    total = 0
    for server in range(servers):
        for mask in range(1 << gpus):
            places[server, mask] = total
            total += histogram[server, mask]
        begins[server + 1] = total
    ordered = np.empty(total, dtype=np.int64)
    for token in range(tokens):
        for server in range(servers):
            mask = masks[token, server]
            if mask:
                ordered[places[server, mask]] = token
                places[server, mask] += 1
    return histogram, ordered, begins


@runtime_kernel
def heaviest_subset(once: IntArray, classes: IntArray) -> tuple[int, int]:
    """Find the servers X with the most sends per server that no relays among X can do without: sends and servers.

    These are the sum of ``once[i]`` over X, and ``|S| - 1`` for each token of a server i in X whose set S of other
    servers is in X.

    Shapes: `once` int64 (servers,); `classes` int64 (servers, 2^servers), tokens by their set S, as bits.
    """
    servers, subsets = classes.shape
    sends = np.zeros(subsets, dtype=np.int64)
    sizes = np.zeros(subsets, dtype=np.int64)
    for subset in range(1, subsets):
        sizes[subset] = sizes[subset >> 1] + (subset & 1)
    for server in range(servers):
        sends[1 << server] += once[server]
        for subset in range(1, subsets):
            sends[subset | (1 << server)] += classes[server, subset] * (sizes[subset] - 1)
    for server in range(servers):
        for subset in range(subsets):
            if subset >> server & 1:
                sends[subset] += sends[subset ^ (1 << server)]
    best, size = 0, 1
    for subset in range(1, subsets):
        if sends[subset] * size > best * sizes[subset]:
            best, size = sends[subset], sizes[subset]
    return best, size
