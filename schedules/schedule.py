"""`Schedule`, the base class of all kinds of schedules, with their verification, predicted time and JSON form.

A kind is a class derived from `Schedule` that states its name in files: ``class Forest(Schedule, kind="forest")``.  It
has its transfers and its verification, or another schedule that it stands for, as `Schedule.expanded`.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import numpy as np

from ..errors import CertificateError, FileFormatError, UnsupportedError
from ..support.arrays import IntArray, read_only
from ..support.quantities import as_bytes
from ..support.validation import as_kind, as_whole, shown
from ..topologies import LINKS_ONLY, RuntimeCosts, Topology
from ..topologies.network.link_costs import timed_network
from ..topologies.network.topology import as_topology
from .collective import Collective, Direction
from .fields import schedule_fields
from .transfers import Transfers, congestion, path_links

NS_PER_US = 1000
BYTES_PER_MB = 10**6
DEFAULT_SLICES = 64  # more gain less than a hundredth

SCHEDULE_KINDS: dict[str, type[Schedule]] = {}
"""Classes of schedules by the ``"kind"`` that plan files state; each has a classmethod ``from_json(data, where)``."""


class Schedule(ABC):
    """A schedule of a collective: trees, steps, paths of a flow or stages.

    Subclasses define their data, and this class all that follows.  A kind without a method of its own has that of
    `expanded`, the schedule that it stands for.  A schedule that names no links, as an `AllToAllvSchedule`, refuses all
    that depends on them.  None of this is trusted: the `verified_loads` of the kind reads the arrays.

    Attributes
    ----------
    kind : str
        Name in plan files, an argument of the class statement; empty where there is none, and then no plan has it.
    parts, subject : str
        Name of its parts in messages, such as ``"trees"``, also as a subject, ``"trees are"``; class attributes.
    load_text : str
        How messages state a load, such as ``"the trees put {load} copies"``; ``{step}`` is its row; class attribute.
    pipelined : bool
        Whether data is cut into slices that follow each other; otherwise steps wait for each other, and loads have a
        row for each.  Class attribute.
    single_root : bool
        Whether one rank alone can have data, as in a broadcast; class attribute.
    form : {"", "trees", "steps", "exchange", "flow", "staged flow", "stages"}
        Data that programs are lowered from; empty where that is `expanded`, or nothing; class attribute.
    view : {"trees", "steps", "senders"}
        Parts that pages show one at a time; class attribute.
    demands : Demands or None
        The items that it is for; None if it is for shards or pairs.
    """

    kind: ClassVar[str] = ""
    parts: ClassVar[str]
    subject: ClassVar[str]
    load_text: ClassVar[str]
    pipelined: ClassVar[bool] = True
    single_root: ClassVar[bool] = False
    view: ClassVar[Literal["trees", "steps", "senders"]] = "steps"
    form: ClassVar[str] = ""
    demands: Any = None

    def __init_subclass__(cls, kind: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        if kind:
            package = __name__.partition(".")[0] + "."
            is_ours = kind in SCHEDULE_KINDS and SCHEDULE_KINDS[kind].__module__.startswith(package)
            if is_ours and not cls.__module__.startswith(package):
                raise UnsupportedError(f"schedules of the kind {kind!r} are collopt's; give {cls.__name__} another")
            cls.kind = kind
            SCHEDULE_KINDS[kind] = cls

    if TYPE_CHECKING:  # Fields of dataclasses, which would take properties of a base class for their defaults.

        @property
        def num_ranks(self) -> int:
            """Number of ranks that take part."""

    @property
    def expanded(self) -> Schedule:
        """The schedule that this one stands for, such as all that it makes of a part by symmetries; or itself."""
        return self

    @property
    def _stands_for(self) -> Schedule:
        """The schedule that answers where the kind itself does not."""
        if (schedule := self.expanded) is self:
            raise UnsupportedError(f"the schedule is {shown(self)}; expected trees, steps or a flow")
        return schedule

    @property
    def total_weight(self) -> int | Fraction:
        """Data in all, in the unit of `load_units`; of pairs, the data of a rank on average."""
        return self._stands_for.total_weight

    @property
    def num_trees(self) -> int:
        """Number of distinct trees; 0 of a schedule that has none."""
        return 0

    @property
    def num_steps(self) -> int:
        """Number of steps; 0 of a schedule that has none."""
        return 0 if self.expanded is self else self.expanded.num_steps

    @property
    def root(self) -> int | None:
        """The rank that alone has a shard, if there is one."""
        return None

    @property
    def phases(self) -> tuple[Direction, ...]:
        """Those of the collectives that it can be for, as in `Collective.phases`; none of pairs."""
        return self._stands_for.phases

    @property
    def size_text(self) -> str:
        """Describe the size of the schedule."""
        return self._stands_for.size_text

    @property
    def load_units(self) -> Sequence[int]:
        """Loads that make up a unit of data, one for each row of `link_loads`."""
        return self._stands_for.load_units

    def has_sizes(self, weights: Sequence[int], num_ranks: int) -> bool:
        """Whether these are the weights of its shards, or row by row its traffic; empty means equal ones."""
        return self._stands_for.has_sizes(weights, num_ranks)

    def problem(self, collective: Collective) -> dict[str, Any]:
        """Return the `root`, `weights` or `traffic` of `collopt.bound` that this solves; nothing for equal shards."""
        return {} if self.expanded is self else self.expanded.problem(collective)

    def transfers(self, topology: Topology) -> Transfers:
        """List the transfers between ranks, with their links and dependencies."""
        return self._stands_for.transfers(topology)

    def verified_loads(self, topology: Topology) -> IntArray:
        """Verify the schedule from its arrays alone, and sum its loads; see `collopt.schedules.verified_loads`."""
        if (schedule := self.expanded) is self:
            raise CertificateError(f"the schedule is {shown(self)}; expected trees, steps or a flow")
        return verified_loads(schedule, topology)

    def link_loads(self, topology: Topology) -> IntArray:
        """Add up the load of each link, shape (links,), or (steps, links) where steps wait for each other."""
        return self._stands_for.link_loads(topology)

    def inverse_rate(self, topology: Topology) -> Fraction:
        """Achieved 1/x, in 1/(GB/s): ns per byte of a unit of data, if links are busy as `pipelined` says."""
        return rate_of_loads(self.link_loads(topology), self, topology)

    @property
    def depth(self) -> int:
        """Largest number of successive transfers of any data."""
        return self._stands_for.depth

    @property
    def least_hops(self) -> int:
        """Transfers at least that start one after the other, each when the one before it begins to arrive."""
        return 1

    @property
    def num_hops(self) -> int:
        """Links that data passes, one by one: events of a run in one slice, as far as that is known without one."""
        return self.num_ranks * self.depth if self.expanded is self else self.expanded.num_hops

    def latency(self, topology: Topology) -> Fraction:
        """Largest sum of link latencies on the way of any data, in µs."""
        return self._stands_for.latency(topology)

    def time(
        self, topology: Topology, num_bytes: int | str, slices: int | None = None, inverse_rate: Fraction | None = None
    ) -> Fraction:
        """Time in µs on links alone; see `collopt.schedules.schedule_time`."""
        unit, latency = as_bytes(num_bytes) / Fraction(self.total_weight), self.latency(topology)
        rate = self.inverse_rate(topology) if inverse_rate is None else inverse_rate
        waiting = Fraction(0) if slices is None else self.hop_rate(topology) * (self.depth - 1) / slices
        return latency + unit * (rate + waiting) / NS_PER_US

    def hop_rate(self, topology: Topology) -> Fraction:
        """Longest time that the data of one tree, or path, takes between two ranks, in 1/(GB/s) as `inverse_rate`."""
        return self._stands_for.hop_rate(topology)

    @property
    def messages(self) -> IntArray:
        """Messages that each rank starts, for one slice of the data, shape (ranks,)."""
        return self._stands_for.messages

    @property
    def most_added(self) -> Fraction:
        """Data that the rank adds which adds most, in units of `total_weight`."""
        return Fraction(0) if self.expanded is self else self.expanded.most_added

    @property
    def sends_unevenly(self) -> bool:
        """Whether ranks have different amounts for each other, so that their messages are ordered by time."""
        return False if self.expanded is self else self.expanded.sends_unevenly

    def renumbered(self, image: IntArray) -> Schedule:  # noqa: ARG002
        """Give each node another number, that of int64 (nodes,); refused where plans of failures do not need it."""
        raise UnsupportedError(
            f"a schedule of {self.parts} cannot be carried to failures that are alike; plan for each"
        )

    def rows(self, topology: Topology, busiest: dict[str, str]) -> dict[str, str]:  # noqa: ARG002
        """Describe it by lines of a summary, with those of the busiest links among them."""
        return {self.parts: self.size_text, **busiest}

    def checks(self) -> dict[str, str]:
        """Describe the checks of `verified_loads` by lines of a summary."""
        return {self.parts: f"{self.size_text} do what the collective needs"}

    def figures(self, topology: Topology) -> dict[str, Any]:  # noqa: ARG002
        """Key figures for JSON."""
        return {"size": self.size_text}

    def hop_numbers(self, transfers: Transfers) -> IntArray:
        """Number of the step or hop of each of its `transfers` in tables and pages, from 0; int64 (transfers,)."""
        return transfers.levels if self.expanded is self else self.expanded.hop_numbers(transfers)

    def part_numbers(self, transfers: Transfers) -> IntArray:
        """Number of the tree, step or sender, as `view` says, of each of its `transfers`; int64 (transfers,)."""
        return transfers.levels if self.expanded is self else self.expanded.part_numbers(transfers)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document of the schedule, with its ``"kind"``, as in plan files."""
        raise UnsupportedError(
            f"the schedule is {shown(self)}; expected a Forest, a StepSchedule, an allreduce or a FlowSchedule"
        )

    @classmethod
    def from_json(cls, data: object, where: str) -> Schedule:  # noqa: ARG003
        """Build the schedule that a decoded JSON value describes; only its form is checked."""
        raise FileFormatError(f"{where}: schedules of the kind {cls.kind!r} cannot be read")


