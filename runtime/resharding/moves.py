"""Messages of all ranks for the items of a resharding: those of a plan, or direct copies.

Every item is cut into slices, which take the same ways one after the other: in step t, slice t - l takes its hops of
level l.  So a rank holds only some slices at a time, and all levels are under way at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, groupby
from math import gcd
from typing import NamedTuple

import numpy as np

from ...errors import ProgramError, UnsupportedError
from ...schedules import Schedule
from ...support.arrays import IntArray
from ...topologies import Topology
from .cells import MovedItem

MAX_OPERATIONS = 32  # Messages of a batch each way: NCCL is known to hang on batches of hundreds
MIN_SLICE = 2**18  # Bytes of the largest item, below which slices cost more time than their overlap saves
SLICES_PER_LEVEL = 8  # Which waste at most an eighth of the time by filling and draining the levels
LEVEL, BATCH, SENDER, RECEIVER, ITEM, FIRST, END = range(7)


class Moves(NamedTuple):
    """Messages of one slice of every item."""

    rows: IntArray  # int64 (messages, 7): level, batch, ranks, item, and first and last unit of it, by batch and level
    units: IntArray  # int64 (items,): units into which each item is cut
    slices: int

    @property
    def num_levels(self) -> int:
        """Levels of messages that wait for each other."""
        return int(self.rows[:, LEVEL].max(initial=0)) + 1


class Interval(NamedTuple):
    """Units of an item that a rank sends or receives, from `first` to before `end`."""

    item: int
    first: int
    end: int


class RankShare(NamedTuple):
    """What one rank holds of each slice, and in which levels."""

    intervals: list[Interval]
    first_level: int
    num_levels: int

    def places(self, slice_sizes: Sequence[int], units: Sequence[int]) -> list[int]:
        """Return where each interval begins in the rank's memory for a slice, and the bytes of all, at last."""
        sizes = (-(-(end - first) * slice_sizes[item] // units[item]) for item, first, end in self.intervals)
        return list(accumulate(sizes, initial=0))


def slice_range(size: int, slices: int, number: int) -> tuple[int, int]:
    """Return first and last byte of one slice of an item."""
    return size * number // slices, size * (number + 1) // slices


def direct_copies(items: Sequence[MovedItem]) -> tuple[IntArray, IntArray]:
    """Let every destination of an item get it from the source that sends least so far; rows without batches, units."""
    sent: dict[int, int] = {}
    rows = []
    for number, item in enumerate(items):
        for destination in item.destinations:
            source = min(item.sources, key=lambda rank: (sent.get(rank, 0), rank))
            sent[source] = sent.get(source, 0) + item.size
            rows.append([0, 0, source, destination, number, 0, 1])
    return np.array(rows, dtype=np.int64).reshape(-1, 7), np.ones(len(items), dtype=np.int64)


def planned_copies(
    schedule: Schedule, topology: Topology, items: Sequence[MovedItem], weights: Sequence[int]
) -> tuple[IntArray, IntArray]:
    """Return the transfers of a schedule for the demands of the items as rows without batches, and units.

    Raises `ProgramError` unless they bring every item to its destinations.  `weights` are the sizes that were planned.
    """
    transfers = schedule.transfers(topology)
    bounds = [Fraction(end, sum(weights)) / transfers.unit for end in accumulate(weights, initial=0)]
    if len(weights) != len(items) or any(bound.denominator > 1 for bound in bounds):
        raise ProgramError("the plan is for other items than those that move; plan their demands anew")
    starts = np.array([int(bound) for bound in bounds])
    moves = (transfers.senders != transfers.receivers) & (transfers.amounts > 0)
    firsts, ends = transfers.firsts[moves], (transfers.firsts + transfers.amounts)[moves]
    numbers = np.searchsorted(starts, firsts, side="right") - 1
    if (ends > starts[1:][numbers]).any():
        raise ProgramError("a transfer of the schedule has data of two items; plan their demands anew")
    columns = transfers.levels[moves], transfers.senders[moves], transfers.receivers[moves]
    levels, senders, receivers = columns
    order = np.lexsort((firsts, numbers, receivers, senders, levels))
    rows = np.stack([levels, levels * 0, senders, receivers, numbers, firsts - starts[numbers], ends - starts[numbers]])
    rows = _joined(rows.T[order])
    # Fewer units keep the products with sizes small.
    units = np.diff(starts)
    for number in range(len(items)):
        mine = rows[:, ITEM] == number
        divisor = gcd(int(units[number]), *rows[mine, FIRST].tolist(), *rows[mine, END].tolist())
        rows[mine, FIRST:] //= divisor
        units[number] //= divisor
    rows[:, LEVEL] = np.unique(rows[:, LEVEL], return_inverse=True)[1].ravel()
    _check_arrivals(rows, units, items)
    return rows, units


def _joined(rows: IntArray) -> IntArray:
    """Join rows that differ only in units that follow each other."""
    breaks = (rows[1:, :FIRST] != rows[:-1, :FIRST]).any(axis=1) | (rows[1:, FIRST] != rows[:-1, END])
    begins = np.flatnonzero(np.append(True, breaks)[: len(rows)])
    joined = rows[begins].copy()
    joined[:, END] = rows[np.append(begins[1:], len(rows)) - 1, END]
    return joined


def _check_arrivals(rows: IntArray, units: IntArray, items: Sequence[MovedItem]) -> None:
    """Refuse a schedule by which a rank would send what it has not, or not get what it needs."""
    arrivals: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for _, messages in groupby(rows[np.argsort(rows[:, LEVEL], kind="stable")].tolist(), key=lambda row: row[LEVEL]):
        landing = []
        for _, _, sender, receiver, item, first, end in messages:
            if sender not in items[item].sources and not _covers(arrivals.get((sender, item), []), first, end):
                raise ProgramError(f"the schedule lets rank {sender} send data of item {item} that it does not have")
            landing.append(((receiver, item), (first, end)))
        for key, interval in landing:
            arrivals[key] = _union([*arrivals.get(key, []), interval])
    for number, item in enumerate(items):
        for rank in item.destinations:
            if not _covers(arrivals.get((rank, number), []), 0, int(units[number])):
                raise ProgramError(f"the schedule does not bring all of item {number} to rank {rank}")


def _union(intervals: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join intervals that overlap or touch; in order."""
    joined: list[tuple[int, int]] = []
    for first, end in sorted(intervals):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((first, end))
    return joined


def _covers(intervals: Sequence[tuple[int, int]], first: int, end: int) -> bool:
    return any(begin <= first and end <= stop for begin, stop in intervals)


def shares(rows: IntArray) -> dict[int, RankShare]:
    """Return what each rank that takes part holds."""
    held_units: dict[int, dict[int, list[tuple[int, int]]]] = {}
    levels: dict[int, set[int]] = {}
    for level, _, sender, receiver, item, first, end in rows.tolist():
        for rank in (sender, receiver):
            held_units.setdefault(rank, {}).setdefault(item, []).append((first, end))
            levels.setdefault(rank, set()).add(level)
    return {
        rank: RankShare(
            [Interval(item, *pair) for item in sorted(by_item) for pair in _union(by_item[item])],
            min(levels[rank]),
            max(levels[rank]) - min(levels[rank]) + 1,
        )
        for rank, by_item in held_units.items()
    }


def sliced(rows: IntArray, units: IntArray, sizes: Sequence[int], max_scratch_bytes: int) -> Moves:
    """Divide messages into batches, and items into as few slices as the scratch of every rank allows.

    Raises `UnsupportedError` if slices of one byte would not fit either.
    """
    largest = max(sizes, default=0)
    num_levels = int(rows[:, LEVEL].max(initial=0)) + 1
    all_shares = list(shares(rows).values())
    low, high = 1, max(largest, 1)
    if num_levels > 1:
        low = max(1, min(SLICES_PER_LEVEL * (num_levels - 1), largest // MIN_SLICE))

    def scratch(slices: int) -> int:
        slice_sizes = [-(-size // slices) for size in sizes]
        return max((one.num_levels * one.places(slice_sizes, units.tolist())[-1] for one in all_shares), default=0)

    if (minimum := scratch(high)) > max_scratch_bytes:
        raise UnsupportedError(f"max_scratch_bytes is {max_scratch_bytes}; expected at least {minimum}")
    # More slices never need more scratch.
    slices = low + bisect_left(range(low, high), True, key=lambda slices: scratch(slices) <= max_scratch_bytes)
    return Moves(_batched(rows), units, slices)


def _batched(rows: IntArray) -> IntArray:
    """Number the batches of messages, so that no rank has too many in one, and sort by batch and level."""
    counts: dict[tuple[int, int, int], int] = {}
    rows = rows[np.argsort(rows[:, LEVEL], kind="stable")]
    latest: dict[tuple[int, int], int] = {}  # The first batch of an end that may have room
    for row in rows:
        ends = (0, int(row[SENDER])), (1, int(row[RECEIVER]))
        batch = max(latest.get(end, 0) for end in ends)
        while any(counts.get((*end, batch), 0) >= MAX_OPERATIONS for end in ends):
            batch += 1
        for end in ends:
            counts[*end, batch] = counts.get((*end, batch), 0) + 1
            if counts[*end, batch] == MAX_OPERATIONS and latest.get(end, 0) == batch:
                latest[end] = batch + 1
        row[BATCH] = batch
    return rows[np.argsort(rows[:, BATCH], kind="stable")]
