"""`StagedFlow`: an all-to-all(v) whose steps wait for each other, with one partner at a time in other servers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from ...errors import UnsupportedError
from ...support.arrays import IntArray, read_only
from ...support.quantities import as_bytes
from ...support.validation import shown
from ...topologies import Topology
from ..paths.congestion import path_latencies
from ..paths.schedule import NS_PER_US
from ..paths.written_paths import schedule_fields, whole_numbers
from .schedule import FIELDS, FlowSchedule, flow_fields


@dataclass(frozen=True, eq=False, repr=False)
class StagedFlow(FlowSchedule):
    """A flow in which steps wait for each other, and ranks have one partner at a time in other `servers`.

    In no step does a rank send to two ranks of other servers, or receive from two, so NICs see no incast.  All that a
    step does, such as balancing for the next stage between servers and redistributing after the last one, runs at the
    same time.  As in a `StepSchedule` loads have a row for each step, and the rate is that of all steps together.
    `servers`, int64 (ranks,), has the server of each rank.

    Examples
    --------
    Of two servers of two ranks, one hands half of its data over, and its peers send at the same time:

    >>> from collopt.topologies import complete
    >>> traffic = np.zeros((4, 4), dtype=np.int64)
    >>> traffic[0, 2] = 2
    >>> paths = [(1, (0, 2), (0,)), (1, (0, 1, 3, 2), (0, 1, 2))]
    >>> flow = StagedFlow.of(FlowSchedule.from_paths(traffic, 1, paths), np.array([0, 0, 1, 1]))
    >>> flow.inverse_rate(complete(4, bandwidth=10))
    Fraction(3, 10)
    """

    load_text: ClassVar[str] = "step {step} puts {load} chunks"
    pipelined: ClassVar[bool] = False

    servers: IntArray

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.servers) is not np.ndarray or self.servers.ndim != 1:
            raise UnsupportedError(
                f"the schedule's servers is {shown(self.servers)}; expected a numpy array of a number for each rank"
            )
        object.__setattr__(self, "servers", read_only(self.servers))

    @classmethod
    def of(cls, flow: FlowSchedule, servers: IntArray) -> StagedFlow:
        """Let the steps of a flow wait for each other; not verified."""
        return cls(**{each.name: getattr(flow, each.name) for each in fields(FlowSchedule)} | {"servers": servers})

    @property
    def load_units(self) -> tuple[int, ...]:
        """Chunks of a traffic of 1, once for each step."""
        return (self.chunks_per_unit,) * self.num_steps

    def link_loads(self, topology: Topology) -> IntArray:
        """As `step_loads`."""
        return self.step_loads(topology)

    @property
    def messages(self) -> IntArray:
        """Messages that each rank starts, shape (ranks,); what goes to one rank in one step is one."""
        begins, heads = self._begins(), np.delete(self.path_nodes, self.path_starts[:-1])
        senders = np.delete(self.path_nodes, self.path_starts[1:] - 1)[begins]
        sent = np.unique(np.stack([self.steps[begins], senders, heads[heads < self.num_ranks]]), axis=1)
        return np.bincount(sent[1], minlength=self.num_ranks)

    def time(
        self,
        topology: Topology,
        num_bytes: int | str,
        slices: int | None = None,  # noqa: ARG002 - stages are sent whole
        inverse_rate: Fraction | None = None,  # noqa: ARG002 - it is the sum of what follows
    ) -> Fraction:
        """Time in µs: of each step the busiest link's, and the longest latency between ranks on its way."""
        unit = as_bytes(num_bytes) / (self.total_weight * NS_PER_US)
        begins = self._begins()
        parts = np.append(begins, len(self.steps)) + np.arange(len(begins) + 1)
        delays, scale = path_latencies(parts, self.hop_links(topology), topology)
        longest = [0] * self.num_steps
        for step, delay in zip(self.steps[begins].tolist(), delays.tolist(), strict=True):
            longest[step] = max(longest[step], delay)
        return unit * self.step_rate(topology) + Fraction(sum(longest), scale)

    def _begins(self) -> IntArray:
        """Hops that begin at a rank."""
        starts = np.delete(self.path_nodes, self.path_starts[1:] - 1)
        return np.flatnonzero(starts < self.num_ranks)

    def to_json(self) -> dict[str, Any]:
        """As that of a flow, of another kind and with the servers."""
        return {**super().to_json(), "kind": "staged-flow", "servers": self.servers.tolist()}

    def __repr__(self) -> str:
        return super().__repr__().replace("FlowSchedule", "StagedFlow")


def staged_flow_from_json(data: object, where: str) -> StagedFlow:
    """Build the flow that a decoded JSON value describes; only its form is checked."""
    read = schedule_fields(data, "staged-flow", (*FIELDS, "servers"), where)
    servers = whole_numbers(read["servers"], f"{where}: field schedule.servers")
    return StagedFlow(**flow_fields(read, where) | {"servers": servers})