class RoutedSchedule(Schedule):
    """A schedule in read-only arrays; its path p is ``path_nodes[path_starts[p]:path_starts[p + 1]]``."""

    path_starts: IntArray  # shape (paths + 1,)
    path_nodes: IntArray
    direction: Direction = "broadcast"  # whether data passes paths as they are written down, or backwards

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        """Copy and pickle by construction, as numpy does not keep arrays read-only."""
        return type(self), tuple(getattr(self, field.name) for field in fields(cast("Any", self)))

    def path(self, number: int) -> tuple[int, ...]:
        """Node numbers along path `number`."""
        return tuple(self.path_nodes[self.path_starts[number] : self.path_starts[number + 1]].tolist())

    def path_links(self, topology: Topology) -> IntArray:
        """Links of all paths, path by path, by their places in ``topology.links``.

        Raises `CertificateError` if a path uses a link that the topology does not have.
        """
        return path_links(self.path_starts, self.path_nodes, topology, self.direction)

    def _path_lists(self) -> list[list[int]]:
        """Node numbers along every path."""
        return [list(self.path(number)) for number in range(len(self.path_starts) - 1)]

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        for field in fields(cast("Any", self)):
            if isinstance(array := getattr(self, field.name), np.ndarray):
                object.__setattr__(self, field.name, read_only(array))


