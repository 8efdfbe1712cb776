"""`StepSchedule` and `StepExchange`: data that ranks send each other in synchronous steps, stored as arrays."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from ...errors import FileFormatError, UnsupportedError
from ...support.arrays import BoolArray, IntArray
from ...support.formatting import count_text
from ...support.quantities import as_bytes
from ...support.validation import shown
from ...topologies import DirectGraph, Topology
from ...topologies.network.topology import as_topology
from ..collective import Direction
from ..fields import as_count, path_arrays, schedule_fields, whole_count, whole_numbers
from ..schedule import NS_PER_US, RoutedSchedule, Schedule
from ..transfers import Transfers, path_latencies
from .sends import EVERYONE, Sends, as_columns, shard_transfers
from .verify import check_sends, check_shapes, verified_sends


class InSteps(Schedule):
    """All schedules that consist of sends in synchronous steps."""

    parts: ClassVar[str] = "steps"
    subject: ClassVar[str] = "steps are"
    load_text: ClassVar[str] = "step {step} puts {load} chunks"
    pipelined: ClassVar[bool] = False
    form: ClassVar[str] = "steps"

    @property
    @abstractmethod
    def schedules(self) -> tuple[StepSends, ...]:
        """Parts, in execution order."""

    @property
    def num_sends(self) -> int:
        """Number of sends; one that carries several chunks counts once."""
        return sum(len(part.steps) for part in self.schedules)

    @property
    def num_hops(self) -> int:
        """One for each send, as if paths were single links."""
        return self.num_sends

    def check(self) -> None:
        """Check all that `verified_loads` does without a topology, but for steps in which nothing happens."""
        for part in self.schedules:
            check_sends(part.checked_columns(part.num_ranks))

    def rows(self, topology: Topology, busiest: dict[str, str]) -> dict[str, str]:  # noqa: ARG002
        """Count steps, those of both parts if there are two, chunks and sends."""
        text = f"{self.size_text}, {count_text(self.num_sends, 'send')}"
        if len(self.schedules) > 1:
            reduce, broadcast = self.schedules
            text += f" ({reduce.num_steps} reduce-scatter, {broadcast.num_steps} allgather)"
        return {"steps": text, **busiest}

    def checks(self) -> dict[str, str]:
        """Describe the checks of routes and sends."""
        holds: dict[tuple[str, ...], str] = {
            ("broadcast",): "have every shard",
            ("reduce",): "have their reduced shard",
        }
        paths = sum(len(part.path_starts) - 1 for part in self.schedules)
        return {
            "routes": f"{paths} paths follow existing links and pass through switches only",
            "steps": f"all {self.num_ranks} ranks {holds.get(self.phases, 'have the reduced data')} after "
            f"{count_text(self.num_steps, 'step')}; {self.sums_text}each of {count_text(self.num_sends, 'send')} "
            "forwards only data that has arrived",
        }

    @property
    def sums_text(self) -> str:
        """Describe the checks of sums that are not those of shards."""
        return ""

    def check_fit(self, network: Topology | DirectGraph) -> None:
        """Raise `UnsupportedError` unless the network has as many ranks."""
        ranks = network.num_nodes if isinstance(network, DirectGraph) else network.num_ranks
        if self.num_ranks != ranks:
            raise UnsupportedError(
                f"the schedule is for {self.num_ranks} ranks; expected one for the {ranks} of {network.name}"
            )


class StepSends(RoutedSchedule, InSteps):
    """Sends of intervals of chunks in synchronous steps, in arrays as `StepSchedule` describes them."""

    heads: ClassVar[tuple[str, ...]]  # Fields of files besides arrays; the last is the number of chunks
    names: ClassVar[tuple[str, ...]]  # Columns of the sends

    num_ranks: int
    steps: IntArray
    routes: IntArray
    lower: IntArray
    upper: IntArray

    @property
    @abstractmethod
    def columns(self) -> Sends:
        """The sends, with who has what first and in the end."""

    @abstractmethod
    def checked_columns(self, ranks: int) -> Sends:
        """Check that the arrays fit together and are for so many ranks, and return `columns`."""

    @property
    def schedules(self) -> tuple[Self, ...]:
        """The schedule itself, as the only part."""
        return (self,)

    @property
    def load_units(self) -> tuple[int, ...]:
        """Chunks of a shard, or of the vector, once for each step."""
        return (getattr(self, self.heads[-1]),) * self.num_steps

    @cached_property
    def num_steps(self) -> int:
        """Number of steps, the T_L of the direct-connect paper in multiples of alpha."""
        return int(self.steps.max()) + 1 if len(self.steps) else 0

    def link_loads(self, topology: Topology) -> IntArray:
        """Chunks that cross each link in each step, int64 (steps, links), links in the order of ``topology.links``."""
        self.check_fit(as_topology(topology))
        return self.columns.step_loads(topology)

    @property
    def messages(self) -> IntArray:
        """Messages that each rank starts, shape (ranks,); sends of a step over one path are one."""
        paths = len(self.path_starts) - 1
        routes = np.unique(self.steps * paths + self.routes) % paths
        ends = self.path_starts[:-1] if self.direction == "broadcast" else self.path_starts[1:] - 1
        return np.bincount(self.path_nodes[ends][routes], minlength=self.num_ranks)

    def time(
        self,
        topology: Topology,
        num_bytes: int | str,
        slices: int | None = None,  # noqa: ARG002 - chunks are sent whole
        inverse_rate: Fraction | None = None,  # noqa: ARG002 - as are steps
    ) -> Fraction:
        """Time in µs if steps wait for each other, whatever the rate, by the alpha-beta model.

        A path that is used in a step takes the latencies of its links, one after the other, and as long as the busiest
        of them takes for all that it carries in that step.  A step takes as long as the slowest path: where paths are
        single links, ``max over links of (alpha + M / (N B) * load)`` as in the direct-connect paper, section E.3.
        Links that are not used cost nothing.
        """
        self.check_fit(topology)
        total_bytes = as_bytes(num_bytes)
        if not self.num_sends:
            return Fraction(0)
        links, loads = self.path_links(topology), self.link_loads(topology)
        sums, scale = path_latencies(self.path_starts, links, topology)
        distinct, delay_of_path = np.unique(sums, return_inverse=True)
        delays = [Fraction(int(delay), scale) for delay in distinct]
        capacities, capacity_of_link = np.unique(topology.arrays.capacities, return_inverse=True)
        steps, paths, hops = self._hops_used()
        # Among hops of equal latency and bandwidth, the one with the largest load is the slowest.
        groups = (steps * len(delays) + delay_of_path[paths]) * len(capacities) + capacity_of_link[links[hops]]
        kinds, group = np.unique(groups, return_inverse=True)
        largest = np.zeros(len(kinds), dtype=np.int64)
        np.maximum.at(largest, group, loads[steps, links[hops]])
        # Time of one chunk at one unit of bandwidth, in µs.
        all_chunks = int(self.total_weight) * self.load_units[0]
        chunk = Fraction(total_bytes, all_chunks * NS_PER_US) / topology.arrays.unit
        slowest = [Fraction(0)] * self.num_steps
        for kind, load in zip(kinds.tolist(), largest.tolist(), strict=True):
            pair, capacity = divmod(kind, len(capacities))
            step, delay = divmod(pair, len(delays))
            slowest[step] = max(slowest[step], delays[delay] + chunk * Fraction(load, int(capacities[capacity])))
        return sum(slowest, Fraction(0))

    def _hops_used(self) -> tuple[IntArray, IntArray, IntArray]:
        """Steps, paths and hops of all paths, each path once for each step in which it is used."""
        lengths = np.diff(self.path_starts) - 1
        used = np.unique(self.steps * len(lengths) + self.routes)
        steps, paths = np.divmod(used, len(lengths))
        counts = lengths[paths]
        first = np.repeat((np.cumsum(lengths) - lengths)[paths], counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(steps, counts), np.repeat(paths, counts), first + within

    def to_json(self) -> dict[str, Any]:
        """Describe it by lists and integers, ready for `json.dumps`; sends are columns, as there can be millions."""
        heads = {name: getattr(self, name) for name in ("kind", *self.heads)}
        columns = {name: getattr(self, name).astype(np.int64, copy=False).tolist() for name in self.names}
        return heads | {"paths": self._path_lists()} | columns

    @classmethod
    def from_json(cls, data: object, where: str) -> Self:
        """Build the schedule that a decoded JSON value describes; only its form is checked."""
        fields = schedule_fields(data, cls.kind, ("kind", *cls.heads, "paths", *cls.names), where)
        values: dict[str, Any] = {
            name: whole_count(fields[name], f"{where}: field schedule.{name}") for name in cls.heads[-2:]
        }
        values |= {name: whole_numbers(fields[name], f"{where}: field schedule.{name}") for name in cls.names}
        for name in cls.names:
            if len(values[name]) != len(values["steps"]):
                raise FileFormatError(
                    f"{where}: field schedule.{name} has {len(values[name])} entries, but schedule.steps has "
                    f"{len(values['steps'])}; expected one for each send"
                )
        if "adds" in cls.names:
            if (values["adds"] > 1).any():
                raise FileFormatError(
                    f"{where}: field schedule.adds has the number {values['adds'].max()}; expected 0 or 1"
                )
            values["adds"] = values["adds"] != 0
        if "direction" in cls.heads and fields["direction"] not in ("broadcast", "reduce"):
            raise FileFormatError(
                f"{where}: field schedule.direction is {shown(fields['direction'])}; expected 'broadcast' or 'reduce'"
            )
        values |= {name: fields[name] for name in cls.heads[:-2]}
        return cls(**values, **path_arrays(fields["paths"], where))


class Send(NamedTuple):
    """In `step`, chunks `lower` to `upper` - 1 of the shard of rank `source` pass the ends and switches of `path`."""

    step: int
    source: int
    lower: int
    upper: int
    path: tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class StepSchedule(StepSends, kind="steps"):
    """An allgather in steps: a rank passes on chunks that it holds at the beginning of a step.

    Every rank has a shard of equal size, cut into `chunks_per_shard` chunks; a send carries an interval of them.  Node
    numbers are those of `Topology.nodes`: ranks first, then switches.  Steps count from 0.

    With `direction` "reduce" it is a reduce-scatter, described by the allgather that it reverses: of T steps, step t
    comes as number ``T - 1 - t``, a path is passed from its end to its start, and the rank at the start adds the
    arriving chunks to its own (direct-connect paper, Definition 5 and Theorem 1).

    The arrays are read-only, not copied; `collopt.schedules.verified_loads` checks them.

    Attributes
    ----------
    num_ranks : int
        Compute nodes, each the source of one shard.
    chunks_per_shard : int
        The paper's P; 1/P of a shard is the unit of `lower` and `upper`.
    steps, sources : ndarray of int64, shape (sends,)
        The step of each send, and the rank whose shard it is a part of.
    lower, upper : ndarray of int64, shape (sends,)
        The chunks that are sent: ``lower``, ..., ``upper - 1``.
    routes : ndarray of int64, shape (sends,)
        The number of the path that they pass.
    path_starts : ndarray of int64, shape (paths + 1,)
        Path ``p`` is ``path_nodes[path_starts[p]:path_starts[p + 1]]``.
    path_nodes : ndarray of int64
        Node numbers: the sending rank, the switches passed, the receiving rank.
    direction : {"broadcast", "reduce"}
        Whether data runs away from the sources or towards them.

    Examples
    --------
    Two ranks exchange their shards over links of 25 GB/s:

    >>> from collopt.topologies import complete
    >>> schedule = StepSchedule.from_sends(2, 1, [(0, 0, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0))])
    >>> schedule
    <StepSchedule: allgather of 2 ranks, 1 step, 1 chunk per shard, 2 sends>
    >>> schedule.inverse_rate(complete(2, bandwidth=25))
    Fraction(1, 25)
    """

    heads: ClassVar[tuple[str, ...]] = ("direction", "num_ranks", "chunks_per_shard")
    names: ClassVar[tuple[str, ...]] = ("steps", "sources", "lower", "upper", "routes")

    num_ranks: int
    chunks_per_shard: int
    steps: IntArray
    sources: IntArray
    lower: IntArray
    upper: IntArray
    routes: IntArray
    path_starts: IntArray
    path_nodes: IntArray
    direction: Direction = "broadcast"

    @classmethod
    def from_sends(
        cls,
        num_ranks: int,
        chunks_per_shard: int,
        sends: Iterable[tuple[int, int, int, int, tuple[int, ...]]],
        direction: Direction = "broadcast",
    ) -> StepSchedule:
        """Build a schedule, not verified, from `Send` or such tuples, in any order.

        Numbers and the direction are as the attributes; paths are tuples of node numbers.
        """
        ranks, chunks = as_count(num_ranks, "num_ranks"), as_count(chunks_per_shard, "chunks_per_shard")
        arrays = zip((*cls.names, "path_starts", "path_nodes"), as_columns(sends), strict=True)
        return cls(ranks, chunks, **dict(arrays), direction=direction)

    @property
    def phases(self) -> tuple[Direction, ...]:
        """That of all sends, alone."""
        return (self.direction,)

    @property
    def root_weights(self) -> IntArray:
        """Relative sizes of the shards: all equal."""
        return np.ones(self.num_ranks, dtype=np.int64)

    @property
    def total_weight(self) -> int:
        """Sum of the weights of all shards: one for each rank."""
        return self.num_ranks

    @property
    def size_text(self) -> str:
        """Such as ``"3 steps, 12 chunks per shard"``."""
        return f"{count_text(self.num_steps, 'step')}, {count_text(self.chunks_per_shard, 'chunk')} per shard"

    @property
    def least_hops(self) -> int:
        """Sends behind each other, at least, until all ranks have something of all shards; steps alone may overlap."""
        hops = np.full((self.num_ranks, self.num_ranks), self.num_ranks, dtype=np.int32)
        np.fill_diagonal(hops, 0)
        senders, receivers = self.columns.ends
        order = np.argsort(self.steps, kind="stable")
        for sent in np.split(order, np.flatnonzero(np.diff(self.steps[order])) + 1):
            sources = self.sources[sent]
            np.minimum.at(hops, (sources, receivers[sent]), hops[sources, senders[sent]] + 1)
        return int(hops.max())

    def has_sizes(self, weights: Sequence[int], num_ranks: int) -> bool:  # noqa: ARG002
        """Whether they are equal; how many shards there are is yet to be checked."""
        return all(weight == 1 for weight in weights)

    def sends(self) -> Iterator[Send]:
        """Yield every send, in the order of the arrays."""
        paths = list(map(tuple, self._path_lists()))
        columns = (getattr(self, name).tolist() for name in self.names)
        for step, source, lower, upper, route in zip(*columns, strict=True):
            yield Send(step, source, lower, upper, paths[route])

    @property
    def most_added(self) -> Fraction:
        """Data that a rank adds in all steps."""
        if self.direction == "broadcast":
            return Fraction(0)
        heads = self.path_nodes[self.path_starts[:-1]]
        added = np.zeros(self.num_ranks, dtype=np.int64)
        np.add.at(added, heads[self.routes], self.upper - self.lower)
        return Fraction(int(added.max()), self.chunks_per_shard)

    @property
    def columns(self) -> Sends:
        """The sends; rank r has item r first, and all ranks need it."""
        return _shard_sends(self)

    def checked_columns(self, ranks: int) -> Sends:
        """Check that the arrays fit together and are for so many ranks, and return `columns`."""
        check_shapes(self, ranks, self.chunks_per_shard, StepSchedule.names, ranks * (ranks - 1))
        return _shard_sends(self)

    def verified_loads(self, topology: Topology) -> IntArray:
        """Verify the sends; see `verified_sends`."""
        return verified_sends(StepSchedule.checked_columns(self, topology.num_ranks), topology)

    def transfers(self, topology: Topology) -> Transfers:
        """List the sends as transfers."""
        self.check_fit(as_topology(topology))
        return shard_transfers([self.columns], topology)

    def figures(self, topology: Topology) -> dict[str, Any]:  # noqa: ARG002
        """Numbers of steps, chunks and sends."""
        chunks = [self.chunks_per_shard]
        return {"num_steps": self.num_steps, "chunks_per_shard": chunks, "num_sends": self.num_sends}

    def __repr__(self) -> str:
        kind = "allgather" if self.direction == "broadcast" else "reduce-scatter"
        return (
            f"<StepSchedule: {kind} of {self.num_ranks} ranks, {self.size_text}, {count_text(self.num_sends, 'send')}>"
        )


@dataclass(frozen=True, eq=False, repr=False)
class StepExchange(StepSends, kind="exchange"):
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

    form: ClassVar[str] = "exchange"
    heads: ClassVar[tuple[str, ...]] = ("num_ranks", "chunks")
    names: ClassVar[tuple[str, ...]] = ("steps", "adds", "lower", "upper", "routes")

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
    def total_weight(self) -> int:
        """One vector."""
        return 1

    @property
    def most_added(self) -> Fraction:
        """Data that the rank adds which adds most, in vectors."""
        added = np.bincount(self.columns.ends[1], (self.upper - self.lower) * self.adds, minlength=self.num_ranks)
        return Fraction(int(added.max()), self.chunks)

    @property
    def size_text(self) -> str:
        """Such as ``"3 steps, 8 chunks"``."""
        return f"{count_text(self.num_steps, 'step')}, {count_text(self.chunks, 'chunk')}"

    def has_sizes(self, weights: Sequence[int], num_ranks: int) -> bool:  # noqa: ARG002
        """Always true: every rank ends with all data."""
        return True

    @property
    def columns(self) -> Sends:
        """The sends; every rank has a vector first, and needs the sum of all."""
        return _vector_sends(self)

    def checked_columns(self, ranks: int) -> Sends:
        """Check that the arrays fit together and are for so many ranks, and return `columns`."""
        check_shapes(self, ranks, self.chunks, StepExchange.names, ranks)
        return _vector_sends(self)

    def verified_loads(self, topology: Topology) -> IntArray:
        """Verify the sends; see `verified_sends`."""
        return verified_sends(StepExchange.checked_columns(self, topology.num_ranks), topology)

    @property
    def sums_text(self) -> str:
        """Describe the checks of sums."""
        return "no vector is added twice; "

    def transfers(self, topology: Topology) -> Transfers:
        """List the sends as transfers."""
        return self.columns.transfers(topology, np.zeros(1, dtype=np.int64), Fraction(1, self.chunks))

    def figures(self, topology: Topology) -> dict[str, Any]:  # noqa: ARG002
        """Numbers of steps, chunks and sends."""
        return {"num_steps": self.num_steps, "chunks": self.chunks, "num_sends": self.num_sends}

    def __repr__(self) -> str:
        return (
            f"<StepExchange: allreduce of {self.num_ranks} ranks, {self.size_text}, "
            f"{count_text(self.num_sends, 'send')}>"
        )


def _shard_sends(schedule: StepSchedule) -> Sends:
    """Read the sends from the arrays alone, whatever a subclass may do."""
    sizes, owners = np.full(schedule.num_ranks, schedule.chunks_per_shard), np.arange(schedule.num_ranks)
    columns = (schedule.steps, schedule.sources, schedule.lower, schedule.upper, schedule.routes)
    paths, targets = (schedule.path_starts, schedule.path_nodes), np.full_like(owners, EVERYONE)
    return Sends(schedule.num_ranks, sizes, owners, targets, *columns, *paths, schedule.direction)


def _vector_sends(schedule: StepExchange) -> Sends:
    """Read the sends from the arrays alone, whatever a subclass may do."""
    everyone = np.full(1, EVERYONE)
    columns = (schedule.steps, np.zeros_like(schedule.steps), schedule.lower, schedule.upper, schedule.routes)
    paths, size = (schedule.path_starts, schedule.path_nodes), np.full(1, schedule.chunks)
    return Sends(schedule.num_ranks, size, everyone, everyone, *columns, *paths, adds=schedule.adds)
