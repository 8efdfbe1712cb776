"""Tree packing along a laminar family of tight sets: every level is packed by itself, and the packings are composed.

Each tree enters a tight set exactly once (`tight_sets`), so the children of a set are packed like single
ranks.  Composed top-down: from child A to child B a tree takes a link with units left, and continues in B as a tree
rooted at its head.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...errors import SolverError
from ...support import progress
from ...support.arrays import IntArray, SmallArray
from ...support.kernels import kernel, kernel_with
from .batch_packing import Room, is_large, pack_in_batches
from .routed_graph import RoutedGraph
from .tight_sets import LaminarFamily
from .tree_packing import Packing, pack_trees

ROWS_AT_ONCE = 2**22
"""Entries per block of trees; blocks keep memory linear in the result, as the number of trees is unknown."""


def pack_forest(
    graph: RoutedGraph, supplies: IntArray, family: LaminarFamily, *, seed: int = 0
) -> tuple[Packing, IntArray]:
    """Pack ``supplies[i]`` spanning out-trees from each rank i into a network without switches."""
    alive = graph.alive()
    tails, heads = graph.tails[alive], graph.heads[alive]
    if len(family.parents) == 1 and len(np.unique(tails * graph.num_nodes + heads)) == len(alive):
        # No parts, no choice of ports: nothing to compose.
        order = np.lexsort((heads, tails))
        packing = _pack_level(len(supplies), tails[order], heads[order], graph.units[alive[order]], supplies, seed)
        return _numbered(packing.roots, packing.weights, [np.append(order, -1).astype(np.int32)[packing.links]], alive)
    levels = pack_levels(graph, alive, supplies, family, seed)
    roots, weights, blocks = [], [], []
    left = supplies.copy()
    rows = max(1, ROWS_AT_ONCE // len(supplies))
    while left.any():
        block = np.full((rows, len(supplies)), -1, dtype=np.int32)
        root, weight = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
        count = _compose(levels, left, root, weight, block)
        if count < 0:
            raise SolverError("the packings of two levels do not fit together: a set of the family is not tight")
        roots.append(root[:count])
        weights.append(weight[:count])
        blocks.append(block[:count].copy() if count < rows else block)
    return _numbered(np.concatenate(roots), np.concatenate(weights), blocks, alive)


def pack_untested_forest(graph: RoutedGraph, supplies: IntArray) -> tuple[Packing, IntArray] | None:
    """Try to pack a network without switches with no test at all, which needs no tight sets either."""
    room = Room(len(supplies), graph.tails, graph.heads, graph.units, supplies)
    packing = room.grow(np.random.default_rng(0).permutation(len(supplies)))
    return packing and _numbered(packing.roots, packing.weights, [packing.links], np.arange(len(graph.units)))


def _numbered(
    roots: IntArray, weights: IntArray, blocks: Sequence[SmallArray], alive: IntArray
) -> tuple[Packing, IntArray]:
    """Join the blocks of a packing and number the links that it uses."""
    used = np.zeros(len(alive) + 1, dtype=np.bool_)
    for block in blocks:
        used[block] = True
    used[-1] = False
    number = np.cumsum(used, dtype=np.int32) - np.int32(1)
    number[-1] = -1
    return Packing(roots, weights, np.concatenate([number[block] for block in blocks])), alive[used[:-1]]


@kernel_with(lambda levels, *_: 10 * levels.num_ranks * len(levels.tree_left))
def _compose(levels: Levels, left: IntArray, roots: IntArray, weights: IntArray, block: SmallArray) -> int:
    """Fill rows of `block` with trees while roots have trees left; return their number, -1 if a part is missing."""
    ranks, sets = levels.num_ranks, len(levels.num_steps)
    depth = np.empty(ranks, dtype=np.int64)
    frames = np.empty((sets + 1, 3), dtype=np.int64)  # set, tree, next step
    trees = np.empty(sets, dtype=np.int64)
    row = 0
    for root in range(ranks):
        while left[root] > 0 and row < len(block):
            num_trees = _compose_one(levels, root, block[row], depth, frames, trees)
            if num_trees < 0:
                return -1
            copies = left[root]
            for tree in trees[:num_trees]:
                copies = min(copies, levels.tree_left[tree])
            for port in block[row]:
                if port >= 0:
                    copies = min(copies, levels.port_left[port])
            for tree in trees[:num_trees]:
                levels.tree_left[tree] -= copies
            for port in block[row]:
                if port >= 0:
                    levels.port_left[port] -= copies
            left[root] -= copies
            roots[row], weights[row] = root, copies
            row += 1
    return row


@kernel
def _compose_one(levels: Levels, root: int, row: SmallArray, depth: IntArray, frames: IntArray, trees: IntArray) -> int:
    """Compose one tree in `row` and list its level trees in `trees`; return their number, or -1."""
    depth[root] = 0
    height = _enter(levels, 0, root, frames, 0, trees, 0)
    num_trees = height
    while height > 0:
        frame = frames[height - 1]
        if frame[2] == levels.num_steps[frame[0]]:
            height -= 1
            continue
        step = levels.steps[levels.tree_steps[frame[1]] + frame[2]]
        connection = levels.first_connection[frame[0]] + step
        frame[2] += 1
        port = _best_port(levels, connection, depth)
        if port < 0:
            return -1
        head = levels.port_heads[port]
        depth[head] = depth[levels.port_tails[port]] + 1
        row[head] = port
        key = levels.heads[connection]
        if key >= levels.num_ranks:
            deeper = _enter(levels, key - levels.num_ranks, head, frames, height, trees, num_trees)
            if deeper < 0:
                return -1
            num_trees += deeper - height
            height = deeper
    return num_trees


@kernel
def _enter(levels: Levels, number: int, rank: int, frames: IntArray, height: int, trees: IntArray, used: int) -> int:
    """Choose a tree in set `number` and in each smaller one around `rank`; return the new height of `frames`, or -1."""
    first = height
    key = rank
    while True:
        around = levels.parents[key]
        while levels.first_tree[key] < levels.last_tree[key] and levels.tree_left[levels.first_tree[key]] == 0:
            levels.first_tree[key] += 1
        if levels.first_tree[key] == levels.last_tree[key]:
            return -1
        frames[height, 0], frames[height, 1], frames[height, 2] = around, levels.first_tree[key], 0
        trees[used + height - first] = levels.first_tree[key]
        height += 1
        if around == number:
            break
        key = levels.num_ranks + around
    # The smallest set comes on top of the stack: its ranks have the data first.
    for place in range((height - first) // 2):
        for column in range(3):
            other = height - 1 - place
            swapped = frames[first + place, column]
            frames[first + place, column] = frames[other, column]
            frames[other, column] = swapped
    return height


@kernel
def _best_port(levels: Levels, connection: int, depth: IntArray) -> int:
    """Choose the link of a connection with units left whose tail is least deep, then the one with most units."""
    best = -1
    for place in range(levels.first_port[connection], levels.first_port[connection + 1]):
        port = levels.ports[place]
        if levels.port_left[port] == 0:
            continue
        if best >= 0:
            mine, its = depth[levels.port_tails[port]], depth[levels.port_tails[best]]
            if mine > its or (mine == its and levels.port_left[port] <= levels.port_left[best]):
                continue
        best = port
    return best


class Levels(NamedTuple):
    """The packings of all levels.  The key of a child is its number for a rank, ``num_ranks + x`` for set x."""

    num_ranks: int
    parents: IntArray  # (keys,): the set around each child
    first_tree: IntArray  # (keys,): first tree rooted at this child
    last_tree: IntArray  # (keys,): one past its last tree
    tree_left: IntArray  # (trees,): copies left
    tree_steps: IntArray  # (trees,): first step of each tree in `steps`
    steps: IntArray  # connection numbers within the level, each after the one that reaches its tail
    num_steps: IntArray  # (sets,): steps per tree of this set
    first_connection: IntArray  # (sets,)
    heads: IntArray  # (connections,): key of the child that each leads to
    ports: IntArray  # links of the graph, grouped by connection
    first_port: IntArray  # (connections + 1,)
    port_tails: IntArray
    port_heads: IntArray
    port_left: IntArray  # units left


class _Connections(NamedTuple):
    """Links between the same two children of a set, sorted by set, tail and head."""

    levels: IntArray
    tails: IntArray  # keys
    heads: IntArray  # keys
    capacities: IntArray
    ports: IntArray  # link numbers, grouped by connection
    first_port: IntArray  # (connections + 1,)


class _LevelPackings:
    """Packings of the levels so far; equal problems (the boxes of a cluster) are packed once."""

    def __init__(self, num_keys: int, num_sets: int, seed: int) -> None:
        self.seed = seed
        self.first_tree, self.last_tree = np.zeros((2, num_keys), dtype=np.int64)
        self.num_steps = np.zeros(num_sets, dtype=np.int64)
        self.tree_left: list[IntArray] = []
        self.tree_steps: list[IntArray] = []
        self.steps: list[IntArray] = []
        self.num_trees = self.next_step = 0
        self._solved: dict[bytes, tuple[Packing, int]] = {}

    def add(self, level: int, keys: IntArray, problem: tuple[IntArray, IntArray, IntArray, IntArray]) -> None:
        """Pack the children `keys` of a set; `problem` is tails, heads, capacities and tree demands."""
        name = b"|".join(array.tobytes() for array in problem)
        if name not in self._solved:
            packing = _pack_level(len(keys), *problem, self.seed)
            self._solved[name] = (packing, self.next_step)
            self.steps.append(_breadth_first(packing.roots, packing.links, problem[0]).ravel())
            self.next_step += len(self.steps[-1])
        packing, first_step = self._solved[name]
        self.num_steps[level] = len(keys) - 1
        self.tree_left.append(packing.weights)
        self.tree_steps.append(first_step + self.num_steps[level] * np.arange(len(packing.roots)))
        bounds = self.num_trees + np.searchsorted(packing.roots, np.arange(len(keys) + 1))
        self.first_tree[keys], self.last_tree[keys] = bounds[:-1], bounds[1:]
        self.num_trees += len(packing.roots)


def pack_levels(graph: RoutedGraph, alive: IntArray, supplies: IntArray, family: LaminarFamily, seed: int) -> Levels:
    """Pack every set of a family by itself."""
    num_ranks, num_sets = len(supplies), len(family.parents)
    tails, heads, units = graph.tails[alive], graph.heads[alive], graph.units[alive]
    parents = np.concatenate([family.innermost[:num_ranks], family.parents])
    connections = _connections(tails, heads, units, num_ranks, parents)
    demands = _tree_demands(heads, units, supplies, parents, connections)
    first_connection = np.searchsorted(connections.levels, np.arange(num_sets + 1))
    trees, local = _LevelPackings(len(parents), num_sets, seed), np.empty(len(parents), dtype=np.int64)
    for level, keys in enumerate(progress.iterate(_children_in_order(parents, num_ranks), num_sets)):
        local[keys] = np.arange(len(keys))
        part = slice(first_connection[level], first_connection[level + 1])
        between = (local[connections.tails[part]], local[connections.heads[part]], connections.capacities[part])
        trees.add(level, keys, (*between, demands[keys]))
    return Levels(
        num_ranks,
        parents,
        trees.first_tree,
        trees.last_tree,
        np.concatenate(trees.tree_left),
        np.concatenate(trees.tree_steps),
        np.concatenate(trees.steps),
        trees.num_steps,
        first_connection,
        connections.heads,
        connections.ports,
        connections.first_port,
        tails,
        heads,
        units.copy(),
    )


def _connections(tails: IntArray, heads: IntArray, units: IntArray, num_ranks: int, parents: IntArray) -> _Connections:
    levels, tail_keys, head_keys = _lowest_common_sets(tails, heads, num_ranks, parents)
    order = np.lexsort((head_keys, tail_keys, levels))
    ends = np.stack([levels, tail_keys, head_keys])[:, order]
    starts = np.flatnonzero(np.append(True, (np.diff(ends) != 0).any(axis=0)))
    levels, tail_keys, head_keys = ends[:, starts].copy()
    return _Connections(
        levels, tail_keys, head_keys, np.add.reduceat(units[order], starts), order, np.append(starts, len(order))
    )


def _lowest_common_sets(
    tails: IntArray, heads: IntArray, num_ranks: int, parents: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return, per link, the smallest set around both ends and its children that hold the tail and the head."""
    depth = np.zeros(len(parents), dtype=np.int64)
    for key in range(num_ranks + 1, len(parents)):
        depth[key] = depth[num_ranks + parents[key]] + 1
    depth[:num_ranks] = depth[num_ranks + parents[:num_ranks]] + 1
    above = np.where(parents >= 0, num_ranks + parents, -1)
    tail, head = tails.copy(), heads.copy()
    for _ in range(int(depth.max())):
        tail = np.where(depth[tail] > depth[head], above[tail], tail)
        head = np.where(depth[head] > depth[tail], above[head], head)
    for _ in range(int(depth.max())):
        differ = above[tail] != above[head]
        tail, head = np.where(differ, above[tail], tail), np.where(differ, above[head], head)
    return parents[tail], tail, head


