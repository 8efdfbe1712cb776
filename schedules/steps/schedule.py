"""`StepSchedule`: pieces of shards that ranks exchange in synchronous steps, stored as arrays, and its JSON form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ...errors import FileFormatError, UnsupportedError
from ...support.arrays import IntArray
from ...support.formatting import count_text
from ...support.quantities import as_bytes
from ...support.validation import shown
from ...topologies import DirectGraph, Topology
from ..paths.congestion import congestion, path_latencies, path_links
from ..paths.schedule import NS_PER_US, RoutedSchedule
from ..paths.written_paths import as_count, as_rows, node_paths, schedule_fields, whole_count, whole_numbers
from ..traffic.collective import Direction

MAX_STEPS = 2**20
MAX_LOADS = 2**32  # steps times links, 8 bytes each: more than any machine has memory for in one array

COUNTS = ("num_ranks", "chunks_per_shard")
COLUMNS = ("steps", "sources", "lower", "upper", "routes")
ARRAYS = (*COLUMNS, "path_starts", "path_nodes")


class Send(NamedTuple):
    """In `step`, chunks `lower` to `upper` - 1 of the shard of rank `source` pass `path`.

    Attributes
    ----------
    step, source, lower, upper : int
        Step, rank, first chunk, and the chunk behind the last.
    path : tuple of int
        Node numbers, both ends included, switches in between.
    """

    step: int
    source: int
    lower: int
    upper: int
    path: tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class StepSchedule(RoutedSchedule):
    """An allgather in steps: a rank passes on in a step what it holds at the beginning of that step.

    Every rank has a shard of equal size, cut into `chunks_per_shard` chunks; a send carries an interval of them.  Node
    numbers are those of `Topology.nodes`: ranks first, then switches.  Steps count from 0.

    With `direction` "reduce" it is a reduce-scatter, described by the allgather that it reverses: of T steps, step t
    comes as number ``T - 1 - t``, a path is passed from its end to its start, and the rank at the start reduces what
    arrives with what it has (direct-connect paper, Definition 5 and Theorem 1).

    The arrays are read-only, not copied; `collopt.schedules.verified_step_loads` checks them.

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

    parts: ClassVar[str] = "steps"
    subject: ClassVar[str] = "steps are"
    load_text: ClassVar[str] = "step {step} puts {load} chunks"
    pipelined: ClassVar[bool] = False

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

    def __post_init__(self) -> None:
        for name in COUNTS:
            object.__setattr__(self, name, as_count(getattr(self, name), name))
        self._freeze(ARRAYS, "schedule")

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
        numbers: dict[tuple[int, ...], int] = {}
        rows = as_rows(sends, numbers)
        try:
            steps, sources, lower, upper, routes = np.array(rows, dtype=np.int64).reshape(-1, 5).T
            nodes = np.array([node for path in numbers for node in path], dtype=np.int64)
        except OverflowError:
            raise UnsupportedError(f"the sends {shown(rows)} hold a number beyond 64 bits; expected none") from None
        starts = np.cumsum([0, *map(len, numbers)], dtype=np.int64)
        return cls(num_ranks, chunks_per_shard, steps, sources, lower, upper, routes, starts, nodes, direction)

    @property
    def schedules(self) -> tuple[StepSchedule, ...]:
        """The schedule itself, as the only part."""
        return (self,)

    @property
    def phases(self) -> tuple[Direction, ...]:
        """That of all sends, alone."""
        return (self.direction,)

    @property
    def load_units(self) -> tuple[int, ...]:
        """Chunks of a shard, once for each step."""
        return (self.chunks_per_shard,) * self.num_steps

    @property
    def root_weights(self) -> IntArray:
        """Relative sizes of the shards: all equal."""
        return np.ones(self.num_ranks, dtype=np.int64)

    @property
    def total_weight(self) -> int:
        """Sum of the weights of all shards: one for each rank."""
        return self.num_ranks

    @cached_property
    def num_steps(self) -> int:
        """Number of steps, the T_L of the direct-connect paper in multiples of alpha."""
        return int(self.steps.max()) + 1 if len(self.steps) else 0

    @property
    def num_sends(self) -> int:
        """Number of sends; one that carries several chunks counts once."""
        return len(self.steps)

    @property
    def size_text(self) -> str:
        """Such as ``"3 steps, 12 chunks per shard"``."""
        return f"{count_text(self.num_steps, 'step')}, {count_text(self.chunks_per_shard, 'chunk')} per shard"

    def has_sizes(self, weights: Sequence[int], num_ranks: int) -> bool:  # noqa: ARG002
        """Whether they are equal; how many shards there are is yet to be checked."""
        return all(weight == 1 for weight in weights)

    def sends(self) -> Iterator[Send]:
        """Yield every send, in the order of the arrays."""
        paths = list(map(tuple, self._path_lists()))
        columns = (getattr(self, name).tolist() for name in COLUMNS)
        for step, source, lower, upper, route in zip(*columns, strict=True):
            yield Send(step, source, lower, upper, paths[route])

    def link_loads(self, topology: Topology) -> IntArray:
        """Chunks that cross each link in each step, int64 (steps, links), links in the order of ``topology.links``.

        Raises `CertificateError` if a path uses a link that the topology does not have, and `UnsupportedError` if the
        steps are numbered so high that there is no room for a row each.
        """
        links = self.path_links(topology)
        if self.num_steps > MAX_STEPS or self.num_steps * len(topology.links) > MAX_LOADS:
            raise UnsupportedError(
                f"the schedule has {self.num_steps} steps, too many for a row of loads on {len(topology.links)} links "
                f"each; expected at most {MAX_STEPS} steps, numbered from 0 without gaps"
            )
        lengths = np.diff(self.path_starts) - 1
        first = np.cumsum(lengths) - lengths
        loads = np.zeros((self.num_steps, len(topology.links)), dtype=np.int64)
        for hop in range(int(lengths.max(initial=0))):
            far = lengths[self.routes] > hop
            passed = links[first[self.routes[far]] + hop]
            np.add.at(loads, (self.steps[far], passed), (self.upper - self.lower)[far])
        return loads

    def inverse_rate(self, topology: Topology) -> Fraction:
        """Sum over the steps of the largest ``load / bandwidth``, in 1/(GB/s): ns per byte of shard.

        With shards of m bytes the bandwidth term of the schedule's time is ``m * inverse_rate`` ns; the algorithm
        bandwidth is ``num_ranks / inverse_rate``.  Where N ranks have d links of bandwidth b each, the direct-connect
        paper's T_B is ``d b / N`` times this, in its unit M/B with B = d b.
        """
        times = (congestion(loads, self.chunks_per_shard, topology) for loads in self.link_loads(topology))
        return sum(times, Fraction(0))

    @property
    def messages(self) -> IntArray:
        """Messages that each rank starts, shape (ranks,); sends of a step over one path are one."""
        paths = len(self.path_starts) - 1
        routes = np.unique(self.steps * paths + self.routes) % paths
        ends = self.path_starts[:-1] if self.direction == "broadcast" else self.path_starts[1:] - 1
        return np.bincount(self.path_nodes[ends][routes], minlength=self.num_ranks)

    @property
    def most_added(self) -> Fraction:
        """Data that a rank adds in all steps."""
        if self.direction == "broadcast":
            return Fraction(0)
        heads = self.path_nodes[self.path_starts[:-1]]
        added = np.zeros(self.num_ranks, dtype=np.int64)
        np.add.at(added, heads[self.routes], self.upper - self.lower)
        return Fraction(int(added.max()), self.chunks_per_shard)

    def check_fit(self, network: Topology | DirectGraph) -> None:
        """Raise `UnsupportedError` unless the network has as many ranks."""
        ranks = network.num_nodes if isinstance(network, DirectGraph) else network.num_ranks
        if self.num_ranks != ranks:
            raise UnsupportedError(
                f"the schedule is for {self.num_ranks} ranks; expected one for the {ranks} of {network.name}"
            )

    def time(
        self,
        topology: Topology,
        num_bytes: int | str,
        slices: int | None = None,  # noqa: ARG002 - chunks are sent whole
        inverse_rate: Fraction | None = None,  # noqa: ARG002 - as are steps
    ) -> Fraction:
        """Time in µs if steps wait for each other, whatever the rate; see `collopt.schedules.step_schedule_time`."""
        self.check_fit(topology)
        whole = as_bytes(num_bytes)
        if not self.num_sends:
            return Fraction(0)
        links, loads = self.path_links(topology), self.link_loads(topology)
        delays, delay_of_path = self._path_delays(topology, links)
        capacities, capacity_of_link = np.unique(topology.arrays.capacities, return_inverse=True)
        steps, paths, hops = self._hops_used()
        # Among hops of equal latency and bandwidth, the one with the largest load is the slowest.
        groups = (steps * len(delays) + delay_of_path[paths]) * len(capacities) + capacity_of_link[links[hops]]
        kinds, group = np.unique(groups, return_inverse=True)
        largest = np.zeros(len(kinds), dtype=np.int64)
        np.maximum.at(largest, group, loads[steps, links[hops]])
        # What one chunk takes at one unit of bandwidth, in µs.
        chunk = Fraction(whole, self.num_ranks * self.chunks_per_shard * NS_PER_US) / topology.arrays.unit
        slowest = [Fraction(0)] * self.num_steps
        for kind, load in zip(kinds.tolist(), largest.tolist(), strict=True):
            pair, capacity = divmod(kind, len(capacities))
            step, delay = divmod(pair, len(delays))
            slowest[step] = max(slowest[step], delays[delay] + chunk * Fraction(load, int(capacities[capacity])))
        return sum(slowest, Fraction(0))

    def _path_delays(self, topology: Topology, links: IntArray) -> tuple[list[Fraction], IntArray]:
        """Distinct path latencies, and the index of each path's."""
        sums, scale = path_latencies(self.path_starts, links, topology)
        distinct, of_path = np.unique(sums, return_inverse=True)
        return [Fraction(int(delay), scale) for delay in distinct], of_path

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
        """As `collopt.schedules.steps_to_json`."""
        return {
            "kind": "steps",
            "direction": self.direction,
            **{name: getattr(self, name) for name in COUNTS},
            "paths": self._path_lists(),
            **{name: getattr(self, name).tolist() for name in COLUMNS},
        }

    def path_links(self, topology: Topology) -> IntArray:
        """Links of all paths, path by path, by their places in ``topology.links``; raises as `link_loads` does."""
        return path_links(self.path_starts, self.path_nodes, topology, self.direction)

    def __repr__(self) -> str:
        kind = "allgather" if self.direction == "broadcast" else "reduce-scatter"
        return (
            f"<StepSchedule: {kind} of {self.num_ranks} ranks, {self.size_text}, {count_text(self.num_sends, 'send')}>"
        )


