"""Exporter of MSCCL++ plans, which `Plan.export` finds as an entry point."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ...errors import TooLargeError, UnsupportedError
from ...planners import Plan
from ...schedules import Allreduce, TreeSchedule, as_bytes, rate_of_loads
from ...support.writing import write_whole
from ...topologies import Topology
from ..lowering.lower import collector_paused, lower_plan, program_name
from ..lowering.tree_transfers import branches_at_switches
from ..programs.channels import check_channels
from ..programs.checks import check_choice, check_counts
from ..programs.program import Program
from . import executor
from .execution_plan import ExecutionPlan, to_mscclpp_text
from .lower import (
    DEFAULT_SLICE_BYTES,
    DEFAULT_THREAD_BLOCKS,
    PlanOptions,
    check_boxes,
    check_collective,
    common_count,
    converted,
)
from .multicasts import switch_groups
from .needs import BlockUsage, block_usage, first_replica, least_needs, max_unmerged_replicas
from .star_plans import check_sums, is_star_schedule, star_plan

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
    return None if value is None else as_bytes(value, name, least=0)


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
