"""The check of a schedule in steps that every plan's certificate rests on.

It shares no code with the planners, the solvers or the methods of `StepSchedule`: it reads the arrays and the
topology's links and nothing else.  All sends are checked at once, by sorting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import CertificateError
from ..topologies import Topology
from ..topologies.validation import shown
from .path_verify import verified_hops
from .step_schedule import AnyStepSchedule, StepAllreduce, StepSchedule

__all__ = ["verified_step_loads", "verified_step_schedule_loads"]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

LOAD_LIMIT = 2**62
NEVER = 2**62
"""The step in which a rank gets what it never gets."""
FROM_THE_START = -1


def verified_step_loads(schedule: StepSchedule, topology: Topology) -> IntArray:
    """Check that a schedule is an allgather, or reversed a reduce-scatter, and add up what it puts on every link.

    Checked: the arrays fit together; every path follows links of the topology, passes only switches and no node twice;
    something happens in every step; a rank sends only what it holds at the beginning of the step; in the end every
    rank has every shard.  Of a reduce-scatter also: no rank is brought the same part of a shard twice, for reversed it
    would add that part twice.

    Parameters
    ----------
    schedule : StepSchedule
        Trusted in nothing.
    topology : Topology
        Trusted: it was checked when it was made.

    Returns
    -------
    ndarray of int64, shape (steps, links)
        Chunks on each link, in the order of ``topology.links``; steps as the schedule numbers them.

    Raises
    ------
    CertificateError
        Naming the first thing that is wrong.
    """
    _check_kinds(schedule, topology)
    _check_shapes(schedule, topology)
    hops = verified_hops(schedule.path_starts, schedule.path_nodes, schedule.direction, topology, "schedule")
    _check_sends(schedule)
    arrivals = _Arrivals.of(schedule)
    _check_held(schedule, arrivals)
    _check_complete(schedule, arrivals)
    if schedule.direction == "reduce":
        _check_once(schedule, arrivals)
    counts = np.diff(schedule.path_starts)[schedule.routes] - 1
    # Hops are numbered path by path, so those of a send follow each other.
    first = np.searchsorted(hops.paths, schedule.routes) - np.cumsum(counts) + counts
    passed = hops.links[np.repeat(first, counts) + np.arange(counts.sum())]
    loads = np.zeros((int(schedule.steps.max()) + 1, len(topology.links)), dtype=np.int64)
    np.add.at(loads, (np.repeat(schedule.steps, counts), passed), np.repeat(schedule.upper - schedule.lower, counts))
    return loads


def verified_step_schedule_loads(schedule: AnyStepSchedule, topology: Topology) -> tuple[IntArray, ...]:
    """Check every part of a schedule, and that the parts belong together; add up what they put on every link.

    Parameters
    ----------
    schedule : StepSchedule or StepAllreduce
        Trusted in nothing.
    topology : Topology
        Trusted: it was checked when it was made.

    Returns
    -------
    tuple of ndarray of int64, shape (steps, links)
        As of `verified_step_loads`, one for each of ``schedule.schedules``, in units of its own chunks.

    Raises
    ------
    CertificateError
        Naming the first thing that is wrong.
    """
    if isinstance(schedule, StepAllreduce):
        for part in (schedule.reduce, schedule.broadcast):
            _check_kinds(part, topology)
        if (schedule.reduce.direction, schedule.broadcast.direction) != ("reduce", "broadcast"):
            raise CertificateError("the allreduce does not consist of a schedule that reduces and one that broadcasts")
        return tuple(verified_step_loads(part, topology) for part in (schedule.reduce, schedule.broadcast))
    return (verified_step_loads(schedule, topology),)


@dataclass(frozen=True)
class _Arrivals:
    """When each rank has each part of each shard.

    A *holding* is one rank's copy of one shard, number ``source * num_ranks + rank``.  It falls into pieces between the
    points where intervals that this rank is sent begin or end.  A point is the number of its holding times `span`
    plus a number that grows with its place in the shard, so that one sorted array holds all of them.

    Attributes
    ----------
    points : ndarray of int64, shape (pieces,)
        Where each piece begins; the next one is where it ends.  The last piece of a holding is empty.
    first : ndarray of int64, shape (pieces,)
        The step that brings each piece first; -1 if it is there from the start, `NEVER` if no step does.
    times : ndarray of int64, shape (pieces,)
        How often a piece is brought, or there from the start.
    places : ndarray of int64
        All places in shards that occur, sorted: 0 and `chunks_per_shard` are the first and the last.
    """

    points: IntArray
    first: IntArray
    times: IntArray
    places: IntArray

    @classmethod
    def of(cls, schedule: StepSchedule) -> _Arrivals:
        ranks, whole = schedule.num_ranks, schedule.chunks_per_shard
        own = np.arange(ranks) * (ranks + 1)
        receivers = schedule.path_nodes[schedule.path_starts[1:] - 1][schedule.routes]
        holdings = np.concatenate([own, schedule.sources * ranks + receivers])
        begin = np.concatenate([np.zeros_like(own), schedule.lower])
        end = np.concatenate([np.full_like(own, whole), schedule.upper])
        steps = np.concatenate([np.full_like(own, FROM_THE_START), schedule.steps])
        places = np.unique(np.concatenate([begin, end]))
        bases = np.arange(ranks * ranks) * len(places)
        inner = [holdings * len(places) + np.searchsorted(places, bound) for bound in (begin, end)]
        points = np.unique(np.concatenate([bases, bases + len(places) - 1, *inner]))
        starts, stops = (np.searchsorted(points, bound) for bound in inner)
        changes = np.zeros(len(points), dtype=np.int64)
        np.add.at(changes, starts, 1)
        np.add.at(changes, stops, -1)
        return cls(points, _least_over(len(points), starts, stops, steps), np.cumsum(changes), places)

    @property
    def span(self) -> int:
        return len(self.places)

    def latest(self, holdings: IntArray, begin: IntArray, end: IntArray) -> IntArray:
        """Return the step in which a holding has all of an interval, which may begin or end inside a piece."""
        starts = holdings * self.span + np.searchsorted(self.places, begin)
        stops = holdings * self.span + np.searchsorted(self.places, end)
        starts = np.searchsorted(self.points, starts, side="right") - 1
        return _greatest_in(self.first, starts, np.searchsorted(self.points, stops))

    def whereabouts(self, piece: int) -> tuple[int, int]:
        """Holding and first chunk of a piece."""
        return int(self.points[piece]) // self.span, int(self.places[self.points[piece] % self.span])


def _least_over(size: int, starts: IntArray, stops: IntArray, values: IntArray) -> IntArray:
    """At each place the least value of the intervals over it, `NEVER` if there are none.

    An interval is covered by two blocks whose length is a power of two; blocks are halved, the longest first.
    """
    powers = np.frexp(stops - starts)[1] - 1
    least = np.full(size, NEVER)
    for power in range(int(powers.max()), -1, -1):
        block = 1 << power
        wider, least = least, least.copy()
        np.minimum(least[block:], wider[:-block], out=least[block:])
        chosen = powers == power
        np.minimum.at(least, starts[chosen], values[chosen])
        np.minimum.at(least, stops[chosen] - block, values[chosen])
    return least


def _greatest_in(values: IntArray, starts: IntArray, stops: IntArray) -> IntArray:
    """Greatest value in each interval, by blocks as in `_least_over`, the shortest first."""
    powers = np.frexp(stops - starts)[1] - 1
    greatest = np.empty(len(starts), dtype=np.int64)
    values = values.copy()
    for power in range(int(powers.max()) + 1):
        block = 1 << power
        chosen = powers == power
        greatest[chosen] = np.maximum(values[starts[chosen]], values[stops[chosen] - block])
        values[:-block] = np.maximum(values[:-block], values[block:])
    return greatest


def _refuse_if(wrong: BoolArray, message: str) -> None:
    """Raise with `message`, its ``{}`` filled with the index of the first wrong entry."""
    if wrong.any():
        raise CertificateError(message.format(int(np.flatnonzero(wrong)[0])))


def _check_kinds(schedule: object, topology: object) -> None:
    if not isinstance(schedule, StepSchedule):
        raise CertificateError(f"the schedule is {shown(schedule)}; expected a StepSchedule")
    if not isinstance(topology, Topology):
        raise CertificateError(f"the topology is {shown(topology)}; expected a Topology")


def _check_shapes(schedule: StepSchedule, topology: Topology) -> None:
    ranks, sends = topology.num_ranks, len(schedule.steps)
    if schedule.num_ranks != ranks:
        raise CertificateError(f"the schedule is for {schedule.num_ranks} ranks; the topology has {ranks}")
    if schedule.chunks_per_shard < 1:
        raise CertificateError(f"the schedule has {schedule.chunks_per_shard} chunks per shard; expected at least 1")
    if schedule.direction not in ("broadcast", "reduce"):
        raise CertificateError(
            f"the schedule's direction is {shown(schedule.direction)}; expected 'broadcast' or 'reduce'"
        )
    if sends < ranks * (ranks - 1):
        # Also keeps the memory of this check in proportion to the schedule's own.
        raise CertificateError(f"the schedule has {sends} sends; {ranks} ranks need at least {ranks * (ranks - 1)}")
    if int(schedule.chunks_per_shard) * sends >= LOAD_LIMIT:
        raise CertificateError(
            f"{schedule.chunks_per_shard} chunks per shard could overflow the 64-bit sums of this check"
        )
    lengths = dict.fromkeys(("steps", "sources", "lower", "upper", "routes"), sends)
    lengths |= {name: len(getattr(schedule, name)) for name in ("path_starts", "path_nodes")}
    for name, length in lengths.items():
        array = getattr(schedule, name)
        if array.dtype != np.int64 or array.shape != (length,):
            raise CertificateError(
                f"the schedule's {name} are {array.dtype} of shape {array.shape}; expected int64, {(length,)}"
            )


def _check_sends(schedule: StepSchedule) -> None:
    """Check each send for itself, and that no step is left out, for it would cost time."""
    source, route, step = schedule.sources, schedule.routes, schedule.steps
    _refuse_if((source < 0) | (source >= schedule.num_ranks), "send {} has a source that is no rank")
    _refuse_if((route < 0) | (route >= len(schedule.path_starts) - 1), "send {} has a route that is no path")
    _refuse_if(
        (schedule.lower < 0) | (schedule.lower >= schedule.upper) | (schedule.upper > schedule.chunks_per_shard),
        "send {} carries no interval of the chunks of a shard",
    )
    _refuse_if(step < 0, "send {} happens before step 0")
    used = np.unique(step)
    _refuse_if(used != np.arange(len(used)), "nothing is sent in step {}")


def _check_held(schedule: StepSchedule, arrivals: _Arrivals) -> None:
    """All of what is sent reached the sender in an earlier step."""
    senders = schedule.path_nodes[schedule.path_starts[:-1]][schedule.routes]
    held = arrivals.latest(schedule.sources * schedule.num_ranks + senders, schedule.lower, schedule.upper)
    wrong = np.flatnonzero(held >= schedule.steps)
    if not len(wrong):
        return
    keys = (schedule.lower, schedule.sources, senders, schedule.steps)
    first = wrong[np.lexsort([key[wrong] for key in keys])[0]]
    raise CertificateError(
        f"in step {schedule.steps[first]} rank {senders[first]} sends chunks {schedule.lower[first]} to "
        f"{schedule.upper[first] - 1} of the shard of rank {schedule.sources[first]}, but does not have them by then"
    )


def _check_complete(schedule: StepSchedule, arrivals: _Arrivals) -> None:
    """In the end every rank has every shard."""
    missing = arrivals.first == NEVER
    missing[arrivals.points % arrivals.span == arrivals.span - 1] = False
    if missing.any():
        holding, chunk = arrivals.whereabouts(int(np.flatnonzero(missing)[0]))
        source, rank = divmod(holding, schedule.num_ranks)
        raise CertificateError(f"rank {rank} never gets chunk {chunk} of the shard of rank {source}")


def _check_once(schedule: StepSchedule, arrivals: _Arrivals) -> None:
    """No rank is brought twice what it would then send twice, to be added twice."""
    if (arrivals.times > 1).any():
        piece = int(np.flatnonzero(arrivals.times > 1)[0])
        holding, chunk = arrivals.whereabouts(piece)
        source, rank = divmod(holding, schedule.num_ranks)
        raise CertificateError(
            f"rank {rank} would send chunk {chunk} of the shard of rank {source} {arrivals.times[piece]} times"
        )
