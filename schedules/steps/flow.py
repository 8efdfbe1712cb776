"""`FlowSchedule`: an all-to-all(v) as whole chunks on paths, stored as arrays; `StagedFlow`: one in stages.

The stages of a `StagedFlow` wait for each other, with one partner at a time in other servers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from ...errors import FileFormatError, UnsupportedError
from ...support.arrays import IntArray
from ...support.formatting import count_text, span_text
from ...support.quantities import as_bytes
from ...support.validation import shown
from ...topologies import Topology
from ..collective import Collective, is_even
from ..fields import as_count, as_paths, path_arrays, schedule_fields, whole_count, whole_numbers
from ..schedule import NS_PER_US
from ..transfers import Transfers, congestion, path_latencies, path_links, slowest_path
from .sends import Sends
from .verify import FlowArrays, check_partners, flow_sends, verified_flow

if TYPE_CHECKING:
    import pandas as pd

FIELDS = ("kind", "chunks_per_unit", "traffic", "weights", "paths", "steps")


class FlowPath(NamedTuple):
    """`chunks` pass the nodes of `path` from source to destination, each link in its step of `steps`, which rise."""

    chunks: int
    path: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class FlowSchedule(FlowArrays, kind="flow"):
    """Every rank sends each other its part of the traffic, over one or several paths, through ranks and switches.

    The part of rank s for rank d consists of ``chunks_per_unit * traffic[s, d]`` chunks of equal size.  Each path has
    some of them, which move together: in one step over a link to a rank, or over several through switches, which hold
    nothing back; in a later step from there on.  All hops of one step run at the same time.  Node numbers are
    those of `Topology.nodes`: ranks first, then switches.  Steps count from 0.

    With a barrier after each step the rate is `step_rate`; with chunks pipelined in slices it approaches
    `inverse_rate`.

    The arrays are read-only, not copied; `collopt.schedules.verified_loads` checks them.

    Attributes
    ----------
    num_ranks : int
        Compute nodes.
    chunks_per_unit : int
        Chunks that a traffic of 1 is cut into.
    traffic : ndarray of int64, shape (ranks, ranks)
        Relative amounts from each rank (row) to each other (column); the diagonal only counts for the algorithm
        bandwidth.
    weights : ndarray of int64, shape (paths,)
        Chunks on each path.
    path_starts : ndarray of int64, shape (paths + 1,)
        Path ``p`` is ``path_nodes[path_starts[p]:path_starts[p + 1]]``.
    path_nodes : ndarray of int64
        Node numbers: the source, the nodes passed, the destination.
    steps : ndarray of int64, shape (hops,)
        When data passes each link, path by path: the same step up to the next rank, then a later one.  Path ``p`` has
        its first link at place ``path_starts[p] - p``.

    Examples
    --------
    On a one-way ring of three, every rank sends 1 to the next rank and 1 to the one after it:

    >>> from collopt.topologies import ring
    >>> near = [(1, (rank, (rank + 1) % 3), (0,)) for rank in range(3)]
    >>> far = [(1, (rank, (rank + 1) % 3, (rank + 2) % 3), (1, 2)) for rank in range(3)]
    >>> schedule = FlowSchedule.from_paths(np.ones((3, 3), dtype=np.int64), 1, near + far)
    >>> schedule
    <FlowSchedule: all-to-all of 3 ranks, 6 paths, 3 steps, 1 chunk per unit>
    >>> schedule.inverse_rate(ring(3, bandwidth=10, bidirectional=False))
    Fraction(3, 10)
    """

    parts: ClassVar[str] = "the paths of a flow"
    subject: ClassVar[str] = "flow is"
    load_text: ClassVar[str] = "the paths put {load} chunks"
    view = "senders"
    form: ClassVar[str] = "flow"
    further_fields: ClassVar[tuple[str, ...]] = ()

    num_ranks: int
    chunks_per_unit: int
    traffic: IntArray
    weights: IntArray
    path_starts: IntArray
    path_nodes: IntArray
    steps: IntArray

    @classmethod
    def from_paths(
        cls, traffic: IntArray, chunks_per_unit: int, paths: Iterable[tuple[int, tuple[int, ...], tuple[int, ...]]]
    ) -> FlowSchedule:
        """Build a schedule, not verified, from ``(chunks, path, steps)`` tuples, such as `FlowPath`, in any order.

        Traffic and chunks per unit are as the attributes; a path has node numbers, and a step for each link between
        them.
        """
        try:
            matrix = np.asarray(traffic)
        except (TypeError, ValueError, RuntimeError):  # rows of unequal length, or tensors on a GPU
            matrix = np.empty(0, dtype=np.int64)
        if matrix.dtype != np.int64 or matrix.ndim != 2:
            raise UnsupportedError(f"the traffic is {shown(traffic)}; expected a matrix of 64-bit integers")
        rows = as_paths(paths)
        for number, (_, path, steps) in enumerate(rows):
            if len(path) < 2 or len(steps) != len(path) - 1:
                raise UnsupportedError(
                    f"path {number} is {shown(rows[number])}; expected two nodes or more and a step for each link"
                )
        starts = np.cumsum([0, *(len(path) for _, path, _ in rows)], dtype=np.int64)
        columns = (
            [chunks for chunks, _, _ in rows],
            [node for _, path, _ in rows for node in path],
            [step for _, _, steps in rows for step in steps],
        )
        try:
            arrays = [np.array(column, dtype=np.int64) for column in columns]
        except OverflowError:
            raise UnsupportedError(f"the paths {shown(rows)} hold a number beyond 64 bits; expected none") from None
        weights, nodes, hops = arrays
        return cls(len(matrix), as_count(chunks_per_unit, "chunks_per_unit"), matrix, weights, starts, nodes, hops)

    @property
    def load_units(self) -> tuple[int, ...]:
        """Chunks of a traffic of 1."""
        return (self.chunks_per_unit,)

    def problem(self, collective: Collective) -> dict[str, Any]:
        """Return the traffic of an all-to-allv, or the root of a collective whose traffic this is."""
        if collective.takes_traffic:
            return {"traffic": self.traffic}
        root = None if collective.traffic is None else collective.root_of(self.traffic)
        return {} if root is None else {"root": root}

    @property
    def num_paths(self) -> int:
        """Number of paths; one that carries several chunks counts once."""
        return len(self.weights)

    @cached_property
    def num_steps(self) -> int:
        """Number of steps."""
        return int(self.steps.max()) + 1 if len(self.steps) else 0

    @property
    def sources(self) -> IntArray:
        """The rank that each path begins at, shape (paths,)."""
        return self.path_nodes[self.path_starts[:-1]]

    @property
    def destinations(self) -> IntArray:
        """The rank that each path ends at, shape (paths,)."""
        return self.path_nodes[self.path_starts[1:] - 1]

    @property
    def hops(self) -> IntArray:
        """Links of each path, shape (paths,)."""
        return np.diff(self.path_starts) - 1

    @property
    def num_transfers(self) -> IntArray:
        """Times that data of each path goes from a rank to a rank, shape (paths,)."""
        return np.add.reduceat((self.path_nodes < self.num_ranks).astype(np.int64), self.path_starts[:-1]) - 1

    @property
    def size_text(self) -> str:
        """Such as ``"12 paths, 2 steps, 1 chunk per unit"``."""
        return (
            f"{count_text(self.num_paths, 'path')}, {count_text(self.num_steps, 'step')}, "
            f"{count_text(self.chunks_per_unit, 'chunk')} per unit"
        )

    def paths(self) -> Iterator[FlowPath]:
        """Yield every path, in the order of the arrays."""
        for number, chunks in enumerate(self.weights.tolist()):
            first, last = int(self.path_starts[number]), int(self.path_starts[number + 1])
            steps = self.steps[first - number : last - number - 1]
            yield FlowPath(chunks, tuple(self.path_nodes[first:last].tolist()), tuple(steps.tolist()))

    def link_loads(self, topology: Topology) -> IntArray:
        """Chunks that cross each link in all, shape (links,); raises as `path_links`."""
        loads = np.zeros(topology.num_links, dtype=np.int64)
        np.add.at(loads, self.path_links(topology), np.repeat(self.weights, self.hops))
        return loads

    def step_loads(self, topology: Topology) -> IntArray:
        """Chunks that cross each link in each step, shape (steps, links); see `Sends.step_loads`."""
        return self.columns.step_loads(topology)

    def step_rate(self, topology: Topology) -> Fraction:
        """Sum over the steps of the largest ``load / bandwidth``: as `inverse_rate`, where each step is waited for."""
        times = (congestion(loads, self.chunks_per_unit, topology) for loads in self.step_loads(topology))
        return sum(times, Fraction(0))

    def hop_rate(self, topology: Topology) -> Fraction:
        """Longest time that the data of one path takes on one link, in 1/(GB/s): see `Schedule.hop_rate`."""
        starts = np.concatenate([[0], np.cumsum(self.hops)])
        return slowest_path(self.weights, starts, self.path_links(topology), topology) / self.chunks_per_unit

    @property
    def messages(self) -> IntArray:
        """Transfers that each rank begins, shape (ranks,)."""
        nodes = np.delete(self.path_nodes, self.path_starts[1:] - 1)
        return np.bincount(nodes[nodes < self.num_ranks], minlength=self.num_ranks)

    @property
    def depth(self) -> int:
        """Transfers from rank to rank along the path that has most."""
        return int(self.num_transfers.max())

    def latency(self, topology: Topology) -> Fraction:
        """Largest sum of link latencies along a path, in µs."""
        delays, scale = path_latencies(self.path_starts, self.path_links(topology), topology)
        return Fraction(int(delays.max()), scale)

    def verified_loads(self, topology: Topology) -> IntArray:
        """Verify the paths, and sum the load of each link; see `verified_flow`."""
        hops = verified_flow(self, topology)
        loads = np.zeros(topology.num_links, dtype=np.int64)
        np.add.at(loads, hops.links, self.weights[hops.paths])
        return loads

    @property
    def columns(self) -> Sends:
        """The sends from rank to rank, of chunks of the pairs."""
        return flow_sends(self)

    def transfers(self, topology: Topology) -> Transfers:
        """List the transfers from rank to rank; each waits for the one before it on its path."""
        sends = self.columns
        # Chunks of each source are counted from 0, destination by destination.
        rows = sends.sizes.reshape(self.num_ranks, self.num_ranks)
        starts = (np.cumsum(rows, axis=1) - rows).reshape(-1)
        return sends.transfers(topology, starts, 1 / (self.total_weight * self.chunks_per_unit))

    def part_numbers(self, transfers: Transfers) -> IntArray:
        """Number the sources of the transfers, in any order, int64 (transfers,): those at which their paths begin."""
        firsts = np.arange(len(transfers.senders))
        before = firsts.copy()
        before[transfers.after] = transfers.before
        while (before[firsts] != firsts).any():
            firsts = before[firsts]
        return transfers.senders[firsts]

    @property
    def sends_unevenly(self) -> bool:
        """Whether the traffic of some ranks differs."""
        return not is_even(self.traffic)

    @property
    def num_hops(self) -> int:
        """Links of all paths."""
        return len(self.steps)

    def renumbered(self, image: IntArray) -> Self:
        """Number the nodes anew."""
        traffic, ranks = self.traffic.copy(), image[: self.num_ranks]
        traffic[np.ix_(ranks, ranks)] = self.traffic
        return replace(self, path_nodes=image[self.path_nodes], traffic=traffic)

    def rows(self, topology: Topology, busiest: dict[str, str]) -> dict[str, str]:
        """Count paths, transfers and chunks, and the cost of synchronous steps."""
        counts = self.num_transfers
        slower = self.step_rate(topology) / self.inverse_rate(topology)
        lost = "no slower" if slower == 1 else f"{float(slower):.2f} times as long"
        waiting = f"{lost} with a barrier after each step" if self.pipelined else "which wait for each other"
        return {
            "paths": f"{self.num_paths}, of {span_text(counts.min(), counts.max(), 'transfer')} each",
            "chunks per unit": f"{self.chunks_per_unit}",
            "steps": f"{self.num_steps}, {waiting}",
            **busiest,
        }

    def checks(self) -> dict[str, str]:
        """Describe the checks of paths and traffic."""
        return {
            "routes": f"{self.num_paths} paths follow existing links and visit no node twice",
            "traffic": f"all {self.num_ranks} ranks receive all data meant for them exactly once",
        }

    def figures(self, topology: Topology) -> dict[str, Any]:
        """Numbers of steps, chunks, paths and transfers, and the rate with steps that wait."""
        return {
            "num_steps": self.num_steps,
            "chunks_per_unit": self.chunks_per_unit,
            "num_paths": self.num_paths,
            "max_transfers": self.depth,
            "step_rate": str(self.step_rate(topology)),
        }

    def to_json(self) -> dict[str, Any]:
        """Describe it by lists and integers, ready for `json.dumps`."""
        return {
            "kind": self.kind,
            "chunks_per_unit": self.chunks_per_unit,
            "traffic": self.traffic.tolist(),
            "weights": self.weights.tolist(),
            "paths": self._path_lists(),
            "steps": self.steps.tolist(),
        }

    @classmethod
    def from_json(cls, data: object, where: str) -> FlowSchedule:
        """Build the flow that a decoded JSON value describes; only its form is checked."""
        return cls(**flow_fields(schedule_fields(data, cls.kind, (*FIELDS, *cls.further_fields), where), where))

    def to_frame(self, topology: Topology | None = None) -> pd.DataFrame:
        """Tabulate the paths; raises `CertificateError` if a path uses a link that the topology does not have.

        One row per path: ``source``, ``destination``, ``chunks``, ``path`` and ``steps``, by source and destination.
        The topology names the nodes; they are numbers without it.
        """
        import pandas as pd

        if topology is not None:
            self.path_links(topology)
        names = range(int(self.path_nodes.max(initial=0)) + 1) if topology is None else topology.nodes
        rows = [
            (path[0], path[-1], chunks, tuple(names[node] for node in path), steps)
            for chunks, path, steps in self.paths()
        ]
        frame = pd.DataFrame(rows, columns=["source", "destination", "chunks", "path", "steps"])
        return frame.sort_values(["source", "destination"], kind="stable", ignore_index=True)

    def __repr__(self) -> str:
        off_diagonal = ~np.eye(len(self.traffic), dtype=np.bool_)
        equal = len(np.unique(self.traffic[off_diagonal])) == 1
        name = "all-to-all" if equal else "all-to-allv"
        return f"<{type(self).__name__}: {name} of {self.num_ranks} ranks, {self.size_text}>"


@dataclass(frozen=True, eq=False, repr=False)
class StagedFlow(FlowSchedule, kind="staged-flow"):
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
    form: ClassVar[str] = "staged flow"
    further_fields: ClassVar[tuple[str, ...]] = ("servers",)

    servers: IntArray

    @classmethod
    def of(cls, flow: FlowSchedule, servers: IntArray) -> StagedFlow:
        """Let the steps of a flow wait for each other; not verified."""
        return cls(**{field.name: getattr(flow, field.name) for field in fields(FlowSchedule)} | {"servers": servers})

    @property
    def load_units(self) -> tuple[int, ...]:
        """Chunks of a traffic of 1, once for each step."""
        return (self.chunks_per_unit,) * self.num_steps

    def link_loads(self, topology: Topology) -> IntArray:
        """As `step_loads`."""
        return self.step_loads(topology)

    @property
    def messages(self) -> IntArray:
        """Messages that each rank starts, shape (ranks,); all data to one rank in one step is one."""
        sends = self.columns
        sent = np.unique(np.stack([sends.steps, *sends.ends]), axis=1)
        return np.bincount(sent[1], minlength=self.num_ranks)

    def time(
        self,
        topology: Topology,
        num_bytes: int | str,
        slices: int | None = None,  # noqa: ARG002 - stages are sent whole
        inverse_rate: Fraction | None = None,  # noqa: ARG002 - steps have rates of their own
    ) -> Fraction:
        """Time in µs: of each step the busiest link's, and the longest latency between ranks on its way."""
        unit, sends = as_bytes(num_bytes) / (self.total_weight * NS_PER_US), self.columns
        links = path_links(sends.path_starts, sends.path_nodes, topology)
        delays, scale = path_latencies(sends.path_starts, links, topology)
        longest = [0] * self.num_steps
        for step, delay in zip(sends.steps.tolist(), delays.tolist(), strict=True):
            longest[step] = max(longest[step], delay)
        return unit * self.step_rate(topology) + Fraction(sum(longest), scale)

    def to_json(self) -> dict[str, Any]:
        """As that of a flow, with the servers."""
        return {**super().to_json(), "servers": self.servers.tolist()}

    def verified_loads(self, topology: Topology) -> IntArray:
        """Verify the paths, and that ranks have one partner at a time; loads are those of each step."""
        verified_flow(self, topology)
        check_partners(self)
        return flow_sends(self).step_loads(topology)

    def part_numbers(self, transfers: Transfers) -> IntArray:
        """Return -1 for each: one message may hold data of several sources."""
        return np.full_like(transfers.senders, -1)

    def checks(self) -> dict[str, str]:
        """Describe the checks of paths, traffic and partners."""
        partners = f"in none of {count_text(self.num_steps, 'step')} has a rank two partners in other servers"
        return super().checks() | {"stages": partners}


def flow_fields(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Read the attributes of a flow from its decoded fields."""
    rows = fields["traffic"]
    if not isinstance(rows, list) or any(not isinstance(row, list) or len(row) != len(rows) for row in rows):
        raise FileFormatError(f"{where}: field schedule.traffic is not a square matrix, a list of lists")
    traffic = whole_numbers([entry for row in rows for entry in row], f"{where}: field schedule.traffic")
    columns = [name for name in ("weights", "steps", "servers") if name in fields]
    return {
        "num_ranks": len(rows),
        "chunks_per_unit": whole_count(fields["chunks_per_unit"], f"{where}: field schedule.chunks_per_unit"),
        "traffic": traffic.reshape(len(rows), len(rows)),
        **path_arrays(fields["paths"], where),
        **{name: whole_numbers(fields[name], f"{where}: field schedule.{name}") for name in columns},
    }
