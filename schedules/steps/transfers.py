"""Transfers of schedules in steps.

A send waits for all sends of earlier steps that bring its sender some of the same chunks (reduce-scatter: reversed).
In an allreduce a transfer without links, from the root to itself, waits for all contributions of the reduction.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import lcm

import numpy as np

from ...errors import CapacityOverflowError
from ...support.arrays import IntArray
from ...topologies import Topology
from ..transfers import Part, Transfers, concatenate, in_direction, root_transfers
from .sends import ShardSends, StepSends, VectorSends

MAX_CHUNKS = 2**62


def step_transfers(parts: Sequence[ShardSends], topology: Topology) -> Transfers:
    """List the transfers of an allgather or a reduce-scatter, or of an allreduce that consists of both."""
    shard = lcm(*(part.chunks_per_shard for part in parts))
    ranks = parts[0].num_ranks
    if shard * ranks >= MAX_CHUNKS:
        raise CapacityOverflowError(f"the schedule cuts the data into {shard * ranks} chunks; expected fewer than 2^62")
    unit = Fraction(1, shard * ranks)
    if len(parts) == 1:
        return concatenate([_step_part(parts[0], topology, shard, 0)], unit, [_step_dependencies(parts[0])])
    reduce, broadcast = parts
    inwards = _step_part(reduce, topology, shard, 0)
    outwards = _step_part(broadcast, topology, shard, reduce.num_steps)
    ends = np.flatnonzero(inwards.receivers == reduce.sources)
    begins = np.flatnonzero(outwards.senders == broadcast.sources)
    places = _boundaries([(inwards, ends), (outwards, begins)], ranks, shard)
    own = places[:-1] // shard
    turns = root_transfers(own, places[:-1], np.diff(places), np.full_like(own, reduce.num_steps))
    first_turn = reduce.num_sends
    first_out = first_turn + len(places) - 1
    before, turn = _intervals(places, inwards, ends)
    after, turn_after = _intervals(places, outwards, begins)
    waits = [
        _step_dependencies(reduce),
        np.stack([before, turn + first_turn]),
        np.stack([turn_after + first_turn, after + first_out]),
        _step_dependencies(broadcast) + first_out,
    ]
    return concatenate([inwards, turns, outwards], unit, waits)


def _boundaries(parts: list[tuple[Part, IntArray]], ranks: int, shard: int) -> IntArray:
    """Chunk numbers at which a shard, or one of these transfers' ranges, begins or ends."""
    firsts = [part.firsts[numbers] for part, numbers in parts]
    lasts = [part.firsts[numbers] + part.amounts[numbers] for part, numbers in parts]
    return np.unique(np.concatenate([np.arange(ranks + 1) * shard, *firsts, *lasts]))


def _intervals(places: IntArray, part: Part, numbers: IntArray) -> tuple[IntArray, IntArray]:
    """Pairs of a transfer and an interval between two boundaries that it carries."""
    first = np.searchsorted(places, part.firsts[numbers])
    counts = np.searchsorted(places, part.firsts[numbers] + part.amounts[numbers]) - first
    intervals = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return np.repeat(numbers, counts), intervals


def _step_part(schedule: ShardSends, topology: Topology, shard: int, done: int) -> Part:
    """Sends as transfers, after `done` steps of another schedule."""
    is_reduce, scale = schedule.direction == "reduce", shard // schedule.chunks_per_shard
    tails, heads = schedule.ends
    steps = schedule.num_steps - 1 - schedule.steps if is_reduce else schedule.steps
    starts = schedule.path_starts - np.arange(len(schedule.path_starts))
    senders, receivers = (heads, tails) if is_reduce else (tails, heads)
    return Part(
        senders,
        receivers,
        schedule.sources * shard + schedule.lower * scale,
        (schedule.upper - schedule.lower) * scale,
        done + steps,
        is_reduce,
        schedule.routes,
        in_direction(schedule.path_links(topology), starts, is_reduce),
    )


def _step_dependencies(schedule: ShardSends) -> IntArray:
    """Pairs of sends (before, after), the second of which waits for the first, shape (2, waits)."""
    pairs = _arrivals_before(schedule, schedule.sources)
    return pairs[::-1] if schedule.direction == "reduce" else pairs


def _arrivals_before(schedule: StepSends, sources: IntArray) -> IntArray:
    """Pairs of a send and a later one that passes on some of its chunks of the same source, shape (2, pairs)."""
    tails, heads = schedule.ends
    used, step = np.unique(schedule.steps, return_inverse=True)
    group_in, group_out = ((sources * schedule.num_ranks + ends) * len(used) for ends in (heads, tails))
    order = np.argsort(group_in + step, kind="stable")
    # All arrivals of chunks of one source at one rank in steps before a departure from it.
    first, last = (np.searchsorted((group_in + step)[order], keys) for keys in (group_out, group_out + step))
    counts = last - first
    arrivals = order[np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())]
    departures = np.repeat(np.arange(schedule.num_sends), counts)
    meet = (schedule.lower[arrivals] < schedule.upper[departures]) & (
        schedule.lower[departures] < schedule.upper[arrivals]
    )
    return np.stack([arrivals[meet], departures[meet]])


def exchange_transfers(schedule: VectorSends, topology: Topology) -> Transfers:
    """List the transfers of an allreduce in one phase."""
    starts = schedule.path_starts - np.arange(len(schedule.path_starts))
    amounts, routes = schedule.upper - schedule.lower, (schedule.path_links(topology), starts)
    part = Part(*schedule.ends, schedule.lower, amounts, schedule.steps, False, schedule.routes, routes)
    waits = _arrivals_before(schedule, np.zeros_like(schedule.steps))
    return replace(concatenate([part], Fraction(1, schedule.chunks), [waits]), adds=schedule.adds)
