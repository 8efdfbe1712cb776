"""Discrete-event simulation of transfers that cross links piece by piece.

A link carries one piece at a time, for the hop's *ticks*, and its last bit arrives *delay* later.  Of waiting pieces it
takes the least (piece + key of the transfer, hop), or the first that came.  A piece enters the next link while it
arrives, or when it has arrived as a whole.  All times are integers.  See docs/explanation/programs.md.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..support.arrays import IntArray
from ..support.kernels import kernel, kernel_with


@kernel
def heap_push(times: IntArray, codes: IntArray, first: int, size: int, time: int, code: int) -> None:
    """Push an entry onto the binary heap of `size` entries at ``first``, ordered by (time, code)."""
    at = size
    while at > 0:
        up = (at - 1) // 2
        if times[first + up] < time or (times[first + up] == time and codes[first + up] <= code):
            break
        times[first + at] = times[first + up]
        codes[first + at] = codes[first + up]
        at = up
    times[first + at] = time
    codes[first + at] = code


@kernel
def heap_pop(times: IntArray, codes: IntArray, first: int, size: int) -> None:
    """Pop the first of the `size` entries of the heap at ``first``; see `heap_push`."""
    last = size - 1
    time, code = times[first + last], codes[first + last]
    at = 0
    while True:
        low = 2 * at + 1
        if low >= last:
            break
        other = low + 1
        if other < last and (
            times[first + other] < times[first + low]
            or (times[first + other] == times[first + low] and codes[first + other] < codes[first + low])
        ):
            low = other
        if time < times[first + low] or (time == times[first + low] and code <= codes[first + low]):
            break
        times[first + at] = times[first + low]
        codes[first + at] = codes[first + low]
        at = low
    times[first + at] = time
    codes[first + at] = code


NOT_SENT = -1
NONE = -1
RECENT_TIMES = 2**10
SPREAD = 2654435761  # 2^32 over the golden ratio, which spreads multiples of one number over the places


class Network(NamedTuple):
    """Transfers, their dependencies, and the costs of their hops."""

    hop_starts: IntArray  # int64 (transfers + 1,): transfer t has hops hop_starts[t], ..., hop_starts[t + 1] - 1
    hop_links: IntArray  # int64 (hops,): The link that each hop is on
    hop_ticks: IntArray  # int64 (hops,): how long one piece keeps the link busy
    hop_delays: IntArray  # int64 (hops,): how long each bit is on its way
    levels: IntArray  # int64 (transfers,): At least 0: keys that decide between pieces that wait for the same link
    before: IntArray  # int64 (waits,): Transfer ``after[i]`` waits for transfer ``before[i]``
    after: IntArray  # int64 (waits,)
    num_links: int
    store: bool = False  # Whether a piece enters its next link only when all of it has come
    in_turn: npt.NDArray[np.bool_] | None = None  # bool (links,): those that serve pieces as they come


class Timeline(NamedTuple):
    """Result of a run."""

    starts: IntArray  # int64 (hops, pieces): When each piece began to enter the link of each hop; -1 if it never did
    finish: int  # When the last piece had come
    unfinished: int  # Pieces that never came, for transfers wait for each other in a circle


def run_events(network: Network, pieces: int) -> Timeline:
    """Run all transfers, each cut into `pieces`."""
    transfers = len(network.hop_starts) - 1
    followers = np.bincount(network.before, minlength=transfers)
    plan = _Plan(
        *(network[:4]),
        network.levels,
        np.repeat(np.arange(transfers), np.diff(network.hop_starts)),
        _starts(followers),
        network.after[np.argsort(network.before, kind="stable")],
        _starts(np.bincount(network.hop_links, minlength=network.num_links) * pieces),
        network.store,
        np.zeros(network.num_links, dtype=np.bool_) if network.in_turn is None else network.in_turn,
    )
    waits = np.bincount(network.after, minlength=transfers).astype(np.int32)
    starts, finish, come = _run(plan, np.repeat(waits, pieces), pieces)
    return Timeline(starts.reshape(-1, pieces), int(finish), transfers * pieces - int(come))


def _starts(counts: IntArray) -> IntArray:
    """Begins of groups of these sizes, and the end of the last."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


