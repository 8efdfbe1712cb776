"""Times of messages, cut into pieces: on each hop, and in the software of the sending and adding ranks."""

import math
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...support.arrays import IntArray
from ...topologies import Topology
from ...topologies.network.runtime_costs import RuntimeCosts
from ..schedule import BYTES_PER_MB, NS_PER_US
from ..transfers import Transfers

Clock = Literal["exact", "ns"]

NANOSECOND = Fraction(1, NS_PER_US)  # In µs
MAX_TICKS = 2**60  # All times that a simulation could add up to, so that a sum of two stays within int64


class PieceTimes(NamedTuple):
    """Times of one piece of each transfer, in ticks."""

    tick: Fraction  # µs
    ticks: IntArray  # int64 (hops,): how long the piece keeps the link busy
    delays: IntArray  # int64 (hops,): the link's latency
    send: int  # How long starting it keeps the sending rank busy
    alpha: int  # Further delay until it enters its first link
    adding: IntArray  # int64 (transfers,): how long the receiver takes to add it


def piece_times(
    transfers: Transfers,
    topology: Topology,
    num_bytes: int | Fraction,
    slices: int,
    costs: RuntimeCosts,
    clock: Clock = "exact",
) -> PieceTimes:
    """Compute the times of pieces, exactly if they fit int64, otherwise rounded up; see `reached_network`.

    With the clock ``"ns"``, times on links are rounded down to whole ns; raises `UnsupportedError` if all are 0.
    """
    of_pieces, piece_kinds = _busy_times(transfers, topology, Fraction(num_bytes) * transfers.unit / slices)
    of_latencies, latency_kinds = _latencies(transfers, topology)
    if clock == "ns":
        of_pieces, of_latencies, latency_kinds = _in_whole_ns(of_pieces, piece_kinds, of_latencies, latency_kinds)
        if not any(of_pieces + of_latencies):
            raise UnsupportedError(
                f"the clock is 'ns', but {num_bytes} bytes in {slices} slices take less than 1 ns on every link; "
                "use more bytes, or fewer slices"
            )
    of_sums, sum_kinds = _adding_times(transfers, Fraction(num_bytes) * transfers.unit / slices, costs)
    fixed = [costs.send, costs.alpha]
    # The longest that all could take, one piece at a time on the whole network.
    messages = len(transfers.senders)
    longest = slices * (
        _total(of_pieces, piece_kinds)
        + _total(of_latencies, latency_kinds)
        + _total(of_sums, sum_kinds)
        + sum(fixed) * messages
    )
    tick = max(_common_divisor([*of_pieces, *of_latencies, *of_sums, *fixed]), longest / MAX_TICKS)

    def in_ticks(times: list[Fraction]) -> IntArray:
        return np.array([math.ceil(time / tick) for time in times], dtype=np.int64)

    send, alpha = in_ticks(fixed).tolist()
    sums = in_ticks(of_sums)[sum_kinds]
    return PieceTimes(tick, in_ticks(of_pieces)[piece_kinds], in_ticks(of_latencies)[latency_kinds], send, alpha, sums)


def _adding_times(transfers: Transfers, unit: Fraction, costs: RuntimeCosts) -> tuple[list[Fraction], IntArray]:
    """Distinct times of adding a piece in µs, and the index of each transfer's."""
    amounts, kinds = np.unique(np.where(transfers.adds, transfers.amounts, 0), return_inverse=True)
    return [costs.reduction * unit * amount / BYTES_PER_MB for amount in amounts.tolist()], kinds


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


def _in_whole_ns(
    of_pieces: list[Fraction], piece_kinds: IntArray, of_latencies: list[Fraction], latency_kinds: IntArray
) -> tuple[list[Fraction], list[Fraction], IntArray]:
    """Round times of pieces down to whole ns, and latencies so that the sum of both is rounded down.

    Returns the times of pieces, the distinct latencies, and the index of each hop's.
    """
    both, kind_of_hop = np.unique(piece_kinds * len(of_latencies) + latency_kinds, return_inverse=True)
    latencies = []
    for piece, latency in (divmod(kind, len(of_latencies)) for kind in both.tolist()):
        latencies.append(_down(of_pieces[piece] + of_latencies[latency]) - _down(of_pieces[piece]))
    return list(map(_down, of_pieces)), latencies, kind_of_hop


def _down(time: Fraction) -> Fraction:
    """Round a time in µs down to whole ns."""
    return time // NANOSECOND * NANOSECOND


def _total(times: list[Fraction], kinds: IntArray) -> Fraction:
    """Sum of the times of all hops."""
    counts = np.bincount(kinds, minlength=len(times)).tolist()
    return sum((time * count for time, count in zip(times, counts, strict=True)), Fraction(0))


def _common_divisor(times: list[Fraction]) -> Fraction:
    """Greatest common divisor of fractions."""
    scale = math.lcm(*(time.denominator for time in times))
    return Fraction(math.gcd(*(time.numerator * (scale // time.denominator) for time in times)), scale)


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
        previous = ahead.copy()
        for group in groups:
            np.maximum.at(ahead, before[group], ahead[after[group]] + crosses[after[group]])
        # Levels are in the order of dependencies, but for transfers without links: these need another round.
        if np.array_equal(previous, ahead):
            return ahead
