"""Nested groups of ranks, as mixed-radix digits: boxes inside racks inside rails, rows and columns of a torus.

For each distance through switches, ranks that hops of at most this distance join are a group, and inside them those
that wider links join; levels whose groups have unequal sizes are left out.  Where near ranks form a grid in rank order,
its coordinates are digits too.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...support.arrays import BoolArray, IntArray, components, read_only
from ..network.direct_graph import partial_hop_distances
from ..network.topology import Topology

UNREACHED = np.iinfo(np.int16).max
MOST_WIDTHS = 8  # bandwidths of links, above which these tell no groups


class RankGroups(NamedTuple):
    """Mixed-radix digits of the ranks: the group on each level, the outermost first."""

    digits: IntArray  # int64 (ranks, levels)
    sizes: tuple[int, ...]  # How many digits there are on each level

    @property
    def places(self) -> IntArray:
        """Rank of each combination of digits, int64, shape `sizes`."""
        ranks = np.empty(len(self.digits), dtype=np.int64)
        ranks[self.values] = np.arange(len(self.digits))
        return ranks.reshape(self.sizes)

    @property
    def values(self) -> IntArray:
        """The digits of each rank as one number, int64, shape (ranks,)."""
        return np.asarray(np.ravel_multi_index(tuple(self.digits.T), self.sizes), dtype=np.int64)


@lru_cache(maxsize=4)  # every schedule on a network asks for them
def rank_groups(topology: Topology) -> RankGroups:
    """Find nested groups of ranks of equal sizes; ranks on one switch, and those of networks without groups, are one.

    Equal innermost digits are peers: the nearest ranks of each other's groups, as on rails, or else by their order.
    """
    # Levels of groups, the innermost places matched between groups.
    distances = rank_distances(topology)
    labels = _nested_labels(distances)
    labels += _labels_by_width(topology, distances, labels[-1] if labels else np.zeros(len(distances), dtype=np.int64))
    digits, sizes = _digits(labels, topology.num_ranks)
    digits[:, -1] = _peers(digits, sizes, distances)
    # Coordinates of a grid inside the innermost groups.
    strides = _grid_strides(digits[:, -1], sizes[-1], distances)
    ends = (sizes[-1], *strides)  # a digit is what the next larger stride leaves, by its own stride
    inner = [digits[:, -1] % end // stride for end, stride in zip(ends, (*strides, 1), strict=True)]
    shape = [end // stride for end, stride in zip(ends, (*strides, 1), strict=True)]
    return RankGroups(read_only(np.column_stack([digits[:, :-1], *inner])), (*sizes[:-1], *shape))


def one_group(num_ranks: int) -> RankGroups:
    """Return all ranks as one group, for a network that is not known."""
    return RankGroups(read_only(np.arange(num_ranks, dtype=np.int64)[:, None]), (num_ranks,))


def rank_distances(topology: Topology) -> IntArray:
    """Links of the shortest path between ranks that passes only switches, int16 (ranks, ranks), in either direction.

    The longer direction counts; `UNREACHED` where one has no such path.
    """
    ranks, (tails, heads, _, _) = topology.num_ranks, topology.arrays
    distances = partial_hop_distances(len(topology.nodes), tails, heads, ranks)[:, :ranks]
    distances = np.where(distances < 0, np.int16(UNREACHED), distances)
    return np.maximum(distances, distances.T)


def _nested_labels(distances: IntArray) -> list[IntArray]:
    """Group numbers of the ranks, int64 (ranks,), on each level, the outermost first; all groups of a level alike."""
    kept: list[IntArray] = []
    inside = np.arange(len(distances))
    for threshold in np.unique(distances[distances < UNREACHED]).tolist():
        near = distances <= threshold
        labels = components(len(near), np.argwhere(near))
        joined = not labels.any()
        if joined:
            labels = _cliques(near, inside)
        members = np.bincount(labels)
        if 1 < len(members) < len(np.unique(inside)) and (members == members[0]).all():
            kept.insert(0, labels)
            inside = labels
        if joined:
            break
    return kept


def _labels_by_width(topology: Topology, distances: IntArray, outside: IntArray) -> list[IntArray]:
    """Group numbers of ranks that wider links join, int64 (ranks,), inside groups of ranks equally far by switches."""
    kept: list[IntArray] = []
    tails, heads, capacities, _ = topology.arrays
    widths = np.unique(capacities)[1:]
    lengths = np.unique(distances[(outside[:, None] == outside) & (distances > 0)])
    if len(lengths) != 1 or lengths[0] < 2 or len(widths) >= MOST_WIDTHS:
        return kept
    for width in widths:
        wide = capacities >= width
        nodes = components(len(topology.nodes), np.column_stack([tails[wide], heads[wide]]))
        labels = np.unique(nodes[: topology.num_ranks], return_inverse=True)[1].astype(np.int64)
        members = np.bincount(labels)
        is_nested = len(np.unique(labels * (outside.max() + 1) + outside)) == len(members)
        if is_nested and outside.max() + 1 < len(members) < len(labels) and (members == members[0]).all():
            kept.append(labels)
            outside = labels
    return kept


def _cliques(near: BoolArray, inside: IntArray) -> IntArray:
    """Join groups, int64 (ranks,), that all touch each other, as routers of a dragonfly do in a group; else all zeros.

    Two groups that touch are of one clique if the cliques are what is left of the touching pairs with most in common.
    """
    _, first = np.unique(inside, return_index=True)
    by_group = np.argsort(inside, kind="stable")
    starts = np.cumsum([0, *np.bincount(inside)[:-1]])
    touching = np.logical_or.reduceat(near[by_group][:, by_group], starts, axis=0)
    touching = np.logical_or.reduceat(touching, starts, axis=1)
    common = np.where(touching, touching.astype(np.float32) @ touching.astype(np.float32), 0)
    np.fill_diagonal(common, 0)
    for threshold in np.unique(common[common > 2])[::-1]:  # two that touch have both themselves in common
        joined = (common >= threshold) | np.eye(len(first), dtype=np.bool_)
        labels = components(len(joined), np.argwhere(joined))
        if joined.sum() == (np.bincount(labels) ** 2).sum() and labels.any():
            return labels[inside]
    return np.zeros_like(inside)


def _digits(labels: list[IntArray], ranks: int) -> tuple[IntArray, tuple[int, ...]]:
    """Number groups inside their groups, and ranks inside the innermost ones, in their order."""
    columns, sizes = [], []
    parents = np.zeros(ranks, dtype=np.int64)
    for level in [*labels, np.arange(ranks)]:
        size = (int(level.max()) + 1) // (int(parents.max()) + 1)
        _, first = np.unique(level, return_index=True)
        order = np.argsort(parents[first], kind="stable")
        number = np.empty(len(first), dtype=np.int64)
        number[order] = np.arange(len(first)) % size
        columns.append(number[level])
        sizes.append(size)
        parents = level
    return np.column_stack(columns), tuple(sizes)


def _peers(digits: IntArray, sizes: tuple[int, ...], distances: IntArray) -> IntArray:
    """Places in the innermost groups, changed so that the nearest rank of another group has the same, if it is one."""
    places = digits[:, -1].copy()
    order = np.lexsort(digits.T[::-1])
    groups = order.reshape(-1, sizes[-1])
    for group in groups[1:]:
        lengths = distances[np.ix_(groups[0], group)]
        nearest = lengths == lengths.min(axis=1, keepdims=True)
        if (nearest.sum(axis=0) == 1).all() and (nearest.sum(axis=1) == 1).all():
            places[group[nearest.argmax(axis=1)]] = np.arange(sizes[-1])
    return places


def _grid_strides(places: IntArray, size: int, distances: IntArray) -> tuple[int, ...]:
    """Strides of the digits of places by which near ranks differ in one digit only, the largest first, 1 left out."""
    near = distances == distances[distances > 0].min()
    tails, heads = (places[ends] for ends in np.nonzero(near))
    strides = [1]
    for stride in range(2, size):
        if size % stride == 0 and stride % strides[-1] == 0:
            diagonal = (tails // stride != heads // stride) & (tails % stride != heads % stride)
            if not diagonal.any():
                strides.append(stride)
    return tuple(strides[:0:-1])
