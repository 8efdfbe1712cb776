"""Discrete-event simulation of transfers that cross links piece by piece.

A link carries one piece at a time, for the hop's *ticks*, and its last bit arrives *delay* later.  Of waiting pieces it
takes the least (piece + key of the transfer, hop), or the first that came; of those that come at one time, the one that
left its last link first.  A piece enters the next link while it arrives, or when it has arrived as a whole.  All times
are integers.  See docs/explanation/programs.md.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..support.arrays import IntArray
from ..support.kernels import kernel, kernel_with


@kernel
def heap_push(heap: IntArray, first: int, size: int, time: int, code: int) -> None:
    """Push an entry onto the binary heap of `size` rows of `heap`, from ``first`` on, ordered by (time, code)."""
    at = size
    while at > 0:
        up = (at - 1) // 2
        if heap[first + up, 0] < time or (heap[first + up, 0] == time and heap[first + up, 1] <= code):
            break
        heap[first + at, 0], heap[first + at, 1] = heap[first + up, 0], heap[first + up, 1]
        at = up
    heap[first + at, 0], heap[first + at, 1] = time, code


@kernel
def heap_pop(heap: IntArray, first: int, size: int) -> None:
    """Pop the first of the `size` rows of the heap at ``first``; see `heap_push`."""
    last = size - 1
    time, code = heap[first + last, 0], heap[first + last, 1]
    at = 0
    while True:
        low = 2 * at + 1
        if low >= last:
            break
        other = low + 1
        if other < last and (
            heap[first + other, 0] < heap[first + low, 0]
            or (heap[first + other, 0] == heap[first + low, 0] and heap[first + other, 1] < heap[first + low, 1])
        ):
            low = other
        if time < heap[first + low, 0] or (time == heap[first + low, 0] and code <= heap[first + low, 1]):
            break
        heap[first + at, 0], heap[first + at, 1] = heap[first + low, 0], heap[first + low, 1]
        at = low
    heap[first + at, 0], heap[first + at, 1] = time, code


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


LINK, TICKS, WAY, OWNER, LEVEL, IS_LAST, SENT = range(7)
"""Columns of hops: link; how long a piece keeps it busy, and is on its way to the next link or its end; transfer, its
key or `IN_TURN`; whether no hop follows; pieces sent."""
FIRST, SIZE, FREE_AT, WAKES, IS_PENDING = range(5)
"""Columns of links: begin and size of the queue; when it is free; whether that is an event; whether it is `PENDING`."""
COME, OVER, PENDING, EVENTS, ARRIVED, QUEUED = range(6)
"""Lists of pieces that came to a link, or to their end, and of links that may send; all are counted, as are entries of
the heap of events, pieces that arrived, and those that came to a link so far."""
IN_TURN = -1


def run_events(network: Network, pieces: int) -> Timeline:
    """Run all transfers, each cut into `pieces`."""
    transfers, lengths = len(network.hop_starts) - 1, np.diff(network.hop_starts)
    hops = np.zeros((len(network.hop_links), 7), dtype=np.int64)
    hops[:, LINK], hops[:, TICKS] = network.hop_links, network.hop_ticks
    hops[:, WAY] = network.hop_ticks + network.hop_delays
    hops[:, OWNER] = np.repeat(np.arange(transfers), lengths)
    hops[:, LEVEL] = network.levels[hops[:, OWNER]]
    if network.in_turn is not None:
        hops[network.in_turn[network.hop_links], LEVEL] = IN_TURN
    hops[network.hop_starts[1:][lengths > 0] - 1, IS_LAST] = 1
    if not network.store:
        before = np.flatnonzero(hops[:, IS_LAST] == 0)
        hops[before, WAY] -= np.minimum(network.hop_ticks[before], network.hop_ticks[before + 1])
    links = np.zeros((network.num_links, 5), dtype=np.int64)
    links[:, FIRST] = _starts(np.bincount(network.hop_links, minlength=network.num_links))[:-1]
    waits = np.repeat(np.bincount(network.after, minlength=transfers).astype(np.int32), pieces)
    followers = network.after[np.argsort(network.before, kind="stable")]
    follower_starts = _starts(np.bincount(network.before, minlength=transfers))
    starts, finish, arrived = _run(hops, links, network.hop_starts, followers, follower_starts, waits, pieces)
    return Timeline(starts.reshape(-1, pieces), int(finish), transfers * pieces - int(arrived))


def _starts(counts: IntArray) -> IntArray:
    """Begins of groups of these sizes, and the end of the last."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


