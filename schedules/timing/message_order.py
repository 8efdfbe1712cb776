"""Order of messages: rounds in which every rank has another partner, also of ranks that send unevenly.

In each round every rank sends to the rank whose place differs by the same number on every level of the network (boxes,
and places in a box), so that each round is a permutation of ranks, as many messages leave and enter every group, and no
port has two messages.  Rounds on one switch are the rotation r + 1, r + 2, ...; where a level has a power of two
places, places differ by an exclusive or, so that partners exchange.  The ranks of a group begin the rounds to other
groups one after the other, so that in each round they send to different groups, whose links may be few: dragonflies
have one between two groups.  Fat trees with deterministic routes pass such rounds without contention: Zahavi, Journal
of Parallel and Distributed Computing 72(11), 2012.
"""

from dataclasses import replace

import numpy as np

from ...support.arrays import IntArray
from ...support.kernels import kernel
from ...topologies import Topology
from ...topologies.symmetry.rank_groups import RankGroups, rank_groups
from ..schedule import Schedule
from ..transfers import Transfers
from .message_times import transfers_ahead

MAX_UNEVEN = 2**14  # Messages of uneven traffic that are ordered by time: each is looked at whenever another ends
LONGEST = 2**40  # Ticks of the longest message on one link
NEVER = 2**62


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
