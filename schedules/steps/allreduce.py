"""Allreduces in steps, in two phases or in one, and the cost of schedules in steps.

In one phase ranks exchange sums of whole vectors, or of parts of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ...errors import FileFormatError, UnsupportedError
from ...support.arrays import BoolArray, IntArray
from ...support.formatting import count_text
from ...support.quantities import Exact, as_bytes, as_factor, as_latency
from ...support.validation import shown
from ...topologies import DirectGraph, Topology
from ...topologies.network.direct_graph import as_direct_graph
from ..collective import Direction
from ..fields import as_count, schedule_fields
from ..schedule import AllreduceSchedule
from ..transfers import Transfers
from .sends import InSteps, VectorSends, as_columns, exchange_transfers, read_sends, step_transfers
from .step_schedule import StepSchedule
from .verify import check_halves, verified_exchange, verified_steps

COUNTS = ("num_ranks", "chunks")
COLUMNS = ("steps", "adds", "lower", "upper", "routes")
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
        check_halves(self.schedules)
        return np.concatenate([verified_steps(part, topology) for part in self.schedules])

    def transfers(self, topology: Topology) -> Transfers:
        """List the sends of the reduce-scatter, then those of the allgather."""
        return step_transfers(self.schedules, topology)

    def figures(self, topology: Topology) -> dict[str, Any]:  # noqa: ARG002
        """Numbers of steps, chunks of both parts, and sends."""
        chunks = [part.chunks_per_shard for part in self.schedules]
        return {"num_steps": self.num_steps, "chunks_per_shard": chunks, "num_sends": self.num_sends}

    def check_fit(self, network: Topology | DirectGraph) -> None:
        """Raise `UnsupportedError` unless both are for as many ranks, one reduces and the other broadcasts."""
        for part in self.schedules:
            part.check_fit(network)
        directions = tuple(part.direction for part in self.schedules)
        if directions != ("reduce", "broadcast"):
            raise UnsupportedError(
                f"the two schedules of the allreduce have the directions {shown(directions)}; "
                "expected 'reduce' and 'broadcast'"
            )

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


@dataclass(frozen=True, eq=False, repr=False)
class StepExchange(VectorSends, kind="exchange"):
    """An allreduce in steps: a rank sends in a step the sums that it holds at the beginning of that step.

    Every rank begins with a vector of its own, cut into `chunks`; its value of a chunk is a sum of such vectors.  A
    send carries an interval of chunks; the receiver adds it to its value, or replaces this.  No vector
    is ever added twice, and in the end every rank holds the sum of all.  Compared with a `StepAllreduce` fewer steps do
    for it, and more data is sent: "recursive doubling" in Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, section
    4.4, exchanges whole vectors in log2 N steps.

    The arrays are read-only, not copied; `collopt.schedules.verified_loads` checks them.  Order of additions differs
    among ranks, so that rounded sums may differ in their last bits.

    Attributes
    ----------
    num_ranks, chunks : int
        Compute nodes that take part, and chunks of the whole vector.
    adds : ndarray of bool, shape (sends,)
        Whether the receiver adds the data to its own.
    steps, lower, upper, routes, path_starts, path_nodes : ndarray of int64
        As those of a `StepSchedule`, but that chunks are those of the vector.

    Examples
    --------
    Two ranks send each other their vectors, over links of 25 GB/s:

    >>> from collopt.topologies import complete
    >>> exchange = StepExchange.from_sends(2, 1, [(0, True, 0, 1, (0, 1)), (0, True, 0, 1, (1, 0))])
    >>> exchange
    <StepExchange: allreduce of 2 ranks, 1 step, 1 chunk, 2 sends>
    >>> exchange.inverse_rate(complete(2, bandwidth=25))
    Fraction(1, 25)
    """

    num_ranks: int
    chunks: int
    steps: IntArray
    adds: BoolArray
    lower: IntArray
    upper: IntArray
    routes: IntArray
    path_starts: IntArray
    path_nodes: IntArray

    @classmethod
    def from_sends(
        cls, num_ranks: int, chunks: int, sends: Iterable[tuple[int, bool, int, int, tuple[int, ...]]]
    ) -> StepExchange:
        """Build a schedule, not verified, from ``(step, adds, lower, upper, path)``, in any order."""
        steps, adds, *arrays = as_columns(sends, "adds")
        return cls(as_count(num_ranks, "num_ranks"), as_count(chunks, "chunks"), steps, adds != 0, *arrays)

    @property
    def phases(self) -> tuple[Direction, ...]:
        """Those of an allreduce, though both are one."""
        return "reduce", "broadcast"

    @property
    def load_units(self) -> tuple[int, ...]:
        """Chunks of the vector, once for each step."""
        return (self.chunks,) * self.num_steps

    @property
    def total_weight(self) -> int:
        """One vector."""
        return 1

    @property
    def most_added(self) -> Fraction:
        """Data that the rank adds which adds most, in vectors."""
        heads = self.path_nodes[self.path_starts[1:] - 1][self.routes]
        added = np.bincount(heads, (self.upper - self.lower) * self.adds, minlength=self.num_ranks)
        return Fraction(int(added.max()), self.chunks)

    @property
    def size_text(self) -> str:
        """Such as ``"3 steps, 8 chunks"``."""
        return f"{count_text(self.num_steps, 'step')}, {count_text(self.chunks, 'chunk')}"

    def has_sizes(self, weights: Sequence[int], num_ranks: int) -> bool:  # noqa: ARG002
        """Always true: every rank ends with all data."""
        return True

    def verified_loads(self, topology: Topology) -> IntArray:
        """Verify the sends; see `verified_exchange`."""
        return verified_exchange(self, topology)

    @property
    def sums_text(self) -> str:
        """Describe the checks of sums."""
        return "no vector is added twice; "

    def transfers(self, topology: Topology) -> Transfers:
        """List the sends as transfers."""
        return exchange_transfers(self, topology)

    def figures(self, topology: Topology) -> dict[str, Any]:  # noqa: ARG002
        """Numbers of steps, chunks and sends."""
        return {"num_steps": self.num_steps, "chunks": self.chunks, "num_sends": self.num_sends}

    @classmethod
    def from_json(cls, data: object, where: str) -> StepExchange:
        """Build the schedule that a decoded JSON value describes; only its form is checked."""
        fields = schedule_fields(data, "exchange", ("kind", *COUNTS, "paths", *COLUMNS), where)
        values = read_sends(fields, COUNTS, COLUMNS, where)
        if (values["adds"] > 1).any():
            raise FileFormatError(
                f"{where}: field schedule.adds has the number {values['adds'].max()}; expected 0 or 1"
            )
        return cls(**values | {"adds": values["adds"] != 0})

    def to_json(self) -> dict[str, Any]:
        """Lists and integers, as in plan files; `adds` as 0 and 1."""
        columns = self._columns_to_json(COLUMNS)
        adds = self.adds.astype(np.int64).tolist()
        return {"kind": "exchange", **{name: getattr(self, name) for name in COUNTS}, **columns, "adds": adds}

    def __repr__(self) -> str:
        return (
            f"<StepExchange: allreduce of {self.num_ranks} ranks, {self.size_text}, "
            f"{count_text(self.num_sends, 'send')}>"
        )


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
