"""All-pairs hop distances by bit-parallel breadth-first search."""

import numpy as np
import numpy.typing as npt

from ...errors import BoundError
from ...support.arrays import IntArray


def hop_distances(num_nodes: int, tails: IntArray, heads: IntArray, name: str) -> npt.NDArray[np.int16]:
    """Return int16 hop distances ``[source, node]`` of int64 (arcs,) arcs; `BoundError` if a node is unreachable."""
    distances = partial_hop_distances(num_nodes, tails, heads)
    if (distances < 0).any():
        node, source = np.argwhere(distances.T < 0)[0].tolist()
        raise BoundError(
            f"node {source} of {name} cannot reach node {node}; add arcs until every node reaches every other"
        )
    return distances


def partial_hop_distances(
    num_nodes: int, tails: IntArray, heads: IntArray, num_ranks: int | None = None
) -> npt.NDArray[np.int16]:
    """Return hop distances as `hop_distances`, -1 where there is no path; 8 sources are searched per byte.

    With `num_ranks`, the sources are the first nodes, and these do not pass anything on.
    """
    sources = num_nodes if num_ranks is None else num_ranks
    found = np.full((num_nodes, sources), -1, dtype=np.int16)  # [node, source]
    np.fill_diagonal(found, 0)
    reached = np.packbits(np.eye(num_nodes, sources, dtype=np.bool_), axis=1)
    frontier, distance = reached.copy(), 0
    by_head = np.argsort(heads, kind="stable")
    tails, heads = tails[by_head], heads[by_head]
    nodes, starts = np.unique(heads, return_index=True)
    while frontier.any() and len(nodes):
        distance += 1
        arrived = np.zeros_like(reached)
        arrived[nodes] = np.bitwise_or.reduceat(frontier[tails], starts, axis=0)
        frontier = arrived & ~reached
        reached |= frontier
        found[np.unpackbits(frontier, axis=1, count=sources).astype(np.bool_)] = distance
        frontier[: num_ranks or 0] = 0
    distances = np.ascontiguousarray(found.T)
    distances.flags.writeable = False
    return distances
