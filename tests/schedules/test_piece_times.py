"""Times of the pieces of transfers on links."""

from __future__ import annotations

from collopt.schedules import Forest
from collopt.schedules.timing.message_order import piece_times
from collopt.topologies import LINKS_ONLY, complete

PAIR = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])


def test_times_of_pieces_are_exact() -> None:
    """Halves of 300 bytes over 25 GB/s, that is of 6 ns, and a latency of 10 ns."""
    pair = complete(2, bandwidth=25, latency="0.01")
    times = piece_times(PAIR.transfers(pair), pair, 600, 2, LINKS_ONLY)
    assert (times.tick * 500, times.ticks.tolist(), times.delays.tolist()) == (1, [3, 3], [5, 5])


def test_times_on_links_are_rounded_down_to_whole_nanoseconds() -> None:
    """155 bytes over 25 GB/s, 6.2 ns, and a latency of 10.9 ns take 17 ns together."""
    pair = complete(2, bandwidth=25, latency="0.0109")
    times = piece_times(PAIR.transfers(pair), pair, 620, 2, LINKS_ONLY, "ns")
    assert (times.tick * 1000, times.ticks.tolist(), times.delays.tolist()) == (1, [6, 6], [11, 11])
