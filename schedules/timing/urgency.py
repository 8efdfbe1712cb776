"""Which slices links take first: those whose data has the farthest to go.

List scheduling by the longest path that is left (Graham, SIAM Journal on Applied Mathematics 17(2), 1969; Hu,
Operations Research 9(6), 1961), of slices of pipelined trees: a transfer ahead is worth as much as one slice, and more
where latencies are long beside the time of a slice.
"""

import numpy as np

from ...support.arrays import IntArray
from .message_times import PieceTimes
from .transfers import Transfers

LEAD = 8  # Slices that a transfer ahead is worth for each that the busiest link carries during a latency


def urgency_keys(transfers: Transfers, times: PieceTimes, slices: int, ahead: IntArray) -> IntArray:
    """Number to which that of a slice is added, int64 (transfers,): links take the slice with the least sum."""
    loads = np.zeros(int(transfers.hop_links.max(initial=0)) + 1, dtype=np.int64)
    np.add.at(loads, transfers.hop_links, times.ticks)
    latency = int(times.delays.max(initial=0)) + times.alpha
    lead = min(1 + LEAD * latency // max(1, int(loads.max())), slices)
    return lead * (int(ahead.max(initial=0)) - ahead)


def transfers_ahead(transfers: Transfers) -> IntArray:
    """Most transfers over links that wait for each other one after the other behind each, int64 (transfers,)."""
    crosses = (np.diff(transfers.hop_starts) > 0).astype(np.int64)
    order = np.argsort(-transfers.levels[transfers.before], kind="stable")
    before, after = transfers.before[order], transfers.after[order]
    groups = np.split(np.arange(len(order)), np.flatnonzero(np.diff(transfers.levels[before])) + 1)
    ahead = np.zeros(len(crosses), dtype=np.int64)
    while True:
        known = ahead.copy()
        for group in groups:
            np.maximum.at(ahead, before[group], ahead[after[group]] + crosses[after[group]])
        # Levels are in the order of dependencies, but for transfers without links: these need another round.
        if np.array_equal(known, ahead):
            return ahead
