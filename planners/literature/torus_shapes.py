"""Coordinates of ranks on a torus, found from its links.

A torus has links between ranks, or a router at each rank and links between routers.  The names of nodes do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from ...errors import NoAnswerError, UnsupportedError
from ...support.arrays import IntArray, distances_from
from ...topologies import DirectGraph, Topology
from ...topologies.symmetry.isomorphism import isomorphism

MAX_RENUMBERED = 2**12  # ranks up to which a torus is recognized whatever the order of its ranks


class Torus(NamedTuple):
    """Ranks by their coordinates.

    Shapes: `places` int64 (ranks, dimensions); `ranks` int64 (ranks,), the rank at each place, the last coordinate
    fastest; `routers` int64 (ranks,), the switch at each rank, None where ranks are linked themselves.
    """

    shape: tuple[int, ...]
    places: IntArray
    ranks: IntArray
    routers: IntArray | None

    @property
    def label(self) -> str:
        """Such as ``"8x8"``."""
        return "x".join(map(str, self.shape))

    def moved(self, axis: int, amounts: IntArray) -> IntArray:
        """Return the rank that is so far from each rank along a dimension. Shapes: `amounts` int64 (ranks,)."""
        there = self.places.copy()
        there[:, axis] += amounts
        places: IntArray = np.ravel_multi_index(tuple(there.T), self.shape, mode="wrap")
        ranks: IntArray = self.ranks[places]
        return ranks

    @classmethod
    def in_order(cls, shape: Sequence[int], routers: IntArray | None = None) -> Torus:
        """Make the torus whose ranks count the last coordinate fastest."""
        numbers = np.arange(prod(shape))
        places = np.stack(np.unravel_index(numbers, tuple(shape)), axis=1).astype(np.int64)
        return cls(tuple(shape), places, numbers, routers)


def find_torus(topology: Topology) -> Torus | None:
    """Find the coordinates of all ranks, by their order where there are several; None if the network is no torus."""
    between = _arcs_between_ranks(topology)
    if between is None:
        return None
    tails, heads, routers = between
    count = topology.num_ranks
    arcs = np.unique(tails * count + heads)
    degrees = np.bincount(tails, minlength=count)
    if not np.array_equal(arcs, np.unique(heads * count + tails)) or (degrees != degrees[0]).any():
        return None
    shapes = list(_shapes(count, int(degrees[0])))
    for shape in shapes:
        if np.array_equal(arcs, _arcs_of(Torus.in_order(shape))):
            return Torus.in_order(shape, routers)
    if count > MAX_RENUMBERED:
        return None
    profile = np.bincount(distances_from(0, count, tails, heads))
    for shape in shapes:
        places = Torus.in_order(shape).places
        expected = np.bincount(np.minimum(places, np.array(shape) - places).sum(axis=1))
        if np.array_equal(expected, profile) and (torus := _renumbered(tails, heads, shape, routers)):
            return torus
    return None


def needed_torus(topology: Topology, planner: str) -> Torus:
    """Return what `find_torus` does, or raise `UnsupportedError`."""
    if (torus := find_torus(topology)) is None:
        raise UnsupportedError(
            f"{planner} needs a torus, with links both ways between its ranks or between routers at them; "
            f"{topology} is none"
        )
    return torus


def grid_of(topology: Topology, planner: str) -> Torus:
    """Return the torus, or, where switches join the ranks, one dimension of all of them in order."""
    torus = find_torus(topology)
    if torus is None and not topology.switch_nodes:
        return needed_torus(topology, planner)
    return torus or Torus.in_order((topology.num_ranks,))


def _arcs_between_ranks(topology: Topology) -> tuple[IntArray, IntArray, IntArray | None] | None:
    """Links between ranks, or between routers that belong to one rank each; None for other networks."""
    tails, heads = topology.arrays.tails, topology.arrays.heads
    count = topology.num_ranks
    if not topology.switch_nodes:
        return tails, heads, None
    if len(topology.switch_nodes) != count:
        return None
    up = (tails < count) & (heads >= count)
    down = (tails >= count) & (heads < count)
    if up.sum() != count or down.sum() != count or ((tails < count) & (heads < count)).any():
        return None
    routers, owners = np.full(count, -1), np.full(count, -1)
    routers[tails[up]] = heads[up]
    owners[tails[down] - count] = heads[down]
    if (routers < 0).any() or (owners[routers - count] != np.arange(count)).any():
        return None
    between = ~up & ~down
    return owners[tails[between] - count], owners[heads[between] - count], routers


def _shapes(count: int, degree: int) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of this size in which a rank has so many neighbors, those of fewest dimensions first."""

    def of(dimensions: int, size: int) -> Iterator[tuple[int, ...]]:
        if dimensions == 1:
            yield (size,)
            return
        for first in range(2, size // 2 ** (dimensions - 1) + 1):
            if size % first == 0:
                yield from ((first, *sizes) for sizes in of(dimensions - 1, size // first))

    for dimensions in range(1, degree + 1):
        for shape in of(dimensions, count):
            if sum(min(size, 3) - 1 for size in shape) == degree:
                yield shape


def _arcs_of(torus: Torus) -> IntArray:
    """Sorted ``tail * ranks + head`` of all arcs."""
    count = len(torus.ranks)
    ways = product(range(len(torus.shape)), (1, -1))
    heads = [torus.moved(axis, np.full(count, side)) for axis, side in ways]
    return np.unique(np.tile(np.arange(count) * count, len(heads)) + np.concatenate(heads))


def _renumbered(tails: IntArray, heads: IntArray, shape: tuple[int, ...], routers: IntArray | None) -> Torus | None:
    """Match the links with those of a torus whose ranks are in another order."""
    plain = Torus.in_order(shape)
    count = len(plain.ranks)
    graphs = (
        DirectGraph.from_arcs(count, np.stack(ends, axis=1).tolist(), name)
        for ends, name in (((tails, heads), "network"), (np.divmod(_arcs_of(plain), count), "torus"))
    )
    try:
        numbers = isomorphism(*graphs)
    except NoAnswerError:
        return None
    return None if numbers is None else Torus(shape, plain.places[numbers], np.argsort(numbers), routers)
