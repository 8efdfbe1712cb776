"""What the moves of all ranks put on links, and times of families from that, without building their schedules."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from ...schedules.transfers import path_links
from ...support.arrays import FloatArray, IntArray
from ...topologies import RuntimeCosts, Topology
from ...topologies.network.link_costs import timed_network
from .digits import Digits
from .exchanges import Routing

NS_PER_US = 1000
MOST_SLICES = 64


@dataclass(frozen=True, eq=False)
class MoveLoads:
    """Loads and latencies of moves in which all ranks send.

    `loads`: int64 (moves, links); messages of all ranks that cross each link.
    `paths`: of all messages, move by move, and their links.
    """

    loads: IntArray
    starts: IntArray
    links: IntArray
    ranks: int

    @classmethod
    def of(cls, digits: Digits, routing: Routing) -> Self:
        """Route the messages of all moves."""
        senders, receivers = digits.partners
        topology, direction = routing.problem.topology, routing.problem.direction
        paths = routing.paths(senders.ravel(), receivers.ravel())
        links = path_links(*paths, topology, direction)
        lengths = np.diff(paths.path_starts) - 1
        size, moves = topology.num_links, len(senders)
        moved = np.repeat(np.arange(moves), lengths.reshape(moves, -1).sum(axis=1))
        loads = np.bincount(moved * size + links, minlength=moves * size).reshape(moves, size)
        return cls(loads, paths.path_starts, links, senders.shape[1])

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
    """Times of links with the costs of a runtime.

    `delays`: float (links,); µs.
    `capacities`: float (links,); bytes per µs.
    """

    def __init__(self, topology: Topology, costs: RuntimeCosts) -> None:
        network = timed_network(topology, costs)
        self.delays = np.array([float(link.latency) for link in network.links])
        self.capacities = network.arrays.capacities * (float(network.arrays.unit) * NS_PER_US)
        self.send = float(costs.send)


class Estimator:
    """Times of moves on a network with the costs of a runtime, in µs, by the alpha-beta model.

    Parameters
    ----------
    moves : MoveLoads
        Of one direction.
    times : LinkTimes
        Of the links, with the costs of a message that is started.

    Attributes
    ----------
    nearest : float
        Least latency of a message.
    """

    def __init__(self, moves: MoveLoads, times: LinkTimes) -> None:
        latencies, self._send, capacities = moves.latencies(times.delays), times.send, times.capacities
        self._latencies, self.nearest = latencies.max(axis=1), float(latencies.min())
        self._times = moves.loads / capacities  # µs per byte
        self._slowest = 1 / float(capacities[moves.loads.any(axis=0)].min())

    def minimum(self, shards: FloatArray | IntArray, shard_bytes: float) -> float:
        """Time of the busiest link, or of all starts of messages, with one message's latency; `shards` as below."""
        wire = float((shards.sum(axis=0) @ self._times).max()) * shard_bytes
        return max(wire, self._send * (int((shards > 0).sum()) - 1)) + self.nearest

    def in_steps(self, shards: FloatArray, shard_bytes: float, in_turn: bool = False) -> float:
        """Time of steps that wait for each other; `shards` of each move, float (steps, moves).

        If steps are `in_turn`, those of a step begin to be started when all of the step before has come.
        """
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
        """Time of one tree per root, in as many slices as can be started.

        `shards`: of each move, float (hops, moves), each hop of a path in a row of its own.
        """
        hops, latency = len(shards), float(np.where(shards > 0, self._latencies, 0).max(axis=1).sum())
        shards = shards.sum(axis=0)
        wire = float((shards @ self._times).max()) * shard_bytes
        starting = self._send * float(shards.sum())
        slices = max(1, min(MOST_SLICES, int(wire / starting))) if starting else MOST_SLICES
        waiting = self._slowest * shard_bytes * (hops - 1) / slices
        return max(latency + wire + waiting, starting * slices + latency / hops)
