"""Array types, read-only views, distinct numbers, rows in one array, distances and components of graphs."""

from collections.abc import Collection
from typing import TypeVar

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
SmallArray = npt.NDArray[np.int32]
ShortArray = npt.NDArray[np.int16]
RandomArray = npt.NDArray[np.uint64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

Item = TypeVar("Item", bound=np.generic)


def read_only(array: npt.NDArray[Item]) -> npt.NDArray[Item]:
    """Return a read-only view of an array, or the array itself if it is read-only already."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


DENSE = 8  # times the keys that a table of all numbers up to the largest key may have


def distinct(keys: IntArray) -> tuple[IntArray, IntArray]:
    """Sort and number the distinct keys, none of them negative; faster than `numpy.unique` where they are small."""
    size = int(keys.max()) + 1
    if size > DENSE * len(keys):
        return np.unique(keys, return_inverse=True)
    there = np.zeros(size, dtype=np.bool_)
    there[keys] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[keys]


def joined_rows(rows: Collection[Collection[int]]) -> tuple[IntArray, IntArray]:
    """Put rows one after the other: where each begins and the last one ends, int64 (rows + 1,), and their numbers."""
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return starts, np.array([number for row in rows for number in row], dtype=np.int64)


def distances_from(starts: IntArray | int, size: int, tails: IntArray, heads: IntArray) -> IntArray:
    """Links on the shortest way from the nearest of some nodes to each, -1 where there is none; int64 (size,)."""
    distances = np.full(size, -1, dtype=np.int64)
    distances[starts] = distance = 0
    while len(fresh := heads[(distances[tails] == distance) & (distances[heads] < 0)]):
        distance += 1
        distances[fresh] = distance
    return distances


def components(size: int, pairs: npt.ArrayLike) -> IntArray:
    """Number the components that pairs of nodes join, (pairs, 2), by their first nodes; int64 (size,)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    tails, heads = np.asarray(pairs, dtype=np.int64).reshape(-1, 2).T
    graph = coo_array((np.ones(len(tails), dtype=np.bool_), (tails, heads)), shape=(size, size))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def orbits(images: IntArray) -> IntArray:
    """Number the orbits that permutations generate, by their first members; (generators, size) gives (size,)."""
    count, size = images.shape
    return components(size, np.column_stack((np.tile(np.arange(size), count), images.ravel())))


def narrow(numbers: IntArray) -> npt.NDArray[np.unsignedinteger]:
    """Return numbers from 0 on in the narrowest type; those of up to 16 bits are sorted by digits, in linear time."""
    return numbers.astype(np.min_scalar_type(numbers.max(initial=0)))
