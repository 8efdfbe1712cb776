"""Discrete-event replay of messages that networks store and forward, by the rules of ASTRA-sim's analytical backend.

Links serve messages in the order in which they come.  What happens at one time happens in the order in which it was
scheduled, as in ASTRA-sim's event queue: an arrival before the link's release, for the same message.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...schedules.timing.event_loop import heap_pop, heap_push
from ...support.arrays import IntArray
from ...support.kernels import kernel

SEND, RECEIVE, COMPUTE = range(3)
NONE = -1


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


PENDING, SCHEDULED, ENDED, FINISH = range(4)
"""Places in `_State.sizes`: events in the heap, events ever scheduled, nodes that ended, and when the last did."""


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
