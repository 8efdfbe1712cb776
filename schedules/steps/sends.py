"""`StepSends`, the base of schedules in steps: their sends, transfers, loads on links and times.

A send waits for all sends of earlier steps that bring its sender some of the same chunks (reduce-scatter: reversed).
In an allreduce a transfer without links, from the root to itself, waits for all contributions of the reduction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from ...errors import CapacityOverflowError, FileFormatError, UnsupportedError
from ...support.arrays import BoolArray, IntArray, joined_rows
from ...support.formatting import count_text
from ...support.quantities import as_bytes
from ...support.validation import shown
from ...topologies import DirectGraph, Topology
from ..fields import as_rows, path_arrays, whole_count, whole_numbers
from ..loads import path_latencies
from ..schedule import NS_PER_US, RoutedSchedule, Schedule
from ..transfers import Part, Transfers, concatenate, in_direction, root_transfers

MAX_STEPS = 2**20
MAX_CHUNKS = 2**62
MAX_LOADS = 2**32  # steps times links, 8 bytes each: more than any machine has memory for in one array


class InSteps(Schedule):
    """All schedules that consist of sends in synchronous steps."""

    parts: ClassVar[str] = "steps"
    subject: ClassVar[str] = "steps are"
    load_text: ClassVar[str] = "step {step} puts {load} chunks"
    pipelined: ClassVar[bool] = False
    form: ClassVar[str] = "steps"

    if TYPE_CHECKING:

        @property
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

    num_ranks: int
    steps: IntArray
    lower: IntArray
    upper: IntArray
    routes: IntArray

    @property
    def ends(self) -> tuple[IntArray, IntArray]:
        """First and last rank of the path of each send, int64 (sends,) each."""
        starts, nodes = self.path_starts, self.path_nodes
        return nodes[starts[:-1]][self.routes], nodes[starts[1:] - 1][self.routes]

    @property
    def schedules(self) -> tuple[Self, ...]:
        """The schedule itself, as the only part."""
        return (self,)

    @property
    def whole_chunks(self) -> int:
        """Chunks of all the data."""
        return int(self.total_weight) * self.load_units[0]

    @cached_property
    def num_steps(self) -> int:
        """Number of steps, the T_L of the direct-connect paper in multiples of alpha."""
        return int(self.steps.max()) + 1 if len(self.steps) else 0

    def link_loads(self, topology: Topology) -> IntArray:
        """Chunks that cross each link in each step, int64 (steps, links), links in the order of ``topology.links``.

        Raises `CertificateError` if a path uses a link that the topology does not have, and `UnsupportedError` if the
        steps are numbered so high that there is no room for a row each.
        """
        links = self.path_links(topology)
        if self.num_steps > MAX_STEPS or self.num_steps * topology.num_links > MAX_LOADS:
            raise UnsupportedError(
                f"the schedule has {self.num_steps} steps, too many for a row of loads on {topology.num_links} links "
                f"each; expected at most {MAX_STEPS} steps, numbered from 0 without gaps"
            )
        lengths = np.diff(self.path_starts) - 1
        first = np.cumsum(lengths) - lengths
        loads = np.zeros((self.num_steps, topology.num_links), dtype=np.int64)
        for hop in range(int(lengths.max(initial=0))):
            far = lengths[self.routes] > hop
            passed = links[first[self.routes[far]] + hop]
            np.add.at(loads, (self.steps[far], passed), (self.upper - self.lower)[far])
        return loads

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
        chunk = Fraction(total_bytes, self.whole_chunks * NS_PER_US) / topology.arrays.unit
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

    def _columns_to_json(self, names: Sequence[str]) -> dict[str, Any]:
        """Lists of the paths, and of columns of the sends."""
        return {"paths": self._path_lists(), **{name: getattr(self, name).tolist() for name in names}}


class ShardSends(StepSends):
    """The data of a `StepSchedule`, which describes them: all that its check and its transfers rest on."""

    chunks_per_shard: int
    sources: IntArray


class VectorSends(StepSends):
    """The data of a `StepExchange`, which describes them."""

    form: ClassVar[str] = "exchange"

    chunks: int
    adds: BoolArray


def as_columns(sends: Iterable[tuple[Any, ...]], second: str = "source") -> tuple[IntArray, ...]:
    """Read sends ``(step, second, lower, upper, path)``: these columns, routes, and the arrays of the paths."""
    numbers: dict[tuple[int, ...], int] = {}
    rows = as_rows(sends, numbers, second)
    try:
        columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T
        paths = joined_rows(numbers)
    except OverflowError:
        raise UnsupportedError(f"the sends {shown(rows)} hold a number beyond 64 bits; expected none") from None
    return *columns, *paths


def read_sends(fields: Mapping[str, Any], counts: Sequence[str], names: Sequence[str], where: str) -> dict[str, Any]:
    """Read the counts, the columns of the sends and the paths of a decoded schedule, as arguments of its class."""
    values: dict[str, Any] = {name: whole_count(fields[name], f"{where}: field schedule.{name}") for name in counts}
    columns = {name: whole_numbers(fields[name], f"{where}: field schedule.{name}") for name in names}
    for name, column in columns.items():
        if len(column) != len(columns["steps"]):
            raise FileFormatError(
                f"{where}: field schedule.{name} has {len(column)} entries, but schedule.steps has "
                f"{len(columns['steps'])}; expected one for each send"
            )
    return values | columns | path_arrays(fields["paths"], where)


def step_transfers(parts: Sequence[ShardSends], topology: Topology) -> Transfers:
    """List the transfers of an allgather or a reduce-scatter, or of an allreduce that consists of both."""
    shard = lcm(*(part.chunks_per_shard for part in parts))
    ranks = parts[0].num_ranks
    if shard * ranks >= MAX_CHUNKS:
        raise CapacityOverflowError(f"the schedule cuts the data into {shard * ranks} chunks; expected fewer than 2^62")
    unit = Fraction(1, shard * ranks)
    if len(parts) == 1:
        return concatenate([_step_part(parts[0], topology, shard, 0)], unit, [_step_dependencies(parts[0])])
    reduce, broadcast = parts
    inwards = _step_part(reduce, topology, shard, 0)
    outwards = _step_part(broadcast, topology, shard, reduce.num_steps)
    ends = np.flatnonzero(inwards.receivers == reduce.sources)
    begins = np.flatnonzero(outwards.senders == broadcast.sources)
    places = _boundaries([(inwards, ends), (outwards, begins)], ranks, shard)
    own = places[:-1] // shard
    turns = root_transfers(own, places[:-1], np.diff(places), np.full_like(own, reduce.num_steps))
    first_turn = reduce.num_sends
    first_out = first_turn + len(places) - 1
    before, turn = _intervals(places, inwards, ends)
    after, turn_after = _intervals(places, outwards, begins)
    waits = [
        _step_dependencies(reduce),
        np.stack([before, turn + first_turn]),
        np.stack([turn_after + first_turn, after + first_out]),
        _step_dependencies(broadcast) + first_out,
    ]
    return concatenate([inwards, turns, outwards], unit, waits)


def _boundaries(parts: list[tuple[Part, IntArray]], ranks: int, shard: int) -> IntArray:
    """Chunk numbers at which a shard, or one of these transfers' ranges, begins or ends."""
    firsts = [part.firsts[numbers] for part, numbers in parts]
    lasts = [part.firsts[numbers] + part.amounts[numbers] for part, numbers in parts]
    return np.unique(np.concatenate([np.arange(ranks + 1) * shard, *firsts, *lasts]))


