"""Exporter of MSCCL++ plans, which `Plan.export` finds as an entry point, and Python code that registers the files."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from pprint import pformat
from typing import Any, NamedTuple

from ...errors import TooLargeError, UnsupportedError
from ...planners import Plan
from ...schedules import Allreduce, Collective, TreeSchedule, as_bytes, rate_of_loads
from ...support.files import write_whole
from ...support.validation import as_path
from ..lowering.devices import boxes_of, environment_script, write_with_environment
from ..lowering.lower import collector_paused, lower_plan, program_name
from ..lowering.trees import branches_at_switches, without_switches
from ..programs.channels import check_channels
from ..programs.program import Instruction, Program, check_choice, check_counts
from . import executor
from .code import layout_of
from .environment import Environment, environment_of
from .execution_plan import ExecutionPlan, to_mscclpp_text
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
    verified,
)
from .reader import read_mscclpp
from .thread_blocks import TOO_LONG, WEIGHTS, merge_blocks
from .transfers import switch_groups

__all__ = [
    "as_executed",
    "export_mscclpp_json",
    "mscclpp_environment",
    "mscclpp_notes",
    "write_registration",
]

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
        File to write; beside it ``PATH.env``, a script that names GPUs and NICs, where the topology has their devices.
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
    script = environment_script(mscclpp_environment(plan, boxes).boxes, "Environment of an MSCCL++ plan")
    if _uses_star(plan, boxes, version):
        check_sums(plan.trees, plan.topology)
        if channels > 1:
            raise UnsupportedError(
                f"channels is {channels}; expected 1 for barriers, and more instances for more blocks"
            )
        execution_plan = star_plan(plan.trees, plan.collective, program_name(plan), options, instances)
    else:
        if plan.collective.direction == "reduce":  # Ranks alone add here; data sent one by one for a switch is slower
            plan = without_switches(plan, "an MSCCL++ plan of this collective")
        groups = switch_groups(plan.schedule, boxes) if version in executor.STORING else ()
        execution_plan = _Lowering(plan, channels, options._replace(switch_groups=groups)).lowered(instances)
    write_with_environment(path, to_mscclpp_text(execution_plan), script)


def mscclpp_environment(plan: Plan, boxes: Sequence[int] | None = None) -> Environment:
    """Return the environment in which MSCCL++ takes the GPUs and NICs of a plan; see `environment_of`."""
    names = boxes_of(plan.topology)
    if boxes is not None and list(boxes) != names:
        return Environment([], [])
    return environment_of(as_executed(plan, version=executor.VERSIONS[0]).schedule, plan.topology, names)


def _size(name: str, value: int | str | None) -> int | None:
    return None if value is None else as_bytes(value, name, low=0)


def _uses_star(plan: Plan, boxes: Sequence[int], version: str) -> bool:
    """Whether the file has the operations of one box around a switch that the plan has."""
    in_star = is_star_schedule(plan.schedule, plan.collective) and len(set(boxes)) == 1
    return in_star and (version in executor.STORING or plan.collective.reduces)


def mscclpp_notes(plan: Plan, path: str | os.PathLike[str]) -> list[str]:
    """Say which GPUs and NICs run the file of a plan, and what it makes of trees that branch at switches."""
    environment = mscclpp_environment(plan)
    devices = [*environment.notes]
    if any(environment.boxes) and Path(f"{path}.env").is_file():
        devices.append(f"load {path}.env in the shell that starts the ranks: it names the GPUs and NICs of the plan")
    if not branches_at_switches(plan.schedule):
        return devices
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
    return [*devices, *notes]


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


class _Lowering(NamedTuple):
    """Lowers a plan with ever fewer steps per thread block, until the executor accepts the program."""

    plan: Plan
    channels: int
    options: PlanOptions

    def lowered(self, instances: int) -> ExecutionPlan:
        """Lower and run a plan; a refusal of several instances names fewer that fit."""
        try:
            return verified(self._first(instances))
        except UnsupportedError as error:
            if instances == 1:
                raise
            raise type(error)(
                f"instances is {instances}: {str(error).partition(';')[0]}; expected fewer instances, such as "
                f"{self._fitting(instances)}, which fits"
            ) from None

    def _first(self, instances: int) -> ExecutionPlan:
        """Convert the first program that the executor accepts; if replicas must be merged, few ways are tried."""
        refusals: list[UnsupportedError] = []

        def conversion(program: Program, options: PlanOptions = self.options) -> ExecutionPlan | None:
            try:
                self._check_room(program)
                return converted(program, options)
            except UnsupportedError as error:
                refusals.append(error)
                return None

        # Sizes that are right for replicas may not be right for a single one.
        single_options = self.options if instances == 1 else self.options._replace(min_bytes=None, max_bytes=None)
        merged: list[tuple[int, int]] = []
        for max_steps, single in self._single_programs(instances):
            longest = self._longest_merged(single, instances) if instances > 1 else 0
            if longest:
                merged.append((longest, -max_steps))
            # Replicas with thread blocks of their own are as long as a single one, which is refused sooner.
            elif (execution_plan := conversion(single, single_options)) is not None:
                execution_plan = execution_plan if instances == 1 else conversion(self._program(max_steps, instances))
                if execution_plan is not None:
                    return execution_plan
        for _, max_steps in sorted(merged)[:MAX_MERGE_ATTEMPTS]:
            if (execution_plan := conversion(self._program(-max_steps, instances))) is not None:
                return execution_plan
        # What a program that fits is refused for is what has to be mended.
        raise next((error for error in refusals if not isinstance(error, TooLargeError)), refusals[0])

    def _fitting(self, instances: int) -> int:
        """Return a smaller number that fits, or raise the error of a single one."""
        blocks = max(len(gpu.thread_blocks) for gpu in self._first(1).gpus)
        limit = min(instances - 1, max(2, self.options.max_thread_blocks // blocks))
        with suppress(UnsupportedError):
            if limit > 1 and self._first(limit):
                return limit
        return 1

    def _program(self, max_steps: int, instances: int) -> Program:
        return lower_plan(self.plan, max_steps=max_steps, channels=self.channels, instances=instances)

    def _single_programs(self, instances: int) -> Iterator[tuple[int, Program]]:
        """Yield the different single programs, after a check of the capacity for replicas of the first."""
        last: Program | None = None
        for max_steps in STEPS:
            program = self._program(max_steps, 1)
            check_channels(program, self.channels, 1)
            if last is None:
                check_collective(program, in_place=self.options.in_place)
                self._check_room(program, instances)
            if program != last:
                yield max_steps, program
            last = program

    def _check_room(self, program: Program, instances: int | None = None) -> None:
        """Refuse thread blocks that are too long in any case, or replicas that no division into blocks has room for."""
        capacity = self.options.max_thread_blocks * executor.MAX_OPERATIONS
        for rank, counts in enumerate(least_operations(program, self.options, self._unit(program))):
            if instances is not None and sum(counts) * instances > capacity:
                raise TooLargeError(
                    f"rank {rank} needs at least {sum(counts) * instances} operations, "
                    f"{self.options.max_thread_blocks} thread blocks of the MSCCL++ executor have {capacity}; plan "
                    "with fewer trees or chunks"
                )
            if instances is None and (longest := max(counts, default=0)) > executor.MAX_OPERATIONS:
                where = f"rank {rank} thread block {counts.index(longest)}"
                raise TooLargeError(TOO_LONG.format(where, f"at least {longest}"))

    def _longest_merged(self, program: Program, instances: int) -> int:
        """Estimate the operations of the longest thread block where replicas must be merged, else 0."""
        limit = self.options.max_thread_blocks
        if max(len(rank.thread_blocks) for rank in program.ranks) * instances <= limit:
            return 0
        longest, unit = 0, self._unit(program)
        for rank in program.ranks:
            weights = [
                sum(WEIGHTS[step.kind] * _parts(step, unit) for step in block.instructions)
                for block in rank.thread_blocks
            ] * instances
            longest = max(longest, *(sum(weights[block] for block in group) for group in merge_blocks(weights, limit)))
        return longest

    def _unit(self, program: Program) -> int | None:
        """Chunks of the parts that steps are cut into, if they are."""
        return None if self.options.slice_bytes is None else common_count(program)


def least_operations(program: Program, options: PlanOptions, unit: int | None) -> list[list[int]]:
    """Lower bounds on the operations of each thread block of each rank; `unit`: chunks of the parts of steps."""
    on_ports = port_pairs(program, options.boxes)
    counts = []
    for rank in program.ranks:
        counts.append([0] * len(rank.thread_blocks))
        for number, block in enumerate(rank.thread_blocks):
            # Between a put into memory and its signal, and between a wait and a sum, all threads wait for each other.
            sends = 1 if (rank.rank, block.send_peer) in on_ports else 3
            of_kind = {"send": 0 if options.switch_groups else sends, "recv": 1, "recv_reduce": 3}
            counts[-1][number] = sum(of_kind.get(step.kind, 0) * _parts(step, unit) for step in block.instructions)
    return counts


def _parts(step: Instruction, unit: int | None) -> int:
    return 1 if unit is None else step.count // unit


def write_registration(
    plans: Iterable[str | os.PathLike[str]], path: str | os.PathLike[str], *, version: str = executor.MAIN
) -> None:
    """Write Python code that registers plan files with MSCCL++, and selects the first of them that fits a call."""
    check_choice("version", version, executor.VERSIONS)
    if version not in executor.STORING:
        raise UnsupportedError(f"MSCCL++ {version} takes no selector written in Python; expected 0.10.0 or newer")
    target = as_path(path)
    write_whole(target, registration_code(((file, read_mscclpp(file)) for file in map(as_path, plans)), target))


def registration_code(plans: Iterable[tuple[Path, ExecutionPlan]], target: Path) -> str:
    """Return the code that registers plans, by their paths from `target`, where it is to be written."""
    entries: dict[str, dict[str, Any]] = {}
    for file, plan in plans:
        if plan.name in entries:
            raise UnsupportedError(f"{file} has the name {plan.name} of another plan; names must be unique")
        collective, layout = plan.collective, layout_of(plan)
        if collective is None or layout is None:
            raise UnsupportedError(f"{file} is of a collective that NCCL does not have, so no call selects it")
        relative = Path(os.path.relpath(os.path.realpath(file), Path(os.path.realpath(target)).parent)).as_posix()
        entries[plan.name] = {"file": relative} | _conditions(plan, collective, layout.root)
    if not entries:
        raise UnsupportedError("there are no plans; expected the names of plan files")
    table = pformat(entries, width=100, sort_dicts=False)
    code = (files(__package__) / "register.py.txt").read_text(encoding="utf-8")
    return code.replace("{}  # Written here", table)


def _conditions(plan: ExecutionPlan, collective: Collective, root: int | None) -> dict[str, Any]:
    return {
        "collective": collective.nccl_name,
        "in_place": plan.in_place,
        "ranks": plan.num_ranks,
        "ranks_per_box": _ranks_per_box(plan),
        "first": plan.min_bytes,
        "last": plan.max_bytes,
        "multiple": plan.smallest_message,
        "root": root,
    }


def _ranks_per_box(plan: ExecutionPlan) -> int:
    """Return the smallest size of boxes in which no memory or switch channel leaves a box."""
    together = [(rank, peer) for rank, gpu in enumerate(plan.gpus) for peer in gpu.peers["memory"]]
    together += [(rank, peer) for rank, gpu in enumerate(plan.gpus) for group in gpu.switches for peer in group.ranks]
    sizes = (size for size in range(1, plan.num_ranks + 1) if plan.num_ranks % size == 0)
    return next(size for size in sizes if all(one // size == other // size for one, other in together))
