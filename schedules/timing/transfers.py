"""Transfers between ranks with dependencies, routes and times, and the order of steps on links."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...support.arrays import IntArray
from ...topologies import Topology


@dataclass(frozen=True, eq=False)
class Transfers:
    """All transfers of a schedule."""

    senders: IntArray  # int64 (transfers,): ranks; the receiver itself where a sum turns at its root
    receivers: IntArray  # int64 (transfers,)
    firsts: IntArray  # int64 (transfers,): data in units; in an all-to-all(v), of what the path's source has
    amounts: IntArray  # int64 (transfers,): how many units from the first on
    unit: Fraction  # What one unit is of all the data, as nccl-tests counts it
    levels: IntArray  # int64 (transfers,): The step, or hops between ranks that have to come before
    adds: npt.NDArray[np.bool_]  # bool (transfers,): Whether the receiver adds what comes to what it has
    hop_starts: IntArray  # int64 (transfers + 1,): transfer t has hop_links[hop_starts[t]:hop_starts[t + 1]]
    hop_links: IntArray  # Places in ``topology.links``
    before: IntArray  # int64 (waits,): Transfer ``after[i]`` waits for transfer ``before[i]``
    after: IntArray  # int64 (waits,)

    @property
    def hop_owners(self) -> IntArray:
        """Transfer of each hop."""
        return np.repeat(np.arange(len(self.senders)), np.diff(self.hop_starts))


class Part(NamedTuple):
    """Transfers in one direction: columns of `Transfers`, and their paths."""

    senders: IntArray
    receivers: IntArray
    firsts: IntArray
    amounts: IntArray
    levels: IntArray
    adds: bool
    paths: IntArray  # int64 (transfers,): number of the path that each takes, -1 for none
    routes: tuple[IntArray, IntArray]  # links of all paths, and where each path begins there


def in_direction(links: IntArray, starts: IntArray, reverse: bool) -> tuple[IntArray, IntArray]:
    """Links of paths in the order of data, reversed if `reverse`."""
    if not reverse:
        return links, starts
    owners = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return links[starts[owners] + starts[owners + 1] - 1 - np.arange(len(links))], starts


def concatenate(parts: list[Part], unit: Fraction, waits: list[IntArray]) -> Transfers:
    """Concatenate transfers; `waits`: int64 (2, waits) each."""
    hops = [gather_paths(*part.routes, part.paths) for part in parts]
    lengths = np.concatenate([length for length, _ in hops])
    pairs = np.concatenate(waits, axis=1)
    columns = ("senders", "receivers", "firsts", "amounts", "levels")
    whole = {
        name: np.concatenate([getattr(part, name) for part in parts]).astype(np.int64, copy=False) for name in columns
    }
    return Transfers(
        **whole,
        unit=unit,
        adds=np.concatenate([np.full(len(part.senders), part.adds) for part in parts]),
        hop_starts=np.array(list(accumulate(lengths.tolist(), initial=0)), dtype=np.int64),
        hop_links=np.concatenate([links for _, links in hops]),
        before=pairs[0],
        after=pairs[1],
    )


def gather_paths(links: IntArray, starts: IntArray, paths: IntArray) -> tuple[IntArray, IntArray]:
    """Lengths and links of the paths with these numbers, concatenated; -1 is a path without links."""
    counts = np.where(paths >= 0, np.append(np.diff(starts), 0)[paths], 0)
    firsts = np.repeat(np.append(starts[:-1], 0)[paths] - (np.cumsum(counts) - counts), counts)
    return counts, links[firsts + np.arange(len(firsts))]


def add_step_gates(transfers: Transfers) -> Transfers:
    """Keep the transfers on a link in the order of steps, by a transfer without links (a gate) per link and step.

    A gate waits for all that the sends over its link in its step wait for, and for the gate of the link's step before;
    the sends wait for the latter.
    """
    count = len(transfers.senders)
    sends = np.flatnonzero(np.diff(transfers.hop_starts))
    first_links = transfers.hop_links[transfers.hop_starts[sends]]
    span = int(transfers.levels.max()) + 1
    gates, gate_of_send = np.unique(first_links * span + transfers.levels[sends], return_inverse=True)
    gate_of = np.full(count, -1, dtype=np.int64)
    gate_of[sends] = gate_of_send
    # Gates of one link are next to each other, by step.
    follows = np.flatnonzero(gates[1:] // span == gates[:-1] // span) + 1
    held = sends[np.isin(gate_of_send, follows)]
    opens = gate_of[transfers.after] >= 0
    owner = np.empty(len(gates), dtype=np.int64)
    owner[gate_of_send] = transfers.senders[sends]
    nothing = np.zeros(len(gates), dtype=np.int64)
    added = {
        "senders": owner,
        "receivers": owner,
        "firsts": nothing,
        "amounts": nothing,
        "levels": gates % span,
        "adds": nothing.astype(np.bool_),
        "hop_starts": nothing + transfers.hop_starts[-1],
        "before": np.concatenate([transfers.before[opens], follows - 1 + count, gate_of[held] - 1 + count]),
        "after": np.concatenate([gate_of[transfers.after[opens]] + count, follows + count, held]),
    }
    columns: dict[str, Any] = {name: np.concatenate([getattr(transfers, name), more]) for name, more in added.items()}
    return replace(transfers, **columns)


NS_PER_US = 1000
MAX_TICKS = 2**60  # All times that a simulation could add up to, so that a sum of two stays within int64


class PieceTimes(NamedTuple):
    """Times of one piece on each hop."""

    tick: Fraction  # µs
    ticks: IntArray  # int64 (hops,): how long the piece keeps the link busy
    delays: IntArray  # int64 (hops,): the link's latency


def piece_times(transfers: Transfers, topology: Topology, num_bytes: int, slices: int) -> PieceTimes:
    """Compute the times of pieces, exactly if they fit int64, otherwise rounded up to ticks."""
    of_pieces, piece_kinds = _busy_times(transfers, topology, Fraction(num_bytes) * transfers.unit / slices)
    of_latencies, latency_kinds = _latencies(transfers, topology)
    # The longest that all could take, one piece at a time on the whole network.
    longest = slices * (_total(of_pieces, piece_kinds) + _total(of_latencies, latency_kinds))
    tick = max(_common_divisor([*of_pieces, *of_latencies]), longest / MAX_TICKS)
    ticks, delays = (np.array([math.ceil(time / tick) for time in times]) for times in (of_pieces, of_latencies))
    return PieceTimes(tick, ticks[piece_kinds], delays[latency_kinds])


def _busy_times(transfers: Transfers, topology: Topology, unit: Fraction) -> tuple[list[Fraction], IntArray]:
    """Distinct times of pieces on links in µs, and the index of each hop's; a unit of data has `unit` bytes."""
    speeds, speed_of_link = np.unique(topology.arrays.capacities, return_inverse=True)
    amounts, amount_of_transfer = np.unique(transfers.amounts, return_inverse=True)
    kinds = amount_of_transfer[transfers.hop_owners] * len(speeds) + speed_of_link[transfers.hop_links]
    used, kind_of_hop = np.unique(kinds, return_inverse=True)
    times = [
        unit * int(amounts[kind // len(speeds)]) / (NS_PER_US * topology.arrays.unit * int(speeds[kind % len(speeds)]))
        for kind in used.tolist()
    ]
    return times, kind_of_hop


def _latencies(transfers: Transfers, topology: Topology) -> tuple[list[Fraction], IntArray]:
    """Distinct latencies in µs, and the index of each hop's."""
    numbers: dict[Fraction, int] = {}
    used, link_of_hop = np.unique(transfers.hop_links, return_inverse=True)
    of_link = [numbers.setdefault(topology.links[link].latency, len(numbers)) for link in used.tolist()]
    return list(numbers), np.array(of_link)[link_of_hop]


def _total(times: list[Fraction], kinds: IntArray) -> Fraction:
    """Sum of the times of all hops."""
    counts = np.bincount(kinds, minlength=len(times)).tolist()
    return sum((time * count for time, count in zip(times, counts, strict=True)), Fraction(0))


def _common_divisor(times: list[Fraction]) -> Fraction:
    """Greatest common divisor of fractions."""
    whole = math.lcm(*(time.denominator for time in times))
    return Fraction(math.gcd(*(time.numerator * (whole // time.denominator) for time in times)), whole)
