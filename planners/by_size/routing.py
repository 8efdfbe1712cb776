"""Shortest paths of messages through switches, what moves of all ranks put on links, and times estimated from that.

Where several of the widest paths leave a node, the place of the receiver chooses, its innermost digit first.  On fat
trees this is d-mod-k routing, on which shifts of all ranks share no link (Zahavi, JPDC 72(11), 2012).
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from ...schedules.transfers import path_links
from ...support.arrays import BoolArray, FloatArray, IntArray
from ...topologies import RuntimeCosts, Topology
from ...topologies.network.direct_graph import partial_hop_distances
from ...topologies.network.link_costs import timed_network
from ...topologies.symmetry.rank_groups import UNREACHED, RankGroups
from ..trees.problem import TreeProblem
from .digits import Digits

NS_PER_US = 1000
MOST_SLICES = 64

SmallMatrix = npt.NDArray[np.int16]
Paths = tuple[IntArray, IntArray]
"""Starts and nodes of paths as schedules hold them, see `collopt.schedules.StepSchedule`."""


class Routing:
    """Shortest paths on the links of a problem, which are turned around where data is reduced."""

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

    def routes(self, senders: IntArray, receivers: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Number of each pair's path, and the paths of the pairs that occur; both int64 (pairs,)."""
        pairs, numbers = np.unique(senders * self.num_ranks + receivers, return_inverse=True)
        return numbers, *self.paths(*np.divmod(pairs, self.num_ranks))

    def paths(self, senders: IntArray, receivers: IntArray) -> Paths:
        """Path of each pair, in their order; each sender reaches its receiver; both int64 (pairs,)."""
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
        return np.concatenate([[0], np.cumsum(there.sum(axis=1))]), table[there]

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


class MoveLoads(NamedTuple):
    """Loads and latencies of moves in which all ranks send."""

    loads: IntArray  # int64 (moves, links); messages of all ranks that cross each link
    starts: IntArray  # of the paths of all messages, move by move
    links: IntArray  # of these paths
    ranks: int

    @classmethod
    def of(cls, digits: Digits, routing: Routing) -> Self:
        """Route the messages of all moves."""
        senders, receivers = digits.partners
        topology, direction = routing.problem.topology, routing.problem.direction
        starts, nodes = routing.paths(senders.ravel(), receivers.ravel())
        links = path_links(starts, nodes, topology, direction)
        size, moves = topology.num_links, len(senders)
        moved = np.repeat(np.arange(moves), (np.diff(starts) - 1).reshape(moves, -1).sum(axis=1))
        loads = np.bincount(moved * size + links, minlength=moves * size).reshape(moves, size)
        return cls(loads, starts, links, senders.shape[1])

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """List the moves of several one after the other."""
        lengths = np.concatenate([np.diff(part.starts) for part in parts])
        starts = np.concatenate([[0], np.cumsum(lengths)])
        loads, links = (np.concatenate([getattr(part, name) for part in parts]) for name in ("loads", "links"))
        return cls(loads, starts, links, parts[0].ranks)

    def latencies(self, delays: FloatArray) -> FloatArray:
        """Latency of each message in µs, float (moves, ranks); `delays` of links, float (links,)."""
        firsts = self.starts[:-1] - np.arange(len(self.starts) - 1)
        return np.asarray(np.add.reduceat(delays[self.links], firsts).reshape(-1, self.ranks))


class LinkTimes:
    """Times of links with the costs of a runtime: `delays` in µs, `capacities` in bytes per µs, float (links,)."""

    def __init__(self, topology: Topology, costs: RuntimeCosts) -> None:
        network = timed_network(topology, costs)
        self.delays = np.array([float(link.latency) for link in network.links])
        self.capacities = network.arrays.capacities * (float(network.arrays.unit) * NS_PER_US)
        self.send = float(costs.send)


class Estimator:
    """Times of moves in one direction of a network, in µs, by the alpha-beta model; `nearest` is the least latency.

    Its methods take the shards of each move, float (steps, moves), and their bytes.
    """

    def __init__(self, moves: MoveLoads, times: LinkTimes) -> None:
        latencies, self._send, capacities = moves.latencies(times.delays), times.send, times.capacities
        self._latencies, self.nearest = latencies.max(axis=1), float(latencies.min())
        self._times = moves.loads / capacities  # µs per byte
        self._slowest = 1 / float(capacities[moves.loads.any(axis=0)].min())

    def minimum(self, shards: FloatArray | IntArray, shard_bytes: float) -> float:
        """Time of the busiest link, or of all starts of messages, with one message's latency."""
        wire = float((shards.sum(axis=0) @ self._times).max()) * shard_bytes
        return max(wire, self._send * (int((shards > 0).sum()) - 1)) + self.nearest

    def in_steps(self, shards: FloatArray, shard_bytes: float, in_turn: bool = False) -> float:
        """Time of steps that wait for each other; `in_turn`, they start messages when all before has come."""
        used, total = shards > 0, 0.0
        for moves, amounts, wire in zip(used, shards, shards @ self._times, strict=True):
            # The slowest link of each move, whichever moves it serves.
            slowest = np.where(self._times[moves] > 0, wire, 0).max(axis=1)
            time = float((slowest * shard_bytes + self._latencies[moves]).max())
            last = float((amounts[moves] * self._times[moves].max(axis=1)).min()) * shard_bytes
            # Messages that go far are started first.
            starts = np.sort(self._latencies[moves])[::-1] + self._send * np.arange(int(moves.sum()))
            total += max(time, float(starts.max()) + last) if in_turn else time
        return max(total, self._send * int(used.sum()))

    def in_trees(self, shards: FloatArray, shard_bytes: float) -> float:
        """Time of one tree per root, in as many slices as can be started; each hop of a path is a step."""
        hops, latency = len(shards), float(np.where(shards > 0, self._latencies, 0).max(axis=1).sum())
        shards = shards.sum(axis=0)
        wire = float((shards @ self._times).max()) * shard_bytes
        starting = self._send * float(shards.sum())
        slices = max(1, min(MOST_SLICES, int(wire / starting))) if starting else MOST_SLICES
        waiting = self._slowest * shard_bytes * (hops - 1) / slices
        return max(latency + wire + waiting, starting * slices + latency / hops)
