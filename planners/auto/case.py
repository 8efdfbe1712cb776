"""The request of a portfolio, and what decides which planners suit it."""

from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from ...schedules import Collective
from ...schedules.bounds.size_bound import hop_latencies
from ...schedules.collective import EVERY_ROOT
from ...schedules.schedule import NS_PER_US
from ...topologies import Topology
from ...topologies.network.link_costs import as_costs
from ..trees.problem import shard_weights

KINDS_IN_BOXES = 2  # of ranks by their links: those of irregular networks are of more
COMPARED_RANKS = 2048  # above which no pairs of ranks are looked at


class Case:
    """A network, a collective, and the options that the user gave.

    `options` are those of the planners, and the root, weights or traffic of the collective.
    """

    def __init__(self, topology: Topology, collective: Collective, options: Mapping[str, Any]) -> None:
        self.topology, self.collective, self.options = topology, collective, options

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return self.topology.num_ranks

    @property
    def branches(self) -> bool:
        """Whether trees may branch at switches."""
        capable_switches = self.topology.multicast | self.topology.aggregation
        return bool(capable_switches) and bool(self.options.get("in_network", True))

    @property
    def root_messages(self) -> int:
        """Messages that some rank starts in a tree per root at least: N - 1 edges of each, shared by N ranks."""
        if self.branches or self.collective not in EVERY_ROOT:
            return 0
        shards = shard_weights(self.topology, self.collective, None, self.options.get("weights"))
        roots = sum(weight > 0 for weight in shards) or self.num_ranks
        return -(-roots * (self.num_ranks - 1) // self.num_ranks) * len(self.collective.phases)

    @cached_property
    def hop(self) -> Fraction:
        """Least time in µs from the start of a message to its arrival."""
        ranks = {rank: rank for rank in self.topology.compute_nodes}
        return as_costs(None, self.topology).alpha + hop_latencies(self.topology, ranks)[1]

    def least_time(self, num_bytes: int, rate: Fraction, messages: int, hops: int = 1) -> Fraction:
        """Time in µs of so many messages of one rank and a rate in GB/s at least and one hop, or of a chain of hops."""
        costs = as_costs(None, self.topology)
        sends = max(messages * costs.send, num_bytes / (rate * NS_PER_US))
        return costs.launch + max(self.hop + sends, hops * (self.hop + costs.send))

    @cached_property
    def intake(self) -> Fraction:
        """Least bandwidth in GB/s into a rank, which orders candidates before a bound is known."""
        _, heads, capacities, unit = self.topology.arrays
        into = np.zeros(len(self.topology.nodes), dtype=np.int64)
        np.add.at(into, heads, capacities)
        return max(1, int(into[: self.num_ranks].min())) * unit

    @cached_property
    def degree(self) -> int:
        """Most links into a rank."""
        heads = self.topology.arrays.heads
        return int(np.bincount(heads[heads < self.num_ranks], minlength=1).max())

    @cached_property
    def switch_links(self) -> float:
        """Links of switches for each rank."""
        tails, heads, _, _ = self.topology.arrays
        return int((np.maximum(tails, heads) >= self.num_ranks).sum()) / self.num_ranks

    @cached_property
    def is_one_way(self) -> bool:
        """Whether some link has none in the other direction."""
        tails, heads, _, _ = self.topology.arrays
        size = len(self.topology.nodes)
        return not np.array_equal(np.sort(tails * size + heads), np.sort(heads * size + tails))

    @cached_property
    def ranks_relay(self) -> bool:
        """Whether there is a rank with links to two ranks that have none to each other."""
        ranks, ends = self.num_ranks, np.array([self.topology.arrays.tails, self.topology.arrays.heads])
        if ranks > COMPARED_RANKS:
            return False
        linked = np.eye(ranks, dtype=np.float32)
        linked[tuple(ends[:, (ends < ranks).all(axis=0)])] = 1
        return bool(((linked @ linked > 0) & (linked == 0)).any())

    @cached_property
    def ranks_differ(self) -> bool:
        """Whether ranks are of many kinds by the bandwidths and latencies of their links."""
        if self.num_ranks > COMPARED_RANKS:
            return False
        kinds = {
            tuple(sorted((link.bandwidth, link.latency) for link in self.topology.out_links(rank)))
            for rank in self.topology.compute_nodes
        }
        return len(kinds) > KINDS_IN_BOXES

    @property
    def is_irregular(self) -> bool:
        """Whether ranks relay or differ, so that patterns for boxes and switches may not suit."""
        return self.ranks_relay or self.ranks_differ
