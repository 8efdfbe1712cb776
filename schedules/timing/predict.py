"""Predicted times: a run of the schedule, or of too many events one of its first slices, of fewer, or an estimate."""

import math
from fractions import Fraction
from functools import cached_property

from ...topologies import RuntimeCosts, Topology
from ..schedule import Schedule, schedule_time
from .run import Rules, TimedSchedule

FEW_EVENTS = 2**16  # some hundredths of a second
MANY_EVENTS = 2**19  # half a second
FIRST_EVENTS = 2**13  # of the run that tells how many slices to run
FIRST_SLICES = 4  # that are run where all take more than a few events
MOST_EVENTS = 2**20  # of these first slices
WORTH = 3  # times as many slices have to be run otherwise
BUSY = Fraction(19, 20)  # of a run that the busiest link has to be busy, so that more slices tell hardly more


class Predictor:
    """A schedule with the costs of its software, to predict its times for several sizes."""

    def __init__(
        self, schedule: Schedule, topology: Topology, costs: RuntimeCosts, few_events: int = FEW_EVENTS
    ) -> None:
        self._schedule, self._topology, self._costs, self._few = schedule, topology, costs, few_events

    @cached_property
    def _timed(self) -> TimedSchedule | None:
        """The schedule with its transfers, unless they alone, each over one link, are too many events."""
        if int(self._schedule.messages.sum()) > max(self._few, MOST_EVENTS):
            return None
        return TimedSchedule(self._schedule, self._topology, Rules(self._costs))

    def time(self, num_bytes: int) -> Fraction:
        """Time in µs for so many bytes in all.

        The first slices are run, as many as keep the busiest link busy for nearly all of the run if there are so many
        and they are few events, and the others follow at the pace of that link.  If it was not busy for most of a run
        of many events, all data is run in so many larger slices.
        """
        timed = self._timed
        slices = None if timed is None else timed.chosen_slices(num_bytes)
        if timed is not None and slices is not None:
            hops = len(timed.transfers.hop_links)
            limit = min(slices, max(self._few // hops, min(FIRST_SLICES, MOST_EVENTS // hops)))
            if limit == slices or limit >= FIRST_SLICES:
                return self._of_first_slices(timed, num_bytes, slices, limit)
        count = slices if self._schedule.pipelined else None
        return schedule_time(self._schedule, self._topology, num_bytes, count, costs=self._costs)

    def _of_first_slices(self, timed: TimedSchedule, num_bytes: int, slices: int, limit: int) -> Fraction:
        """Run some of the slices, at first so few that their run tells how many are enough."""
        wire = timed.wire_time * num_bytes / slices
        few_slices = max(FIRST_SLICES, FIRST_EVENTS // len(timed.transfers.hop_links))
        if WORTH * few_slices <= limit:
            idle = self._begun(timed, num_bytes, slices, few_slices) - few_slices * wire
            enough = math.ceil(idle * BUSY / (1 - BUSY) / wire)
            if enough <= few_slices:
                return self._costs.launch + idle + slices * wire
            limit = min(limit, enough)
        if limit == slices:
            return timed.run(num_bytes).time
        begun = self._begun(timed, num_bytes, slices, limit)
        if 2 * limit * wire >= begun:
            return self._costs.launch + begun + (slices - limit) * wire
        return timed.run(num_bytes, limit).time

    def _begun(self, timed: TimedSchedule, num_bytes: int, slices: int, count: int) -> Fraction:
        """Time in µs of so many of the slices, after the launch."""
        return timed.run(num_bytes * Fraction(count, slices), count).time - self._costs.launch