class _Plan(NamedTuple):
    """Constants of a run: the network, with followers by transfer and space for queues by link."""

    hop_starts: IntArray
    hop_links: IntArray
    hop_ticks: IntArray
    hop_delays: IntArray
    levels: IntArray
    owners: IntArray
    follower_starts: IntArray
    followers: IntArray
    queue_starts: IntArray
    store: bool
    in_turn: npt.NDArray[np.bool_]


class _State(NamedTuple):
    """State of a run.

    Events of one time are a list: many links send equal pieces at once, and the heap of times has one entry for them.
    The lists to which events were added lately are found by their times, in a table that forgets: a time may have two.

    A piece of a hop has code ``hop * pieces + piece``, and a piece of a transfer ``transfer * pieces + piece``.  Codes
    of events are those of hops for arrivals at their links; as many more for arrivals at the far end of a last hop; and
    from twice that on, those of links that are idle again.
    """

    starts: IntArray
    waits: npt.NDArray[np.int32]
    queue_keys: IntArray
    queue_codes: IntArray
    queue_sizes: IntArray
    idle: npt.NDArray[np.bool_]
    times: IntArray
    codes: IntArray
    same_time: npt.NDArray[np.int32]  # the next event of the list that an event is in
    recent_times: IntArray
    recent_codes: IntArray
    pending: IntArray
    is_pending: npt.NDArray[np.bool_]
    ready: IntArray
    sizes: IntArray


EVENTS, PENDING, READY, ARRIVED = range(4)
"""Places in `_State.sizes`: entries of `times`, of `pending` (links that may be able to send) and `ready`; ends."""


@kernel_with(lambda plan, _, pieces: 20 * pieces * len(plan.hop_links))
def _run(plan: _Plan, waits: npt.NDArray[np.int32], pieces: int) -> tuple[IntArray, int, int]:
    """Run the loop of the module's docstring; return start times of hops, the last end, and the number of arrivals."""
    jobs, links, parts = len(plan.hop_links) * pieces, len(plan.queue_starts) - 1, len(waits)
    state = _State(
        np.full(jobs, NOT_SENT, dtype=np.int64),
        waits,
        np.empty(jobs, dtype=np.int64),
        np.empty(jobs, dtype=np.int64),
        np.zeros(links, dtype=np.int64),
        np.ones(links, dtype=np.bool_),
        np.empty(jobs + links, dtype=np.int64),
        np.empty(jobs + links, dtype=np.int64),
        np.empty(2 * jobs + links, dtype=np.int32),
        np.full(RECENT_TIMES, NONE, dtype=np.int64),
        np.empty(RECENT_TIMES, dtype=np.int64),
        np.empty(links, dtype=np.int64),
        np.zeros(links, dtype=np.bool_),
        np.empty(parts, dtype=np.int64),
        np.zeros(4, dtype=np.int64),
    )
    sizes, now, finish = state.sizes, 0, 0
    # Pieces that wait for nothing are ready at time 0.
    for part in range(parts):
        if waits[part] == 0:
            state.ready[sizes[READY]] = part
            sizes[READY] += 1
    while True:
        # Ready pieces join the queues of their first links.
        while sizes[READY]:
            sizes[READY] -= 1
            _start_piece(plan, state, state.ready[sizes[READY]], now, pieces)
        # Idle links with a queue send.
        for place in range(sizes[PENDING]):
            state.is_pending[state.pending[place]] = False
            _send(plan, state, state.pending[place], now, pieces)
        sizes[PENDING] = 0
        if sizes[EVENTS] == 0:
            return state.starts, finish, sizes[ARRIVED]
        # All events of the next time happen at once.
        now = state.times[0]
        while sizes[EVENTS] and state.times[0] == now:
            if _process_events(plan, state, now, pieces):
                finish = now


@kernel
def _start_piece(plan: _Plan, state: _State, part: int, now: int, pieces: int) -> None:
    """Enqueue a ready piece for its first link, or complete it if its transfer has no links."""
    transfer, piece = divmod(part, pieces)
    hop = plan.hop_starts[transfer]
    if hop == plan.hop_starts[transfer + 1]:
        _complete_piece(plan, state, part, pieces)
    else:
        _enqueue(plan, state, hop * pieces + piece, now, pieces)