class AllreduceSchedule(Schedule):
    """An allreduce: a schedule of direction "reduce", and one of direction "broadcast", both of the kind `of`."""

    of_kinds: ClassVar[dict[str, type[AllreduceSchedule]]] = {}

    def __init_subclass__(cls, of: str, **options: Any) -> None:
        super().__init_subclass__(kind="allreduce", **options)
        cls.of_kinds[of] = cls

    reduce: Any
    broadcast: Any

    @property
    def phases(self) -> tuple[Direction, ...]:
        """Phases of an allreduce."""
        return "reduce", "broadcast"

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return int(self.broadcast.num_ranks)

    @property
    def root_weights(self) -> IntArray:
        """Relative sizes of the shards that ranks hold after the reduction."""
        return cast("IntArray", self.broadcast.root_weights)

    @property
    def total_weight(self) -> int:
        """Sum of the weights of all shards."""
        return int(self.broadcast.total_weight)

    @property
    def messages(self) -> IntArray:
        """Of both together."""
        return cast("IntArray", self.reduce.messages + self.broadcast.messages)

    @property
    def most_added(self) -> Fraction:
        """Of the reduction."""
        return cast("Fraction", self.reduce.most_added)

    @property
    def least_hops(self) -> int:
        """Those of the longer part and one of the other, for data that takes long in one may be quick in the other."""
        return 1 + max(int(part.least_hops) for part in (self.reduce, self.broadcast))

    def has_sizes(self, weights: Sequence[int], num_ranks: int) -> bool:  # noqa: ARG002
        """Always true: every rank ends with all data."""
        return True

    def renumbered(self, image: IntArray) -> Self:
        """Number the nodes of both parts anew."""
        return type(self)(self.reduce.renumbered(image), self.broadcast.renumbered(image))  # type: ignore[call-arg]

    def to_json(self) -> dict[str, Any]:
        """Describe both parts by their own."""
        return {"kind": "allreduce", "reduce": self.reduce.to_json(), "broadcast": self.broadcast.to_json()}

    @classmethod
    def from_json(cls, data: object, where: str) -> Schedule:
        """Build the allreduce of two parts of one kind."""
        halves = schedule_fields(data, "allreduce", ("kind", "reduce", "broadcast"), where)
        of = schedule_kind(data)
        kind = of if isinstance(of, str) and of in cls.of_kinds else "forest"
        parts = [SCHEDULE_KINDS[kind].from_json(halves[name], where) for name in ("reduce", "broadcast")]
        return cls.of_kinds[kind](*parts)


