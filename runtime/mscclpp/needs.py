"""Estimates of what the thread blocks of a program need, before it is lowered for the executor."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ..programs.program import Instruction, Program, RankProgram, ThreadBlock
from . import executor
from .execution_plan import CHANNEL_TYPES
from .flow_control import Connections, stays_in_place
from .lower import port_pairs
from .thread_blocks import TOO_LONG, TOO_MANY_CHANNELS, WEIGHTS, merge_blocks


def least_needs(program: Program, boxes: Sequence[int], unit: int | None = None) -> list[dict[str, int]]:
    """Lower bounds on what each rank needs, without copies; `unit`: chunks of the parts that steps are cut into."""
    on_ports = port_pairs(program, boxes)
    ends = Connections.of(program, on_ports)
    rows = []
    for rank in program.ranks:
        steps = [(block.send_peer, step) for block in rank.thread_blocks for step in block.instructions]
        # Each is a put or a wait; after a put into memory there is a signal, and after some waits a sum is made.
        operations = 0
        for peer, step in steps:
            count = (step.kind == "send" or step.receives) + (step.kind == "recv_reduce")
            count += step.kind == "send" and (rank.rank, peer) not in on_ports
            operations += count * _parts(step, unit)
        channels = {f"{kind} channels": len(ends.peers[rank.rank][kind]) for kind in CHANNEL_TYPES}
        rows.append({"operations": operations} | channels)
    return rows


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
    blocks = max((len(rank.thread_blocks) for rank in program.ranks), default=1)
    return max(1, max_thread_blocks // max(1, blocks))


def block_usage(
    program: Program, boxes: Sequence[int], max_thread_blocks: int, unit: int | None, instances: int = 1
) -> BlockUsage:
    """Compute the usage of thread blocks by replicas of a program, without operations of switches; `unit` as above."""
    merges = instances > max_unmerged_replicas(program, max_thread_blocks)
    longest, refusal = 0, ""
    for rank in program.ranks:
        # As in `replicated`, the replicas of a block follow one another.
        parts = [
            sum(WEIGHTS[step.kind] * _parts(step, unit) for step in block.instructions) for block in rank.thread_blocks
        ]
        weights = [weight for weight in parts for _ in range(instances)]
        needs = [_min_operations(program, block, rank.rank, boxes, unit) for block in rank.thread_blocks]
        syncs = _semaphore_operations(rank) if instances == 1 and len(weights) <= max_thread_blocks else []
        for at, group in enumerate(merge_blocks(weights, max_thread_blocks)):
            longest = max(longest, sum(weights[block] for block in group))
            counts = sum((needs[block // instances] for block in group), Counter())
            length = _length(counts, unit) + sum(syncs[block] for block in group if syncs)
            refusal = refusal or _refusal(f"rank {rank.rank} thread block {at}", counts, length)
    return BlockUsage(longest if merges else 0, refusal)


def _refusal(where: str, counts: Counter[str], length: int) -> str:
    if length > executor.MAX_OPERATIONS:
        return TOO_LONG.format(where, f"at least {length}")
    for kind in CHANNEL_TYPES:
        if (channels := counts[f"{kind} in"] + counts[f"{kind} out"]) > executor.MAX_CHANNELS:
            return TOO_MANY_CHANNELS.format(where, channels, kind)
    return ""


def _length(counts: Counter[str], unit: int | None) -> int:
    """Operations of merged thread blocks: of their steps, around them, and the pipeline."""
    if not counts["operations"]:
        return 0
    ends = {
        f"{kind} {way}": -(-counts[f"{kind} {way}"] // executor.MAX_CHANNELS_PER_OPERATION)
        for kind in CHANNEL_TYPES
        for way in ("in", "out")
    }
    # It notifies the senders of its start, and waits for that of the receivers and, by ports, for the end.
    around = (
        sum(ends.values()) + any(ends[f"{kind} out"] for kind in CHANNEL_TYPES) + ends["port in"] + ends["port out"]
    )
    return counts["operations"] + around + (unit is not None)


def _parts(step: Instruction, unit: int | None) -> int:
    return 1 if unit is None else step.count // unit


def _min_operations(
    program: Program, block: ThreadBlock, rank: int, boxes: Sequence[int], unit: int | None
) -> Counter[str]:
    """Minimal operations of a thread block's steps, and the channels that it uses in each direction."""
    counts: Counter[str] = Counter()
    for way, peer, used in (
        ("out", block.send_peer, any(step.kind == "send" for step in block.instructions)),
        ("in", block.recv_peer, any(step.receives for step in block.instructions)),
    ):
        if peer is not None and used:
            counts[f"{'port' if boxes[peer] != boxes[rank] else 'memory'} {way}"] += 1
    near = block.send_peer is not None and boxes[block.send_peer] == boxes[rank]
    # Between a put into memory and its signal, and between a wait and a sum, all threads wait for each other.
    of_kind = {"send": 3 if near else 1, "recv_reduce": 3}
    for step in block.instructions:
        minimum = 0 if stays_in_place(program, rank, step) else of_kind.get(step.kind, 1)
        counts["operations"] += minimum * _parts(step, unit)
    return counts


def _semaphore_operations(rank: RankProgram) -> list[int]:
    """Operations of each thread block that acquire and release semaphores, and that follow from them."""
    counts = [0] * len(rank.thread_blocks)
    released: Counter[tuple[int, int]] = Counter()
    for at, block in enumerate(rank.thread_blocks):
        waited = {at: len(block.instructions)}
        for step in block.instructions:
            awaited = dict(sorted((wait.thread_block, wait.step) for wait in step.depends))
            new = {source: index for source, index in awaited.items() if waited.get(source, -1) < index}
            waited |= new
            released.update(new.items())
            # All threads wait for the first before they copy.
            counts[at] += -(-len(new) // executor.MAX_SEMAPHORES_PER_OPERATION) + bool(new and step.kind == "copy")
    for (source, _), number in released.items():
        counts[source] += -(-number // executor.MAX_SEMAPHORES_PER_OPERATION)
    return counts
