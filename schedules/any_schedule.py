"""What schedules of trees, schedules in steps and flows have in common, so that a plan can hold any of them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ..support.arrays import IntArray
from ..topologies import Topology
from .flows.schedule import FlowSchedule
from .flows.verify import verified_flow_loads
from .paths.congestion import congestion
from .steps.allreduce import AnyStepSchedule
from .steps.verify import verified_step_schedule_loads
from .trees.allreduce import TreeSchedule
from .trees.verify import verified_schedule_loads

__all__ = ["AnySchedule", "rate_of_loads", "verified_loads"]


AnySchedule = TreeSchedule | AnyStepSchedule | FlowSchedule
"""All schedules; each has `num_ranks`, `total_weight` and `link_loads`."""


def verified_loads(schedule: AnySchedule, topology: Topology) -> IntArray:
    """Check a schedule and add up what it puts on every link.

    Parameters
    ----------
    schedule : Forest, Allreduce, StepSchedule, StepAllreduce or FlowSchedule
        Trusted in nothing.
    topology : Topology
        Trusted: it was checked when it was made.

    Returns
    -------
    ndarray of int64, shape (links,) or (steps, links)
        Of trees, copies in multiples of ``1 / schedule.trees_per_root`` units of data.  Of steps, chunks in each step,
        as `StepSchedule.link_loads` counts them; of an allreduce, first those of the reduction and then those of the
        broadcast, each in units of its own chunks.  Of a flow, chunks.

    Raises
    ------
    CertificateError
        Naming the first thing that is wrong.
    """
    if isinstance(schedule, AnyStepSchedule):
        return np.concatenate(verified_step_schedule_loads(schedule, topology))
    if isinstance(schedule, FlowSchedule):
        return verified_flow_loads(schedule, topology)
    return verified_schedule_loads(schedule, topology)


def rate_of_loads(loads: IntArray, schedule: AnySchedule, topology: Topology) -> Fraction:
    """Work out from a schedule's loads how fast it is.

    Parameters
    ----------
    loads : ndarray of int64
        As from `verified_loads`.
    schedule : Forest, Allreduce, StepSchedule, StepAllreduce or FlowSchedule
        Says only what the loads count.
    topology : Topology
        Whose links carry them.

    Returns
    -------
    Fraction
        1/x, in 1/(GB/s): ns per byte of a shard of weight 1.  Of steps, the sum of what they take one after the other.

    Examples
    --------
    Two ranks that exchange their shards over links of 25 GB/s:

    >>> from collopt.schedules import StepSchedule
    >>> from collopt.topologies import complete
    >>> exchange = StepSchedule.from_sends(2, 1, [(0, 0, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0))])
    >>> pair = complete(2, bandwidth=25)
    >>> rate_of_loads(verified_loads(exchange, pair), exchange, pair)
    Fraction(1, 25)
    """
    if isinstance(schedule, FlowSchedule):
        return congestion(loads, schedule.chunks_per_unit, topology)
    if not isinstance(schedule, AnyStepSchedule):
        return congestion(loads, schedule.trees_per_root, topology)
    units = [part.chunks_per_shard for part in schedule.schedules for _ in range(part.num_steps)]
    steps = (congestion(row, unit, topology) for row, unit in zip(loads, units, strict=True))
    return sum(steps, Fraction(0))