def _intervals(places: IntArray, part: Part, numbers: IntArray) -> tuple[IntArray, IntArray]:
    """Pairs of a transfer and an interval between two boundaries that it carries."""
    first = np.searchsorted(places, part.firsts[numbers])
    counts = np.searchsorted(places, part.firsts[numbers] + part.amounts[numbers]) - first
    intervals = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return np.repeat(numbers, counts), intervals


def _step_part(schedule: ShardSends, topology: Topology, shard: int, done: int) -> Part:
    """Sends as transfers, after `done` steps of another schedule."""
    is_reduce, scale = schedule.direction == "reduce", shard // schedule.chunks_per_shard
    tails, heads = schedule.ends
    steps = schedule.num_steps - 1 - schedule.steps if is_reduce else schedule.steps
    starts = schedule.path_starts - np.arange(len(schedule.path_starts))
    senders, receivers = (heads, tails) if is_reduce else (tails, heads)
    return Part(
        senders,
        receivers,
        schedule.sources * shard + schedule.lower * scale,
        (schedule.upper - schedule.lower) * scale,
        done + steps,
        is_reduce,
        schedule.routes,
        in_direction(schedule.path_links(topology), starts, is_reduce),
    )


def _step_dependencies(schedule: ShardSends) -> IntArray:
    """Pairs of sends (before, after), the second of which waits for the first, shape (2, waits)."""
    pairs = _arrivals_before(schedule, schedule.sources)
    return pairs[::-1] if schedule.direction == "reduce" else pairs


def _arrivals_before(schedule: StepSends, sources: IntArray) -> IntArray:
    """Pairs of a send and a later one that passes on some of its chunks of the same source, shape (2, pairs)."""
    tails, heads = schedule.ends
    used, step = np.unique(schedule.steps, return_inverse=True)
    group_in, group_out = ((sources * schedule.num_ranks + ends) * len(used) for ends in (heads, tails))
    order = np.argsort(group_in + step, kind="stable")
    # All arrivals of chunks of one source at one rank in steps before a departure from it.
    first, last = (np.searchsorted((group_in + step)[order], keys) for keys in (group_out, group_out + step))
    counts = last - first
    arrivals = order[np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())]
    departures = np.repeat(np.arange(schedule.num_sends), counts)
    meet = (schedule.lower[arrivals] < schedule.upper[departures]) & (
        schedule.lower[departures] < schedule.upper[arrivals]
    )
    return np.stack([arrivals[meet], departures[meet]])


def exchange_transfers(schedule: VectorSends, topology: Topology) -> Transfers:
    """List the transfers of an allreduce in one phase."""
    starts = schedule.path_starts - np.arange(len(schedule.path_starts))
    amounts, routes = schedule.upper - schedule.lower, (schedule.path_links(topology), starts)
    part = Part(*schedule.ends, schedule.lower, amounts, schedule.steps, False, schedule.routes, routes)
    waits = _arrivals_before(schedule, np.zeros_like(schedule.steps))
    return replace(concatenate([part], Fraction(1, schedule.chunks), [waits]), adds=schedule.adds)
