"""Estimates of what the thread blocks of a program need, before it is lowered for the executor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ...programs.program import Program, RankProgram, ThreadBlock
from ..format.execution_plan import CHANNEL_TYPES, MAX_CHANNELS, MAX_OPERATIONS
from .lower import port_pairs
from .thread_blocks import WEIGHTS, merge_blocks
from .transfers import Connections


def least_needs(program: Program, boxes: Sequence[int], unit: int | None = None) -> list[dict[str, int]]:
    """Lower bounds on the resources of each rank: ``operations``, ``memory channels``, ``port channels``.

    Parameters
    ----------
    program : Program
        Copies inside a rank are not counted.
    boxes : sequence of int
        Number of the box that each rank is in.
    unit : int, optional
        Chunks of the parts that each step is cut into; by default steps are whole.

    Returns
    -------
    list of dict of str to int
        By rank.
    """
    on_ports = port_pairs(program, boxes)
    ends = Connections.of(program, on_ports)
    found = []
    for rank in program.ranks:
        steps = [(block.send_peer, step) for block in rank.thread_blocks for step in block.instructions]
        # Each is a put or a wait; after a put into memory there is a signal, and after some waits a sum is made.
        operations = 0
        for peer, step in steps:
            each = (step.kind == "send" or step.receives) + (step.kind == "recv_reduce")
            each += step.kind == "send" and (rank.rank, peer) not in on_ports
            operations += each * (1 if unit is None else step.count // unit)
        channels = {f"{kind} channels": len(ends.peers[rank.rank][kind]) for kind in CHANNEL_TYPES}
        found.append({"operations": operations} | channels)
    return found


class BlockUsage(NamedTuple):
    """Usage of merged thread blocks: operations of the longest (0: none merged), and why they cannot run."""

    max_operations: int
    refusal: str


def first_replica(pair: Program) -> Program:
    """Return the first of two replicas, for counting only: its waits still refer to both."""
    # As in `replicated`, the replicas of a block follow one another.
    ranks = tuple(replace(rank, thread_blocks=rank.thread_blocks[::2]) for rank in pair.ranks)
    return replace(pair, ranks=ranks)


def max_unmerged_replicas(program: Program, max_thread_blocks: int) -> int:
    """Largest number of replicas with thread blocks of their own; at least 1."""
    most = max((len(rank.thread_blocks) for rank in program.ranks), default=1)
    return max(1, max_thread_blocks // max(1, most))


def block_usage(program: Program, boxes: Sequence[int], max_thread_blocks: int, instances: int) -> BlockUsage:
    """Compute the usage of the thread blocks of several replicas of a program."""
    if instances <= max_unmerged_replicas(program, max_thread_blocks):
        return BlockUsage(0, "")
    found = [_rank_usage(rank, boxes, max_thread_blocks, instances) for rank in program.ranks]
    return BlockUsage(
        max(each.max_operations for each in found), next((each.refusal for each in found if each.refusal), "")
    )


def _rank_usage(rank: RankProgram, boxes: Sequence[int], max_thread_blocks: int, instances: int) -> BlockUsage:
    # As in `replicated`, the replicas of a block follow one another.
    weights = [
        weight
        for block in rank.thread_blocks
        for weight in [sum(WEIGHTS[step.kind] for step in block.instructions)] * instances
    ]
    needs = [_min_operations(block, rank.rank, boxes) for block in rank.thread_blocks]
    max_operations, refusals = 0, []
    for at, group in enumerate(merge_blocks(weights, max_thread_blocks)):
        max_operations = max(max_operations, sum(weights[block] for block in group))
        counts: Counter[str] = Counter()
        for block in group:
            counts.update(needs[block // instances])
        where = f"rank {rank.rank} thread block {at}"
        # It notifies its peers that this GPU has started.
        if counts["operations"] and (length := counts["operations"] + 1) > MAX_OPERATIONS:
            refusals.append(f"{where} has at least {length} operations, the MSCCL++ executor takes {MAX_OPERATIONS}")
        refusals += [
            f"{where} uses {counts[kind]} {kind} channels, the MSCCL++ executor takes {MAX_CHANNELS}"
            for kind in CHANNEL_TYPES
            if counts[kind] > MAX_CHANNELS
        ]
    return BlockUsage(max_operations, refusals[0] if refusals else "")


def _min_operations(block: ThreadBlock, rank: int, boxes: Sequence[int]) -> Counter[str]:
    """Minimal operations of a thread block, and the channels that it uses."""
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
