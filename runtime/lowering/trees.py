"""Lowering of trees, and of schedules in steps as trees: hops in a global order; see docs/explanation/programs.md."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import gcd, lcm
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import ColloptError, UnsupportedError
from ...planners import PLANNERS, Plan
from ...planners.plans.registry import plan as make_plan
from ...schedules import Allreduce, AnyStepSchedule, Forest, Schedule, StepSchedule, TreeSchedule
from ...schedules.collective import Direction
from ...schedules.message_order import message_rounds
from ...schedules.trees.tree_schedule import Share, TreeChunks, heights_below
from ...support.arrays import IntArray, SmallArray, narrow
from ...support.formatting import percentage_text, rate_text
from ...support.kernels import kernel, kernel_with
from ...topologies import Topology
from ...topologies.symmetry.rank_groups import RankGroups

MAX_TRANSFERS = 2**26  # Some tens of GB as steps
SEND, RECV, RECV_REDUCE = range(3)
HASH_FACTOR = 0x9E3779B97F4A7C1  # Odd, with bits of both kinds all over
NONE, INPUT, OUTPUT, SCRATCH = range(4)
logger = logging.getLogger("collopt.runtime")


def branches_at_switches(schedule: Schedule) -> bool:
    """Whether switches are among the vertices of its trees, and multicast or add up."""
    return any(len(forest.switches) for forest in getattr(schedule, "forests", ()))


def without_switches(plan: Plan, what: str) -> Plan:
    """Plan again without switches that copy or add, for which `what` has no operations; the log says what that costs.

    A plan without such switches is returned as it is.
    """
    if not branches_at_switches(plan.schedule):
        return plan
    solver = PLANNERS.get(plan.planner)
    if solver is None or not solver.takes(plan.collective, "in_network"):
        solver = PLANNERS["auto"]
    options: dict[str, Any] = {name: value for name, value in plan.options.items() if name in solver.options}
    if planned_for := re.match(r"\d+(?= bytes)", str(plan.provenance.get("planned_for"))):
        solver, options = PLANNERS["auto"], {"size": int(planned_for[0])}
    options |= plan.schedule.problem(plan.collective) | {"in_network": False}
    refusal = f"the plan's trees branch at switches, which {what} has no operations for"
    try:
        other = make_plan(plan.topology, plan.collective, planner=solver, **options)
    except ColloptError as error:
        raise UnsupportedError(f"{refusal}, and there is no plan without: {error}") from None
    cost = "at the same rate"
    if other.algbw != plan.algbw:
        lost = percentage_text(1 - other.algbw / plan.algbw)
        cost = f"{rate_text(other.algbw)} instead of {rate_text(plan.algbw)}, which costs {lost}"
    logger.warning("%s: planned again with in_network=False (--no-in-network), %s", refusal, cost)
    return other


def refuse_relays(schedule: Schedule, topology: Topology, what: str) -> None:
    """Refuse routes over compute nodes that take no part; `what` takes the schedule."""
    if not topology.relays:
        return
    over = [not topology.relays.isdisjoint(link[:2]) for link in topology.links]
    if schedule.link_loads(topology)[..., over].any():
        raise UnsupportedError(
            f"the plan's routes pass through compute nodes outside the group, such as {min(topology.relays)!r}, where "
            f"{what} runs nothing; plan again without relay (--relay), or with these nodes as ranks"
        )


def from_rank_to_rank(schedule: TreeSchedule) -> TreeSchedule:
    """Replace what switches copy and add up by transfers between ranks; the data is the same."""
    if isinstance(schedule, Allreduce):
        return replace(schedule, reduce=schedule.reduce.unicast, broadcast=schedule.broadcast.unicast)
    return schedule.unicast


class Hop(NamedTuple):
    """Chunk ranges from number `first_range` on, adjacent at both ends, sent to a rank that may add its own."""

    first_range: int
    sender: int
    receiver: int
    reduces: bool
    ranges: int = 1
    copy: int = -1  # Number of the copies that a switch makes of these ranges, for each receiver


def ordered_hops(
    schedule: TreeSchedule, ranges: Sequence[TreeChunks], groups: RankGroups, switched: TreeSchedule | None = None
) -> IntArray:
    """All hops, int64 (hops, 6) as in `Hop`, in the global order; `switched`: the same trees with their switches."""
    trees = np.array([(part.reduce_tree, part.broadcast_tree) for part in ranges]).T
    parts = []
    for forest, original in zip(schedule.forests, (switched or schedule).forests, strict=True):
        own, other = trees if forest.direction == "reduce" else trees[::-1]
        opposite = [half for half in schedule.forests if half.direction != forest.direction]
        parts.append(
            _hop_columns(forest, original, own, opposite[0].heights[other] if opposite else np.zeros_like(own))
        )
    columns = [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]
    numbers, senders, receivers, adds, copies, levels, left, together = columns
    rounds = message_rounds(groups, senders, receivers)
    if together.any():
        copied = np.flatnonzero(together)
        siblings, group_of = np.unique(numbers[copied] * schedule.num_ranks + senders[copied], return_inverse=True)
        earliest = np.full(len(siblings), rounds.max(), dtype=np.int64)
        np.minimum.at(earliest, group_of, rounds[copied])
        rounds[copied] = earliest[group_of]
    keys = (receivers, copies + 1, senders, numbers, rounds, left.max(initial=0) - left, levels)
    order = np.lexsort([narrow(key) for key in keys])
    hops = np.ones((len(order), len(Hop._fields)), dtype=np.int64)
    for place, column in enumerate((numbers, senders, receivers, adds, None, copies)):
        if column is not None:
            hops[:, place] = column[order]
    return hops


def _hop_columns(
    forest: Forest, original: Forest, trees: IntArray, other: IntArray
) -> tuple[npt.NDArray[np.generic], ...]:
    """Columns range, sender, receiver, reduces, copy, level, hops still to go and whether siblings stay together.

    If switches copy, all sends of a rank from one range have as many hops to go, and follow one another.
    Shapes: `trees`, `other` (the height of each range's tree of the other direction) int64 (ranges,).  `original` may
    have switches where `forest` has the ranks above them.
    """
    numbers, children = np.nonzero(forest.routes[trees] >= 0)
    own, reduces = trees[numbers], forest.direction == "reduce"
    parents, heights, above = forest.parents[own, children], heights_below(forest), forest.depths[own, children] - 1
    below, copies, adds = heights[own, children], np.full(len(own), -1), np.full(len(own), reduces)
    if reduces:
        return numbers, children, parents, adds, copies, below, above + other[numbers], ~adds
    if len(original.switches):
        switches = original.parents[own, children] - forest.num_ranks
        copies = np.where(switches >= 0, numbers * len(original.switches) + switches, -1)
        below = heights[own, parents] - 1
    together = np.full(len(own), len(original.switches) > 0)
    return numbers, parents, children, adds, copies, above + other[numbers], below, together


def step_shares(
    schedule: AnyStepSchedule, trees: Mapping[Direction, StepTrees]
) -> tuple[tuple[int, ...], dict[Direction, list[Share]]]:
    """Count the chunks of every rank's shard, and say which of them follow which tree."""
    common = lcm(*(half.chunks_per_shard for half in schedule.schedules))
    bounds = {
        half.direction: [
            # As Python's integers, which do not overflow.
            [common // half.chunks_per_shard * place for place in places.tolist()]
            for places in (trees[half.direction].begins, trees[half.direction].ends)
        ]
        for half in schedule.schedules
    }
    unit = gcd(common, *(place for ends in bounds.values() for places in ends for place in places))
    shares = {
        direction: [
            Share(root, begin // unit, end // unit, tree)
            for tree, (root, begin, end) in enumerate(zip(trees[direction].roots.tolist(), *ends, strict=True))
        ]
        for direction, ends in bounds.items()
    }
    return (common // unit,) * schedule.num_ranks, shares


def merged_hops(
    trees: Mapping[Direction, StepTrees],
    ranges: Sequence[TreeChunks],
    groups: RankGroups,
    max_count: int,
    borders: Collection[int] = (),
) -> IntArray:
    """All hops, int64 (hops, 6) as in `Hop`, in the global order, adjacent ones merged."""
    # A reduce-scatter reduces a rank's own shard in its output, and those of others in scratch.
    own_output = "broadcast" not in trees
    num_ranks = max(half.parents.shape[1] for half in trees.values())
    touched: list[dict[int, int]] = [{} for _ in range(num_ranks)]
    hops: list[Hop] = []
    last, chunks, state = None, 0, None
    for level, number, sender, receiver, reduces in _rows(trees, ranges, groups):
        chunk_range = ranges[number]
        own = own_output and receiver == chunk_range.root
        now = (touched[sender].get(number), touched[receiver].get(number), own)
        chunks += chunk_range.chunks
        follows = last == (level, number - 1, sender, receiver, reduces) and chunk_range.first not in borders
        if follows and state == now and chunks <= max_count:
            hops[-1] = hops[-1]._replace(ranges=hops[-1].ranges + 1)
        else:
            hops.append(Hop(number, sender, receiver, reduces))
            chunks, state = chunk_range.chunks, now
        last = level, number, sender, receiver, reduces
        touched[receiver][number] = len(hops)
        if reduces:
            touched[sender][number] = len(hops)
    return np.array(hops, dtype=np.int64).reshape(-1, len(Hop._fields))


def _rows(
    trees: Mapping[Direction, StepTrees], ranges: Sequence[TreeChunks], groups: RankGroups
) -> Iterator[tuple[int, int, int, int, bool]]:
    """Yield (level, range, sender, receiver, reduces) of single hops, by step, round, sender and range."""
    done, parts = 0, []
    for direction in ("reduce", "broadcast"):
        if direction not in trees:
            continue
        reduces, half = direction == "reduce", trees[direction]
        number_of_steps = int(half.steps.max()) + 1
        followed = np.array(
            [chunk_range.reduce_tree if reduces else chunk_range.broadcast_tree for chunk_range in ranges]
        )
        numbers, children = np.nonzero(half.parents[followed] >= 0)
        parents, steps = (table[followed[numbers], children] for table in (half.parents, half.steps))
        levels = done + (number_of_steps - 1 - steps if reduces else steps)
        ends = (children, parents) if reduces else (parents, children)
        parts.append((levels, numbers, *ends, np.full(len(numbers), reduces)))
        done += number_of_steps
    columns = [np.concatenate(chunk_range) for chunk_range in zip(*parts, strict=True)]
    rounds = message_rounds(groups, columns[2], columns[3])
    order = np.lexsort((columns[1], columns[2], rounds, columns[0]))
    return zip(*(column[order].tolist() for column in columns), strict=True)


class StepTrees(NamedTuple):
    """Trees by root, and those of one root by the chunks that follow them."""

    roots: IntArray  # int64 (trees,): Whose shard it is
    begins: IntArray  # int64 (trees,): Chunks ``begins``, ..., ``ends - 1`` of the shard follow the tree
    ends: IntArray  # int64 (trees,)
    parents: IntArray  # int64 (trees, ranks): Which rank each rank gets them from; -1 for the root
    steps: IntArray  # int64 (trees, ranks): the step of the allgather in which they come; -1 for the root


def step_trees(schedule: StepSchedule) -> StepTrees:
    """Decompose a schedule, which is checked, into the fewest trees."""
    by_step = np.lexsort((schedule.steps, schedule.sources))
    limits = np.searchsorted(schedule.sources[by_step], np.arange(schedule.num_ranks + 1)).tolist()
    ends, left, parts = schedule.columns.ends, MAX_TRANSFERS, []
    for source, (first, last) in enumerate(pairwise(limits)):
        trees, count = _trees_of(schedule, source, by_step[first:last], ends, left)
        left -= count
        parts.append(trees)
    return StepTrees(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _trees_of(
    schedule: StepSchedule, source: int, sends: IntArray, ends: tuple[IntArray, IntArray], limit: int
) -> tuple[StepTrees, int]:
    """Trees of one shard, whose `sends` are by step, and its arrivals, which are at most `limit`; `ends` of all sends.

    The shard is cut into pieces at the ends of all intervals.  The first arrival of each piece at each rank stays;
    consecutive pieces with equal arrivals form one tree.
    """
    lower, upper = schedule.lower[sends], schedule.upper[sends]
    places = np.unique(np.concatenate([[0, schedule.chunks_per_shard], lower, upper]))
    first = np.searchsorted(places, lower)
    counts = np.searchsorted(places, upper) - first
    if (total := int(counts.sum())) > limit:
        raise UnsupportedError(
            f"the sends cut the shard of rank {source} into {len(places) - 1} parts, which takes {total} "
            f"transfers; expected at most {MAX_TRANSFERS} for all shards: cut shards into fewer chunks"
        )
    arriving = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(total)
    senders, receivers, steps_of = (np.repeat(column[sends], counts) for column in (*ends, schedule.steps))
    pieces = len(places) - 1
    parents, steps = np.full((2, pieces, schedule.num_ranks), -1, dtype=np.int64)
    # `np.unique` finds the first of equals, which comes in the earliest step.
    _, earliest = np.unique(arriving * schedule.num_ranks + receivers, return_index=True)
    kept = earliest[receivers[earliest] != source]
    there = arriving[kept], receivers[kept]
    parents[there], steps[there] = senders[kept], steps_of[kept]
    changes = (parents[1:] != parents[:-1]).any(axis=1) | (steps[1:] != steps[:-1]).any(axis=1)
    begins = np.flatnonzero(np.concatenate([[True], changes]))
    stops = np.append(begins[1:], pieces)
    roots = np.full(len(begins), source, dtype=np.int64)
    return StepTrees(roots, places[begins], places[stops], parents[begins], steps[begins]), total


@kernel_with(lambda _rank, events, *_: 40 * len(events))
def tree_steps(
    rank: int,
    events: IntArray,
    hops: IntArray,
    sizes: IntArray,
    firsts: IntArray,
    ends: tuple[int, int, int],
    places: IntArray,
) -> tuple[IntArray, IntArray, int]:
    """Steps (kind, source, target, count; buffers and starts) of a rank, what each comes after, and the scratch.

    Steps are in the global order.  Shapes: `events`, hops of the rank in that order; `hops` (hops, 6) as in `Hop`;
    `firsts` (ranges,), first chunks; `places` (ranges, 4), of the last rank: rank, buffer, start and event to wait
    for.  `ends`: first chunk of its input, and first and last one of its output.
    """
    rows = np.zeros((len(events), 8), dtype=np.int64)
    after, scratch = np.full(len(events), -1, dtype=np.int64), 0
    own, amounts = hops[events], sizes[events]  # At once, as they are scattered over more memory than caches hold
    for event in range(len(events)):
        number, sender, reduces, together = own[event, 0], own[event, 1], own[event, 3], own[event, 4]
        first, count, row = firsts[number], amounts[event], rows[event]
        # Where the rank has these chunks: in its input, or where an earlier step put them
        is_moved = places[number, 0] == rank
        buffer, start = INPUT, first - ends[0]
        if is_moved:
            buffer, start, after[event] = places[number, 1], places[number, 2], places[number, 3]
        row[5], row[6], row[7] = count, -1, -1
        kind, last = RECV, event
        if sender == rank:
            kind = SEND
            row[1], row[2] = buffer, start
            last = event if reduces else after[event]
        elif not reduces:
            buffer, start = OUTPUT, first - ends[1]
            row[3], row[4] = buffer, start
        else:
            kind = RECV_REDUCE
            row[1], row[2] = buffer, start
            # The first sum goes to the output if it is of the rank's result, or else to scratch.
            if not is_moved and ends[1] <= first < ends[2]:
                buffer, start = OUTPUT, first - ends[1]
            elif not is_moved:
                buffer, start = SCRATCH, scratch
                scratch += count
            row[3], row[4] = buffer, start
        row[0] = kind
        for part in range(number, number + together):
            place = places[part]
            place[0], place[1], place[2], place[3] = rank, buffer, start + firsts[part] - first, last
    return rows, after, scratch


@kernel_with(lambda rows, *_: 60 * len(rows))
def step_numbers(rows: IntArray, distinct_rows: IntArray, count: int, slots: SmallArray) -> tuple[IntArray, int]:
    """Numbers (rows,) of rows of `tree_steps` among different ones, and how many of those there are now.

    Shapes: `distinct_rows` (any, 8), of which the first `count` are used; `slots` (power of two,), a hash table with
    linear probing of their numbers, from 1 on.
    """
    numbers, width = np.empty(len(rows), dtype=np.int64), rows.shape[1]
    for place in range(len(rows)):
        # Hash the row, then look it up.
        key = 0
        for column in range(width):
            key = (key ^ rows[place, column]) * HASH_FACTOR
            key ^= key >> 32
        slot = key & (len(slots) - 1)
        while slots[slot] and _differ(distinct_rows, slots[slot] - 1, rows, place):
            slot = (slot + 1) & (len(slots) - 1)
        if not slots[slot]:
            distinct_rows[count] = rows[place]
            count += 1
            slots[slot] = count
        numbers[place] = slots[slot] - 1
    return numbers, count


@kernel
def _differ(some: IntArray, one: int, other_rows: IntArray, other: int) -> bool:
    """Whether two rows differ; many times as fast as numpy's comparison of rows so short."""
    differ = False
    for column in range(some.shape[1]):
        differ |= some[one, column] != other_rows[other, column]
    return differ
