"""Allreduces in two phases of steps, and the cost of schedules in steps."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...support.arrays import IntArray
from ...support.formatting import count_text
from ...support.quantities import Exact, as_bytes, as_factor, as_latency
from ...support.validation import shown
from ...topologies import DirectGraph, Topology
from ...topologies.network.direct_graph import as_direct_graph
from ..path_checks import check_halves
from ..schedule import AllreduceSchedule
from ..transfers import Transfers
from .sends import shard_transfers
from .step_schedule import InSteps, StepSchedule

NS_PER_US = 1000


@dataclass(frozen=True, eq=False)
class StepAllreduce(InSteps, AllreduceSchedule, of="steps"):
    """A reduce-scatter in steps, `reduce`, and after its last step an allgather, `broadcast`.

    Whether the two belong together is for `collopt.schedules.verified_loads` to say.
    """

    reduce: StepSchedule
    broadcast: StepSchedule

    @property
    def schedules(self) -> tuple[StepSchedule, ...]:
        """Both schedules, in execution order."""
        return self.reduce, self.broadcast

    @property
    def load_units(self) -> tuple[int, ...]:
        """Chunks of a shard, once for each step of both."""
        return sum((schedule.load_units for schedule in self.schedules), ())

    @property
    def num_steps(self) -> int:
        """Number of steps of both."""
        return self.reduce.num_steps + self.broadcast.num_steps

    @property
    def size_text(self) -> str:
        """Such as ``"6 steps, 12 chunks per shard"``; both parts in turn where they are not cut alike."""
        chunks = self.broadcast.chunks_per_shard
        if self.reduce.chunks_per_shard != chunks:
            return f"{self.reduce.size_text}, then {self.broadcast.size_text}"
        return f"{count_text(self.num_steps, 'step')}, {count_text(chunks, 'chunk')} per shard"

    def link_loads(self, topology: Topology) -> IntArray:
        """Chunks that cross each link in each step: the rows of `reduce`, then those of `broadcast`.

        Each part counts in chunks of its own; see `StepSchedule.link_loads`.
        """
        return np.concatenate([schedule.link_loads(topology) for schedule in self.schedules])

    def verified_loads(self, topology: Topology) -> IntArray:
        """Verify both parts, and that they match; rows of loads are those of one after the other."""
        check_halves(self.reduce, self.broadcast, StepSchedule)
        return np.concatenate([StepSchedule.verified_loads(part, topology) for part in (self.reduce, self.broadcast)])

    def check(self) -> None:
        """Check all that `verified_loads` does without a topology, but for steps in which nothing happens."""
        check_halves(self.reduce, self.broadcast, StepSchedule)
        super().check()

    def transfers(self, topology: Topology) -> Transfers:
        """List the sends of the reduce-scatter, then those of the allgather."""
        return shard_transfers([part.columns for part in self.schedules], topology)

    def figures(self, topology: Topology) -> dict[str, Any]:  # noqa: ARG002
        """Numbers of steps, chunks of both parts, and sends."""
        chunks = [part.chunks_per_shard for part in self.schedules]
        return {"num_steps": self.num_steps, "chunks_per_shard": chunks, "num_sends": self.num_sends}

    def check_fit(self, network: Topology | DirectGraph) -> None:
        """Raise `UnsupportedError` unless both are for as many ranks, one reduces and the other broadcasts."""
        for part in self.schedules:
            part.check_fit(network)
        check_halves(self.reduce, self.broadcast, StepSchedule, UnsupportedError)

    def time(
        self, topology: Topology, num_bytes: int | str, slices: int | None = None, inverse_rate: Fraction | None = None
    ) -> Fraction:
        """Sum of both, in µs; see `StepSchedule.time`."""
        self.check_fit(topology)
        return sum((part.time(topology, num_bytes, slices, inverse_rate) for part in self.schedules), Fraction(0))


AnyStepSchedule = StepSchedule | StepAllreduce
"""All schedules that consist of steps."""


def check_fit(schedule: object, network: Topology | DirectGraph) -> None:
    """Raise `UnsupportedError` unless it is a schedule in steps for as many ranks as the network has."""
    if not isinstance(schedule, AnyStepSchedule):
        raise UnsupportedError(f"the schedule is {shown(schedule)}; expected a StepSchedule or a StepAllreduce")
    schedule.check_fit(network)


class StepCost(NamedTuple):
    """T_L, `steps` in multiples of alpha, and T_B, `bandwidth_factor` in multiples of M/B, of a schedule on a topology.

    Direct-connect paper, section 3.2, with M bytes in all and a total bandwidth B of each node's d ports.  A tuple, so
    that costs can be compared, sorted and taken apart.

    Examples
    --------
    The optimum of 1024 nodes with 4 ports each of 25 Gb/s, as in Table 4, for an allreduce of 1 MiB:

    >>> float(2 * StepCost(5, Fraction(1023, 1024)).runtime(2**20, alpha=10, node_bandwidth="12.5")).__round__(1)
    267.6
    """

    steps: int
    bandwidth_factor: Fraction

    def runtime(self, num_bytes: int | str, *, alpha: Exact, node_bandwidth: Exact) -> Fraction:
        """Time of the schedule by the alpha-beta model, in µs, for M bytes in all, such as ``"1M"``.

        `alpha` is µs per step; `node_bandwidth` is B, GB/s of all ports of a node together, self-loops included.
        """
        delay, speed = as_latency(alpha, "a step"), as_factor(node_bandwidth, "node_bandwidth")
        return self.steps * delay + self.bandwidth_factor * as_bytes(num_bytes) / (speed * NS_PER_US)


def step_cost(graph: DirectGraph, schedule: AnyStepSchedule) -> StepCost:
    """Compute T_L and T_B of a schedule from its link loads.

    Raises `UnsupportedError` if the graph is not regular, or the schedule is for another number of ranks;
    `CertificateError` if the schedule uses a link that the graph does not have.

    Parameters
    ----------
    graph : DirectGraph
        Regular; the network of the schedule.
    schedule : StepSchedule or StepAllreduce
        For as many ranks; not checked otherwise, see `collopt.schedules.verified_loads`.

    Examples
    --------
    >>> from collopt.schedules import StepSchedule
    >>> pair = DirectGraph.from_arcs(2, [(0, 1), (1, 0)], "K(2)")
    >>> exchange = StepSchedule.from_sends(2, 1, [(0, 0, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0))])
    >>> step_cost(pair, exchange)
    StepCost(steps=1, bandwidth_factor=Fraction(1, 2))
    """
    check_fit(schedule, as_direct_graph(graph))
    factor = Fraction(graph.degree, graph.num_nodes) * schedule.inverse_rate(Topology.from_graph(graph))
    return StepCost(schedule.num_steps, factor)
