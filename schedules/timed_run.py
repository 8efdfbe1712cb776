"""Runs of a schedule, event by event, and the prediction of its time, from fewer slices where all are too many."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import CertificateError, UnsupportedError
from ..support.arrays import IntArray
from ..support.validation import as_whole
from ..topologies import LINKS_ONLY, RuntimeCosts, Topology, reached_network
from .message_order import Clock, PieceTimes, merged, ordered_transfers, piece_times, transfers_ahead, urgency_keys
from .schedule import DEFAULT_SLICES, NS_PER_US, Schedule, schedule_time
from .transfers import Transfers, add_step_gates, congestion

if TYPE_CHECKING:
    from .event_loop import Network


Waiting = Literal["overlap", "wait"]
Forwarding = Literal["cut-through", "store-and-forward"]
Service = Literal["pipeline", "arrival"]

LEAST_SLICE = 4096  # bytes, below which slices are not chosen
MAX_EVENTS = 2**26  # About 3 GB while the simulation runs
FEW_EVENTS = 2**18  # some hundredths of a second
MANY_EVENTS = 2**21  # half a second
LEAST_SLICES = 4  # that tell the time of more, where all take more than a few events
MOST_EVENTS = 2**20  # of these


class Rules(NamedTuple):
    """How ranks and switches behave."""

    costs: RuntimeCosts = LINKS_ONLY
    steps: Waiting = "overlap"  # send a step's data when it is there, or when all of the step before has come
    forwarding: Forwarding = "cut-through"  # whether switches pass a piece on while it arrives
    service: Service = (
        "pipeline"  # switches send the piece with the farthest to go, as ranks do, or the first that came
    )
    clock: Clock = "exact"  # whether times on links are rounded down to whole ns


class Run(NamedTuple):
    """Result of a run."""

    time: Fraction  # µs until the last byte came
    slices: int
    transfers: Transfers
    times: PieceTimes
    starts: IntArray  # int64 (hops, slices): when each piece began to enter the link, in ticks


class TimedTransfers:
    """Transfers, to be run for several sizes; those that are `pipelined` may be cut into slices.

    `topology` has the bandwidths that data reaches; see `reached_network`.
    """

    def __init__(self, transfers: Transfers, topology: Topology, rules: Rules, *, pipelined: bool) -> None:
        self.transfers = transfers
        self.topology = topology
        self.rules = rules
        self.pipelined = pipelined

    def run(self, num_bytes: int | Fraction, slices: int | None = None) -> Run:
        """Run with so many bytes in all, in slices as `simulate` takes them."""
        transfers = self.transfers
        count = self.chosen_slices(num_bytes) if slices is None else self._checked(slices)
        times = piece_times(transfers, self.topology, num_bytes, count, self.rules.costs, self.rules.clock)
        order = np.arange(len(transfers.senders))
        if self.rules.service == "arrival":
            # Ranks start one after the other, which decides what comes first of what comes at one time.
            order = np.argsort(transfers.senders, kind="stable")
        parts = [order]
        if self.rules.steps == "wait":
            order = order[np.argsort(transfers.levels[order], kind="stable")]
            parts = np.split(order, np.flatnonzero(np.diff(transfers.levels[order])) + 1)
        starts = np.empty((len(transfers.hop_links), count), dtype=np.int64)
        now = 0
        for part in parts:
            now = _run_part(self, times, part, count, now, starts)
        return Run(self.rules.costs.launch + now * times.tick, count, transfers, times, starts)

    def chosen_slices(self, num_bytes: int | Fraction) -> int:
        """Number of slices: as many as ranks can start while the busiest link is busy, W / (E o), where starting costs.

        With a link that is busy for W, and E messages of o each that one rank starts for every slice, more slices make
        the pipeline fill sooner until starting them takes longer than W.  None is smaller than 4 KiB; there are at
        most 64.
        """
        if not self.pipelined:
            return 1
        limit = max(1, min(DEFAULT_SLICES, MAX_EVENTS // len(self.transfers.hop_links)))
        if not self.rules.costs.send:
            return limit
        smallest = num_bytes * self.transfers.unit * int(self.transfers.amounts.min()) / LEAST_SLICE
        by_starts = self.wire_time * num_bytes / (self._messages * self.rules.costs.send)
        return max(1, math.floor(min(by_starts, smallest, Fraction(limit))))

    def keys(self, times: PieceTimes, slices: int) -> IntArray:
        """Keys of transfers by which links choose among slices; see `urgency_keys`.  Steps keep their order."""
        transfers = self.transfers
        return urgency_keys(transfers, times, slices, self._ahead) if self.pipelined else transfers.levels

    @cached_property
    def in_turn(self) -> npt.NDArray[np.bool_]:
        """Links of switches; those that stand for the software of ranks follow those of the network."""
        tails = self.topology.arrays.tails
        return np.concatenate([tails >= self.topology.num_ranks, np.zeros(self.topology.num_ranks, dtype=np.bool_)])

    @cached_property
    def _ahead(self) -> IntArray:
        return transfers_ahead(self.transfers)

    @cached_property
    def wire_time(self) -> Fraction:
        """µs for each byte in all that the busiest link is busy."""
        loads = self.transfers.link_loads(self.topology.num_links)
        return congestion(loads, 1, self.topology) * self.transfers.unit / NS_PER_US

    @cached_property
    def _messages(self) -> int:
        """Most messages that a rank starts for one slice."""
        sent = np.diff(self.transfers.hop_starts) > 0
        return int(np.bincount(self.transfers.senders[sent]).max())

    def _checked(self, slices: int) -> int:
        """Validate the number of pieces of a transfer."""
        hops, slices = len(self.transfers.hop_links), as_whole(slices, "slices")
        if not self.pipelined:
            raise UnsupportedError(f"slices is {slices}, but the plan's steps send chunks whole; leave slices out")
        if slices * hops > MAX_EVENTS:
            raise UnsupportedError(
                f"slices is {slices}, which makes {slices * hops} events; expected at most {MAX_EVENTS // hops}, "
                f"for {MAX_EVENTS} events"
            )
        return slices


class TimedSchedule(TimedTransfers):
    """A schedule with its transfers, to be run for several sizes."""

    def __init__(self, schedule: Schedule, topology: Topology, rules: Rules) -> None:
        transfers = ordered_transfers(schedule, topology)
        if not schedule.pipelined:
            transfers = in_steps(transfers, rules)
        super().__init__(transfers, reached_network(topology, rules.costs), rules, pipelined=schedule.pipelined)


def in_steps(transfers: Transfers, rules: Rules) -> Transfers:
    """Merge the sends of a step where messages cost something, and keep the order of steps on links."""
    if rules.costs.send:
        transfers = merged(transfers)
    # Steps that are waited for keep their order by themselves.
    return transfers if rules.steps == "wait" else add_step_gates(transfers)


def _run_part(timed: TimedTransfers, times: PieceTimes, part: IntArray, slices: int, now: int, starts: IntArray) -> int:
    """Run some of the transfers from a time on; record their starts, and return the end of the last."""
    from .event_loop import run_events

    network, hops, kept = _network(timed, times, part, slices)
    timeline = run_events(network, slices)
    if timeline.unfinished:
        raise CertificateError(
            f"{timeline.unfinished} of {len(part) * slices} pieces never start, for transfers of the schedule wait for "
            "each other in a circle"
        )
    starts[hops] = timeline.starts[kept] + now
    return now + timeline.finish


def _network(
    timed: TimedTransfers, times: PieceTimes, part: IntArray, slices: int
) -> tuple[Network, IntArray, IntArray]:
    """Make the events' network of some transfers; also return their hops, and where the network has these.

    Where starting a message takes time, a hop on a link of the sending rank's own goes ahead of its hops.
    """
    from .event_loop import Network

    transfers, links = timed.transfers, timed.topology.num_links
    store = timed.rules.forwarding == "store-and-forward"
    lengths = np.diff(transfers.hop_starts)[part]
    before = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    hops = np.repeat(transfers.hop_starts[part] - before[:-1], lengths) + np.arange(before[-1])
    # Switches start nothing, and a rank sends itself no message.
    started = (lengths > 0) & (transfers.senders[part] < timed.topology.num_ranks) & (times.send + times.alpha > 0)
    after = before + np.concatenate([[0], np.cumsum(started)])
    kept = np.arange(before[-1]) + np.repeat(np.cumsum(started), lengths)
    first, last = after[:-1][started], kept[before[1:][lengths > 0] - 1]
    columns = np.zeros((3, after[-1]), dtype=np.int64)
    columns[:, kept] = transfers.hop_links[hops], times.ticks[hops], times.delays[hops]
    # The link brings nothing else until the receiver has added the piece.
    columns[1, last] += times.adding[part][lengths > 0]
    # A link takes a piece up while it comes, but not before it is started.
    taken_early = 0 if store else np.minimum(times.send, columns[1, first + 1])
    columns[0, first] = links + transfers.senders[part][started]
    columns[1, first], columns[2, first] = times.send, times.alpha + taken_early
    place = np.full(len(transfers.senders), -1, dtype=np.int64)
    place[part] = np.arange(len(part))
    both = (place[transfers.before] >= 0) & (place[transfers.after] >= 0)
    hop_links, ticks, delays = columns
    network = Network(
        after,
        hop_links,
        ticks,
        delays,
        timed.keys(times, slices)[part],
        place[transfers.before[both]],
        place[transfers.after[both]],
        links + timed.topology.num_ranks,
        store,
        timed.in_turn if timed.rules.service == "arrival" else None,
    )
    return network, hops, kept


class Predictor:
    """A schedule with the costs of its software, to predict its times for several sizes."""

    def __init__(self, schedule: Schedule, topology: Topology, costs: RuntimeCosts) -> None:
        self._schedule, self._topology, self._costs = schedule, topology, costs
        self._times: dict[tuple[int, int], Fraction] = {}  # of runs, by bytes and slices

    @cached_property
    def _timed(self) -> TimedSchedule:
        return TimedSchedule(self._schedule, self._topology, Rules(self._costs))

    def time(self, num_bytes: int, few_events: int = FEW_EVENTS) -> Fraction:
        """Time in µs for so many bytes in all: that of the run, if it has few events.

        Otherwise the data is run in fewer, larger slices, and in half as many.  What these take more than so many would
        is in proportion to the size of a slice, as the pipeline fills and drains with one for each hop.
        """
        slices = None
        # Transfers alone, each over one link, may be too many events.
        if int(self._schedule.messages.sum()) <= max(few_events, MOST_EVENTS):
            timed, slices = self._timed, self._timed.chosen_slices(num_bytes)
            hops = len(timed.transfers.hop_links)
            count = min(slices, max(few_events // hops, min(LEAST_SLICES, MOST_EVENTS // hops)))
            if count == slices:
                return self._run(num_bytes, count)
            if count >= LEAST_SLICES:
                time, longer = self._run(num_bytes, count), self._run(num_bytes, count // 2)
                share = (Fraction(1, count) - Fraction(1, slices)) / (Fraction(1, count // 2) - Fraction(1, count))
                minimum = self._costs.launch + timed.wire_time * num_bytes
                return max(time - (max(longer, time) - time) * share, minimum)
        if not self._schedule.pipelined:
            slices = None
        return schedule_time(self._schedule, self._topology, num_bytes, slices, costs=self._costs)

    def _run(self, num_bytes: int, slices: int) -> Fraction:
        """Time of all data in so many slices."""
        if (num_bytes, slices) not in self._times:
            count = slices if self._schedule.pipelined else None
            self._times[num_bytes, slices] = self._timed.run(num_bytes, count).time
        return self._times[num_bytes, slices]
