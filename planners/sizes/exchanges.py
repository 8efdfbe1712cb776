"""Schedules along the digits of ranks: one step per digit, steps that overlap, several orders at once, and trees."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...schedules import Forest, StepSchedule
from ...schedules.timing.message_order import message_rounds
from ...support.arrays import IntArray
from ...topologies.symmetry.rank_groups import RankGroups
from .digits import Digits, LastHops
from .routing import Paths, Routing


class Routes(NamedTuple):
    """Paths, and which of them each pair takes, int64 (pairs,)."""

    paths: Paths
    numbers: IntArray


def in_turn(digits: Digits, routing: Routing) -> StepSchedule:
    """Exchange along one digit in each step: all that a rank has by then."""
    return _whole_shards(digits, routing, digits.last_hops.places)


def overlapping(digits: Digits, routing: Routing) -> StepSchedule:
    """Pass each shard on as soon as it is there: after as many steps as it has made hops."""
    return _whole_shards(digits, routing, digits.last_hops.counts - 1)


def in_waves(digits: Digits, groups: RankGroups, early: int, routing: Routing) -> StepSchedule:
    """Pass on what comes over rails in two messages to each rank of the box, the first before all has come.

    The first has what came while a rank starts the first messages to all: for the rank that is p-th of g - 1 in order,
    as many shards as p early / (g - 1), rounded down, and one.
    """
    hops = digits.last_hops
    steps, passed = hops.counts - 1, np.flatnonzero(hops.counts > 1)
    sources, senders, receivers = (ends[passed] for ends in (hops.sources, hops.senders, hops.receivers))
    come, turn = (
        np.unique(message_rounds(groups, *ends), return_inverse=True)[1]
        for ends in ((sources, senders), (senders, receivers))
    )
    steps[passed] += come > turn * early // (digits.levels[1].size - 1)
    return _whole_shards(digits, routing, steps)


def in_all_orders(orders: Sequence[Digits], routing: Routing) -> StepSchedule:
    """Exchange along one digit in each step, an equal part of each shard in each of the orders of digits."""
    all_hops = [digits.last_hops for digits in orders]
    hops = LastHops(*map(np.concatenate, zip(*all_hops, strict=True)))
    part = np.repeat(np.arange(len(orders)), [len(order_hops.sources) for order_hops in all_hops])
    return exchange(hops, routing, len(orders), hops.places, part, part + 1)


def trees(digits: Digits, routing: Routing) -> Forest:
    """One tree per root, as high as there are steps: the last hops into all ranks."""
    hops, ranks = digits.last_hops, routing.num_ranks
    routes = routes_of(routing, hops.senders, hops.receivers)
    numbers = np.full((ranks, ranks), -1, dtype=np.int32)
    numbers[hops.sources, hops.receivers] = routes.numbers
    roots, weights = np.arange(ranks), np.ones(ranks, dtype=np.int64)
    return Forest(ranks, 1, roots, weights, numbers, *routes.paths, direction=routing.problem.direction)


def exchange(
    hops: LastHops, routing: Routing, chunks: int, steps: IntArray, lower: IntArray, upper: IntArray
) -> StepSchedule:
    """Send intervals of chunks over last hops, in given steps; hops may be named more than once."""
    routes = routes_of(routing, hops.senders, hops.receivers)
    sends = steps, hops.sources, lower, upper, routes.numbers
    return StepSchedule(routing.num_ranks, chunks, *sends, *routes.paths, direction=routing.problem.direction)


def _whole_shards(digits: Digits, routing: Routing, steps: IntArray) -> StepSchedule:
    """Send whole shards over all last hops."""
    lower = np.zeros_like(steps)
    return exchange(digits.last_hops, routing, 1, steps, lower, lower + 1)


def routes_of(routing: Routing, senders: IntArray, receivers: IntArray) -> Routes:
    """Paths of the pairs that occur."""
    pairs, numbers = np.unique(senders * routing.num_ranks + receivers, return_inverse=True)
    return Routes(routing.paths(*np.divmod(pairs, routing.num_ranks)), numbers)
