"""Order of messages: rounds in which every rank has another partner, also of ranks that send unevenly.

In each round every rank sends to the rank whose place differs by the same number on every level of the network (boxes,
and places in a box), so that each round is a permutation of ranks, as many messages leave and enter every group, and no
port has two messages.  Rounds on one switch are the rotation r + 1, r + 2, ...; where a level has a power of two
places, places differ by an exclusive or, so that partners exchange.  The ranks of a group begin the rounds to other
groups one after the other, so that in each round they send to different groups, whose links may be few: dragonflies
have one between two groups.  Fat trees with deterministic routes pass such rounds without contention: Zahavi, Journal
of Parallel and Distributed Computing 72(11), 2012.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np

from ..errors import UnsupportedError
from ..support.arrays import IntArray
from ..support.kernels import kernel
from ..topologies import Topology
from ..topologies.network.runtime_costs import RuntimeCosts
from ..topologies.symmetry.rank_groups import RankGroups, rank_groups
from .schedule import BYTES_PER_MB, NS_PER_US, Schedule
from .transfers import Transfers

MAX_UNEVEN = 2**14  # Messages of uneven traffic that are ordered by time: each is looked at whenever another ends
LONGEST = 2**40  # Ticks of the longest message on one link
NEVER = 2**62


Clock = Literal["exact", "ns"]
NANOSECOND = Fraction(1, NS_PER_US)  # In µs
MAX_TICKS = 2**60  # All times that a simulation could add up to, so that a sum of two stays within int64
LEAD = 8  # Slices that a transfer ahead is worth for each that the busiest link carries during a latency


def ordered_transfers(schedule: Schedule, topology: Topology) -> Transfers:
    """List the transfers of a schedule, those of each level in the order of `sending_turns`."""
    transfers = schedule.transfers(topology)
    turns = sending_turns(schedule, transfers, topology, rank_groups(topology))
    return reordered(transfers, np.lexsort((turns, transfers.levels)))


def sending_turns(schedule: Schedule, transfers: Transfers, topology: Topology, groups: RankGroups) -> IntArray:
    """Turn of each transfer among those of its level, int64 (transfers,): rounds, or times where traffic is uneven."""
    rounds = message_rounds(groups, transfers.senders, transfers.receivers)
    if len(rounds) > MAX_UNEVEN or not schedule.sends_unevenly:
        return rounds

    return uneven_turns(transfers, topology, rounds)


def message_rounds(groups: RankGroups, senders: IntArray, receivers: IntArray) -> IntArray:
    """Number of the round in which each message is sent, int64 (messages,).

    Rounds to other outer groups come first, as their links are the slower ones.  Switches count as the first rank.
    """
    ranks = len(groups.digits)
    tails, heads = (groups.digits[np.where(ends < ranks, ends, 0)] for ends in (senders, receivers))
    rounds = np.zeros(len(senders), dtype=np.int64)
    for level, size in enumerate(groups.sizes):
        away = tails[:, level] ^ heads[:, level] if size & (size - 1) == 0 else heads[:, level] - tails[:, level]
        turns = (away % size - 1 - _places_inside(groups, tails, level)) % max(size - 1, 1)
        rounds = rounds * size + np.where(away % size > 0, turns, size - 1)
    return rounds


def _places_inside(groups: RankGroups, digits: IntArray, level: int) -> IntArray:
    """Places of ranks in their groups on a level, int64 (messages,), from digits (messages, levels)."""
    sizes = groups.sizes[level + 1 :]
    return np.ravel_multi_index(tuple(digits[:, level + 1 :].T), sizes) if sizes else np.zeros(len(digits), dtype=int)


def reordered(transfers: Transfers, order: IntArray) -> Transfers:
    """Put transfers in another order, int64 (transfers,): the old number of each; those not named are left out."""
    lengths = np.diff(transfers.hop_starts)[order]
    hop_starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    hops = np.repeat(transfers.hop_starts[order] - hop_starts[:-1], lengths) + np.arange(hop_starts[-1])
    place = np.full(len(transfers.senders), -1, dtype=np.int64)
    place[order] = np.arange(len(order))
    names = ("senders", "receivers", "firsts", "amounts", "levels", "adds")
    return replace(
        transfers,
        **{name: getattr(transfers, name)[order] for name in names},
        hop_starts=hop_starts,
        hop_links=transfers.hop_links[hops],
        before=place[transfers.before],
        after=place[transfers.after],
    )


def merged(transfers: Transfers) -> Transfers:
    """Make one message of all transfers of one level that take the same links between the same ranks.

    Its range of data begins where that of the first of them does.
    """
    lengths = np.diff(transfers.hop_starts)
    routes = np.full((len(lengths), int(lengths.max(initial=0))), -1, dtype=np.int64)
    within = np.arange(len(transfers.hop_links)) - np.repeat(transfers.hop_starts[:-1], lengths)
    routes[transfers.hop_owners, within] = transfers.hop_links
    alone = np.where(lengths == 0, np.arange(len(lengths)), -1)
    message = np.zeros(len(lengths), dtype=np.int64)
    for column in (transfers.levels, transfers.senders, transfers.receivers, alone, *routes.T):
        # Numbers of rows by their columns so far, which is quicker than to sort rows.
        message = np.unique(message * (int(column.max(initial=0)) + 2) + column + 1, return_inverse=True)[1]
    _, first = np.unique(message, return_index=True)
    amounts = np.zeros(len(first), dtype=np.int64)
    np.add.at(amounts, message, transfers.amounts)
    pairs = np.divmod(np.unique(message[transfers.before] * len(first) + message[transfers.after]), max(len(first), 1))
    joined = reordered(transfers, first.astype(np.int64))
    order = np.argsort(first, kind="stable")
    return reordered(replace(joined, amounts=amounts, before=pairs[0], after=pairs[1]), order)


def uneven_turns(transfers: Transfers, topology: Topology, rounds: IntArray) -> IntArray:
    """When each message would start, int64 (transfers,); of equal ones the earliest of `rounds` goes first."""
    busy = transfers.amounts[transfers.hop_owners] / topology.arrays.capacities[transfers.hop_links]
    ticks = np.ceil(busy * (LONGEST / busy.max(initial=1e-9))).astype(np.int64)
    longest = np.zeros(len(rounds), dtype=np.int64)
    np.maximum.at(longest, transfers.hop_owners, ticks)
    order = np.lexsort((rounds, -longest, -transfers_ahead(transfers)))
    return _starts(order, transfers.hop_starts, transfers.hop_links, ticks, topology.num_links)


@kernel
def _starts(order: IntArray, hop_starts: IntArray, hop_links: IntArray, ticks: IntArray, num_links: int) -> IntArray:
    """Start times of messages, tried in `order` whenever a link becomes free."""
    starts = np.zeros(len(order), dtype=np.int64)
    free = np.zeros(num_links, dtype=np.int64)
    left, count, now = order.copy(), len(order), 0
    while count:
        waiting, soonest = 0, NEVER
        for place in range(count):
            message = left[place]
            ready = now
            for hop in range(hop_starts[message], hop_starts[message + 1]):
                ready = max(ready, free[hop_links[hop]])
            if ready > now:
                left[waiting] = message
                waiting += 1
                soonest = min(soonest, ready)
                continue
            starts[message] = now
            for hop in range(hop_starts[message], hop_starts[message + 1]):
                free[hop_links[hop]] = now + ticks[hop]
        count, now = waiting, soonest
    return starts


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