def _tree_demands(
    heads: IntArray, units: IntArray, supplies: IntArray, parents: IntArray, connections: _Connections
) -> IntArray:
    """Count the trees rooted at each child in its level: its own supplies and what enters from outside the level."""
    num_ranks = len(supplies)
    demands = np.zeros(len(parents), dtype=np.int64)
    demands[:num_ranks] = supplies
    np.add.at(demands, heads, units)
    between = np.zeros(len(parents) - num_ranks, dtype=np.int64)
    np.add.at(between, connections.levels, connections.capacities)
    # The ingress of a set is that of its children less the capacity between them; ranks first, then sets inside out.
    np.add.at(demands, num_ranks + parents[:num_ranks], demands[:num_ranks])
    for key in range(len(parents) - 1, num_ranks, -1):
        demands[key] -= between[key - num_ranks]
        demands[num_ranks + parents[key]] += demands[key]
    np.subtract.at(demands, connections.heads, connections.capacities)
    return demands


def _children_in_order(parents: IntArray, num_ranks: int) -> list[IntArray]:
    """List the keys of the children of each set, by their first rank, so that equal boxes give equal problems."""
    first_rank = np.full(len(parents), num_ranks, dtype=np.int64)
    first_rank[:num_ranks] = np.arange(num_ranks)
    for key in list(range(num_ranks)) + list(range(len(parents) - 1, num_ranks, -1)):
        above = num_ranks + parents[key]
        first_rank[above] = min(first_rank[above], first_rank[key])
    order = np.lexsort((first_rank, parents))
    order = order[parents[order] >= 0]
    bounds = np.searchsorted(parents[order], np.arange(len(parents) - num_ranks + 1))
    return [order[start:stop] for start, stop in pairwise(bounds)]


