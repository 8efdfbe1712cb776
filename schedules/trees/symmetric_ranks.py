"""What one rank sends and receives in a symmetric forest, in time linear in that."""

from typing import NamedTuple

import numpy as np

from ...support.arrays import IntArray
from ...topologies.network.links import as_root
from .symmetric_forest import SymmetricForest


class RankEdges(NamedTuple):
    """By edges of trees at a rank, shape (edges,): `roots`, `trees` in ``schedule.base``, `peers`, and `depths`.

    The root is the rank whose shard the tree carries, the peer that at the other end; edges are sorted by their depths,
    hops between the root and the farther end.
    """

    roots: IntArray
    trees: IntArray
    peers: IntArray
    depths: IntArray


class RankTransfers(NamedTuple):
    """Edges of trees `above` a rank, from those that it receives from, and `below`, to those that it sends to.

    With direction "reduce", data runs against them.
    """

    above: RankEdges
    below: RankEdges


def rank_transfers(schedule: SymmetricForest, rank: int) -> RankTransfers:
    """List what one rank sends and receives, without the trees of all roots.

    Parameters
    ----------
    schedule : SymmetricForest
        One that was verified.
    rank : int
        From 0.

    Examples
    --------
    >>> import collopt
    >>> made = collopt.plan(collopt.topologies.torus(4, 4), "allgather", planner="symmetric")
    >>> edges = rank_transfers(made.schedule, 5)
    >>> sorted(set(edges.above.roots.tolist())) == [root for root in range(16) if root != 5]
    True
    """
    base, own = schedule.base, as_root(range(schedule.num_ranks), rank)  # type: ignore[arg-type]
    coordinates = _coordinates(schedule)
    trees, ranks = np.nonzero(base.routes >= 0)
    senders, depths = base.parents[trees, ranks], base.depths[trees, ranks]
    return RankTransfers(
        *(
            _moved(coordinates, own, trees[chosen], depths[chosen], near[chosen], far[chosen], base.roots)
            for near, far in ((ranks, senders), (senders, ranks))
            for chosen in [coordinates.orbits[near] == coordinates.orbits[own]]
        )
    )


class _Coordinates(NamedTuple):
    orbits: IntArray  # int64 (ranks,): place of the representative
    exponents: IntArray  # int64 (ranks, generators): of the product that takes the representative to the rank
    orders: tuple[int, ...]
    ranks: IntArray  # int64 (products, representatives): the other way round


def _coordinates(schedule: SymmetricForest) -> _Coordinates:
    ranks = np.flatnonzero(schedule.base.root_weights)[None]
    orders = []
    for generator in schedule.generators:
        powers = [ranks]
        while (following := generator[powers[-1]])[0, 0] != ranks[0, 0]:
            powers.append(following)
        orders.append(len(powers))
        ranks = np.stack(powers, axis=1).reshape(-1, ranks.shape[1])
    orbits, exponents = np.empty(schedule.num_ranks, np.int64), np.empty((schedule.num_ranks, len(orders)), np.int64)
    orbits[ranks] = np.arange(ranks.shape[1])
    exponents[ranks] = np.stack(np.unravel_index(np.arange(len(ranks)), orders), axis=1)[:, None]
    return _Coordinates(orbits, exponents, tuple(orders), ranks)


def _moved(
    at: _Coordinates, own: int, trees: IntArray, depths: IntArray, near: IntArray, far: IntArray, roots: IntArray
) -> RankEdges:
    """Move edges by the products that take their near ends to one rank."""
    shifts = at.exponents[own] - at.exponents[near]
    ends = []
    for nodes in (roots[trees], far):
        place = np.ravel_multi_index(tuple((at.exponents[nodes] + shifts).T), at.orders, mode="wrap")
        ends.append(at.ranks[place, at.orbits[nodes]])
    order = np.lexsort((trees, ends[0], depths))
    return RankEdges(ends[0][order], trees[order], ends[1][order], depths[order])