def steps_to_json(schedule: StepSchedule) -> dict[str, Any]:
    """Describe a schedule in steps by lists and integers, ready for `json.dumps`.

    Parameters
    ----------
    schedule : StepSchedule
        Left alone.

    Returns
    -------
    dict
        Sends are columns, for there can be millions of them.

    Examples
    --------
    >>> exchange = StepSchedule.from_sends(2, 1, [(0, 0, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0))])
    >>> fields = steps_to_json(exchange)
    >>> fields["paths"], fields["sources"]
    ([[0, 1], [1, 0]], [0, 1])
    """
    if not isinstance(schedule, StepSchedule):
        raise UnsupportedError(f"the schedule is {shown(schedule)}; expected a StepSchedule")
    return schedule.to_json()


def steps_from_json(data: object, where: str) -> StepSchedule:
    """Build the schedule in steps that a decoded JSON value describes; only its form is checked.

    Parameters
    ----------
    data : dict
        As `steps_to_json` makes it.
    where : str
        Names the document in error messages.

    Returns
    -------
    StepSchedule
    """
    where = where if isinstance(where, str) else shown(where)
    fields = schedule_fields(data, "steps", ("kind", "direction", *COUNTS, "paths", *COLUMNS), where)
    if fields["direction"] not in ("broadcast", "reduce"):
        raise FileFormatError(
            f"{where}: field schedule.direction is {shown(fields['direction'])}; expected 'broadcast' or 'reduce'"
        )
    ranks, chunks = (whole_count(fields[name], f"{where}: field schedule.{name}") for name in COUNTS)
    columns = {name: whole_numbers(fields[name], f"{where}: field schedule.{name}") for name in COLUMNS}
    for name, column in columns.items():
        if len(column) != len(columns["steps"]):
            raise FileFormatError(
                f"{where}: field schedule.{name} has {len(column)} entries, but schedule.steps has "
                f"{len(columns['steps'])}; expected one for each send"
            )
    paths = node_paths(fields["paths"], where)
    return StepSchedule(
        ranks,
        chunks,
        **columns,
        path_starts=np.cumsum([0, *map(len, paths)], dtype=np.int64),
        path_nodes=whole_numbers([node for path in paths for node in path], f"{where}: field schedule.paths"),
        direction=fields["direction"],
    )
