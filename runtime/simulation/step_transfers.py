"""Schedules in steps and flows as transfers; see `collopt.runtime.simulation.transfers`.

Steps.  Every send is a transfer.  It waits for all sends of earlier steps that bring its sender some of the same chunks
of the same shard; in a reduce-scatter, which is an allgather reversed, for all that bring its sender sums to add to.
In an allreduce, the sums of each rank turn at that rank, as those of trees do, each part as soon as it is complete.

Flows.  The way of a path from each rank to the next is a transfer, which waits for the one before it.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import numpy as np

from ...errors import CapacityOverflowError
from ...schedules import AnyStepSchedule, FlowSchedule, StepSchedule
from ...support.arrays import IntArray
from ...topologies import Topology
from .transfers import Part, Transfers, in_direction, joined

MOST_CHUNKS = 2**62


def step_transfers(schedule: AnyStepSchedule, topology: Topology) -> Transfers:
    """List the transfers of a schedule in steps; all is as for `.sent_trees.transfers_of`."""
    shard = lcm(*(half.chunks_per_shard for half in schedule.schedules))
    if shard * schedule.num_ranks >= MOST_CHUNKS:
        raise CapacityOverflowError(
            f"the schedule cuts the data into {shard * schedule.num_ranks} chunks; expected fewer than 2^62"
        )
    unit = Fraction(1, shard * schedule.num_ranks)
    if isinstance(schedule, StepSchedule):
        return joined([_step_part(schedule, topology, shard, 0)], unit, [_step_waits(schedule)])
    adding, spreading = schedule.schedules
    inwards = _step_part(adding, topology, shard, 0)
    outwards = _step_part(spreading, topology, shard, adding.num_steps)
    ends = np.flatnonzero(inwards.receivers == adding.sources)
    begins = np.flatnonzero(outwards.senders == spreading.sources)
    places = _places([(inwards, ends), (outwards, begins)], schedule.num_ranks, shard)
    first_turn = adding.num_sends
    first_out = first_turn + len(places) - 1
    before, turn = _covered(places, inwards, ends)
    after, turn_after = _covered(places, outwards, begins)
    waits = [
        _step_waits(adding),
        np.stack([before, turn + first_turn]),
        np.stack([turn_after + first_turn, after + first_out]),
        _step_waits(spreading) + first_out,
    ]
    return joined([inwards, _turns(places, shard, adding.num_steps), outwards], unit, waits)


def _places(parts: list[tuple[Part, IntArray]], ranks: int, shard: int) -> IntArray:
    """Where a shard, or some of what these transfers carry, begins or ends, counted over all shards."""
    firsts = [part.firsts[numbers] for part, numbers in parts]
    lasts = [part.firsts[numbers] + part.amounts[numbers] for part, numbers in parts]
    return np.unique(np.concatenate([np.arange(ranks + 1) * shard, *firsts, *lasts]))


def _covered(places: IntArray, part: Part, numbers: IntArray) -> tuple[IntArray, IntArray]:
    """Pairs of a transfer and an interval between two places that it carries."""
    first = np.searchsorted(places, part.firsts[numbers])
    counts = np.searchsorted(places, part.firsts[numbers] + part.amounts[numbers]) - first
    intervals = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return np.repeat(numbers, counts), intervals


def _turns(places: IntArray, shard: int, level: int) -> Part:
    """One transfer per interval between places, from the rank whose shard it is of to itself."""
    own, amounts = places[:-1] // shard, np.diff(places)
    nowhere = np.full(len(own), -1, dtype=np.int64)
    no_paths = (np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64))
    return Part(own, own, places[:-1], amounts, np.full(len(own), level), False, nowhere, no_paths)


def _ends(schedule: StepSchedule) -> tuple[IntArray, IntArray]:
    """Ranks at the start and at the end of the path of each send."""
    starts, nodes = schedule.path_starts, schedule.path_nodes
    return nodes[starts[:-1]][schedule.routes], nodes[starts[1:] - 1][schedule.routes]


def _step_part(schedule: StepSchedule, topology: Topology, shard: int, done: int) -> Part:
    """Sends as transfers, after so many steps of another schedule."""
    inwards, scale = schedule.direction == "reduce", shard // schedule.chunks_per_shard
    tails, heads = _ends(schedule)
    steps = schedule.num_steps - 1 - schedule.steps if inwards else schedule.steps
    starts = schedule.path_starts - np.arange(len(schedule.path_starts))
    senders, receivers = (heads, tails) if inwards else (tails, heads)
    return Part(
        senders,
        receivers,
        schedule.sources * shard + schedule.lower * scale,
        (schedule.upper - schedule.lower) * scale,
        done + steps,
        inwards,
        schedule.routes,
        in_direction(schedule.path_links(topology), starts, inwards),
    )


def _step_waits(schedule: StepSchedule) -> IntArray:
    """Pairs of sends, of which the second waits for the first, shape (2, waits)."""
    tails, heads = _ends(schedule)
    group_in = schedule.sources * schedule.num_ranks + heads
    group_out = schedule.sources * schedule.num_ranks + tails
    order = np.argsort(group_in, kind="stable")
    # All pairs of an arrival and a departure of chunks of one shard at one rank.
    first, last = (np.searchsorted(group_in[order], group_out, side=side) for side in ("left", "right"))
    counts = last - first
    arrivals = order[np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())]
    departures = np.repeat(np.arange(schedule.num_sends), counts)
    meet = (schedule.lower[arrivals] < schedule.upper[departures]) & (
        schedule.lower[departures] < schedule.upper[arrivals]
    )
    meet &= schedule.steps[arrivals] < schedule.steps[departures]
    pairs = np.stack([arrivals[meet], departures[meet]])
    return pairs[::-1] if schedule.direction == "reduce" else pairs


def flow_transfers(schedule: FlowSchedule, topology: Topology) -> Transfers:
    """List the transfers of a flow; all is as for `.sent_trees.transfers_of`."""
    nodes, starts = schedule.path_nodes, schedule.path_starts
    at_rank = nodes < schedule.num_ranks
    owners = np.repeat(np.arange(schedule.num_paths), np.diff(starts))
    last = np.zeros(len(nodes), dtype=np.bool_)
    last[starts[1:] - 1] = True
    # Every rank on a path but its last node begins a transfer, which ends at the next rank of the path.
    stops = np.flatnonzero(at_rank)
    begins = ~last[stops]
    tails, heads = stops[begins], stops[np.flatnonzero(begins) + 1]
    paths = owners[tails]
    onward = np.flatnonzero(paths[1:] == paths[:-1])
    # Chunks of each source are counted from 0, path by path.
    order = np.argsort(schedule.sources, kind="stable")
    ahead = np.cumsum(schedule.weights[order]) - schedule.weights[order]
    first_of_source = np.searchsorted(schedule.sources[order], schedule.sources[order])
    offsets = np.empty(schedule.num_paths, dtype=np.int64)
    offsets[order] = ahead - ahead[first_of_source]
    # The number of a node, less one for each path that ended before it, is that of the hop that begins there.
    limits = np.append(tails - paths, len(nodes) - schedule.num_paths)
    part = Part(
        nodes[tails],
        nodes[heads],
        offsets[paths],
        schedule.weights[paths],
        schedule.steps[limits[:-1]],
        False,
        np.arange(len(tails)),
        (schedule.hop_links(topology), limits),
    )
    unit = 1 / (schedule.total_weight * schedule.chunks_per_unit)
    return joined([part], unit, [np.stack([onward, onward + 1])])
