"""`score`: data, loads, bandwidth and times of a schedule of any origin on a network."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import BoundError, NoAnswerError, UnsupportedError
from ...planners import PLANNERS, Plan, bound, bound_sizes
from ...planners.plans.registry import as_planner
from ...schedules import Bound, Collective, SizeBound
from ...schedules.timed_run import Rules, TimedSchedule, TimedTransfers, in_steps
from ...schedules.transfers import Transfers
from ...support.arrays import IntArray
from ...support.files import name_of
from ...support.formatting import bandwidth_text, percentage_text
from ...support.quantities import as_several_bytes
from ...support.validation import as_whole
from ...topologies import RuntimeCosts, Topology, reached_network
from ...topologies.network.link_costs import CostsName, as_costs
from ...topologies.network.topology import as_topology
from .messages import routed
from .readings import DataCheck, Hints, Reading, read_schedule

if TYPE_CHECKING:
    import pandas as pd

SIZES = ("1M", "64M", "1G")
MAX_PIECES = 2**20  # Of all sends on all links, unless people ask for more: some seconds for each size


class TimedSize(NamedTuple):
    """Simulated times of one size."""

    num_bytes: int  # As nccl-tests counts them
    microseconds: float  # Of the file's schedule
    pieces: int  # That each of its sends was cut into
    plan_microseconds: float | None  # Of collopt's plan; None without one
    bound: SizeBound | None  # What no schedule can beat at this size; None without one
    ends: tuple[float, float] | None = None  # Of the microseconds, by costs that measured times do not tell apart


@dataclass(frozen=True, eq=False, repr=False)
class Score:
    """Verdict, loads, bandwidth and times of a schedule on a network.

    Attributes
    ----------
    path : str
        File that was read.
    kind : str
        Its kind, such as ``"MSCCL XML"``.
    topology : Topology
        The network.
    collective : Collective or None
        None of traces that do not say.
    data : DataCheck
        Its `outcome`, right, wrong or not checked: whether the right data ends up everywhere; its `reason` says how
        that is known.
    routes : str
        How the messages of ranks were put on links.
    link_loads : ndarray of int64, shape (links,), or None
        Units of data on each link; None where ranks wait for each other for ever.
    unit : Fraction
        Share of all data, as nccl-tests counts it, that a unit is.
    bound : Bound or None
        What no schedule can beat; None where `remark` says why.
    plan : Plan or None
        What collopt plans instead, for the last of the sizes; None where `remark` says why.
    costs : RuntimeCosts
        Of the software, in the times.
    times : tuple of TimedSize
        By size, of the schedule, the plan and the bound, in µs; none of a schedule whose data is wrong.
    remark : str
        Why there is no bound or plan; empty if there are.
    """

    path: str
    kind: str
    topology: Topology
    collective: Collective | None
    data: DataCheck
    routes: str
    link_loads: IntArray | None
    unit: Fraction
    bound: Bound | None
    plan: Plan | None
    costs: RuntimeCosts
    times: tuple[TimedSize, ...]
    remark: str = ""

    @property
    def shares(self) -> tuple[Fraction, ...]:
        """Share of all data on each link; none where ranks wait for each other for ever."""
        return () if self.link_loads is None else tuple(load * self.unit for load in self.link_loads.tolist())

    @property
    def busiest_links(self) -> tuple[int, ...]:
        """Places in ``topology.links`` of the links that are busy for longest."""
        times = self._link_times()
        longest = max(times, default=Fraction(0))
        return tuple(place for place, time in enumerate(times) if time == longest > 0)

    @property
    def algbw(self) -> Fraction | None:
        """Algorithm bandwidth in GB/s as in nccl-tests, if the busiest link is never idle and latency is left out."""
        longest = max(self._link_times(), default=Fraction(0))
        return 1 / longest if longest else None

    @property
    def gap(self) -> Fraction | None:
        """Exact share of the bound that is missed; None where the data is wrong, or there is no bound."""
        if self.algbw is None or self.bound is None or self.data.outcome == "wrong":
            return None
        return 1 - self.algbw / self.bound.algbw

    def _link_times(self) -> list[Fraction]:
        """Time that all data takes on each link, in ns per byte of all data."""
        links = zip(self.shares, self.topology.links, strict=False)
        return [share / link.bandwidth for share, link in links]

    def to_frame(self) -> pd.DataFrame:
        """Tabulate the links.

        One row per link: ``tail``, ``head``, ``bandwidth`` in GB/s, ``share`` of all data that crosses it, and how
        ``busy`` it is beside the busiest link.
        """
        import pandas as pd

        times = self._link_times()
        longest = max(times, default=Fraction(0)) or Fraction(1)
        rows = [
            (link.tail, link.head, float(link.bandwidth), float(share), float(time / longest))
            for link, share, time in zip(self.topology.links, self.shares, times, strict=False)
        ]
        return pd.DataFrame(rows, columns=["tail", "head", "bandwidth", "share", "busy"])

    def __str__(self) -> str:
        """On one line."""
        speed = "" if self.algbw is None else f", {bandwidth_text(self.algbw, 2)}"
        gap = "" if self.gap is None else f", {percentage_text(self.gap)} below the bound" if self.gap else ", optimal"
        what = f"{self.kind}, {self.collective or 'some collective'} on {self.topology.name}"
        return f"{what}: data {self.data.outcome}{speed}{gap}"

    def __repr__(self) -> str:
        """In angle brackets."""
        return f"<Score {self}>"


def score(
    path: str | os.PathLike[str],
    topology: Topology,
    *,
    collective: str | Collective | None = None,
    root: int | str | None = None,
    num_bytes: int | str | None = None,
    sizes: Iterable[int | str] = SIZES,
    slices: int | None = None,
    costs: RuntimeCosts | CostsName | None = None,
    planner: str = "auto",
) -> Score:
    """Score a schedule that anybody made: data, loads, bandwidth against the bound, and times beside collopt's plan.

    Raises `FileFormatError` if the file cannot be read or holds no schedule; `UnsupportedError` if it is for another
    number of ranks, does not say what is needed, or sends where no route leads; `TopologyError` if a plan is for
    another network.  Wrong data and deadlocks are part of the score.

    Parameters
    ----------
    path : str or path
        MSCCL XML, an MSCCL++ plan, a plan of collopt, a list of sends, or Chakra traces: their common prefix, or one
        of them.
    topology : Topology
        Whose ranks run it, in order.
    collective : str or Collective, optional
        For traces and lists of sends that do not say.
    root : int or str, optional
        Likewise.
    num_bytes : int or str, optional
        Bytes in all that traces were made for, if they do not say.
    sizes : iterable of int or str
        Bytes in all of the simulated times.
    slices : int, optional
        Pieces that each send is cut into.  By default those of `simulate` for plans and files of runtimes, which run a
        program piece by piece, or fewer where there are very many sends; 1 for traces.  Lists of sends are in steps,
        whose chunks are whole.
    costs : RuntimeCosts or {"links", "generic", "fused"}, optional
        What the software adds to times, as for `simulate`.
    planner : str
        What makes the plan to compare with.

    Examples
    --------
    >>> import collopt
    >>> ring = collopt.topologies.ring(4, bandwidth=25)
    >>> collopt.plan(ring, "allgather", planner="blink").to_msccl_xml("blink.xml")
    >>> score("blink.xml", ring, sizes=["64M"])
    <Score MSCCL XML, allgather on ring-4: data right, 40.00 GB/s, 40.00 % below the bound>
    """
    as_topology(topology)
    byte_sizes = as_several_bytes(sizes)
    as_planner(planner)
    if slices is not None:
        slices = as_whole(slices, "slices")
    reading = read_schedule(path, topology, Hints.of(collective, root, num_bytes))
    if slices is not None and reading.in_steps:
        raise UnsupportedError(f"slices is {slices}, but sends in steps are whole; leave slices out")
    return _Scorer(name_of(path), topology, reading, slices, as_costs(costs, topology)).score(byte_sizes, planner)


@dataclass(frozen=True)
class _Scorer:
    """Scores one schedule."""

    path: str
    topology: Topology
    reading: Reading
    slices: int | None
    costs: RuntimeCosts

    @cached_property
    def routed(self) -> tuple[Transfers | None, str]:
        """Transfers, None where ranks wait for each other for ever, and how they were put on links."""
        if self.reading.plan is not None:
            return self.reading.plan.schedule.transfers(self.topology), "those of the plan"
        if self.reading.messages is None:
            return None, "none: ranks wait for each other for ever"
        routing = routed(self.reading.messages, self.topology)
        return routing.transfers, routing.text

    def score(self, sizes: list[int], planner: str) -> Score:
        """Score the schedule."""
        reading, (transfers, routes) = self.reading, self.routed
        limit, remark = self._bound()
        loads = None if transfers is None else transfers.link_loads(self.topology.num_links)
        unit = Fraction(1) if transfers is None else transfers.unit
        about = (self.path, reading.kind, self.topology, reading.collective, reading.data)
        result = Score(*about, routes, loads, unit, limit, None, self.costs, (), remark)
        if result.gap is not None and result.gap < 0:
            result = _beaten(result)
        if result.data.outcome == "wrong" or transfers is None:
            return result
        times, timed = [], self._timed(transfers)
        for size, size_bound in zip(sizes, self._size_bounds(result, sizes), strict=True):
            result = self._with_plan(result, planner, size)
            ours = None
            if result.plan is not None:
                ours = self._time(TimedSchedule(result.plan.schedule, self.topology, Rules(self.costs)), size)[0]
            ends = self.costs.range_of(partial(self._time_at, timed, size))
            times.append(TimedSize(size, *self._time(timed, size), ours, size_bound, ends))
        return replace(result, times=tuple(times))

    def _bound(self) -> tuple[Bound | None, str]:
        """Return the bound; None with the reason where there is none."""
        reading, collective = self.reading, self.reading.collective
        if reading.plan is not None:
            return reading.plan.bound, ""
        if collective is None:
            return None, "there is no bound, because the traces do not say of which collective they are"
        return _result_or_reason(lambda: bound(self.topology, collective, **reading.problem), "bound")

    def _size_bounds(self, result: Score, sizes: list[int]) -> list[SizeBound | None]:
        """Bounds at the sizes, where there is one for endless data."""
        collective = result.collective
        if collective is None or result.bound is None:
            return [None] * len(sizes)
        problem, costs = self.reading.problem, self.costs
        bounds, _ = _result_or_reason(
            lambda: bound_sizes(self.topology, collective, sizes, costs=costs, **problem), "bound"
        )
        return bounds or [None] * len(sizes)

    def _with_plan(self, result: Score, planner: str, size: int) -> Score:
        """Add collopt's plan for a size, if it is not there or is another one for each size."""
        collective, planner_entry = result.collective, PLANNERS[planner]
        if collective is None or not planner_entry.plans(collective):
            return result
        for_size = {"size": size} if planner_entry.takes(collective, "size") else {}
        if result.remark or (result.plan is not None and not for_size):
            return result
        new_plan, remark = _result_or_reason(
            lambda: planner_entry(self.topology, collective, **for_size, **self.reading.problem), f"plan by {planner}"
        )
        return replace(result, plan=new_plan, remark=remark)

    def _timed(self, transfers: Transfers) -> TimedTransfers:
        """Transfers of the file, to be run."""
        reading, rules = self.reading, Rules(self.costs)
        if reading.plan is not None:
            return TimedSchedule(reading.plan.schedule, self.topology, rules)
        if reading.in_steps and len(transfers.hop_links):
            transfers = in_steps(transfers, rules)
        network = reached_network(self.topology, self.costs)
        # Messages of traces are whole, unless asked otherwise.
        pipelined = reading.looped or (self.slices is not None and not reading.in_steps)
        return TimedTransfers(transfers, network, rules, pipelined=pipelined)

    def _time_at(self, timed: TimedTransfers, size: int, costs: RuntimeCosts) -> float:
        """Simulated time with other costs of messages and calls."""
        rules = timed.rules._replace(costs=costs)
        other = TimedTransfers(timed.transfers, timed.topology, rules, pipelined=timed.pipelined)
        return replace(self, costs=costs)._time(other, size)[0]

    def _time(self, timed: TimedTransfers, size: int) -> tuple[float, int]:
        """Simulated time of a size in µs, and the pieces that each send was cut into."""
        hops, slices = len(timed.transfers.hop_links), self.slices
        if not hops:
            return float(self.costs.launch), 1
        if slices is None:
            slices = min(timed.chosen_slices(size), max(1, MAX_PIECES // hops))
        run = timed.run(size, slices if timed.pipelined else None)
        return float(run.time), run.slices


def _result_or_reason(make: Callable[[], Any], what: str) -> tuple[Any, str]:
    """Return the result of `make`, or None and the reason."""
    try:
        return make(), ""
    except (BoundError, NoAnswerError, UnsupportedError) as error:
        return None, f"there is no {what}: {error}"


def _beaten(result: Score) -> Score:
    """Explain a bandwidth above the bound: of traces, whose data nobody has seen."""
    what = f"{bandwidth_text(result.algbw or 0, 2)} would beat the bound of {bandwidth_text(result.bound.algbw, 2)}"  # type: ignore[union-attr] # there is one
    if result.collective is not None and result.collective.is_sharded:
        remark = f"{what} for shards of one size, so shards differ in size, or data is missing"
        return replace(result, bound=None, remark=remark)
    return replace(result, data=DataCheck("wrong", f"{what}, so data is missing"))