class PairSchedule(Schedule):
    """A schedule of an all-to-all(v), whose traffic from rank s to rank d is ``traffic[s, d]``."""

    traffic: IntArray  # shape (ranks, ranks)

    @property
    def phases(self) -> tuple[Direction, ...]:
        """None: pairs have no shards."""
        return ()

    @cached_property
    def total_weight(self) -> Fraction:
        """Average data of a rank, including its part for itself: N, if all parts are 1."""
        return Fraction(sum(map(int, self.traffic.ravel().tolist())), self.num_ranks)

    def has_sizes(self, weights: Sequence[int], num_ranks: int) -> bool:  # noqa: ARG002
        """Whether this is its traffic, row by row."""
        traffic = np.ravel(self.traffic)
        return list(weights) == traffic.tolist() if weights else bool((traffic == 1).all())


def verified_loads(schedule: Schedule, topology: Topology) -> IntArray:
    """Verify a schedule and sum its load on every link.

    The method of this name of the class that states the kind does it, which a subclass cannot override; it shares no
    code with planners.  Raises `CertificateError` naming the first thing that is wrong.

    Parameters
    ----------
    schedule : Schedule
        Trusted in nothing.
    topology : Topology
        Trusted: it was checked when it was made.

    Returns
    -------
    ndarray of int64, shape (links,) or (steps, links)
        Of trees, copies in multiples of ``1 / schedule.trees_per_root`` units of data; of a flow, chunks.  Of steps,
        chunks in each step; of an allreduce, those of the reduction first, each part in its own chunks.

    Examples
    --------
    >>> from collopt.schedules import Forest
    >>> from collopt.topologies import ring
    >>> two_way = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])
    >>> verified_loads(two_way, ring(2)).tolist()
    [1, 1]
    """
    if not is_verifiable(schedule):
        raise CertificateError(f"the schedule is {shown(schedule)}; expected trees, steps or a flow")
    as_topology(topology, CertificateError)
    kind = next(base for base in type(schedule).__mro__ if "kind" in vars(base))
    return cast("type[Schedule]", kind).verified_loads(schedule, topology)


def is_verifiable(schedule: object) -> bool:
    """Whether the schedule is of a kind that plans can have."""
    return isinstance(schedule, Schedule) and bool(schedule.kind)


def rate_of_loads(loads: IntArray, schedule: Schedule, topology: Topology) -> Fraction:
    """Compute the rate of a schedule from its loads.

    This is 1/x, in 1/(GB/s): ns per byte of a shard of weight 1; of steps, the sum over the steps.  Parameters as for
    `verified_loads`, after its result; the schedule only says what the loads count.
    """
    rows = zip(loads.reshape(-1, loads.shape[-1]), schedule.load_units, strict=True)
    return sum((congestion(row, unit, topology) for row, unit in rows), Fraction(0))


