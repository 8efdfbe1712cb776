"""Which chunks of a schedule in steps follow which trees, and one order for all their transfers.

Chunks.  `collopt.runtime.lowering.step_trees` says which trees the schedule consists of.  Every shard is cut into the
fewest equal chunks with which each tree carries a whole number of them; in an allreduce, whose two schedules may cut
shards differently, each tree of both.  Strands are those of `collopt.runtime.lowering.tree_transfers`.

Order.  Hops are ordered by step.  An allgather has its own; a reduce-scatter of T steps makes number ``T - 1 - t`` of
step t of the allgather that it reverses; in an allreduce all of the former come after all of the latter.

Joining.  In one step a rank often sends another several strands that lie next to each other.  They travel as one
transfer if at either end one transfer touched all of them last, or none did: then they lie next to each other there as
well, and wait for the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import gcd, lcm
from typing import NamedTuple

import numpy as np

from ...schedules import AnyStepSchedule
from ...schedules.traffic.collective import Direction
from .step_trees import StepTrees
from .tree_transfers import Hop, Share, Strand


def step_shares(
    schedule: AnyStepSchedule, trees: Mapping[Direction, StepTrees]
) -> tuple[tuple[int, ...], dict[Direction, list[Share]]]:
    """Count the chunks of every rank's shard, and say which of them follow which tree."""
    whole = lcm(*(half.chunks_per_shard for half in schedule.schedules))
    bounds = {
        half.direction: [
            # As Python's integers, which do not overflow.
            [whole // half.chunks_per_shard * place for place in places.tolist()]
            for places in (trees[half.direction].begins, trees[half.direction].ends)
        ]
        for half in schedule.schedules
    }
    unit = gcd(whole, *(place for ends in bounds.values() for places in ends for place in places))
    shares = {
        direction: [
            Share(root, begin // unit, end // unit, tree)
            for tree, (root, begin, end) in enumerate(zip(trees[direction].roots.tolist(), *ends, strict=True))
        ]
        for direction, ends in bounds.items()
    }
    return (whole // unit,) * schedule.num_ranks, shares


class _Row(NamedTuple):
    """One strand on one edge of its tree, in a step of the whole program."""

    level: int
    strand: int
    sender: int
    receiver: int
    adds: bool


def joined_hops(
    trees: Mapping[Direction, StepTrees], strands: Sequence[Strand], max_count: int, borders: Collection[int] = ()
) -> list[Hop]:
    """All hops in the global order, those joined that can be."""
    # A reduce-scatter adds up a rank's own shard in its output, and those of others in scratch.
    apart = "broadcast" not in trees
    ranks = max(half.parents.shape[1] for half in trees.values())
    touched: list[dict[int, int]] = [{} for _ in range(ranks)]
    hops: list[Hop] = []
    last, chunks, state = None, 0, None
    for row in _rows(trees, strands):
        strand = strands[row.strand]
        own = apart and row.receiver == strand.root
        now = (touched[row.sender].get(row.strand), touched[row.receiver].get(row.strand), own)
        chunks += strand.chunks
        follows = last == row._replace(strand=row.strand - 1) and strand.first not in borders
        if follows and state == now and chunks <= max_count:
            hops[-1] = hops[-1]._replace(strands=hops[-1].strands + 1)
        else:
            hops.append(Hop(row.strand, row.sender, row.receiver, row.adds))
            chunks, state = strand.chunks, now
        last = row
        touched[row.receiver][row.strand] = len(hops)
        if row.adds:
            touched[row.sender][row.strand] = len(hops)
    return hops


def _rows(trees: Mapping[Direction, StepTrees], strands: Sequence[Strand]) -> Iterator[_Row]:
    """Yield single hops by step; those of one step by sender, receiver and strand."""
    done, parts = 0, []
    for direction in ("reduce", "broadcast"):
        if direction not in trees:
            continue
        adds, half = direction == "reduce", trees[direction]
        number_of_steps = int(half.steps.max()) + 1
        followed = np.array([strand.adding if adds else strand.spreading for strand in strands])
        numbers, children = np.nonzero(half.parents[followed] >= 0)
        parents, steps = (table[followed[numbers], children] for table in (half.parents, half.steps))
        levels = done + (number_of_steps - 1 - steps if adds else steps)
        ends = (children, parents) if adds else (parents, children)
        parts.append((levels, numbers, *ends, np.full(len(numbers), adds)))
        done += number_of_steps
    levels, numbers, senders, receivers, adding = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((numbers, receivers, senders, levels))
    columns = (column[order].tolist() for column in (levels, numbers, senders, receivers, adding))
    return (_Row(*row) for row in zip(*columns, strict=True))
