"""The event loop, on networks small enough to follow by hand."""

import heapq
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collopt.schedules.event_loop import Network, heap_pop, heap_push, run_events


def network(
    *hops: list[tuple[int, int, int]], waits: tuple[tuple[int, int], ...] = (), levels: list[int] | None = None
) -> Network:
    """Transfers as lists of hops (link, ticks, delay)."""
    flat = np.array([hop for transfer in hops for hop in transfer], dtype=np.int64).reshape(-1, 3)
    pairs = np.array(waits, dtype=np.int64).reshape(-1, 2)
    return Network(
        np.cumsum([0, *map(len, hops)]),
        *(column.copy() for column in flat.T),
        np.zeros(len(hops), dtype=np.int64) if levels is None else np.array(levels),
        pairs[:, 0].copy(),
        pairs[:, 1].copy(),
        int(flat[:, 0].max(initial=0)) + 1,
    )


def test_pieces_of_a_link_follow_each_other() -> None:
    """A link carries one piece at a time, and the last bit comes its delay after the last piece has left."""
    run = run_events(network([(0, 5, 7)]), 3)
    assert run.starts.tolist() == [[0, 5, 10]]
    assert run.finish == 22


def test_waiting_transfers_start_piece_by_piece() -> None:
    """Each arrived piece of a transfer starts the piece that waits for it."""
    run = run_events(network([(0, 5, 1)], [(1, 5, 1)], waits=((0, 1),)), 2)
    assert run.starts.tolist() == [[0, 5], [6, 11]]
    assert run.finish == 17


@pytest.mark.parametrize(
    ("first", "second", "start"),
    [(4, 4, 2), (4, 10, 2), (10, 4, 8)],
    ids=["equally fast", "slower after", "faster after"],
)
def test_pieces_are_passed_on_while_they_come_in(first: int, second: int, start: int) -> None:
    """A piece enters its second link with the first bit, or so much later that a faster link never runs dry."""
    run = run_events(network([(0, first, 2), (1, second, 3)]), 1)
    assert run.starts.tolist() == [[0], [start]]
    assert run.finish == start + second + 3


def test_a_busy_link_holds_pieces_back_that_are_passed_on() -> None:
    """A piece that comes while a link is busy goes when the link is idle."""
    run = run_events(network([(0, 4, 0), (1, 4, 0)], [(1, 9, 0)]), 1)
    assert run.starts.tolist() == [[0], [9], [0]]
    run = run_events(network([(1, 9, 0)], [(0, 4, 0), (1, 4, 0)]), 1)
    assert run.starts.tolist() == [[0], [0], [9]]


def test_the_piece_goes_first_that_a_pipeline_would_take_first() -> None:
    """The waiting piece with the least sum of number and level goes, then that of the first hop."""
    run = run_events(network([(0, 1, 0)], [(0, 1, 0)], levels=[1, 0]), 2)
    # Rounds: transfer 0 has 1 and 2, transfer 1 has 0 and 1.
    assert run.starts.tolist() == [[1, 3], [0, 2]]


def test_transfers_without_hops_pass_the_word_at_once() -> None:
    """They are over when all that they wait for is, one behind the other."""
    run = run_events(network([(0, 3, 1)], [(1, 8, 1)], [], [], [(0, 2, 0)], waits=((0, 2), (1, 2), (2, 3), (3, 4))), 1)
    assert run.starts.tolist() == [[0], [0], [9]]
    assert run.finish == 11


def test_circles_are_counted_not_run_forever() -> None:
    """Pieces that wait for themselves never come; the others do."""
    run = run_events(network([(0, 3, 0)], [(0, 3, 0)], [(0, 3, 0)], waits=((0, 1), (1, 0))), 2)
    assert run.unfinished == 4
    assert run.finish == 6
    assert run.starts.tolist() == [[-1, -1], [-1, -1], [0, 3]]


