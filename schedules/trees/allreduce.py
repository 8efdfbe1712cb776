"""`Allreduce`: reduce trees and broadcast trees."""

from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np

from ...errors import CapacityOverflowError
from ...support.arrays import IntArray
from ...topologies import Topology
from ..schedule import AllreduceSchedule
from ..transfers import Transfers
from .forest import Forest
from .transfers import tree_transfers
from .tree_schedule import TreeSequence, chunk_columns
from .verify import verified_forest, verified_halves

LOAD_LIMIT = 2**62  # as in `collopt.schedules.trees.verify`


@dataclass(frozen=True, eq=False)
class Allreduce(TreeSequence, AllreduceSchedule, of="forest"):
    """A reduce-scatter, `reduce`, followed, shard by shard and chunk by chunk, by an allgather, `broadcast`.

    Both run at the same time once data flows, so a link's load is the sum of both.  All ranks end with all sums, so the
    shards need not be equal, and some ranks, or all but one, can be without; they are the same in both.
    """

    reduce: Forest
    broadcast: Forest

    @property
    def halves(self) -> tuple[Forest, Forest]:
        """Both, in execution order."""
        return self.reduce, self.broadcast

    @property
    def forests(self) -> tuple[Forest, ...]:
        """Both forests, in execution order."""
        return self.halves

    @property
    def size_text(self) -> str:
        """Such as ``"16 trees, 1 per root by weight"``."""
        return f"{self.num_trees} trees, {self.broadcast.trees_per_root} per root by weight"

    @property
    def num_trees(self) -> int:
        """Number of distinct trees of both kinds."""
        return self.reduce.num_trees + self.broadcast.num_trees

    @property
    def trees_per_root(self) -> int:
        """The unit in which `link_loads` counts: the least common multiple of both forests' k."""
        return lcm(self.reduce.trees_per_root, self.broadcast.trees_per_root)

    def verified_loads(self, topology: Topology) -> IntArray:
        """Verify both forests of an allreduce, and that they match; sum their load on every link."""
        return verified_halves(self.halves, Forest, verified_forest, topology)

    def transfers(self, topology: Topology) -> Transfers:
        """List the hops of the reduction, then those of the broadcast."""
        return tree_transfers(self, topology)

    @property
    def hops_before(self) -> tuple[IntArray, ...]:
        """Hops before the first one of each tree: a broadcast tree goes on when the last of its chunks are summed."""
        _, reduce_trees, broadcast_trees = chunk_columns(self)
        before = np.zeros(self.broadcast.num_trees, dtype=np.int64)
        np.maximum.at(before, broadcast_trees, self.reduce.heights[reduce_trees])
        return np.zeros(self.reduce.num_trees, dtype=np.int64), before

    def hop_numbers(self, transfers: Transfers) -> IntArray:
        """Number of each transfer's hop in its tree; levels differ from it where reduce trees are uneven."""
        (_, before), (firsts, reduce_trees, broadcast_trees) = self.hops_before, chunk_columns(self)
        later = before[broadcast_trees] - self.reduce.heights[reduce_trees]
        ranges = np.searchsorted(firsts, transfers.firsts)
        return transfers.levels + np.where(transfers.adds, 0, later[ranges])

    def link_loads(self, topology: Topology) -> IntArray:
        """Add up the loads of both on each link, in multiples of ``1 / trees_per_root`` units of data.

        Raises `CapacityOverflowError` if the unit that suits both forests is so small that loads could leave int64.
        """
        loads = [forest.link_loads(topology) for forest in self.halves]
        scales = [self.trees_per_root // forest.trees_per_root for forest in self.halves]
        if sum(scale * int(load.max()) for scale, load in zip(scales, loads, strict=True)) >= LOAD_LIMIT:
            raise CapacityOverflowError(
                f"the loads of both forests in units of 1/{self.trees_per_root} add up to {LOAD_LIMIT} or more; "
                "round the bandwidths to fewer digits or use fewer trees per root"
            )
        return loads[0] * scales[0] + loads[1] * scales[1]

    def hop_rate(self, topology: Topology) -> Fraction:
        """Of the slower of both; see `Forest.hop_rate`."""
        return max(forest.hop_rate(topology) for forest in self.halves)

    @property
    def depth(self) -> int:
        """Heights of the highest trees of both kinds together."""
        return sum(forest.depth for forest in self.halves)

    def latency(self, topology: Topology) -> Fraction:
        """Sum of both, in µs; see `Forest.latency`."""
        return sum((forest.latency(topology) for forest in self.halves), Fraction(0))

    def __repr__(self) -> str:
        return (
            f"<Allreduce: {self.num_ranks} ranks, {self.reduce.num_trees} reduce trees, "
            f"{self.broadcast.num_trees} broadcast trees>"
        )


TreeSchedule = Forest | Allreduce
"""All schedules whose trees are written down."""
