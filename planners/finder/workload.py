"""What the topology finder's candidates are timed for, and what none of them can beat."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from ...schedules import as_bytes
from ...support.quantities import Exact, as_factor, as_latency
from ...topologies import bandwidth_optimum, moore_steps, undirected_moore_steps

NS_PER_US = 1000


class Workload(NamedTuple):
    """What candidates are timed for.

    `num_bytes`: M: bytes in all of an allgather, bytes per rank of an allreduce, a reduce-scatter or an all-to-all.
    `alpha`: µs per step.
    `node_bandwidth`: B: GB/s of all ports of a node together.
    """

    num_bytes: int
    alpha: Fraction
    node_bandwidth: Fraction

    @classmethod
    def read(cls, size: int | str, alpha: Exact, node_bandwidth: Exact) -> Workload:
        """Read what users write, or raise the error of `as_bytes`, `as_latency` or `as_factor`."""
        return cls(as_bytes(size), as_latency(alpha, "a step"), as_factor(node_bandwidth, "node_bandwidth"))

    @property
    def transfer(self) -> Fraction:
        """M/B in µs."""
        return self.num_bytes / (self.node_bandwidth * NS_PER_US)


class FrontierBounds(NamedTuple):
    """What no topology of this size and degree can beat.

    `steps`: T_L in alpha, by the Moore bound.
    `bandwidth_factor`: T_B in M/B: (N - 1)/N.
    `all_to_all`: Throughput in bandwidths of one link, if as many nodes are as near as the Moore bound lets them be.
    """

    steps: int
    bandwidth_factor: Fraction
    all_to_all: Fraction

    @classmethod
    def of(cls, nodes: int, degree: int, *, bidirectional: bool) -> FrontierBounds:
        """Work out the bounds of a size and degree, of topologies with opposite links or of any."""
        steps = (undirected_moore_steps if bidirectional else moore_steps)(nodes, degree)
        branching = degree - 1 if bidirectional else degree
        left, layer, distance, hops = nodes - 1, degree, 0, 0
        while left:
            distance += 1
            # Beyond a single two-way link there is nothing; whoever is left is at least one hop further.
            reached = min(layer, left) if layer else left
            hops += distance * reached
            left, layer = left - reached, layer * branching
        return cls(steps, bandwidth_optimum(nodes), Fraction(degree, hops))
