"""The exporter of MSCCL++ plans that `Plan.export` finds as an entry point, with estimates of what replicas need."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ...errors import TooLargeError, UnsupportedError
from ...planners import Plan
from ...support.writing import write_whole
from ...topologies import Topology
from ..lowering.lower import lower
from ..programs.channels import check_channels
from ..programs.checks import check_counts
from ..programs.program import Program, RankProgram, ThreadBlock
from .format.execution_plan import (
    CHANNEL_TYPES,
    MAX_CHANNELS,
    MAX_OPERATIONS,
    MAX_THREADS,
    ExecutionPlan,
    to_mscclpp_text,
)
from .lowering.lower import DEFAULT_SLICE_BYTES, DEFAULT_THREAD_BLOCKS, common_count, port_pairs, to_execution_plan
from .lowering.thread_blocks import WEIGHTS, merged_blocks
from .lowering.transfers import Connections

__all__ = ["boxes_of", "export_mscclpp_json", "least_needs"]


NAME_LENGTH = 63
STEPS = (16, 12, 10, 8, 6, 5, 4, 3, 2, 1)
"""Steps of a thread block to try, most first: fewer steps make more thread blocks that have to wait for each other."""
MERGED_TRIES = 2
"""Ways to lower replicas of which thread blocks are merged: each takes as long as a file of so many replicas."""
Lowered = Callable[[int, int], Program]
"""From steps of a thread block at most, and instances, to a program."""


def export_mscclpp_json(
    plan: Plan,
    path: str | os.PathLike[str],
    *,
    channels: int = 1,
    instances: int = 1,
    boxes: Sequence[int] | None = None,
    placement: str = "out-of-place",
    slice_bytes: int | None = DEFAULT_SLICE_BYTES,
    min_bytes: int | None = None,
    max_bytes: int | None = None,
    max_thread_blocks: int = DEFAULT_THREAD_BLOCKS,
    threads_per_block: int = MAX_THREADS,
) -> None:
    """Lower a plan for the MSCCL++ executor and write it as an execution plan.

    Parameters
    ----------
    plan : Plan
        With equal shards.  A file for broadcast or reduce is right for the plan's root alone.
    path : path
        File to write.
    channels : int
        Channels per connection at least; more than the busiest connection has transfers are refused.  See `lower`.
    instances : int
        Parts that every transfer is divided into, with thread blocks and channels of their own; see `lower`.
    boxes : sequence of int, or None
        As for `to_execution_plan`; None means those of `boxes_of`.
    placement, slice_bytes, min_bytes, max_bytes, max_thread_blocks, threads_per_block
        As for `to_execution_plan`.

    Raises
    ------
    UnsupportedError
        If the plan's schedule cannot be lowered or does not fit the executor; the message says what to change.
    OSError
        If the file cannot be written; nothing is left behind.
    """
    if not hasattr(plan, "schedule"):
        raise UnsupportedError(f"the plan is a {type(plan).__name__}; expected a Plan")
    check_counts({"channels": channels, "instances": instances, "max_thread_blocks": max_thread_blocks})
    options = {
        "boxes": boxes_of(plan.topology) if boxes is None else boxes,
        "placement": placement,
        "slice_bytes": slice_bytes,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "max_thread_blocks": max_thread_blocks,
        "threads_per_block": threads_per_block,
    }
    lowered = partial(_lowered, plan, channels)
    try:
        written = (
            _execution_plan(lowered, channels, options)
            if instances == 1
            else _replicas(lowered, channels, instances, options)
        )
    except UnsupportedError as error:
        if instances == 1:
            raise
        # If it refuses a single one too, instances are not what is wrong.
        fitting = _fitting(lowered, channels, instances, options)
        raise type(error)(
            f"instances is {instances}: {str(error).partition(';')[0]}; expected fewer instances, such as {fitting}, "
            "which fits"
        ) from None
    write_whole(path, to_mscclpp_text(written))


def boxes_of(topology: Topology) -> list[int]:
    """Number of the box that each rank is in: those whose names agree up to the last slash are in one.

    Examples
    --------
    >>> from collopt.topologies import dgx_h100
    >>> set(boxes_of(dgx_h100())), boxes_of(dgx_h100(boxes=2))[7:9]
    ({0}, [0, 1])
    """
    names = [name.rpartition("/")[0] for name in topology.compute_nodes]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [numbers[name] for name in names]


def _lowered(plan: Plan, channels: int, max_steps: int, instances: int) -> Program:
    root = ""
    if plan.collective.has_one_root and plan.schedule.root is not None:
        root = f"-root{plan.schedule.root}"
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", f"{plan.collective}{root}-{plan.topology.name}")[:NAME_LENGTH]
    return lower(plan.schedule, plan.collective, max_steps=max_steps, channels=channels, instances=instances, name=name)


def _singles(lowered: Lowered, channels: int) -> Iterator[tuple[int, Program]]:
    """Lower with ever fewer steps in a thread block, and leave out what that does not change."""
    last: Program | None = None
    for max_steps in STEPS:
        program = lowered(max_steps, 1)
        check_channels(program, channels, 1)
        if program != last:
            yield max_steps, program
        last = program


def _execution_plan(lowered: Lowered, channels: int, options: dict[str, Any]) -> ExecutionPlan:
    """Lower with as many steps in a thread block as the executor takes."""
    return _first((program for _, program in _room_for(lowered, channels, 1, options)), options)[0]


def _room_for(
    lowered: Lowered, channels: int, instances: int, options: dict[str, Any]
) -> Iterator[tuple[int, Program]]:
    """Give the single programs, once there is room for as many replicas of the first."""
    for number, (max_steps, program) in enumerate(_singles(lowered, channels)):
        if number == 0:
            # Replicas of what no division into thread blocks makes fit take long to make, and to refuse ten times.
            _check_room(program, instances, options)
        yield max_steps, program


def _replicas(lowered: Lowered, channels: int, instances: int, options: dict[str, Any]) -> ExecutionPlan:
    """Lower to replicas that the executor takes; where their thread blocks must be merged, few ways are tried."""
    apart: list[int] = []
    merged: list[tuple[int, int, int]] = []
    refusals: list[str] = []
    for number, (max_steps, _) in enumerate(_room_for(lowered, channels, instances, options)):
        single = first_replica(lowered(max_steps, 2))
        found = crowding(single, options["boxes"], options["max_thread_blocks"], instances)
        if found.refusal:
            refusals.append(found.refusal)
        elif found.heaviest:
            merged.append((found.heaviest, number, max_steps))
        else:
            apart.append(max_steps)
    tried = [*apart, *(max_steps for *_, max_steps in sorted(merged)[:MERGED_TRIES])]
    if not tried:
        raise TooLargeError(refusals[0])
    return _first((lowered(max_steps, instances) for max_steps in tried), options)[0]


def _fitting(lowered: Lowered, channels: int, instances: int, options: dict[str, Any]) -> int:
    """Return a smaller number of instances that fits, or raise as a single one does.

    Replicas with thread blocks of their own are as long as a single one; sizes given with them may not be right for
    as many.
    """
    sized = options["min_bytes"] is not None or options["max_bytes"] is not None
    singles = _room_for(lowered, channels, 1, options)
    if instances > 2 and not sized:
        known = list(singles)
        singles = iter(known)
        with suppress(UnsupportedError):
            # Two are cut where shards begin, as any number of them is, and a single one is not.
            _, pair = _first((lowered(max_steps, 2) for max_steps, _ in known), options)
            return max(2, min(instances - 1, most_apart(first_replica(pair), options["max_thread_blocks"])))
    _first((program for _, program in singles), options)
    return 1


def _first(programs: Iterable[Program], options: dict[str, Any]) -> tuple[ExecutionPlan, Program]:
    """Write the first that the executor takes."""
    refusal: UnsupportedError | None = None
    for program in programs:
        try:
            return to_execution_plan(program, **options), program
        except TooLargeError as error:
            refusal = refusal or error
        except UnsupportedError as error:
            # What one that fits is refused for is what has to be mended.
            refusal = error if refusal is None or isinstance(refusal, TooLargeError) else refusal
    assert refusal is not None
    raise refusal


def _check_room(program: Program, instances: int, options: dict[str, Any]) -> None:
    """Refuse so many replicas of a program that thread blocks have no room for them, however it is lowered.

    With fewer steps in a thread block it would have as many transfers, and no fewer channels.  What is not refused may
    find no room all the same.
    """
    boxes, max_thread_blocks = options["boxes"], options["max_thread_blocks"]
    # All steps of a pipeline have as many chunks as each other: long before they are too many, they fill memory.
    unit = None if options["slice_bytes"] is None else common_count(program)
    for rank, needs in enumerate(least_needs(program, boxes, unit)):
        for what, count in needs.items():
            room = max_thread_blocks * (MAX_OPERATIONS if what == "operations" else MAX_CHANNELS)
            if count * instances > room:
                raise TooLargeError(
                    f"rank {rank} needs at least {count * instances} {what}, {max_thread_blocks} thread blocks of the "
                    f"MSCCL++ executor have {room}; plan with fewer trees or chunks"
                )


def least_needs(program: Program, boxes: Sequence[int], unit: int | None = None) -> list[dict[str, int]]:
    """Count what the thread blocks of each rank hold at least: ``operations``, ``memory channels``, ``port channels``.

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
