"""Exporter of MSCCL++ plans, which `Plan.export` finds as an entry point."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from pprint import pformat
from typing import Any, NamedTuple

from ...errors import TooLargeError, UnsupportedError
from ...planners import Plan
from ...schedules import Allreduce, TreeSchedule, as_bytes, rate_of_loads
from ...support.files import write_whole
from ...support.validation import as_path
from ...topologies import Topology
from ..lowering.lower import collector_paused, lower_plan, program_name
from ..lowering.trees import branches_at_switches
from ..programs.channels import check_channels
from ..programs.program import Instruction, Program, RankProgram, ThreadBlock, check_choice, check_counts
from . import executor
from .code import layout_of
from .execution_plan import CHANNEL_TYPES, ExecutionPlan, to_mscclpp_text
from .lower import (
    DEFAULT_SLICE_BYTES,
    DEFAULT_THREAD_BLOCKS,
    PlanOptions,
    check_boxes,
    check_collective,
    check_sums,
    common_count,
    converted,
    is_star_schedule,
    port_pairs,
    star_plan,
)
from .reader import read_mscclpp
from .thread_blocks import TOO_LONG, TOO_MANY_CHANNELS, WEIGHTS, merge_blocks
from .transfers import Connections, stays_in_place, switch_groups

__all__ = ["as_executed", "boxes_of", "export_mscclpp_json", "mscclpp_notes"]


STORES = (
    "the file stores to switches, which MSCCL++ runs since 0.10.0, not in 0.9.0; for that, export the plan with "
    "version=0.9.0, or plan with in_network=False (--no-in-network)"
)
STEPS = (16, 12, 10, 8, 6, 5, 4, 3, 2, 1)
"""Steps of a thread block to try, most first: fewer steps make more thread blocks that have to wait for each other."""
MAX_MERGE_ATTEMPTS = 2
"""Attempts to lower replicas with merged thread blocks: each takes as long as a file of so many replicas."""


@collector_paused()
def export_mscclpp_json(
    plan: Plan,
    path: str | os.PathLike[str],
    *,
    channels: int = 1,
    instances: int = 1,
    boxes: Sequence[int] | None = None,
    placement: str = "out-of-place",
    slice_bytes: int | str | None = DEFAULT_SLICE_BYTES,
    min_bytes: int | str | None = None,
    max_bytes: int | str | None = None,
    max_thread_blocks: int = DEFAULT_THREAD_BLOCKS,
    threads_per_block: int = executor.MAX_THREADS,
    version: str = executor.MAIN,
) -> None:
    """Lower a plan for the MSCCL++ executor and write it as an execution plan.

    It is for sums, whatever operation the caller of the collective requests: the executor has no other.

    Raises `UnsupportedError` if the plan's schedule cannot be lowered or does not fit the executor, saying what to
    change; `OSError` if the file cannot be written, leaving nothing behind.

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
        Number of the box of each rank: boxes of one size, ranks numbered box by box; None means those of `boxes_of`.
        Ranks of one box are joined by memory channels, others by port channels.
    placement : {"out-of-place", "in-place"}
        Calls that the plan is for: output and input apart, or the same memory.
    slice_bytes : int, str or None
        Size of the slices in which data moves along trees, a multiple of 16; all steps are then cut into steps of equal
        size, because the executor slices only such.  None moves chunks as a whole.
    min_bytes, max_bytes : int, str or None
        Sizes for which the executor takes the plan: of the output for allgather, of the input otherwise.  By default
        the smallest and the largest that the plan is right for.
    max_thread_blocks : int
        Thread blocks that the GPU runs at once; those of the program are merged until there are no more.
    threads_per_block : int
        A multiple of 32 of at most 1024.
    version : {"main", "0.10.0", "0.9.0", "0.8.0"}
        Of MSCCL++: before 0.10.0 there are no stores to switches, so ranks send each copy.  Sums run in all.
    """
    if not hasattr(plan, "schedule"):
        raise UnsupportedError(f"the plan is a {type(plan).__name__}; expected a Plan")
    check_counts({"channels": channels, "instances": instances, "max_thread_blocks": max_thread_blocks})
    boxes = boxes_of(plan.topology) if boxes is None else boxes
    check_boxes(boxes, len(plan.topology.compute_nodes))
    check_choice("version", version, executor.VERSIONS)
    sizes = _size("slice_bytes", slice_bytes), _size("min_bytes", min_bytes), _size("max_bytes", max_bytes)
    options = PlanOptions(boxes, placement, *sizes, max_thread_blocks, threads_per_block)
    options.check()
    if _uses_star(plan, boxes, version):
        check_sums(plan.trees, plan.topology)
        if channels > 1:
            raise UnsupportedError(
                f"channels is {channels}, but barriers need one from each thread block to another; expected 1, and "
                "more instances for more thread blocks"
            )
        star = star_plan(plan.trees, plan.collective, program_name(plan), options, instances)
        write_whole(path, to_mscclpp_text(star))
        return
    groups = switch_groups(plan.schedule, boxes) if version in executor.STORING else ()
    lowering = _Lowering(plan, channels, options._replace(switch_groups=groups))
    try:
        execution_plan = lowering.single() if instances == 1 else lowering.replicas(instances)
    except UnsupportedError as error:
        if instances == 1:
            raise
        # If it refuses a single one too, instances are not what is wrong.
        fitting = lowering.fitting(instances)
        raise type(error)(
            f"instances is {instances}: {str(error).partition(';')[0]}; expected fewer instances, such as {fitting}, "
            "which fits"
        ) from None
    write_whole(path, to_mscclpp_text(execution_plan))


def _size(name: str, value: int | str | None) -> int | None:
    return None if value is None else as_bytes(value, name, low=0)


def _uses_star(plan: Plan, boxes: Sequence[int], version: str) -> bool:
    """Whether the file has the operations of one box around a switch that the plan has."""
    in_star = is_star_schedule(plan.schedule, plan.collective) and len(set(boxes)) == 1
    return in_star and (version in executor.STORING or plan.collective.reduces)


def mscclpp_notes(plan: Plan, path: str | os.PathLike[str]) -> list[str]:
    """Say what the file of a plan whose trees branch at switches makes of them; nothing for other plans."""
    if not branches_at_switches(plan.schedule):
        return []
    text = Path(path).read_text(encoding="utf-8")
    names = {name for name in executor.SWITCH_OPERATIONS if f'"{name}"' in text}
    directions = {forest.direction for forest in plan.trees.forests if len(forest.switches)}
    notes = [STORES] if "gstore" in names else []
    if "broadcast" in directions and not names:
        notes.append(
            "ranks send each copy that switches make in the plan, as the executor has no use for these switches"
        )
    if "reduce" in directions and "glres" not in names:
        notes.append(
            "ranks add up what switches add up in the plan: MSCCL++ cannot load a sum into the memory of one GPU alone"
        )
    return notes


def as_executed(plan: Plan, *, boxes: Sequence[int] | None = None, version: str = executor.MAIN) -> Plan:
    """Return the plan with ranks in place of the switches that its file has no operations for; see `mscclpp_notes`."""
    if not branches_at_switches(plan.schedule):
        return plan
    boxes = boxes_of(plan.topology) if boxes is None else boxes
    check_boxes(boxes, len(plan.topology.compute_nodes))
    check_choice("version", version, executor.VERSIONS)
    if _uses_star(plan, boxes, version):
        return plan
    stores = version in executor.STORING and bool(switch_groups(plan.schedule, boxes))
    forests = {
        forest.direction: forest if stores and forest.direction == "broadcast" else forest.unicast
        for forest in plan.trees.forests
    }
    schedule: TreeSchedule = Allreduce(**forests) if len(forests) == 2 else next(iter(forests.values()))
    loads = schedule.link_loads(plan.topology)
    rate = rate_of_loads(loads, schedule, plan.topology)
    return replace(plan, schedule=schedule, link_loads=loads, inverse_rate=rate)


def boxes_of(topology: Topology) -> list[int]:
    """Box number of each rank; names that agree up to the last slash are in one box.

    Examples
    --------
    >>> from collopt.topologies import dgx_h100
    >>> set(boxes_of(dgx_h100())), boxes_of(dgx_h100(boxes=2))[7:9]
    ({0}, [0, 1])
    """
    names = [name.rpartition("/")[0] for name in topology.compute_nodes]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [numbers[name] for name in names]


class BlockUsage(NamedTuple):
    """Usage of merged thread blocks: operations of the longest (0: none merged), and why they cannot run."""

    max_operations: int
    refusal: str


class _Lowering:
    """Lowers a plan with ever fewer steps per thread block, until the executor accepts the program."""

    def __init__(self, plan: Plan, channels: int, options: PlanOptions) -> None:
        self.plan = plan
        self.channels = channels
        self.options = options
        self.boxes, self.max_thread_blocks = options.boxes or (), options.max_thread_blocks

    def program(self, max_steps: int, instances: int) -> Program:
        """Lower the plan with at most `max_steps` per thread block."""
        return lower_plan(self.plan, max_steps=max_steps, channels=self.channels, instances=instances)

    def single_programs(self, instances: int = 1) -> Iterator[tuple[int, Program]]:
        """Yield the different single programs, after a check of the capacity for replicas of the first."""
        last: Program | None = None
        for max_steps in STEPS:
            program = self.program(max_steps, 1)
            check_channels(program, self.channels, 1)
            if last is None:
                check_collective(program, in_place=self.options.in_place)
                # Replicas of what no division into thread blocks makes fit take long to make, and to refuse ten times.
                self._check_capacity(program, instances)
            if program != last:
                yield max_steps, program
            last = program

    def single(self) -> ExecutionPlan:
        """Lower with the most steps per thread block that the executor accepts."""
        return self._first(program for _, program in self.single_programs())[0]

    def replicas(self, instances: int) -> ExecutionPlan:
        """Lower to replicas that the executor accepts; if thread blocks must be merged, few ways are tried."""
        unmerged: list[int] = []
        merged: list[tuple[int, int, int]] = []
        refusals: list[str] = []
        for number, (max_steps, _) in enumerate(self.single_programs(instances)):
            usage = self._usage(first_replica(self.program(max_steps, 2)), instances)
            if usage.refusal:
                refusals.append(usage.refusal)
            elif usage.max_operations:
                merged.append((usage.max_operations, number, max_steps))
            else:
                unmerged.append(max_steps)
        candidates = [*unmerged, *(max_steps for *_, max_steps in sorted(merged)[:MAX_MERGE_ATTEMPTS])]
        if not candidates:
            raise TooLargeError(refusals[0])
        return self._first(self.program(max_steps, instances) for max_steps in candidates)[0]

    def fitting(self, instances: int) -> int:
        """Return a smaller number of instances that fits, or raise the error of a single one."""
        # Unmerged replicas are as long as a single one; given sizes may not be right for as many.
        sized = self.options.min_bytes is not None or self.options.max_bytes is not None
        single_programs = self.single_programs()
        if instances > 2 and not sized:
            programs = list(single_programs)
            single_programs = iter(programs)
            with suppress(UnsupportedError):
                # Two are cut where shards begin, as any number of them is, and a single one is not.
                _, pair = self._first(self.program(max_steps, 2) for max_steps, _ in programs)
                limit = max_unmerged_replicas(first_replica(pair), self.max_thread_blocks)
                return max(2, min(instances - 1, limit))
        self._first(program for _, program in single_programs)
        return 1

    def _first(self, programs: Iterable[Program]) -> tuple[ExecutionPlan, Program]:
        """Convert the first program that the executor accepts."""
        refusal: UnsupportedError | None = None
        for program in programs:
            try:
                # What is too long in any case is found out in a tenth of the time.
                if refused := self._usage(program).refusal:
                    raise TooLargeError(refused)
                return converted(program, self.options), program
            except TooLargeError as error:
                refusal = refusal or error
            except UnsupportedError as error:
                # What one that fits is refused for is what has to be mended.
                refusal = error if refusal is None or isinstance(refusal, TooLargeError) else refusal
        assert refusal is not None
        raise refusal

    def _usage(self, program: Program, instances: int = 1) -> BlockUsage:
        """Count operations and channels of thread blocks; stores to switches make fewer of them."""
        if self.options.switch_groups and instances == 1:
            return BlockUsage(0, "")
        unit = None if self.options.slice_bytes is None else common_count(program)
        program = replace(program, in_place=self.options.in_place)
        return block_usage(program, self.boxes, self.max_thread_blocks, unit, instances)

    def _check_capacity(self, program: Program, instances: int) -> None:
        """Refuse replicas that exceed the capacity of thread blocks, however the program is lowered."""
        # With fewer steps in a thread block it would have as many transfers, and no fewer channels.  All steps of a
        # pipeline have as many chunks as each other: long before they are too many, they fill memory.
        unit = None if self.options.slice_bytes is None else common_count(program)
        for rank, needs in enumerate(least_needs(program, self.boxes, unit)):
            for what, count in needs.items():
                capacity = self.max_thread_blocks * (
                    executor.MAX_OPERATIONS if what == "operations" else executor.MAX_CHANNELS
                )
                if count * instances > capacity:
                    raise TooLargeError(
                        f"rank {rank} needs at least {count * instances} {what}, {self.max_thread_blocks} thread "
                        f"blocks of the MSCCL++ executor have {capacity}; plan with fewer trees or chunks"
                    )


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


__all__ = ["write_registration"]


def write_registration(
    plans: Iterable[str | os.PathLike[str]], path: str | os.PathLike[str], *, version: str = executor.MAIN
) -> None:
    """Write Python code that registers plan files with MSCCL++, and selects the first of them that fits a call."""
    check_choice("version", version, executor.VERSIONS)
    if version not in executor.STORING:
        raise UnsupportedError(
            f"MSCCL++ {version} takes no selector written in Python; expected 0.10.0 or newer, or with 0.8.0 a folder "
            "of plans, and MSCCLPP_EXECUTION_PLAN_DIR set to it"
        )
    target = as_path(path)
    write_whole(target, registration_code(((file, read_mscclpp(file)) for file in map(as_path, plans)), target))


def registration_code(plans: Iterable[tuple[Path, ExecutionPlan]], target: Path) -> str:
    """Return the code that registers plans, by their paths from `target`, where it is to be written."""
    entries: dict[str, dict[str, Any]] = {}
    for file, plan in plans:
        if plan.name in entries:
            raise UnsupportedError(f"{file} has the name {plan.name} of another plan; names must be unique")
        relative = Path(os.path.relpath(file.resolve(), target.resolve().parent)).as_posix()
        entries[plan.name] = {"file": relative} | _conditions(plan)
    if not entries:
        raise UnsupportedError("there are no plans; expected the names of plan files")
    table = pformat(entries, width=100, sort_dicts=False)
    code = (files(__package__) / "register.py.txt").read_text(encoding="utf-8")
    return code.replace("{}  # Written here", table)


def _conditions(plan: ExecutionPlan) -> dict[str, Any]:
    return {
        "collective": plan.collective.nccl_name,
        "in_place": plan.in_place,
        "ranks": plan.num_ranks,
        "ranks_per_box": _ranks_per_box(plan),
        "first": plan.min_bytes,
        "last": plan.max_bytes,
        "multiple": plan.smallest_message,
        "root": layout_of(plan).root,
    }


def _ranks_per_box(plan: ExecutionPlan) -> int:
    """Return the smallest size of boxes in which no memory or switch channel leaves a box."""
    together = [(rank, peer) for rank, gpu in enumerate(plan.gpus) for peer in gpu.peers["memory"]]
    together += [(rank, peer) for rank, gpu in enumerate(plan.gpus) for group in gpu.switches for peer in group.ranks]
    sizes = (size for size in range(1, plan.num_ranks + 1) if plan.num_ranks % size == 0)
    return next(size for size in sizes if all(one // size == other // size for one, other in together))
