"""Predicted run time of schedules in steps."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ...errors import UnsupportedError
from ...support.sizes import as_bytes
from ...support.validation import shown
from ...topologies import Topology
from .allreduce import AnyStepSchedule, check_fit
from .schedule import StepSchedule

__all__ = ["step_schedule_time"]

IntArray = npt.NDArray[np.int64]

NS_PER_US = 1000


def step_schedule_time(schedule: AnyStepSchedule, topology: Topology, num_bytes: int | str) -> Fraction:
    """Time of a collective of `num_bytes` in all, in µs, whose steps wait for each other, by the alpha-beta model.

    A path that is used in a step takes the latencies of its links, one after the other, and as long as the busiest of
    them takes for all that it carries in that step.  A step takes as long as the slowest path, the schedule as long as
    all steps together: where paths are single links, ``sum over t of max over links of (alpha + M / (N B) * load)`` as
    in the direct-connect paper, section E.3.  Links that are not used cost nothing.

    Parameters
    ----------
    schedule : StepSchedule or StepAllreduce
        What is run.
    topology : Topology
        Where.
    num_bytes : int or str
        As nccl-tests counts them, such as ``"1M"``.

    Returns
    -------
    Fraction

    Raises
    ------
    UnsupportedError
        If the schedule is not one in steps for as many ranks, or the bytes are not a positive whole number.
    CertificateError
        If the schedule uses a link that the topology does not have.

    Examples
    --------
    Two ranks exchange shards of 50 kB over links of 25 GB/s and 3 µs:

    >>> from collopt.topologies import complete
    >>> exchange = StepSchedule.from_sends(2, 1, [(0, 0, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0))])
    >>> step_schedule_time(exchange, complete(2, bandwidth=25, latency=3), 100_000)
    Fraction(5, 1)
    """
    if not isinstance(topology, Topology):
        raise UnsupportedError(f"the topology is {shown(topology)}; expected a Topology")
    check_fit(schedule, topology)
    whole = as_bytes(num_bytes)
    return sum((_time(part, topology, whole) for part in schedule.schedules), Fraction(0))


def _time(schedule: StepSchedule, topology: Topology, num_bytes: int) -> Fraction:
    """Add up the slowest of each step, among hops of equal latency and bandwidth those with the largest load."""
    if not schedule.num_sends:
        return Fraction(0)
    links = schedule.path_links(topology)
    loads = schedule.link_loads(topology)
    delays, delay_of_path = _path_delays(schedule, topology, links)
    capacities, capacity_of_link = np.unique(topology.arrays.capacities, return_inverse=True)
    steps, paths, hops = _hops_used(schedule)
    groups = (steps * len(delays) + delay_of_path[paths]) * len(capacities) + capacity_of_link[links[hops]]
    kinds, group = np.unique(groups, return_inverse=True)
    largest = np.zeros(len(kinds), dtype=np.int64)
    np.maximum.at(largest, group, loads[steps, links[hops]])
    # What one chunk takes at one unit of bandwidth, in µs.
    chunk = Fraction(num_bytes, schedule.num_ranks * schedule.chunks_per_shard * NS_PER_US) / topology.arrays.unit
    slowest = [Fraction(0)] * schedule.num_steps
    for kind, load in zip(kinds.tolist(), largest.tolist(), strict=True):
        pair, capacity = divmod(kind, len(capacities))
        step, delay = divmod(pair, len(delays))
        slowest[step] = max(slowest[step], delays[delay] + chunk * Fraction(load, int(capacities[capacity])))
    return sum(slowest, Fraction(0))


def _path_delays(schedule: StepSchedule, topology: Topology, links: IntArray) -> tuple[list[Fraction], IntArray]:
    """Different sums of latencies along paths, and which of them each path has."""
    latencies = [link.latency for link in topology.links]
    numbers: dict[Fraction, int] = {}
    ends = np.cumsum(np.diff(schedule.path_starts) - 1).tolist()
    of_path = [
        numbers.setdefault(sum((latencies[link] for link in links[start:end].tolist()), Fraction(0)), len(numbers))
        for start, end in pairwise([0, *ends])
    ]
    return list(numbers), np.array(of_path, dtype=np.int64)


def _hops_used(schedule: StepSchedule) -> tuple[IntArray, IntArray, IntArray]:
    """Steps, paths and hops of all paths, each path once for each step in which it is used."""
    lengths = np.diff(schedule.path_starts) - 1
    used = np.unique(schedule.steps * len(lengths) + schedule.routes)
    steps, paths = np.divmod(used, len(lengths))
    counts = lengths[paths]
    first = np.repeat((np.cumsum(lengths) - lengths)[paths], counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(steps, counts), np.repeat(paths, counts), first + within
