"""Trees that branch at switches: their vertices, their loads, and the same trees sent from rank to rank."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...support.arrays import BoolArray, IntArray, SmallArray, joined_rows

Routes = npt.NDArray[np.integer]


class NumberedRoutes(NamedTuple):
    """Routes, and the paths that they number."""

    routes: SmallArray  # int32 (trees, vertices)
    path_starts: IntArray
    path_nodes: IntArray


class Abilities(NamedTuple):
    """Abilities of each node, shape (nodes,), and the links that a looped copy takes."""

    branches: BoolArray  # whether it copies, or adds where data runs towards the root
    loops: BoolArray  # whether a copy goes back to the rank above it
    group: IntArray  # neighbors in a tree at most
    opposite: IntArray  # int64 (hops of all paths,): the opposite link of each hop, -1 for none
    room: IntArray  # int64 (links,): copies for which each link has room; those of a tree are taken off


def columns(nodes: IntArray, num_ranks: int, switches: IntArray) -> IntArray:
    """Look up nodes among the vertices of trees: ranks, then `switches`; other nodes keep numbers beyond all columns.

    Shapes: any shape of `nodes`, returned.
    """
    if not len(switches):
        return nodes
    size = num_ranks + len(switches)
    lookup = np.arange(max(int(nodes.max(initial=0)), int(switches.max())) + 2) + size
    lookup[:num_ranks] = np.arange(num_ranks)
    lookup[switches] = np.arange(num_ranks, size)
    lookup[-1] = -1
    return lookup[nodes]


def num_children(parents: IntArray) -> IntArray:
    """How many vertices each vertex hands its data on to, shape (trees, vertices)."""
    children = np.zeros(parents.shape, dtype=np.int64)
    trees, vertices = np.nonzero((parents >= 0) & (parents < parents.shape[1]))
    np.add.at(children, (trees, parents[trees, vertices]), 1)
    return children


def branching(parents: IntArray, num_ranks: int) -> BoolArray:
    """Whether each vertex is a switch that hands data on to two vertices, or to another switch; (trees, vertices)."""
    children = np.zeros(parents.shape, dtype=np.int64)
    trees, vertices = np.nonzero((parents >= num_ranks) & (parents < parents.shape[1]))
    np.add.at(children, (trees, parents[trees, vertices]), np.where(vertices < num_ranks, 1, 2))
    return children >= 2


def without_leaves(parents: IntArray, num_ranks: int) -> IntArray:
    """Leave out switches that hand data on to nobody, and those above them that then do not either.

    Shapes: `parents`, returned, int64 (trees, vertices); -1 where a vertex is not part of a tree any more.
    """
    while True:
        idle = (num_children(parents) == 0) & (parents >= 0)
        idle[:, :num_ranks] = False
        if not idle.any():
            return parents
        parents = np.where(idle, -1, parents)


def joined_routes(
    routes: Routes, parents: IntArray, kept: BoolArray, path_starts: IntArray, path_nodes: IntArray
) -> NumberedRoutes:
    """Join the paths into and out of vertices that are not kept, so that data passes them on one path.

    Shapes: `routes`, `parents`, `kept` (trees, vertices).
    """
    chains = [np.where(kept, routes, -1).astype(np.int64)]
    above, last = parents, routes.shape[1]
    for _ in range(last):
        place = np.where((above >= 0) & (above < last), above, 0)
        passed = (place == above) & ~np.take_along_axis(kept, place, axis=1) & kept
        if not passed.any():
            break
        chains.append(np.where(passed, np.take_along_axis(routes, place, axis=1), -1))
        above = np.where(passed, np.take_along_axis(parents, place, axis=1), above)
    rows = np.stack(chains, axis=-1)
    used = rows[..., 0] >= 0
    kinds, numbers = np.unique(rows[used], axis=0, return_inverse=True)
    joined = np.full(used.shape, -1, dtype=np.int32)
    joined[used] = numbers.ravel()
    paths = [_joined(chain, path_starts, path_nodes) for chain in kinds.tolist()]
    return NumberedRoutes(joined, *joined_rows(paths))


def _joined(chain: list[int], starts: IntArray, nodes: IntArray) -> list[int]:
    """Nodes along a chain of paths, from the last in `chain` to the first, with loops cut off."""
    path: list[int] = []
    for number in reversed(chain):
        if number < 0:
            continue
        for node in nodes[starts[number] : starts[number + 1]].tolist():
            if node in path:
                del path[path.index(node) :]
            path.append(node)
    return path