@kernel
def _complete_piece(plan: _Plan, state: _State, part: int, pieces: int) -> None:
    """Record the arrival of a piece, and release its followers."""
    state.sizes[ARRIVED] += 1
    transfer, piece = divmod(part, pieces)
    for place in range(plan.follower_starts[transfer], plan.follower_starts[transfer + 1]):
        follower = plan.followers[place] * pieces + piece
        state.waits[follower] -= 1
        if state.waits[follower] == 0:
            state.ready[state.sizes[READY]] = follower
            state.sizes[READY] += 1


@kernel
def _enqueue(plan: _Plan, state: _State, code: int, now: int, pieces: int) -> None:
    """Enqueue a piece of a hop for its link."""
    hop, piece = divmod(code, pieces)
    link, key = plan.hop_links[hop], piece + plan.levels[plan.owners[hop]]
    if plan.in_turn[link]:
        key = now
    heap_push(state.queue_keys, state.queue_codes, plan.queue_starts[link], state.queue_sizes[link], key, code)
    state.queue_sizes[link] += 1
    _mark_pending(state, link)


@kernel
def _mark_pending(state: _State, link: int) -> None:
    """Mark a link as possibly able to send."""
    if not state.is_pending[link]:
        state.is_pending[link] = True
        state.pending[state.sizes[PENDING]] = link
        state.sizes[PENDING] += 1


@kernel
def _send(plan: _Plan, state: _State, link: int, now: int, pieces: int) -> None:
    """Send the first piece of a link's queue, if the link is idle and there is one."""
    size, first = state.queue_sizes[link], plan.queue_starts[link]
    if size == 0 or not state.idle[link]:
        return
    code = state.queue_codes[first]
    heap_pop(state.queue_keys, state.queue_codes, first, size)
    state.queue_sizes[link] -= 1
    state.idle[link] = False
    state.starts[code] = now
    hop, jobs = code // pieces, len(state.starts)
    busy, arrival = now + plan.hop_ticks[hop], now + plan.hop_delays[hop]
    _schedule(state, busy, 2 * jobs + link)
    if hop + 1 == plan.hop_starts[plan.owners[hop] + 1]:
        arrival, code = arrival + plan.hop_ticks[hop], code + jobs
    else:
        ahead = 0 if plan.store else min(plan.hop_ticks[hop], plan.hop_ticks[hop + 1])
        arrival, code = arrival + plan.hop_ticks[hop] - ahead, code + pieces
    _schedule(state, arrival, code)


@kernel
def _place(time: int) -> int:
    """Place of a time among the recent ones."""
    return (time * SPREAD >> 16) % RECENT_TIMES


@kernel
def _schedule(state: _State, time: int, code: int) -> None:
    """Add an event: to another of its time if that was added lately, otherwise to the heap."""
    place = _place(time)
    first = state.recent_codes[place]
    if state.recent_times[place] == time:
        state.same_time[code] = state.same_time[first]
        state.same_time[first] = code
        return
    state.recent_times[place] = time
    state.recent_codes[place] = code
    state.same_time[code] = NONE
    heap_push(state.times, state.codes, 0, state.sizes[EVENTS], time, code)
    state.sizes[EVENTS] += 1


@kernel
def _process_events(plan: _Plan, state: _State, now: int, pieces: int) -> bool:
    """Process the earliest event and those added to it; return whether a piece arrived at the end of its transfer."""
    code, jobs, arrived = state.codes[0], len(state.starts), False
    heap_pop(state.times, state.codes, 0, state.sizes[EVENTS])
    state.sizes[EVENTS] -= 1
    state.recent_times[_place(now)] = NONE
    while code != NONE:
        if code < jobs:
            _enqueue(plan, state, code, now, pieces)
        elif code < 2 * jobs:
            hop, piece = divmod(code - jobs, pieces)
            _complete_piece(plan, state, plan.owners[hop] * pieces + piece, pieces)
            arrived = True
        else:
            state.idle[code - 2 * jobs] = True
            _mark_pending(state, code - 2 * jobs)
        code = state.same_time[code]
    return arrived
