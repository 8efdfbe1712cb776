"""`Allreduce`: trees that add up, and trees that spread the sums."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np
import numpy.typing as npt

from ..topologies import Topology
from .forest import Forest

__all__ = ["Allreduce", "TreeSchedule"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Allreduce:
    """A reduce-scatter followed, shard by shard and chunk by chunk, by an allgather.

    Both run at the same time once data flows, so a link's load is the sum of both.

    Attributes
    ----------
    reduce : Forest
        Of direction "reduce".
    broadcast : Forest
        Of direction "broadcast", with the same shards.
    """

    reduce: Forest
    broadcast: Forest

    @property
    def forests(self) -> tuple[Forest, ...]:
        """Both, in the order in which data passes them."""
        return self.reduce, self.broadcast

    @property
    def num_ranks(self) -> int:
        """Compute nodes that every tree spans."""
        return self.broadcast.num_ranks

    @property
    def num_trees(self) -> int:
        """Number of distinct trees of both kinds."""
        return self.reduce.num_trees + self.broadcast.num_trees

    @property
    def trees_per_root(self) -> int:
        """The unit in which `link_loads` counts: the least common multiple of both forests' k."""
        return lcm(self.reduce.trees_per_root, self.broadcast.trees_per_root)

    @property
    def root_weights(self) -> IntArray:
        """Relative sizes of the shards."""
        return self.broadcast.root_weights

    @property
    def total_weight(self) -> int:
        """Sum of the weights of all shards."""
        return self.broadcast.total_weight

    @property
    def heights(self) -> IntArray:
        """Heights of all trees, those of the reduction first."""
        return np.concatenate([forest.heights for forest in self.forests])

    def link_loads(self, topology: Topology) -> IntArray:
        """Add up what both put on each link, in multiples of ``1 / trees_per_root`` units of data; see `Forest`."""
        common = self.trees_per_root
        loads = [forest.link_loads(topology) * (common // forest.trees_per_root) for forest in self.forests]
        return loads[0] + loads[1]

    def congestion(self, topology: Topology) -> Fraction:
        """Largest load of a link over its bandwidth, in 1/(GB/s), as `Forest.congestion`."""
        loads = self.link_loads(topology)
        return max(
            Fraction(int(load), self.trees_per_root) / link.bandwidth
            for load, link in zip(loads, topology.links, strict=True)
        )


TreeSchedule = Forest | Allreduce
"""All schedules that consist of trees."""
