"""Order in which the ranks of a plan start their messages.

It is that of a simulation in which switches store messages, and send them as they come.
"""

from __future__ import annotations

import numpy as np

from ...planners import Plan
from ...schedules.timing.run import Rules, TimedSchedule
from ...support.arrays import IntArray


def send_order(plan: Plan, num_bytes: int, slices: int) -> tuple[IntArray, IntArray]:
    """Transfers that cross links, and their slices, by the time at which each enters its first link.

    Slices of one step follow one another.
    """
    timed = TimedSchedule(plan.schedule, plan.topology, Rules(forwarding="store-and-forward", service="arrival"))
    run = timed.run(num_bytes, slices if plan.schedule.pipelined else None)
    crossing = np.flatnonzero(np.diff(run.transfers.hop_starts))
    starts = run.starts[run.transfers.hop_starts[crossing]]
    starts = np.broadcast_to(starts, (len(crossing), slices))
    transfers, pieces = np.repeat(crossing, slices), np.tile(np.arange(slices), len(crossing))
    order = np.lexsort((pieces, transfers, starts.reshape(-1)))
    return transfers[order], pieces[order]
