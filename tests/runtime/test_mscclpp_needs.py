"""What is said of a plan before it is written holds of the plan that is written."""

from __future__ import annotations

import pytest
from mscclpp_plans import TWO_BOXES, to_execution_plan
from runtime_forests import random_schedule

from collopt.runtime.lowering.lower import lower
from collopt.runtime.mscclpp.export import (
    _length,
    _min_operations,
    _semaphore_operations,
    block_usage,
    first_replica,
    max_unmerged_replicas,
)
from collopt.runtime.mscclpp.thread_blocks import WEIGHTS
from collopt.runtime.programs.program import Program
from collopt.runtime.programs.transformations import replicated

ONE_BOX = [0] * 4
SLACK = {
    "allgather": (25, 24),
    "reduce_scatter": (29, 26),
    "allreduce": (99, 82),
    "broadcast": (10, 10),
    "reduce": (9, 8),
}
"""Operations of all thread blocks beyond those counted, in one box and in two: the count may not get looser."""


def program(collective: str) -> Program:
    """Random trees on four ranks."""
    return lower(random_schedule(collective, 4, 2, 3, root=1), collective, max_steps=4)


@pytest.mark.parametrize("boxes", [ONE_BOX, TWO_BOXES])
@pytest.mark.parametrize("collective", SLACK)
def test_no_thread_block_is_shorter_than_counted(collective: str, boxes: list[int]) -> None:
    """And none much longer."""
    given = program(collective)
    beyond = []
    for rank, gpu in zip(given.ranks, to_execution_plan(given, boxes=boxes, slice_bytes=None).gpus, strict=True):
        syncs = _semaphore_operations(rank)
        for block, sync, written in zip(rank.thread_blocks, syncs, gpu.thread_blocks, strict=True):
            counts = _min_operations(given, block, rank.rank, boxes, None)
            beyond.append(len(written) - sync - _length(counts, None))
    assert min(beyond) in (0, 1)
    assert sum(beyond) <= SLACK[collective][boxes is TWO_BOXES]


def test_merged_blocks_are_as_long_as_their_parts() -> None:
    """No replica is merged while every block has a thread block."""
    given = program("allreduce")
    most = max(len(rank.thread_blocks) for rank in given.ranks)
    assert block_usage(given, ONE_BOX, most, None) == (0, "")
    assert block_usage(given, ONE_BOX, most, None, instances=2).max_operations > 0
    whole = [
        sum(WEIGHTS[step.kind] for block in rank.thread_blocks for step in block.instructions) for rank in given.ranks
    ]
    usage = block_usage(given, ONE_BOX, 1, None, instances=2)
    assert usage.max_operations == 2 * max(whole)
    assert usage.refusal.startswith("rank 0 thread block 0")


def test_replicas_have_blocks_of_their_own_as_long_as_these_suffice() -> None:
    """One at least, though its blocks are merged then."""
    given = program("allreduce")
    most = max(len(rank.thread_blocks) for rank in given.ranks)
    assert [max_unmerged_replicas(given, blocks) for blocks in (1, most, 2 * most - 1, 2 * most, 3 * most)] == [
        *(1, 1, 1, 2, 3)
    ]
    first = first_replica(replicated(given, 2))
    assert [len(rank.thread_blocks) for rank in first.ranks] == [len(rank.thread_blocks) for rank in given.ranks]
