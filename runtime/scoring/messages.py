"""Messages between ranks, whatever file they were read from, and their routes through a network.

A file says which rank sends to which.  Each message takes a route with the fewest links; of these, the widest; and of
these, where a fabric has several, the one used least so far, as planners with a fixed pattern choose them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from ...planners.patterns.fixed_pattern import Hops, LinkLoads
from ...planners.trees.problem import TreeProblem
from ...schedules.timing.transfers import Transfers
from ...support.arrays import IntArray
from ...support.formatting import count_text
from ...topologies import Topology
from ..programs.layout import Layout


@dataclass
class Messages:
    """Messages that wait for others, and events: messages from a rank to itself, the begin or end of a step."""

    unit: Fraction  # What one unit of `amounts` is of all the data, as nccl-tests counts it
    senders: list[int] = field(default_factory=list)
    receivers: list[int] = field(default_factory=list)
    amounts: list[int] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)  # Of messages that wait for one link, the least goes first
    adds: list[bool] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)  # (before, after)

    @classmethod
    def of(cls, layout: Layout, num_ranks: int) -> Messages:
        """No messages yet, in chunks; between pairs, all data is what a rank has on average."""
        return cls(Fraction(num_ranks if layout.in_pairs else 1, layout.chunks))

    def send(self, sender: int, receiver: int, amount: int, before: Iterable[int], *, adds: bool = False) -> int:
        """Add a message that waits for others, one level above them; return its number."""
        return self._add(sender, receiver, amount, before, adds, 1)

    def event(self, rank: int, before: Iterable[int]) -> int:
        """Add an event that waits for messages and events; return its number."""
        return self._add(rank, rank, 0, before, False, 0)

    def _add(self, sender: int, receiver: int, amount: int, before: Iterable[int], adds: bool, above: int) -> int:
        number, earlier = len(self.senders), list(dict.fromkeys(before))
        self.senders.append(sender)
        self.receivers.append(receiver)
        self.amounts.append(amount)
        self.levels.append(max((self.levels[each] for each in earlier), default=-above) + above)
        self.adds.append(adds)
        self.waits.extend((each, number) for each in earlier)
        return number


class Routed(NamedTuple):
    """Messages with their routes."""

    transfers: Transfers
    pairs: int  # Pairs of ranks that send
    ambiguous: int  # Those with several routes that are as short and as wide
    switched: bool  # Whether switches add up or copy

    @property
    def text(self) -> str:
        """How routes were chosen, in words."""
        pairs = f"{count_text(self.pairs, 'pair')} of ranks"
        if self.switched:
            pairs = f"switches that add up or copy{f', and {pairs}' if self.pairs else ''}"
        if not self.ambiguous:
            return f"{pairs}, each with one shortest route" if self.pairs else pairs
        return (
            f"{pairs}, of which {self.ambiguous} have several shortest routes that are equally wide; each message "
            "takes the one used least so far"
        )


def routed(messages: Messages, topology: Topology) -> Routed:
    """Give each message a route; `UnsupportedError` for ranks without one that passes no other rank."""
    pairs = list(zip(messages.senders, messages.receivers, strict=True))
    tails, heads, capacities, _ = topology.arrays
    shards = np.ones(topology.num_ranks, dtype=np.int64)
    hops, loads = Hops(TreeProblem(topology, "broadcast", tails, heads, capacities, shards)), LinkLoads(capacities)
    choices = {pair: hops.needed(*pair) for pair in sorted(set(pairs)) if pair[0] != pair[1]}
    links: list[tuple[int, ...]] = [()] * len(pairs)
    # Those without a choice come first, so that the others know of them.
    order = sorted(range(len(pairs)), key=lambda number: len(choices.get(pairs[number], ())) > 1)
    for number in order:
        if routes := choices.get(pairs[number]):
            links[number] = loads.take(routes, messages.amounts[number]).links
    between = [routes for pair, routes in choices.items() if max(pair) < topology.num_ranks]
    ambiguous = sum(len(routes) > 1 for routes in between)
    return Routed(_transfers(messages, links), len(between), ambiguous, len(between) < len(choices))


def _transfers(messages: Messages, links: list[tuple[int, ...]]) -> Transfers:
    """Messages with the links of each."""
    waits = np.array(messages.waits, dtype=np.int64).reshape(-1, 2)
    return Transfers(
        senders=_column(messages.senders),
        receivers=_column(messages.receivers),
        firsts=np.zeros(len(messages.senders), dtype=np.int64),
        amounts=_column(messages.amounts),
        unit=messages.unit,
        levels=_column(messages.levels),
        adds=np.array(messages.adds, dtype=np.bool_),
        hop_starts=_column(accumulate(map(len, links), initial=0)),
        hop_links=_column(link for route in links for link in route),
        before=waits[:, 0],
        after=waits[:, 1],
    )


def _column(values: Iterable[int]) -> IntArray:
    return np.array(list(values), dtype=np.int64)
