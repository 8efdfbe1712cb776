"""Shortest paths between many pairs of ranks at once, through switches, spread as d-mod-k routing spreads them.

Of the shortest paths the widest are taken.  Where several leave a node, the place of the receiver chooses: its
innermost digit where paths part first, its next digit where they part next, ...  On fat trees this is d-mod-k routing,
on which no link is shared by the messages of a shift of all ranks (Zahavi, JPDC 72(11), 2012).
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...support.arrays import BoolArray, IntArray
from ...topologies.network.direct_graph import partial_hop_distances
from ...topologies.symmetry.rank_groups import UNREACHED, RankGroups
from ..trees.problem import TreeProblem

SmallMatrix = npt.NDArray[np.int16]


class Paths(NamedTuple):
    """Paths as schedules hold them: int64 (paths + 1,) and int64, see `collopt.schedules.StepSchedule`."""

    path_starts: IntArray
    path_nodes: IntArray


class Routing:
    """Shortest paths on the links of a problem, which are turned around where data is reduced.

    Parameters
    ----------
    problem : TreeProblem
        The network.
    groups : RankGroups
        Of its ranks.
    """

    def __init__(self, problem: TreeProblem, groups: RankGroups) -> None:
        self.problem = problem
        self.num_ranks = problem.topology.num_ranks
        self._spread = groups.values
        order = np.argsort(problem.tails, kind="stable")
        self._heads = problem.heads[order]
        self._degrees = np.bincount(problem.tails, minlength=problem.num_nodes)
        self._first = np.cumsum(self._degrees) - self._degrees
        kinds, widths = np.unique(problem.capacities[order], return_inverse=True)
        self._wide = widths.astype(np.int16) + 1  # links by bandwidth, the narrowest 1
        self._most = np.int16(min(len(kinds) + 1, UNREACHED))

    @cached_property
    def lengths(self) -> SmallMatrix:
        """Links of the shortest path from each node to each rank, int16 (nodes, ranks); `UNREACHED` without one."""
        problem = self.problem
        lengths = partial_hop_distances(problem.num_nodes, problem.heads, problem.tails, self.num_ranks).T
        return np.ascontiguousarray(np.where(lengths < 0, np.int16(UNREACHED), lengths))

    @cached_property
    def reaches(self) -> BoolArray:
        """Whether each rank has a path to each other that passes no rank, bool (ranks, ranks)."""
        return self.lengths[: self.num_ranks] < UNREACHED

    @cached_property
    def _widths(self) -> SmallMatrix:
        """Width of the widest shortest path from each node to each rank, int16 (nodes, ranks)."""
        lengths, ranks = self.lengths, self.num_ranks
        senders = np.flatnonzero(self._degrees)
        starts = self._first[senders]
        tails = np.repeat(np.arange(len(lengths)), self._degrees)
        widths = np.where(lengths == 0, self._most, np.int16(0))
        for length in range(1, int(lengths[lengths < UNREACHED].max()) + 1):
            usable = (lengths[tails] == length) & (lengths[self._heads] == length - 1)
            if length > 1:
                usable[self._heads < ranks] = False
            through = np.where(usable, np.minimum(self._wide[:, None], widths[self._heads]), np.int16(0))
            widths[senders] = np.maximum(widths[senders], np.maximum.reduceat(through, starts, axis=0))
        return widths

    def paths(self, senders: IntArray, receivers: IntArray) -> Paths:
        """Path of each pair, in their order; each sender reaches its receiver.

        Shapes: both int64 (pairs,).
        """
        current, spread = senders.copy(), self._spread[receivers].copy()
        nodes = [senders]
        while (active := np.flatnonzero(current != receivers)).size:
            states, state = np.unique(current[active] * self.num_ranks + receivers[active], return_inverse=True)
            choices, starts, counts = self._next_nodes(*np.divmod(states, self.num_ranks))
            spread[active], numbers = np.divmod(spread[active], counts[state])
            current[active] = choices[starts[state] + numbers]
            following = np.full_like(senders, -1)
            following[active] = current[active]
            nodes.append(following)
        table = np.column_stack(nodes)
        there = table >= 0
        return Paths(np.concatenate([[0], np.cumsum(there.sum(axis=1))]), table[there])

    def _next_nodes(self, nodes: IntArray, targets: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Nodes that the best paths to ranks go to next: all of them, and for each pair where they begin and how many.

        Shapes: `nodes`, `targets` int64 (pairs,); returns int64 (choices,), int64 (pairs,), int64 (pairs,).
        """
        degrees = self._degrees[nodes]
        pair = np.repeat(np.arange(len(nodes)), degrees)
        links = np.repeat(self._first[nodes] - np.cumsum(degrees) + degrees, degrees) + np.arange(len(pair))
        heads, targets = self._heads[links], targets[pair]
        good = (heads >= self.num_ranks) | (heads == targets)
        good &= self.lengths[heads, targets] == self.lengths[nodes[pair], targets] - 1
        good &= np.minimum(self._wide[links], self._widths[heads, targets]) == self._widths[nodes[pair], targets]
        counts = np.bincount(pair[good], minlength=len(nodes))
        return heads[good], np.cumsum(counts) - counts, counts
