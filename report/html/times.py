"""Predicted times for many sizes, at the price of one where the model is a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...schedules import AnyStepSchedule

if TYPE_CHECKING:
    from ...planners import Plan

__all__ = ["predicted_times"]

MOST_WORK = 2**30
"""Ranks, times trees, times hops of the highest: adding up latencies takes about a nanosecond for each."""
NS_PER_US = 1000


def predicted_times(plan: Plan, sizes: Sequence[int]) -> list[float]:
    """Predict times as `Plan.estimate` does.

    Parameters
    ----------
    plan : Plan
        One that has been verified.
    sizes : sequence of int
        Bytes in all, at least one.

    Returns
    -------
    list of float
        In µs, one for each size; none at all where latencies of the trees would take minutes to add up.

    Examples
    --------
    >>> import collopt
    >>> plan = collopt.plan(collopt.topologies.ring(4, bandwidth=25, latency=1), "allgather")
    >>> predicted_times(plan, [10**3, 10**6]) == [plan.estimate(10**3), plan.estimate(10**6)]
    True
    """
    if isinstance(plan.schedule, AnyStepSchedule):
        return [plan.estimate(size) for size in sizes]
    if plan.has_trees and plan.topology.num_ranks * plan.trees.num_trees * plan.heights.highest > MOST_WORK:
        return []
    # Latency does not depend on the size, and the rest is proportional to it.
    first, per_byte = plan.estimate(sizes[0]), 1 / (plan.algbw * NS_PER_US)
    return [first + float((size - sizes[0]) * per_byte) for size in sizes]
