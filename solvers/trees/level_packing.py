"""The levels of a family of tight sets, each packed by itself (`collopt.solvers.trees.forest_packing` composes them).

The children of a set are packed as if they were single ranks, where child c is the root of as many trees as start in
it or enter it from outside the set.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from ...support.progress import counted
from .routed_graph import RoutedGraph
from .tight_sets import Family
from .tree_packing import Packing, pack_trees

__all__ = ["Levels", "pack_levels"]

IntArray = npt.NDArray[np.int64]


class Levels(NamedTuple):
    """All levels in flat arrays.  A child is named by its key: a rank by its number, set x by ``num_ranks + x``."""

    num_ranks: int
    parents: IntArray  # (keys,): the set that each child is in
    first_tree: IntArray  # (keys,): where the trees rooted at this child start
    last_tree: IntArray  # (keys,): one past their end
    tree_left: IntArray  # (trees,): copies left
    tree_steps: IntArray  # (trees,): where the steps of each tree start in `steps`
    steps: IntArray  # connection numbers within the level, each after the one that reaches its tail
    num_steps: IntArray  # (sets,): how many steps a tree of this set has
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


class _LevelTrees:
    """The trees of all levels so far; equal problems (the boxes of a cluster) are packed once."""

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
        """Pack the children `keys` of a set; `problem` is tails, heads, capacities between them, and trees wanted."""
        name = b"|".join(array.tobytes() for array in problem)
        if name not in self._solved:
            packing = _packed(len(keys), *problem, self.seed)
            self._solved[name] = (packing, self.next_step)
            self.steps.append(_in_order(packing.roots, packing.links, problem[0]).ravel())
            self.next_step += len(self.steps[-1])
        packing, first_step = self._solved[name]
        self.num_steps[level] = len(keys) - 1
        self.tree_left.append(packing.weights)
        self.tree_steps.append(first_step + self.num_steps[level] * np.arange(len(packing.roots)))
        bounds = self.num_trees + np.searchsorted(packing.roots, np.arange(len(keys) + 1))
        self.first_tree[keys], self.last_tree[keys] = bounds[:-1], bounds[1:]
        self.num_trees += len(packing.roots)


def pack_levels(graph: RoutedGraph, alive: IntArray, supplies: IntArray, family: Family, seed: int) -> Levels:
    """Pack every set of a family by itself.

    Parameters
    ----------
    graph : RoutedGraph
        Without switches.
    alive : ndarray of int64
        Its links with units.
    supplies : ndarray of int64, shape (ranks,)
        Trees wanted per root.
    family : Family
        Tight sets of the graph.
    seed : int
        As for `pack_trees`.

    Returns
    -------
    Levels
    """
    num_ranks, num_sets = len(supplies), len(family.parents)
    tails, heads, units = graph.tails[alive], graph.heads[alive], graph.units[alive]
    parents = np.concatenate([family.innermost[:num_ranks], family.parents])
    connections = _connections(tails, heads, units, num_ranks, parents)
    wanted = _wanted(heads, units, supplies, parents, connections)
    first_connection = np.searchsorted(connections.levels, np.arange(num_sets + 1))
    trees, local = _LevelTrees(len(parents), num_sets, seed), np.empty(len(parents), dtype=np.int64)
    for level, keys in enumerate(counted(_children_in_order(parents, num_ranks), num_sets)):
        local[keys] = np.arange(len(keys))
        part = slice(first_connection[level], first_connection[level + 1])
        between = (local[connections.tails[part]], local[connections.heads[part]], connections.capacities[part])
        trees.add(level, keys, (*between, wanted[keys]))
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
    levels, tail_keys, head_keys = _separated(tails, heads, num_ranks, parents)
    order = np.lexsort((head_keys, tail_keys, levels))
    ends = np.stack([levels, tail_keys, head_keys])[:, order]
    starts = np.flatnonzero(np.append(True, (np.diff(ends) != 0).any(axis=0)))
    levels, tail_keys, head_keys = ends[:, starts].copy()
    return _Connections(
        levels, tail_keys, head_keys, np.add.reduceat(units[order], starts), order, np.append(starts, len(order))
    )


def _separated(
    tails: IntArray, heads: IntArray, num_ranks: int, parents: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Per link: the smallest set around both ends, and the children of it that hold the tail and the head."""
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
        apart = above[tail] != above[head]
        tail, head = np.where(apart, above[tail], tail), np.where(apart, above[head], head)
    return parents[tail], tail, head


def _wanted(
    heads: IntArray, units: IntArray, supplies: IntArray, parents: IntArray, connections: _Connections
) -> IntArray:
    """Trees rooted at each child in its level: its own supplies, and what enters it from outside the level."""
    num_ranks = len(supplies)
    wanted = np.zeros(len(parents), dtype=np.int64)
    wanted[:num_ranks] = supplies
    np.add.at(wanted, heads, units)
    between = np.zeros(len(parents) - num_ranks, dtype=np.int64)
    np.add.at(between, connections.levels, connections.capacities)
    # What enters a set is what enters its children, less what they send each other; ranks first, then sets inside out.
    np.add.at(wanted, num_ranks + parents[:num_ranks], wanted[:num_ranks])
    for key in range(len(parents) - 1, num_ranks, -1):
        wanted[key] -= between[key - num_ranks]
        wanted[num_ranks + parents[key]] += wanted[key]
    np.subtract.at(wanted, connections.heads, connections.capacities)
    return wanted


def _children_in_order(parents: IntArray, num_ranks: int) -> list[IntArray]:
    """Keys of the children of each set, by their first rank, so that equal boxes look equal."""
    first_rank = np.full(len(parents), num_ranks, dtype=np.int64)
    first_rank[:num_ranks] = np.arange(num_ranks)
    for key in list(range(num_ranks)) + list(range(len(parents) - 1, num_ranks, -1)):
        above = num_ranks + parents[key]
        first_rank[above] = min(first_rank[above], first_rank[key])
    order = np.lexsort((first_rank, parents))
    order = order[parents[order] >= 0]
    bounds = np.searchsorted(parents[order], np.arange(len(parents) - num_ranks + 1))
    return [order[start:stop] for start, stop in pairwise(bounds)]


def _packed(
    num_children: int, tails: IntArray, heads: IntArray, capacities: IntArray, wanted: IntArray, seed: int
) -> Packing:
    """Pack one level, trees sorted by root: stars where every child can reach every other at once."""
    if len(tails) == num_children * (num_children - 1) and (capacities >= wanted[tails]).all():
        links = np.full((num_children, num_children), -1, dtype=np.int64)
        links[tails, heads] = np.arange(len(tails))
        roots = np.flatnonzero(wanted > 0)
        return Packing(roots, wanted[roots], links[roots])
    packing = pack_trees(num_children, tails, heads, capacities, wanted, seed=seed)
    order = np.argsort(packing.roots, kind="stable")
    return Packing(packing.roots[order], packing.weights[order], packing.links[order])


@numba.njit(cache=True, nogil=True)
def _in_order(roots: IntArray, links: IntArray, tails: IntArray) -> IntArray:
    """List the links of each tree level by level."""
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
