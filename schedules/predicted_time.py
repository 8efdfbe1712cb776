"""Predicted run time of a schedule."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np

from ..errors import UnsupportedError
from ..support.quantities import as_bytes
from ..support.validation import as_whole, shown
from ..topologies import Topology
from .any_schedule import AnySchedule
from .flows.schedule import FlowSchedule
from .steps.allreduce import AnyStepSchedule
from .steps.cost import step_schedule_time
from .trees.allreduce import TreeSchedule
from .trees.forest import Forest

__all__ = ["flow_latency", "forest_latency", "schedule_time"]

NS_PER_US = 1000
INT64_LIMIT = 2**63


def forest_latency(forest: Forest, topology: Topology) -> Fraction:
    """Largest sum of link latencies between a root and a rank along a tree, in µs: when first bytes are everywhere."""
    ends = (0, 1) if forest.direction == "broadcast" else (1, 0)
    latency = {(link[ends[0]], link[ends[1]]): link.latency for link in topology.links}
    names = topology.nodes
    scale = math.lcm(*(link.latency.denominator for link in topology.links))
    exact = [
        sum(int(latency[names[tail], names[head]] * scale) for tail, head in pairwise(path))
        for path in map(forest.path, range(len(forest.path_starts) - 1))
    ]
    # Python's integers where the common denominator of all latencies leaves no room in int64.
    delays = np.array(exact, dtype=np.int64 if max(exact) * forest.num_ranks < INT64_LIMIT else object)
    senders, used = np.maximum(forest.parents, 0), forest.routes >= 0
    arrival = np.zeros(forest.routes.shape, dtype=delays.dtype)
    for _ in range(int(forest.heights.max())):
        arrival = np.where(used, np.take_along_axis(arrival, senders, axis=1) + delays[forest.routes], 0)
    return Fraction(int(arrival.max()), scale)


def flow_latency(schedule: FlowSchedule, topology: Topology) -> Fraction:
    """Largest sum of link latencies along a path of a flow, in µs."""
    latencies = [link.latency for link in topology.links]
    scale = math.lcm(*(latency.denominator for latency in latencies))
    largest = max(int(latency * scale) for latency in latencies)
    # Python's integers where the common denominator of all latencies leaves no room in int64.
    room = largest * len(schedule.path_nodes) < INT64_LIMIT
    delays = np.array([int(latency * scale) for latency in latencies], dtype=np.int64 if room else object)
    firsts = schedule.path_starts[:-1] - np.arange(schedule.num_paths)
    return Fraction(int(np.add.reduceat(delays[schedule.hop_links(topology)], firsts).max()), scale)


def schedule_time(
    schedule: AnySchedule,
    topology: Topology,
    num_bytes: int | str,
    slices: int | None = None,
    *,
    inverse_rate: Fraction | None = None,
) -> Fraction:
    """Time of a collective of `num_bytes` in all, in µs, by the alpha-beta model.

    Trees and the paths of flows are pipelined: the latency of the deepest path, and the bandwidth time, bytes over
    algbw.  With `slices`, data follows in that many pieces, so the last piece leaves the deepest of h hops
    ``(h - 1) / slices`` bandwidth times later; without, pieces are infinitely small.  Steps wait for each other; see
    `collopt.schedules.steps.cost.step_schedule_time`.

    Parameters
    ----------
    schedule : Forest, Allreduce, StepSchedule, StepAllreduce or FlowSchedule
        What is run.
    topology : Topology
        Where.
    num_bytes : int or str
        As nccl-tests counts them, such as ``"1M"``.
    slices : int, optional
        Pieces that the data of each tree or path is cut into; none for a schedule in steps.
    inverse_rate : Fraction, optional
        The congestion of trees or a flow, where it is known already.

    Returns
    -------
    Fraction

    Raises
    ------
    UnsupportedError
        If `slices` is not a whole number of at least 1, or the schedule has steps, whose data does not flow; if it is
        no schedule, or the bytes are not a positive whole number.

    Examples
    --------
    >>> from collopt.topologies import ring
    >>> two_way = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])
    >>> schedule_time(two_way, ring(2, bandwidth=25, latency=3), 100_000)
    Fraction(4, 1)
    """
    if slices is not None:
        slices = as_whole(slices, "slices")
    if isinstance(schedule, AnyStepSchedule):
        if slices is not None:
            raise UnsupportedError(
                f"slices is {shown(slices)}, but the schedule has steps that wait for each other; leave slices out"
            )
        return step_schedule_time(schedule, topology, num_bytes)
    if not isinstance(schedule, TreeSchedule | FlowSchedule):
        raise UnsupportedError(f"the schedule is {shown(schedule)}; expected one of trees, one in steps or a flow")
    unit = as_bytes(num_bytes) / Fraction(schedule.total_weight)
    if isinstance(schedule, FlowSchedule):
        latency, hops = flow_latency(schedule, topology), int(schedule.transfers.max())
        rate = schedule.inverse_rate(topology) if inverse_rate is None else inverse_rate
    else:
        latency = sum((forest_latency(forest, topology) for forest in schedule.forests), Fraction(0))
        hops = sum(int(forest.heights.max()) for forest in schedule.forests)
        rate = schedule.congestion(topology) if inverse_rate is None else inverse_rate
    waiting = Fraction(0) if slices is None else Fraction(hops - 1, int(slices))
    return latency + unit * rate / NS_PER_US * (1 + waiting)
