"""Simulated times of plans, and the replay of messages by the rules of ASTRA-sim's analytical backend.

Links serve messages in the order in which they come.  What happens at one time happens in the order in which it was
scheduled, as in ASTRA-sim's event queue: an arrival before the link's release, for the same message.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from ...errors import UnsupportedError
from ...planners import Plan
from ...schedules import Collective, as_bytes
from ...schedules.timing.event_loop import heap_pop, heap_push
from ...schedules.timing.message_order import Clock, PieceTimes
from ...schedules.timing.run import Forwarding, Rules, Service, TimedSchedule, Waiting
from ...schedules.transfers import Transfers
from ...support.arrays import IntArray
from ...support.formatting import bandwidth_text, time_text
from ...support.kernels import kernel
from ...support.validation import as_kind
from ...topologies import LINKS_ONLY, RuntimeCosts, Topology
from ...topologies.network.link_costs import CostsName, as_costs
from ..programs.program import check_choice

if TYPE_CHECKING:
    import pandas as pd


SEND, RECEIVE, COMPUTE = range(3)
NONE = -1
PENDING, SCHEDULED, ENDED, FINISH = range(4)
"""Places in `_State.sizes`: events in the heap, events ever scheduled, nodes that ended, and when the last did."""
NS_PER_US = 1000


class Nodes(NamedTuple):
    """Nodes of all ranks, rank by rank and in order of their ids."""

    kinds: IntArray  # int64 (nodes,): `SEND`, `RECEIVE` or `COMPUTE`
    partners: IntArray  # int64 (nodes,): the receive of a send, the send of a receive
    durations: IntArray  # int64 (nodes,): of computations
    hop_starts: IntArray  # int64 (nodes + 1,): a send has hops hop_starts[n], ..., hop_starts[n + 1] - 1
    hop_links: IntArray  # int64 (hops,)
    hop_busy: IntArray  # int64 (hops,): how long the message keeps the link
    hop_times: IntArray  # int64 (hops,): how long it takes to the link's end
    owners: IntArray  # int64 (hops,): the node of each hop
    follower_starts: IntArray  # int64 (nodes + 1,), like `hop_starts`
    followers: IntArray  # int64: nodes that wait for each node


class _State(NamedTuple):
    """State of a replay; events are numbered as they are scheduled.

    An event's target is a hop, whose message arrives at the link's end; a node plus the number of hops, which ends; or
    a link plus the numbers of hops and nodes, which is free again.
    """

    waits: IntArray
    is_posted: npt.NDArray[np.bool_]
    has_come: npt.NDArray[np.bool_]
    is_busy: npt.NDArray[np.bool_]
    first: IntArray
    last: IntArray
    following: IntArray
    times: IntArray
    events: IntArray
    targets: IntArray
    sizes: IntArray


def replay_nodes(nodes: Nodes, num_links: int) -> tuple[int, int]:
    """Run all nodes; return when the last ended, and how many never did."""
    count, hops = len(nodes.kinds), len(nodes.hop_links)
    capacity = 2 * hops + 2 * count
    state = _State(
        waits=np.bincount(nodes.followers, minlength=count).astype(np.int64),
        is_posted=np.zeros(count, dtype=np.bool_),
        has_come=np.zeros(count, dtype=np.bool_),
        is_busy=np.zeros(num_links, dtype=np.bool_),
        first=np.full(num_links, NONE),
        last=np.full(num_links, NONE),
        following=np.full(hops, NONE),
        times=np.empty(capacity, dtype=np.int64),
        events=np.empty(capacity, dtype=np.int64),
        targets=np.empty(capacity, dtype=np.int64),
        sizes=np.zeros(4, dtype=np.int64),
    )
    _replay(nodes, state)
    return int(state.sizes[FINISH]), count - int(state.sizes[ENDED])


@kernel
def _replay(work: Nodes, state: _State) -> None:
    """Run until nothing is scheduled."""
    hops, nodes = len(work.hop_links), len(work.kinds)
    for node in range(nodes):
        if state.waits[node] == 0:
            _issue(work, state, node, 0)
    while state.sizes[PENDING]:
        now, target = state.times[0], state.targets[state.events[0]]
        heap_pop(state.times, state.events, 0, state.sizes[PENDING])
        state.sizes[PENDING] -= 1
        if target < hops:
            _arrive(work, state, target, now)
        elif target < hops + nodes:
            _end(work, state, target - hops, now)
        else:
            _release(work, state, target - hops - nodes, now)


@kernel
def _schedule(state: _State, time: int, target: int) -> None:
    """Schedule an event."""
    number = state.sizes[SCHEDULED]
    state.targets[number] = target
    heap_push(state.times, state.events, 0, state.sizes[PENDING], time, number)
    state.sizes[PENDING] += 1
    state.sizes[SCHEDULED] += 1


@kernel
def _issue(work: Nodes, state: _State, node: int, now: int) -> None:
    """Start a node that waits for nothing more."""
    hops = len(work.hop_links)
    if work.kinds[node] == SEND:
        _enter(work, state, work.hop_starts[node], now)
    elif work.kinds[node] == COMPUTE:
        _schedule(state, now + work.durations[node], hops + node)
    elif state.has_come[work.partners[node]]:
        _schedule(state, now, hops + node)
    else:
        state.is_posted[node] = True


@kernel
def _enter(work: Nodes, state: _State, hop: int, now: int) -> None:
    """Send a message over its next link, or let it wait for those that came before."""
    link = work.hop_links[hop]
    if not state.is_busy[link]:
        _transmit(work, state, hop, now)
    elif state.first[link] == NONE:
        state.first[link] = state.last[link] = hop
    else:
        state.following[state.last[link]] = hop
        state.last[link] = hop


@kernel
def _transmit(work: Nodes, state: _State, hop: int, now: int) -> None:
    """Keep a link busy with a message."""
    link = work.hop_links[hop]
    state.is_busy[link] = True
    _schedule(state, now + work.hop_times[hop], hop)
    _schedule(state, now + work.hop_busy[hop], len(work.hop_links) + len(work.kinds) + link)


@kernel
def _release(work: Nodes, state: _State, link: int, now: int) -> None:
    """Serve the message that waits first."""
    state.is_busy[link] = False
    hop = state.first[link]
    if hop != NONE:
        state.first[link] = state.following[hop]
        _transmit(work, state, hop, now)


@kernel
def _arrive(work: Nodes, state: _State, hop: int, now: int) -> None:
    """Forward a message that arrived as a whole; at its end, end its send, and its receive if that started."""
    node = work.owners[hop]
    if hop + 1 < work.hop_starts[node + 1]:
        _enter(work, state, hop + 1, now)
        return
    receive = work.partners[node]
    state.has_come[node] = True
    _end(work, state, node, now)
    if state.is_posted[receive]:
        _end(work, state, receive, now)


@kernel
def _end(work: Nodes, state: _State, node: int, now: int) -> None:
    """End a node, and start those that waited for nothing else."""
    state.sizes[ENDED] += 1
    state.sizes[FINISH] = now
    for place in range(work.follower_starts[node], work.follower_starts[node + 1]):
        follower = work.followers[place]
        state.waits[follower] -= 1
        if state.waits[follower] == 0:
            _issue(work, state, follower, now)


def simulate(
    plan: Plan,
    size: int | str,
    slices: int | None = None,
    *,
    costs: RuntimeCosts | CostsName | None = None,
    steps: Waiting = "overlap",
    forwarding: Forwarding = "cut-through",
    service: Service = "pipeline",
    clock: Clock = "exact",
) -> Simulation:
    """Simulate a plan on its topology, event by event.

    Equal arguments give equal results.  Raises `UnsupportedError` if an argument is not understood, does not suit the
    plan, or makes for more than 2^26 events; `CertificateError` if the schedule uses links that its topology lacks, or
    its transfers wait for each other in a cycle.

    Parameters
    ----------
    plan : Plan
        With any schedule.
    size : int or str
        Bytes in all, as nccl-tests counts them, such as ``2**30`` or ``"1G"``.
    slices : int, optional
        Pieces that the data of each tree or path is cut into.  By default 64, or fewer for plans of very many transfers
        and where starting a message costs something: W / (E o) for a busiest link that is busy for W and E messages of
        o that a rank starts for each slice.  None for a schedule in steps, whose chunks are its
        pieces.
    costs : RuntimeCosts or {"links", "generic", "fused"}, optional
        What the software adds; those of the topology by default, or none if it states none.  Names are guesses: see
        `collopt.topologies.guessed_costs`.
    steps : {"overlap", "wait"}
        Whether a step's data is sent when it is there, or when all of the step before has come.
    forwarding : {"cut-through", "store-and-forward"}
        Whether switches pass a piece on while it arrives, or when all of it has come.
    service : {"pipeline", "arrival"}
        Whether switches, too, send the piece whose data has the farthest to go, as ranks do, or the one that came
        first.
    clock : {"exact", "ns"}
        Whether times on links are exact, or rounded down to whole ns, as in simulators that count in these.

    Examples
    --------
    Three ranks in a row; the second passes on each of two halves of 12 kB, 0.24 µs each, when it has come:

    >>> import collopt
    >>> row = collopt.Topology.from_links(
    ...     [("a", "b", 25, 1), ("b", "c", 25, 1)], compute="abc", bidirectional=True, name="row"
    ... )
    >>> plan = collopt.plan(row, "broadcast", root="a")
    >>> simulate(plan, 12_000, slices=2)
    <Simulation: broadcast of 12000 bytes on row, 2 slices: 2.72 µs, 4.41 GB/s>
    """
    timed = _timed(plan, costs, steps=steps, forwarding=forwarding, service=service, clock=clock)
    num_bytes = as_bytes(size)
    run = timed.run(num_bytes, slices)
    return Simulation(
        plan.topology,
        plan.collective,
        num_bytes,
        run.slices,
        run.time,
        run.transfers,
        run.times,
        run.starts,
        plan.busbw / plan.algbw,
        timed.rules.costs,
    )


@wraps(simulate, assigned=())
def simulated_time(*arguments: Any, **options: Any) -> float:
    """Return the time of `simulate` in µs; called by `Plan.simulate`, which checks options by the signature."""
    return simulate(*arguments, **options).microseconds


def _timed(plan: Plan, costs: RuntimeCosts | CostsName | None, **rules: Any) -> TimedSchedule:
    """Check a plan and the rules of its simulation, and list its transfers."""
    as_kind(plan, Plan, "the plan")
    for name, kind in (("steps", Waiting), ("forwarding", Forwarding), ("service", Service), ("clock", Clock)):
        check_choice(name, rules[name], get_args(kind))
    if rules["steps"] == "wait" and not plan.schedule.num_steps:
        raise UnsupportedError(
            f"steps is 'wait', but the plan consists of {plan.schedule.parts}, which have none; leave steps out"
        )
    return TimedSchedule(plan.schedule, plan.topology, Rules(as_costs(costs, plan.topology), **rules))


@dataclass(frozen=True, eq=False, repr=False)
class Simulation:
    """Result of a simulation, with all its events.

    Attributes
    ----------
    topology : Topology
    collective : Collective
    num_bytes : int
        As nccl-tests counts them.
    slices : int
        Pieces that each transfer was cut into.
    time : Fraction
        µs until the last byte came.
    transfers : Transfers
    times : PieceTimes
        Of one piece on each hop.
    starts : ndarray of int64, shape (hops, slices)
        When each piece began to enter the link, in ticks.
    bus_factor : Fraction
        `busbw` divided by `algbw`.
    costs : RuntimeCosts
        Of the software.
    """

    topology: Topology
    collective: Collective
    num_bytes: int
    slices: int
    time: Fraction
    transfers: Transfers
    times: PieceTimes
    starts: IntArray
    bus_factor: Fraction
    costs: RuntimeCosts = LINKS_ONLY

    @property
    def microseconds(self) -> float:
        """Time until the last byte arrived."""
        return float(self.time)

    @property
    def algbw(self) -> float:
        """Algorithm bandwidth in GB/s as in nccl-tests: bytes over time."""
        return float(self.num_bytes / (self.time * NS_PER_US))

    @property
    def busbw(self) -> float:
        """Bus bandwidth in GB/s as in nccl-tests; see `collopt.schedules.bus_factor`."""
        return self.algbw * float(self.bus_factor)

    @property
    def link_busy(self) -> pd.DataFrame:
        """One row per link: ``tail``, ``head``, ``bytes``, ``pieces``, ``busy_us``, and ``share`` of the whole time."""
        import pandas as pd

        total = partial(np.bincount, self.transfers.hop_links, minlength=self.topology.num_links)
        busy = total(self._microseconds(self.times.ticks * self.slices))
        return pd.DataFrame(
            {
                "tail": [link.tail for link in self.topology.links],
                "head": [link.head for link in self.topology.links],
                "bytes": total(self._bytes[self.transfers.hop_owners] * self.slices),
                "pieces": total() * self.slices,
                "busy_us": busy,
                "share": busy / self.microseconds,
            }
        )

    def to_frame(self) -> pd.DataFrame:
        """Tabulate the events.

        One row for each piece that entered a link, by time: ``start_us`` and ``end_us``, between which it kept the link
        busy; the link's ``tail`` and ``head``; ``sender`` and ``receiver``, the ranks between which it is on its way;
        the number of the ``transfer`` and of the ``slice``; ``bytes``.
        """
        import pandas as pd

        hops = np.repeat(np.arange(len(self.starts)), self.slices)
        owners = self.transfers.hop_owners[hops]
        starts = self.starts.ravel()
        links, names = self.transfers.hop_links[hops], np.array(self.topology.nodes, dtype=object)
        frame = pd.DataFrame(
            {
                "start_us": self._microseconds(starts),
                "end_us": self._microseconds(starts + self.times.ticks[hops]),
                "tail": names[self.topology.arrays.tails[links]],
                "head": names[self.topology.arrays.heads[links]],
                "sender": names[self.transfers.senders[owners]],
                "receiver": names[self.transfers.receivers[owners]],
                "transfer": owners,
                "slice": np.tile(np.arange(self.slices), len(self.starts)),
                "bytes": self._bytes[owners],
            }
        )
        order = np.lexsort((frame["slice"], frame["transfer"], links, starts))
        return frame.iloc[order].reset_index(drop=True)

    @property
    def _bytes(self) -> npt.NDArray[np.float64]:
        """Bytes of one piece of each transfer."""
        return self.transfers.amounts.astype(np.float64) * float(self.num_bytes * self.transfers.unit / self.slices)

    def _microseconds(self, ticks: IntArray) -> npt.NDArray[np.float64]:
        return ticks.astype(np.float64) * float(self.times.tick)

    def __repr__(self) -> str:
        """One line in angle brackets."""
        costs = "" if self.costs == LINKS_ONLY else f" ({self.costs.label})"
        return (
            f"<Simulation: {self.collective} of {self.num_bytes} bytes on {self.topology.name}, {self.slices} slices: "
            f"{time_text(self.time)}, {bandwidth_text(self.algbw)}{costs}>"
        )