def schedule_time(
    schedule: Schedule,
    topology: Topology,
    num_bytes: int | str,
    slices: int | None = None,
    *,
    inverse_rate: Fraction | None = None,
    costs: RuntimeCosts = LINKS_ONLY,
) -> Fraction:
    """Predict the time of a collective in µs, by the alpha-beta model.

    Trees and the paths of flows are pipelined: the latency of the deepest path, and the bandwidth time, bytes over
    algbw.  With m `slices`, data follows in that many pieces, so the last piece of a tree of height h passes ``h - 1``
    further hops, each of 1 / m of the time that the data of the largest tree takes; without, pieces are infinitely
    small.  Steps wait for each other; see `StepSchedule.time`.

    With `costs`, every hop between ranks takes its alpha and the start of a message longer, no rank starts more
    messages than one after the other, and nothing else goes on while the rank that adds most adds.  Where starting one
    costs something, and no `slices` are given, they are as many as can be started while the busiest link is busy, at
    most 64.

    Parameters
    ----------
    schedule, topology : Schedule, Topology
        Trees, steps or a flow, and the network that it runs on.
    num_bytes : int or str
        In all, as nccl-tests counts them, such as ``"1M"``.
    slices : int, optional
        Pieces that the data of each tree or path is cut into; none for a schedule in steps.
    inverse_rate : Fraction, optional
        The congestion of trees or a flow at line rate, where it is known already.
    costs : RuntimeCosts
        Of the software.

    Examples
    --------
    >>> from collopt.schedules import Forest
    >>> from collopt.topologies import ring
    >>> two_way = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])
    >>> schedule_time(two_way, ring(2, bandwidth=25, latency=3), 100_000)
    Fraction(4, 1)
    """
    if slices is not None:
        slices = as_whole(slices, "slices")
    if not is_verifiable(schedule):
        raise UnsupportedError(f"the schedule is {shown(schedule)}; expected trees, steps or a flow")
    if slices is not None and not schedule.pipelined:
        raise UnsupportedError(
            f"slices is {shown(slices)}, but the schedule has steps that wait for each other; leave slices out"
        )
    network = timed_network(as_topology(topology), costs)
    rate = None if costs.efficiency else inverse_rate
    fixed = costs.launch
    if costs.reduction:
        added = as_bytes(num_bytes) * schedule.most_added / Fraction(schedule.total_weight)
        fixed += costs.reduction * added / BYTES_PER_MB
    if not costs.send:
        return fixed + schedule.time(network, num_bytes, slices, rate)
    return fixed + _time_with_starts(schedule, network, as_bytes(num_bytes), slices, costs.send, rate)


def _time_with_starts(
    schedule: Schedule, network: Topology, num_bytes: int, slices: int | None, send: Fraction, rate: Fraction | None
) -> Fraction:
    """Predict the time where ranks start one message after the other."""
    starting = int(schedule.messages.max()) * send
    if not schedule.pipelined:
        return max(schedule.time(network, num_bytes), starting)
    rate = schedule.inverse_rate(network) if rate is None else rate
    wire = num_bytes / Fraction(schedule.total_weight) * rate / NS_PER_US
    count = max(1, min(DEFAULT_SLICES, math.floor(wire / starting))) if slices is None else slices
    # The last message that a rank starts goes one more hop.
    started = starting * count + schedule.latency(network) / max(1, schedule.depth)
    return max(schedule.time(network, num_bytes, count, rate), started)


def schedule_to_json(schedule: Schedule) -> dict[str, Any]:
    """Return the JSON document of a schedule, or of both of an allreduce.

    Examples
    --------
    >>> from collopt.schedules import Forest
    >>> forest = Forest.from_paths(2, 1, [(0, 1, [(0, 2, 1)]), (1, 1, [(1, 2, 0)])])
    >>> schedule_to_json(forest)["trees"]
    [[0, 1, [-1, 0]], [1, 1, [1, -1]]]
    """
    return as_kind(schedule, Schedule, "the schedule").to_json()


def schedule_from_json(data: object, where: str) -> Schedule:
    """Build a schedule of any kind from a decoded JSON value; only its form is checked.

    Parameters
    ----------
    data : dict
        As `schedule_to_json` makes it.
    where : str
        Names the document in error messages.
    """
    kind = data.get("kind") if isinstance(data, Mapping) else None
    # A value of no known kind is refused as no forest.
    name = kind if isinstance(kind, str) and kind in SCHEDULE_KINDS else "forest"
    return SCHEDULE_KINDS[name].from_json(data, where if isinstance(where, str) else shown(where))


def schedule_kind(data: object) -> object:
    """Return the kind of a decoded schedule; of an allreduce, that of its reduction."""
    if isinstance(data, Mapping) and data.get("kind") == "allreduce":
        data = data.get("reduce")
    return data.get("kind") if isinstance(data, Mapping) else None
