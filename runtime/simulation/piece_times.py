"""How long pieces of transfers take on links, in whole ticks."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...topologies import Topology
from .transfers import Transfers

__all__ = ["PieceTimes", "piece_times"]

IntArray = npt.NDArray[np.int64]

NS_PER_US = 1000
MOST_TICKS = 2**60
"""All times that a simulation could add up to, so that a sum of two stays within int64."""


class PieceTimes(NamedTuple):
    """Times of one piece on each hop.

    Attributes
    ----------
    tick : Fraction
        µs.
    ticks, delays : ndarray of int64, shape (hops,)
        How long the piece keeps the link busy, and the link's latency.
    """

    tick: Fraction
    ticks: IntArray
    delays: IntArray


def piece_times(transfers: Transfers, topology: Topology, num_bytes: int, slices: int) -> PieceTimes:
    """Work out the times of pieces, exactly if that leaves room in int64, and rounded up to ticks otherwise.

    Parameters
    ----------
    transfers : Transfers
        What is sent.
    topology : Topology
        The network.
    num_bytes : int
        All the data, as nccl-tests counts it.
    slices : int
        Pieces that each transfer is cut into.

    Returns
    -------
    PieceTimes
        The tick is the largest time that all others are multiples of, or what 2^60 of make more than any simulation
        can take.

    Examples
    --------
    Halves of 300 bytes over 25 GB/s, that is of 6 ns, and a latency of 10 ns:

    >>> from collopt.runtime.simulation.tree_transfers import transfers_of
    >>> from collopt.schedules import Forest
    >>> from collopt.topologies import complete
    >>> pair = complete(2, bandwidth=25, latency="0.01")
    >>> transfers = transfers_of(Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])]), pair)
    >>> piece_times(transfers, pair, 600, 2)
    PieceTimes(tick=Fraction(1, 500), ticks=array([3, 3]), delays=array([5, 5]))
    """
    of_pieces, piece_kinds = _busy_times(transfers, topology, Fraction(num_bytes) * transfers.unit / slices)
    of_latencies, latency_kinds = _latencies(transfers, topology)
    # The longest that all could take, one piece at a time on the whole network.
    longest = slices * (_total(of_pieces, piece_kinds) + _total(of_latencies, latency_kinds))
    tick = max(_common_measure([*of_pieces, *of_latencies]), longest / MOST_TICKS)
    ticks, delays = (np.array([math.ceil(time / tick) for time in times]) for times in (of_pieces, of_latencies))
    return PieceTimes(tick, ticks[piece_kinds], delays[latency_kinds])


def _busy_times(transfers: Transfers, topology: Topology, unit: Fraction) -> tuple[list[Fraction], IntArray]:
    """Different times of pieces on links in µs, and which of them each hop takes; a unit of data has `unit` bytes."""
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
    """Different latencies in µs, and which of them each hop has."""
    numbers: dict[Fraction, int] = {}
    used, link_of_hop = np.unique(transfers.hop_links, return_inverse=True)
    of_link = [numbers.setdefault(topology.links[link].latency, len(numbers)) for link in used.tolist()]
    return list(numbers), np.array(of_link)[link_of_hop]


def _total(times: list[Fraction], kinds: IntArray) -> Fraction:
    """Add up the times of all hops."""
    counts = np.bincount(kinds, minlength=len(times)).tolist()
    return sum((time * count for time, count in zip(times, counts, strict=True)), Fraction(0))


def _common_measure(times: list[Fraction]) -> Fraction:
    """The largest number that all are multiples of."""
    whole = math.lcm(*(time.denominator for time in times))
    return Fraction(math.gcd(*(time.numerator * (whole // time.denominator) for time in times)), whole)
