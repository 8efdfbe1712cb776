"""Predicted times: a run of the schedule, or of too many events one of its first slices, of fewer, or an estimate."""

from fractions import Fraction
from functools import cached_property

from ...topologies import RuntimeCosts, Topology
from ...topologies.network.assumed_costs import timed_network
from ..paths.schedule import Schedule, schedule_time
from .run import Rules, TimedSchedule

FEW_EVENTS = 2**16  # some hundredths of a second
MANY_EVENTS = 2**19  # half a second
FIRST_SLICES = 4  # that are run where all take more than a few events
MOST_EVENTS = 2**20  # of these first slices


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

        Where all slices are too many events, the first ones are run, and the others follow at the pace of the busiest
        link if it was busy for most of that run; if it was not, all data is run in so many larger slices.
        """
        timed = self._timed
        slices = None if timed is None else timed.chosen_slices(num_bytes)
        if timed is not None and slices is not None:
            hops = len(timed.transfers.hop_links)
            most = max(self._few // hops, min(FIRST_SLICES, MOST_EVENTS // hops))
            if slices <= most:
                return timed.run(num_bytes).time
            if most >= FIRST_SLICES:
                return self._of_many_slices(timed, num_bytes, Fraction(most, slices))
        given = slices if self._schedule.pipelined else None
        return schedule_time(self._schedule, self._topology, num_bytes, given, costs=self._costs)

    def _of_many_slices(self, timed: TimedSchedule, num_bytes: int, part: Fraction) -> Fraction:
        """Run a part of the slices."""
        wire, count = timed.wire_time * num_bytes, int(part * timed.chosen_slices(num_bytes))
        latency = self._schedule.latency(timed_network(self._topology, self._costs))
        if part * wire >= latency:
            begun = timed.run(num_bytes * part, count).time
            if 2 * part * wire >= begun - self._costs.launch:
                return begun + (1 - part) * wire
        return timed.run(num_bytes, count).time