def plain_starts(run: Network, pieces: int) -> list[list[int]]:
    """Run the same, one event after the other: starts by hop and piece."""
    hops = [range(first, end) for first, end in zip(run.hop_starts, run.hop_starts[1:], strict=False)]
    owner = {hop: transfer for transfer, own in enumerate(hops) for hop in own}
    starts = [[-1] * pieces for _ in owner]
    waits = {
        (transfer, piece): list(run.after).count(transfer) for transfer in range(len(hops)) for piece in range(pieces)
    }
    queues, idle_from = defaultdict[int, list[tuple[int, int, int]]](list), defaultdict[int, int](int)
    events = [(0, "come", transfer, piece) for (transfer, piece), count in waits.items() if count == 0]
    now = 0

    def reach(hop: int, piece: int) -> None:
        link = int(run.hop_links[hop])
        in_turn = run.in_turn is not None and run.in_turn[link]
        heapq.heappush(queues[link], (now if in_turn else piece + int(run.levels[owner[hop]]), hop, piece))

    def pass_on(transfer: int, piece: int) -> None:
        for place in np.flatnonzero(run.before == transfer):
            follower = int(run.after[place]), piece
            waits[follower] -= 1
            if waits[follower] == 0:
                begin(*follower)

    def begin(transfer: int, piece: int) -> None:
        if hops[transfer]:
            reach(hops[transfer][0], piece)
        else:
            pass_on(transfer, piece)

    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, kind, number, piece = heapq.heappop(events)
            {"come": begin, "reach": reach, "end": pass_on, "idle": lambda *_: None}[kind](number, piece)
        for link, queue in queues.items():
            if queue and idle_from[link] <= now:
                _, hop, piece = heapq.heappop(queue)
                ticks, delay = int(run.hop_ticks[hop]), int(run.hop_delays[hop])
                starts[hop][piece], idle_from[link] = now, now + ticks
                heapq.heappush(events, (now + ticks, "idle", link, 0))
                if hop + 1 in hops[owner[hop]]:
                    ahead = 0 if run.store else min(ticks, int(run.hop_ticks[hop + 1]))
                    heapq.heappush(events, (now + ticks + delay - ahead, "reach", hop + 1, piece))
                else:
                    heapq.heappush(events, (now + ticks + delay, "end", owner[hop], piece))
    return starts


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Transfers of up to three hops, of which each may wait for earlier ones; times close together and far apart."""
    most = draw(st.sampled_from([3, 5000]))
    hop = st.tuples(st.integers(0, 3), st.integers(1, most), st.integers(0, most))
    transfers = draw(st.lists(st.lists(hop, max_size=3), min_size=1, max_size=8))
    pairs = [(first, second) for second in range(len(transfers)) for first in range(second)]
    waits = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=6)) if pairs else []
    levels = draw(st.lists(st.integers(0, 3), min_size=len(transfers), max_size=len(transfers)))
    made = network(*transfers, waits=tuple(waits), levels=levels)
    in_turn = np.array(draw(st.lists(st.booleans(), min_size=made.num_links, max_size=made.num_links)))
    return made._replace(store=draw(st.booleans()), in_turn=in_turn)


@given(networks(), st.integers(1, 4))
def test_events_of_one_time_may_come_in_any_order(drawn: Network, pieces: int) -> None:
    """Pieces start as in a loop that takes one event after the other from a heap, unless links serve them in turn."""
    drawn = drawn._replace(in_turn=None)
    assert run_events(drawn, pieces).starts.tolist() == plain_starts(drawn, pieces)


def test_of_pieces_that_come_at_one_time_the_one_that_left_first_is_served_first() -> None:
    """Also where its transfer has the larger number, on links that serve pieces in turn."""
    for lag in (0, 3):
        both = network([(0, 4, lag), (2, 5, 0)], [(1, 5 + lag, 0), (2, 5, 0)], [(0, 1, 0)])
        both = both._replace(in_turn=np.array([False, False, True]), levels=np.array([1, 0, 0]), store=True)
        # The third transfer delays the first by one tick.
        assert run_events(both, 1).starts[:, 0].tolist() == [1, 10 + lag, 0, 5 + lag, 0]


def test_heaps_sort() -> None:
    """Entries leave a heap, which begins anywhere in its array, by time and then by code."""
    chance = np.random.default_rng(0)
    entries = chance.integers(0, 20, size=(200, 2)).tolist()
    heap = np.full((210, 2), -1)
    for size, (time, code) in enumerate(entries):
        heap_push(heap, 10, size, time, code)
    found = []
    for size in range(200, 0, -1):
        found.append(heap[10].tolist())
        heap_pop(heap, 10, size)
    assert found == sorted(entries)
    assert (heap[:10] == -1).all()
