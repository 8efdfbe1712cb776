"""Counts what replicas of a program need of the thread blocks of the MSCCL++ executor, without making them.

With few replicas, each has thread blocks of its own, which hold what those of the program hold.  With more, thread
blocks are merged; which of them is known from the program alone, and how long the merged ones become only about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ...programs.program import Program, RankProgram, ThreadBlock
from ..format.execution_plan import MAX_CHANNELS, MAX_OPERATIONS
from .thread_blocks import WEIGHTS, merged_blocks


class Crowding(NamedTuple):
    """What thread blocks hold once they are merged.

    `heaviest`: About how many operations the longest one has, or 0 where none are merged.
    `refusal`: Why the executor cannot take them, whatever else they hold, or empty where that is not certain.
    """

    heaviest: int
    refusal: str


def first_replica(pair: Program) -> Program:
    """Take the first of two replicas, only to count with: its waits are still those of the two."""
    # As in `replicated`, the replicas of a block follow one another.
    ranks = tuple(replace(rank, thread_blocks=rank.thread_blocks[::2]) for rank in pair.ranks)
    return replace(pair, ranks=ranks)


def most_apart(program: Program, max_thread_blocks: int) -> int:
    """Most replicas that have thread blocks of their own; at least 1."""
    most = max((len(rank.thread_blocks) for rank in program.ranks), default=1)
    return max(1, max_thread_blocks // max(1, most))


def crowding(program: Program, boxes: Sequence[int], max_thread_blocks: int, instances: int) -> Crowding:
    """Find out what the thread blocks hold of several replicas of a program."""
    if instances <= most_apart(program, max_thread_blocks):
        return Crowding(0, "")
    found = [_of_rank(rank, boxes, max_thread_blocks, instances) for rank in program.ranks]
    return Crowding(max(each.heaviest for each in found), next((each.refusal for each in found if each.refusal), ""))


def _of_rank(rank: RankProgram, boxes: Sequence[int], max_thread_blocks: int, instances: int) -> Crowding:
    # As in `replicated`, the replicas of a block follow one another.
    weights = [
        weight
        for block in rank.thread_blocks
        for weight in [sum(WEIGHTS[step.kind] for step in block.instructions)] * instances
    ]
    needs = [_least(block, rank.rank, boxes) for block in rank.thread_blocks]
    heaviest, refusal = 0, ""
    for at, group in enumerate(merged_blocks(weights, max_thread_blocks)):
        heaviest = max(heaviest, sum(weights[block] for block in group))
        counts: Counter[str] = Counter()
        for block in group:
            counts.update(needs[block // instances])
        where = f"rank {rank.rank} thread block {at}"
        # It greets the ranks that it has transfers with.
        if counts["operations"] and (length := counts["operations"] + 1) > MAX_OPERATIONS:
            refusal = refusal or (
                f"{where} has at least {length} operations, the MSCCL++ executor takes {MAX_OPERATIONS}"
            )
        for kind in ("memory", "port"):
            if counts[kind] > MAX_CHANNELS:
                refusal = refusal or (
                    f"{where} uses {counts[kind]} {kind} channels, the MSCCL++ executor takes {MAX_CHANNELS}"
                )
    return Crowding(heaviest, refusal)


def _least(block: ThreadBlock, rank: int, boxes: Sequence[int]) -> Counter[str]:
    """Operations that a thread block has at least, and channels that it uses."""
    counts: Counter[str] = Counter()
    for peer, used in (
        (block.send_peer, any(step.kind == "send" for step in block.instructions)),
        (block.recv_peer, any(step.receives for step in block.instructions)),
    ):
        if peer is not None and used:
            counts["port" if boxes[peer] != boxes[rank] else "memory"] += 1
    near = block.send_peer is not None and boxes[block.send_peer] == boxes[rank]
    for step in block.instructions:
        # Between a put into memory and its signal, and between a wait and a sum, all threads wait for each other.
        counts["operations"] += {"send": 3 if near else 1, "recv": 1, "recv_reduce": 3}.get(step.kind, 0)
    return counts