def _pack_level(
    num_children: int, tails: IntArray, heads: IntArray, capacities: IntArray, demands: IntArray, seed: int
) -> Packing:
    """Pack one level, trees sorted by root: stars if every child has direct links with capacity to all others."""
    if len(tails) == num_children * (num_children - 1) and (capacities >= demands[tails]).all():
        links = np.full((num_children, num_children), -1, dtype=np.int32)
        links[tails, heads] = np.arange(len(tails))
        roots = np.flatnonzero(demands > 0)
        return Packing(roots, demands[roots], links[roots])
    pack = pack_in_batches if is_large(demands, len(tails)) else pack_trees
    packing = pack(num_children, tails, heads, capacities, demands, seed=seed)
    order = np.argsort(packing.roots, kind="stable")
    return Packing(packing.roots[order], packing.weights[order], packing.links[order])


@kernel
def _breadth_first(roots: IntArray, links: SmallArray, tails: IntArray) -> IntArray:
    """List the links of each tree in breadth-first order."""
    trees, nodes = links.shape
    ordered = np.empty((trees, nodes - 1), dtype=np.int64)
    depth = np.empty(nodes, dtype=np.int64)
    for tree in range(trees):
        depth[:] = -1
        depth[roots[tree]] = 0
        done, level = 0, 0
        while done < nodes - 1:
            for node in range(nodes):
                if depth[node] < 0 and depth[tails[links[tree, node]]] == level:
                    depth[node] = level + 1
                    ordered[tree, done] = links[tree, node]
                    done += 1
            level += 1
    return ordered
