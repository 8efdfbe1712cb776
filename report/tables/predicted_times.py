"""Predicted times for many sizes, at the price of one where the model is a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...schedules import as_bytes, schedule_time

if TYPE_CHECKING:
    from ...planners import Plan

MOST_WORK = 2**30
"""Ranks, times trees, times hops of the highest: adding up latencies takes about a nanosecond for each."""
NS_PER_US = 1000


def predicted_times(plan: Plan, sizes: Sequence[int | str]) -> list[float]:
    """Predict times as `Plan.estimate` does.

    Units: result in µs.

    >>> import collopt
    >>> plan = collopt.plan(collopt.topologies.ring(4, bandwidth=25, latency=1), "allgather")
    >>> predicted_times(plan, ["1K", 10**6]) == [plan.estimate("1K"), plan.estimate(10**6)]
    True
    """
    if not plan.schedule.pipelined:
        return [plan.estimate(size) for size in sizes]
    # Latency does not depend on the size, and the rest is proportional to it.
    first, *others = map(as_bytes, sizes)
    start = schedule_time(plan.schedule, plan.topology, first, inverse_rate=plan.inverse_rate)
    per_byte = 1 / (plan.algbw * NS_PER_US)
    return [float(start), *(float(start + (size - first) * per_byte) for size in others)]


def is_predictable(plan: Plan) -> bool:
    """Tell whether `predicted_times` takes seconds, not the minutes that latencies of very many trees take."""
    trees = plan.schedule.num_trees
    return not trees or plan.topology.num_ranks * trees * plan.heights.highest <= MOST_WORK
