"""Predicted times: a run of the schedule, or of too many events one in fewer slices or the alpha-beta model."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property

from ...topologies import RuntimeCosts, Topology
from ..paths.schedule import Schedule, schedule_time
from .run import Rules, TimedSchedule

FEW_EVENTS = 2**16  # some hundredths of a second
MANY_EVENTS = 2**21  # a second


class Predictor:
    """A schedule with the costs of its software, to predict its times for several sizes."""

    def __init__(
        self, schedule: Schedule, topology: Topology, costs: RuntimeCosts, few_events: int = FEW_EVENTS
    ) -> None:
        self._schedule, self._topology, self._costs, self._few = schedule, topology, costs, few_events

    @cached_property
    def _timed(self) -> TimedSchedule | None:
        """The schedule with its transfers, unless they alone, each over one link, are too many events."""
        if int(self._schedule.messages.sum()) > self._few:
            return None
        return TimedSchedule(self._schedule, self._topology, Rules(self._costs))

    def time(self, num_bytes: int) -> Fraction:
        """Time in µs for so many bytes in all; that of a run in fewer slices where it is less than the estimate."""
        timed = self._timed
        slices = None if timed is None else timed.chosen_slices(num_bytes)
        most = 0 if timed is None else self._few // len(timed.transfers.hop_links)
        if timed is not None and slices is not None and slices <= most:
            return timed.run(num_bytes).time
        given = slices if self._schedule.pipelined else None
        estimate = schedule_time(self._schedule, self._topology, num_bytes, given, costs=self._costs)
        return min(estimate, timed.run(num_bytes, most).time) if timed is not None and most else estimate
