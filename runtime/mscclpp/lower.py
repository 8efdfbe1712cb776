"""Lowering of programs to MSCCL++ execution plans, as MSCCL++ 0.9 loads them.

The executor checks little of what it loads, so a plan is validated and run by the interpreter before it is written.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, groupby, permutations
from math import gcd
from typing import NamedTuple

import numpy as np

from ...errors import TooLargeError, UnsupportedError
from ...schedules import ALLGATHER, ALLREDUCE, BROADCAST, Collective, Forest, TreeSchedule
from ...support.validation import is_int, shown
from ...topologies import Topology
from ..programs.ordering import global_order
from ..programs.program import Buffer, ChunkRange, Instruction, Program, check_choice, check_counts
from ..programs.transformations import expanded
from . import executor
from .check import check_execution_plan
from .execution_plan import CHANNEL_TYPES, ExecutionPlan, Gpu, Operation, Place, SwitchGroup, to_mscclpp_text
from .interpret import run_execution_plan
from .thread_blocks import RankWriter, SyncedBlock, batches
from .transfers import Connections, plan_multicasts, plan_transfers

DEFAULT_SLICE_BYTES = 2**20
DEFAULT_THREAD_BLOCKS = 108  # SMs of an A100: all thread blocks must run at once or the kernel hangs
MAX_ITERATIONS = 2**16 - 1  # The executor counts the slices of a chunk in 16 bits


class PlanOptions(NamedTuple):
    """Options of an execution plan; see `export_mscclpp_json`.

    Without `boxes` there is one; `switch_groups` are ranks of one box whose switch copies what one of them sends to all
    others, no rank in two of them.
    """

    boxes: Sequence[int] | None = None
    placement: str = "out-of-place"
    slice_bytes: int | None = DEFAULT_SLICE_BYTES
    min_bytes: int | None = None
    max_bytes: int | None = None
    max_thread_blocks: int = DEFAULT_THREAD_BLOCKS
    threads_per_block: int = executor.MAX_THREADS
    switch_groups: Sequence[tuple[int, ...]] = ()

    @property
    def in_place(self) -> bool:
        """Whether the plan is for calls whose input and output are the same memory."""
        return self.placement == "in-place"

    def check(self) -> None:
        """Refuse options that no plan can be written with."""
        check_choice("placement", self.placement, ("out-of-place", "in-place"))
        check_counts({"max_thread_blocks": self.max_thread_blocks, "threads_per_block": self.threads_per_block})
        _check_multiple("threads_per_block", self.threads_per_block, 32, executor.MAX_THREADS)
        if self.slice_bytes is not None:
            _check_multiple("slice_bytes", self.slice_bytes, executor.ALIGNMENT, executor.MAX_BUFFER_BYTES)


def converted(program: Program, options: PlanOptions) -> ExecutionPlan:
    """Convert an out-of-place program, as `lower` makes it or checked, to an execution plan; `verified` runs it."""
    program, count = replace(program, in_place=options.in_place), 0
    if options.slice_bytes is not None:
        count = common_count(program)
        program = _with_equal_counts(program, count)
    on_ports = port_pairs(program, options.boxes)
    gpus = _gpus(program, on_ports, options, count)
    return _sized(program.name, program.collective, gpus, options, count)


def verified(plan: ExecutionPlan) -> ExecutionPlan:
    """Check a plan and run it once."""
    check_execution_plan(plan, "the plan")
    run_execution_plan(plan, interleavings=1)
    return plan


def _sized(
    name: str, collective: Collective, gpus: tuple[Gpu, ...], options: PlanOptions, count: int = 0
) -> ExecutionPlan:
    """Make a plan with its sizes and a unique name; `count`: chunks of steps that are sliced, else 0."""
    plan = ExecutionPlan(name, collective, options.in_place, 0, 0, options.threads_per_block, gpus)
    smallest, largest = _size_window(plan, options.slice_bytes, count)
    low = smallest if options.min_bytes is None else options.min_bytes
    high = largest if options.max_bytes is None else options.max_bytes
    _check_window(low, high, smallest, largest)
    text = to_mscclpp_text(replace(plan, name="", min_bytes=low, max_bytes=high))
    # The executor keeps what it has set up by the plan's name, so two plans must never share one.
    unique = hashlib.sha256(text.encode()).hexdigest()[:12]
    plan = replace(plan, name=f"{name}-{unique}", min_bytes=low, max_bytes=high)
    object.__setattr__(plan, "text", text.replace('"name": ""', f'"name": {json.dumps(plan.name)}', 1))
    return plan


def _check_multiple(name: str, value: object, unit: int, limit: int) -> None:
    if not is_int(value) or value % unit or not unit <= value <= limit:
        raise UnsupportedError(f"{name} is {shown(value)}; expected a multiple of {unit} of at most {limit}")


def _check_window(low: object, high: object, smallest: int, largest: int) -> None:
    for name, value in (("min_bytes", low), ("max_bytes", high)):
        if not is_int(value) or not smallest <= value <= largest:
            raise UnsupportedError(
                f"{name} is {shown(value)}; expected bytes from {smallest} to {largest}, as the plan allows"
            )
    if low > high:  # type: ignore[operator]
        raise UnsupportedError(f"max_bytes is {high}; expected at least min_bytes = {low}")


def check_collective(program: Program, *, in_place: bool) -> None:
    """Refuse programs of collectives, placements or shards that there are no plans for."""
    if program.in_place:
        raise UnsupportedError("the program is an in-place one; give the out-of-place program and placement='in-place'")
    if program.collective not in executor.WRITTEN:
        names = ", ".join(map(str, executor.WRITTEN))
        raise UnsupportedError(f"the program is for {program.collective}; MSCCL++ plans are written for {names}")
    if program.collective.in_pairs and in_place:
        raise UnsupportedError(
            "the program is an all_to_all, whose output is never its input; use placement='out-of-place'"
        )
    if program.collective.is_sharded and len(set(program.layout.shards)) > 1:
        raise UnsupportedError(
            f"the program's shards have {min(program.layout.shards)} to {max(program.layout.shards)} chunks; MSCCL++ "
            "calls have shards of one size: plan without weights, or run the plan through torch.distributed"
        )


def port_pairs(program: Program, boxes: Sequence[int] | None) -> set[tuple[int, int]]:
    """Pairs (sender, receiver) of ranks in different boxes; `UnsupportedError` if the executor finds no such boxes."""
    if boxes is None:
        return set()
    check_boxes(boxes, program.num_ranks)
    return {pair for pair in permutations(range(len(boxes)), 2) if boxes[pair[0]] != boxes[pair[1]]}


def check_boxes(boxes: Sequence[int], num_ranks: int) -> None:
    """Refuse numbers of boxes that the executor does not find."""
    if isinstance(boxes, str) or not isinstance(boxes, Sequence):
        raise UnsupportedError(f"boxes is {shown(boxes)}; expected a number for each of {num_ranks} ranks")
    if len(boxes) != num_ranks:
        raise UnsupportedError(f"boxes has {len(boxes)} entries; expected one for each of {num_ranks} ranks")
    # The executor divides a rank by the number of ranks in a box, so it finds no other boxes.
    sizes = [len(list(run)) for _, run in groupby(boxes)]
    if len(set(sizes)) > 1 or len(sizes) != len(set(boxes)):
        raise UnsupportedError(
            f"the ranks are in boxes {shown(list(boxes))}; expected boxes of as many ranks each, one after the other"
        )


def common_count(program: Program) -> int:
    """Largest number of chunks per step that divides all steps, as those of a pipeline must be equal."""
    return gcd(*_counts(program))


def _counts(program: Program) -> Iterator[int]:
    return (step.count for rank in program.ranks for block in rank.thread_blocks for step in block.instructions)


def _with_equal_counts(program: Program, count: int) -> Program:
    """Cut every step into steps of `count` chunks."""
    if set(_counts(program)) == {count}:
        return program

    def cut(step: Instruction, _: int) -> Iterator[Instruction]:
        for offset in range(0, step.count, count):
            source, target = (end and ChunkRange(end.buffer, end.start + offset) for end in (step.source, step.target))
            yield Instruction(step.kind, source, target, count, () if offset else step.depends)

    ranks = tuple(expanded(rank, lambda step: step.count // count, cut) for rank in program.ranks)
    return replace(program, ranks=ranks)


def _gpus(program: Program, on_ports: set[tuple[int, int]], options: PlanOptions, count: int) -> tuple[Gpu, ...]:
    ends = Connections.of(program, on_ports)
    multicasts = plan_multicasts(program, global_order(program), options.switch_groups)
    order = multicasts.order
    steps: dict[int, list[int]] = defaultdict(list)
    for number in order.sequence:
        steps[order.sites[number].rank].append(number)

    transfers = plan_transfers(program, order, on_ports)
    gpus = []
    for rank in program.ranks:
        writer = RankWriter(program, multicasts, rank.rank, steps[rank.rank], transfers, ends)
        blocks = writer.write(options.max_thread_blocks, options.slice_bytes, count)
        # Buffers that a rank of a broadcast or reduce leaves alone have their size all the same.
        sizes = rank.input_chunks or rank.output_chunks, rank.output_chunks or rank.input_chunks
        peers = {kind: tuple(ends.peers[rank.rank][kind]) for kind in CHANNEL_TYPES}
        switches = tuple(SwitchGroup("output", group) for group in multicasts.groups if rank.rank in group)
        scratch, semaphores = transfers.scratch[rank.rank], (0,) * len(writer.semaphores)
        gpus.append(Gpu(*sizes, scratch, peers, semaphores, blocks, switches))
    return tuple(gpus)


def _size_window(plan: ExecutionPlan, slice_bytes: int | None, count: int) -> tuple[int, int]:
    """Range of sizes with chunks of at least 16 bytes and buffers of less than 2^32."""
    smallest, largest = plan.smallest_message, plan.largest_message
    if slice_bytes is not None and count:
        largest = min(largest, MAX_ITERATIONS * slice_bytes // count // executor.ALIGNMENT * smallest)
    if largest < smallest:
        raise TooLargeError(
            f"the program has buffers of {max(max(gpu.chunks.values()) for gpu in plan.gpus)} chunks; in MSCCL++ a "
            f"buffer has fewer than 2^32 bytes and a chunk at least {executor.ALIGNMENT}: plan with fewer trees"
        )
    return smallest, largest


Round = tuple[list[int], list[int]]
"""GPUs that one signals in a round of a barrier, and those whose signals it waits for."""


def is_star_schedule(schedule: object, collective: Collective) -> bool:
    """Whether every tree leads from its root to one switch, and from there to all other ranks directly."""
    if collective not in (ALLREDUCE, ALLGATHER, BROADCAST):
        return False
    forests: Sequence[Forest] = getattr(schedule, "forests", ())
    weights = forests[0].root_weights if forests else np.zeros(0)
    if not len(weights) or (collective.is_sharded and len(set(weights.tolist())) > 1):
        return False
    return all(map(_is_star_forest, forests))


def _is_star_forest(forest: Forest) -> bool:
    ranks = forest.num_ranks
    if not len(forest.switches) or (np.diff(forest.path_starts) != 2).any():
        return False
    for root, parents in zip(forest.roots.tolist(), forest.parents, strict=True):
        above = set(np.delete(parents[:ranks], root).tolist())
        if len(above) != 1 or min(above) < ranks or parents[min(above)] != root:
            return False
    return True


def star_plan(
    schedule: TreeSchedule, collective: Collective, name: str, options: PlanOptions, instances: int = 1
) -> ExecutionPlan:
    """Make the plan of a schedule that `is_star_schedule`, with `instances` thread blocks per GPU."""
    in_place, ranks = options.in_place, schedule.num_ranks
    weights = schedule.root_weights.tolist()
    blocks = min(instances, options.max_thread_blocks)
    shards = [weight // gcd(*weights) * blocks for weight in weights]
    firsts = list(accumulate(shards, initial=0))
    group = tuple(range(ranks))
    reduces = collective is ALLREDUCE
    inputs: tuple[Buffer, ...] = ("input",) if reduces and not in_place else ()
    switches = tuple(SwitchGroup(buffer, group) for buffer in (*inputs, "output"))
    gpus = []
    for rank in range(ranks):
        rounds = _barrier(rank, ranks)
        peers = sorted({peer for both in rounds for end in both for peer in end})
        count, begin = shards[rank] // blocks, 0 if collective.is_sharded else firsts[rank]
        source: Buffer = "output" if reduces and in_place else "input"
        thread_blocks = []
        for block in range(blocks):
            ends = {peer: block * len(peers) + at for at, peer in enumerate(peers)}
            operation = Operation(
                "glres" if reduces else "gstore",
                "switch",
                (0, len(switches) - 1) if reduces else (0,),
                (Place(rank, source, begin + block * count, count),),
                (Place(rank, "output", firsts[rank] + block * count, count),),
            )
            thread_blocks.append(_block(operation if count else None, rounds, ends))
        own = shards[rank] if collective.is_sharded else firsts[-1]
        gpus.append(
            Gpu(own, firsts[-1], 0, {"memory": tuple(peers) * blocks, "port": ()}, (), tuple(thread_blocks), switches)
        )
    return verified(_sized(name, collective, tuple(gpus), options))


def _barrier(rank: int, ranks: int) -> list[Round]:
    """Rounds after which a GPU knows of all others: one of all pairs, or those of a dissemination barrier."""
    if ranks - 1 <= executor.MAX_CHANNELS:
        peers = [peer for peer in range(ranks) if peer != rank]
        return [(peers, peers)]
    rounds = [([(rank + 2**step) % ranks], [(rank - 2**step) % ranks]) for step in range((ranks - 1).bit_length())]
    if 2 * len(rounds) > executor.MAX_CHANNELS:
        raise TooLargeError(
            f"a barrier of {ranks} ranks takes {2 * len(rounds)} channels, a thread block of the MSCCL++ executor has "
            f"{executor.MAX_CHANNELS}; plan with in_network=False (--no-in-network)"
        )
    return rounds


def _block(operation: Operation | None, rounds: Sequence[Round], ends: dict[int, int]) -> tuple[Operation, ...]:
    """Operations of a thread block: barrier, operation, barrier; `ends`: its channel to each other GPU."""
    block = SyncedBlock()
    for work in (operation, None):
        for targets, sources in rounds:
            for part in batches([ends[peer] for peer in targets], executor.MAX_CHANNELS_PER_OPERATION):
                block.signal(Operation("signal", "memory", part))
            for part in batches([ends[peer] for peer in sources], executor.MAX_CHANNELS_PER_OPERATION):
                block.wait(Operation("wait", "memory", part))
        if work is not None:
            block.work(work)
    return tuple(block.operations)


ADDED_TYPES = ("int32", "uint32", "float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2")
"""Types that ``glres`` adds (``execution_kernel.hpp``, line 523, ``switch_channel_device.hpp``, line 70)."""


def check_sums(schedule: TreeSchedule, topology: Topology) -> None:
    """Refuse sums at switches that add nothing which the executor asks for."""
    names = topology.nodes
    used = {names[switch] for forest in schedule.forests for switch in forest.switches.tolist()}
    for limits in topology.limits:
        if limits.switch not in used:
            continue
        for what, supported, executed in (
            ("operators", limits.operators, ("sum",)),
            ("types", limits.types, ADDED_TYPES),
        ):
            if supported and not set(supported) & set(executed):
                raise UnsupportedError(
                    f"switch {limits.switch!r} has the {what} {', '.join(supported)} only, MSCCL++ adds there with "
                    f"{', '.join(executed)}; plan with in_network=False (--no-in-network)"
                )