@kernel_with(lambda hops, *arrays: 20 * arrays[-1] * len(hops))
def _run(
    hops: IntArray,
    links: IntArray,
    hop_starts: IntArray,
    followers: IntArray,
    follower_starts: IntArray,
    waits: npt.NDArray[np.int32],
    pieces: int,
) -> tuple[IntArray, int, int]:
    """Run the loop of the module's docstring; return start times of hops, the last end, and the number of arrivals.

    A piece of a hop has code ``hop * pieces + piece``, and a piece of a transfer ``transfer * pieces + piece``.  Codes
    of events are those of hops, whose pieces arrive, and from their number on those of links that are free again.
    Pieces of a hop come and leave in their order, so the queue of a link has at most one entry for each hop.

    Arrays are arguments by themselves: numba would count references to those in tuples at every event.
    """
    jobs, counts = len(hops) * pieces, np.zeros(6, dtype=np.int64)
    starts = np.full(jobs, NOT_SENT, dtype=np.int64)  # Of pieces that wait, their number among all that came
    queues = np.empty((len(hops), 2), dtype=np.int64)
    lists = np.empty((3, max(jobs, len(waits), len(links))), dtype=np.int64)
    events, same_time = np.empty((jobs + len(links), 2), dtype=np.int64), np.empty(jobs + len(links), dtype=np.int32)
    recent = np.full((RECENT_TIMES, 2), NONE, dtype=np.int64)
    now, finish = 0, 0
    # Pieces that wait for nothing are ready at time 0.
    for part in range(len(waits)):
        if waits[part] == 0:
            _start_piece(hop_starts, lists, counts, part // pieces, part % pieces, pieces)
    while True:
        _release(hop_starts, followers, follower_starts, waits, lists, counts, pieces)
        _join_queues(hops, links, queues, starts, lists, counts, pieces)
        _send(hops, links, queues, starts, lists, events, same_time, recent, counts, now, pieces)
        if counts[EVENTS] == 0:
            return starts, finish, counts[ARRIVED]
        # All events of the next time happen at once.
        now = events[0, 0]
        while counts[EVENTS] and events[0, 0] == now:
            if _process_events(hops, links, lists, events, same_time, recent, counts, pieces):
                finish = now


@kernel
def _append(lists: IntArray, counts: IntArray, name: int, entry: int) -> None:
    lists[name, counts[name]] = entry
    counts[name] += 1


@kernel
def _start_piece(
    hop_starts: IntArray, lists: IntArray, counts: IntArray, transfer: int, piece: int, pieces: int
) -> None:
    """Let a ready piece come to its first link, or to its end if its transfer has no links."""
    if hop_starts[transfer] < hop_starts[transfer + 1]:
        _append(lists, counts, COME, hop_starts[transfer] * pieces + piece)
    else:
        _append(lists, counts, OVER, transfer * pieces + piece)


@kernel
def _release(
    hop_starts: IntArray,
    followers: IntArray,
    follower_starts: IntArray,
    waits: npt.NDArray[np.int32],
    lists: IntArray,
    counts: IntArray,
    pieces: int,
) -> None:
    """Release the followers of pieces that came to their end."""
    number = 0
    while number < counts[OVER]:  # Transfers without links are over at once.
        transfer, piece = divmod(lists[OVER, number], pieces)
        number += 1
        for place in range(follower_starts[transfer], follower_starts[transfer + 1]):
            part = followers[place] * pieces + piece
            waits[part] -= 1
            if waits[part] == 0:
                _start_piece(hop_starts, lists, counts, followers[place], piece, pieces)
    counts[ARRIVED] += number
    counts[OVER] = 0


@kernel
def _join_queues(
    hops: IntArray,
    links: IntArray,
    queues: IntArray,
    starts: IntArray,
    lists: IntArray,
    counts: IntArray,
    pieces: int,
) -> None:
    """Let pieces that came wait for their links, behind those of their hop that wait already."""
    for place in range(counts[COME]):
        code = lists[COME, place]
        starts[code] = counts[QUEUED]
        counts[QUEUED] += 1
        hop = code // pieces
        if hops[hop, SENT] == code % pieces:
            _enqueue(hops, links, queues, starts[code], code, pieces)
            _mark_pending(links, lists, counts, hops[hop, LINK])
    counts[COME] = 0


@kernel
def _enqueue(hops: IntArray, links: IntArray, queues: IntArray, came: int, code: int, pieces: int) -> None:
    """Push the first piece of a hop that waits onto the queue of its link."""
    hop, piece = divmod(code, pieces)
    link = hops[hop, LINK]
    key = came if hops[hop, LEVEL] == IN_TURN else piece + hops[hop, LEVEL]
    heap_push(queues, links[link, FIRST], links[link, SIZE], key, code)
    links[link, SIZE] += 1


@kernel
def _mark_pending(links: IntArray, lists: IntArray, counts: IntArray, link: int) -> None:
    """Mark a link as possibly able to send."""
    if not links[link, IS_PENDING]:
        links[link, IS_PENDING] = 1
        _append(lists, counts, PENDING, link)


@kernel
def _send(
    hops: IntArray,
    links: IntArray,
    queues: IntArray,
    starts: IntArray,
    lists: IntArray,
    events: IntArray,
    same_time: npt.NDArray[np.int32],
    recent: IntArray,
    counts: IntArray,
    now: int,
    pieces: int,
) -> None:
    """Send the first piece of each queue whose link is free; where more wait, there is an event when it is free."""
    for place in range(counts[PENDING]):
        link = lists[PENDING, place]
        links[link, IS_PENDING] = 0
        if now >= links[link, FREE_AT]:
            code = queues[links[link, FIRST], 1]
            heap_pop(queues, links[link, FIRST], links[link, SIZE])
            links[link, SIZE] -= 1
            hop, piece = divmod(code, pieces)
            starts[code] = now
            hops[hop, SENT] = piece + 1
            if piece + 1 < pieces and starts[code + 1] != NOT_SENT:
                _enqueue(hops, links, queues, starts[code + 1], code + 1, pieces)
            links[link, FREE_AT] = now + hops[hop, TICKS]
            _schedule(events, same_time, recent, counts, now + hops[hop, WAY], code)
        if links[link, SIZE] and not links[link, WAKES]:
            links[link, WAKES] = 1
            _schedule(events, same_time, recent, counts, links[link, FREE_AT], len(starts) + link)
    counts[PENDING] = 0


@kernel
def _place(time: int) -> int:
    """Place of a time among the recent ones."""
    return (time * SPREAD >> 16) % RECENT_TIMES


@kernel
def _schedule(
    events: IntArray, same_time: npt.NDArray[np.int32], recent: IntArray, counts: IntArray, time: int, code: int
) -> None:
    """Add an event: to another of its time if that was added lately, otherwise to the heap.

    Events of one time are a list, as many links send equal pieces at once; `same_time` has the next of each.  The lists
    to which events were added lately are found by their times, in a table that forgets: a time may have two.
    """
    place = _place(time)
    same_time[code] = NONE
    if recent[place, 0] == time:
        same_time[recent[place, 1]] = code
        recent[place, 1] = code
        return
    recent[place, 0], recent[place, 1] = time, code
    heap_push(events, 0, counts[EVENTS], time, code)
    counts[EVENTS] += 1


@kernel
def _process_events(
    hops: IntArray,
    links: IntArray,
    lists: IntArray,
    events: IntArray,
    same_time: npt.NDArray[np.int32],
    recent: IntArray,
    counts: IntArray,
    pieces: int,
) -> bool:
    """Process the earliest event and those added to it; return whether a piece arrived at the end of its transfer."""
    code, jobs, arrived = events[0, 1], len(hops) * pieces, False
    recent[_place(events[0, 0]), 0] = NONE
    heap_pop(events, 0, counts[EVENTS])
    counts[EVENTS] -= 1
    while code != NONE:
        if code >= jobs:
            links[code - jobs, WAKES] = 0
            _mark_pending(links, lists, counts, code - jobs)
        elif hops[code // pieces, IS_LAST]:
            _append(lists, counts, OVER, hops[code // pieces, OWNER] * pieces + code % pieces)
            arrived = True
        else:
            _append(lists, counts, COME, code + pieces)
        code = same_time[code]
    return arrived
