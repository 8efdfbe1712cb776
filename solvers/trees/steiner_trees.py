"""Steiner arborescences on a table of distances: exact by Dreyfus and Wagner, or greedy; and dual ascent by Wong.

Dreyfus and Wagner, The Steiner problem in graphs, Networks 1(3), 1971: the cheapest tree from a node for a set of
targets is that from the best node where the set divides into two.  Wong, A dual ascent approach for Steiner tree
problems on a directed graph, Mathematical Programming 28, 1984: cuts that a tree has to enter, raised one by one.
Distances are int64 (nodes, nodes), `FAR` where there is no way.
"""

from typing import NamedTuple

import numpy as np

from ...support.arrays import BoolArray, IntArray

FAR = 2**60
MAX_TARGETS = 10  # of exact trees, whose work grows threefold with each


class Tree(NamedTuple):
    """Ways of a tree, int64 (ways, 2), each after the one that reaches its beginning, and the sum of their lengths."""

    cost: int
    ways: IntArray


def exact_tree(lengths: IntArray, sources: IntArray, targets: IntArray) -> Tree:
    """Find the cheapest ways from any of the sources to all targets; nothing if some cannot be reached."""
    # Sources have the data, so that whoever has it may as well take it from there.
    nearest = lengths[sources].argmin(axis=0)
    from_source = lengths[sources[nearest], np.arange(len(lengths))]
    free = np.minimum(lengths, from_source[None, :])
    splits, ways, cost = _dreyfus_wagner(free, targets)
    if cost[sources[0]] >= FAR:
        return Tree(FAR, np.empty((0, 2), dtype=np.int64))
    # From the first source down: where a set of targets is handed over, it may come from another source.
    tree_ways: list[tuple[int, int]] = []
    open_sets = [(2 ** len(targets) - 1, int(sources[0]))]
    while open_sets:
        subset, node = open_sets.pop()
        head = int(ways[subset, node])
        if head != node:
            tree_ways.append((int(sources[nearest[head]]) if from_source[head] < lengths[node, head] else node, head))
        if split := int(splits[subset, head]):
            open_sets += [(split, head), (subset ^ split, head)]
    return Tree(int(cost[sources[0]]), np.array(tree_ways, dtype=np.int64).reshape(-1, 2))


def _dreyfus_wagner(lengths: IntArray, targets: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Find the cheapest trees from every node for all sets of targets.

    Shapes: returns for each set, as bits, and node the part that is split off there, and the node that the way leads
    to, (sets, nodes); and the cost of all targets, (nodes,).
    """
    size, subsets = len(lengths), 1 << len(targets)
    costs = np.full((subsets, size), FAR, dtype=np.int64)
    splits, ways = np.zeros((2, subsets, size), dtype=np.int64)
    for subset in range(1, subsets):
        merged = np.full(size, FAR, dtype=np.int64)
        lowest = subset & -subset
        if subset == lowest:
            merged[targets[lowest.bit_length() - 1]] = 0
        else:
            # Divide the set at each node, its lowest target in the first part.
            parts = _subsets(subset ^ lowest) | lowest
            totals = costs[parts] + costs[subset ^ parts]
            best = totals.argmin(axis=0)
            merged, splits[subset] = np.minimum(totals[best, np.arange(size)], FAR), parts[best]
        # Reach the best of these nodes.
        heads = np.flatnonzero(merged < FAR)
        if len(heads):
            totals = lengths[:, heads] + merged[heads]
            ways[subset] = heads[totals.argmin(axis=1)]
            costs[subset] = np.minimum(totals.min(axis=1), FAR)
    return splits, ways, costs[-1]


def _subsets(bits: int) -> IntArray:
    """All subsets of some bits but these themselves, int64."""
    subsets, part = [], bits
    while part:
        part = (part - 1) & bits
        subsets.append(part)
    return np.array(subsets, dtype=np.int64)


def greedy_tree(lengths: IntArray, sources: IntArray, targets: IntArray) -> Tree:
    """Reach the nearest target from what is reached, again and again (Takahashi and Matsuyama, 1980)."""
    distance, begin = lengths[sources].min(axis=0), sources[lengths[sources].argmin(axis=0)]
    left, cost, ways = set(targets.tolist()) - set(sources.tolist()), 0, []
    while left:
        head = min(left, key=lambda target: (distance[target], target))
        if distance[head] >= FAR:
            return Tree(FAR, np.empty((0, 2), dtype=np.int64))
        left.discard(head)
        cost += int(distance[head])
        ways.append((int(begin[head]), head))
        nearer = lengths[head] < distance
        distance, begin = np.where(nearer, lengths[head], distance), np.where(nearer, head, begin)
    return Tree(cost, np.array(ways, dtype=np.int64).reshape(-1, 2))


class Ascent(NamedTuple):
    """Cuts that a tree has to enter, bool (cuts, nodes), and their weights, int64 (cuts,)."""

    cuts: BoolArray
    weights: IntArray


def dual_ascent(hops: IntArray, sources: IntArray, targets: IntArray) -> Ascent:
    """Raise cuts around targets until hops of no reduced length lead from sources to all, the smallest cut first.

    Shapes: `hops` int64 (nodes, nodes), lengths of single hops.
    """
    reduced = hops.copy()
    np.fill_diagonal(reduced, 0)
    is_source = np.zeros(len(hops), dtype=np.bool_)
    is_source[sources] = True
    inside = {target: _behind(reduced, target) for target in targets.tolist()}
    cuts, weights = list[BoolArray](), list[int]()
    while waiting := [target for target, cut in inside.items() if not (cut & is_source).any()]:
        target = min(waiting, key=lambda target: int(inside[target].sum()))
        cut = inside[target]
        entering = reduced[np.ix_(~cut, cut)]
        if not entering.size or (weight := int(entering.min())) >= FAR // 2:
            del inside[target]  # out of reach
            continue
        reduced[np.ix_(~cut, cut)] = entering - weight
        cuts.append(cut)
        weights.append(weight)
        inside |= {other: _behind(reduced, other) for other in waiting if inside[other][target]}
    return Ascent(np.array(cuts, dtype=np.bool_).reshape(-1, len(hops)), np.array(weights, dtype=np.int64))


def _behind(reduced: IntArray, target: int) -> BoolArray:
    """Mark the nodes from which hops of length 0 lead to a target, bool (nodes,)."""
    reached = np.zeros(len(reduced), dtype=np.bool_)
    reached[target] = True
    last = np.array([target])
    while len(last):
        new = (reduced[:, last] == 0).any(axis=1) & ~reached
        reached |= new
        last = np.flatnonzero(new)
    return reached
