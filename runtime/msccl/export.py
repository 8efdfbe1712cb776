"""Exporter of MSCCL XML, which `Plan.export` finds as an entry point."""

import os
from bisect import bisect_left
from collections.abc import Callable
from functools import partial

from ...errors import UnsupportedError
from ...planners import Plan
from ...support.writing import write_whole
from ..lowering.lower import lower_plan
from ..lowering.tree_transfers import refuse_switches
from ..mscclpp.export import boxes_of
from ..programs.channels import check_channels
from ..programs.checks import check_counts
from ..programs.program import Program
from ..programs.transformations import document_steps, packed, without_receive_reduce
from .limits import RuntimeLimits, check_limits, runtime_limits
from .writer import to_xml_text

__all__ = ["export_msccl_xml"]


def export_msccl_xml(
    plan: Plan,
    path: str | os.PathLike[str],
    *,
    channels: int = 1,
    instances: int = 1,
    runtime: str = "msccl-executor-nccl",
    min_bytes: int | str = 0,
    max_bytes: int | str | None = None,
    protocol: str | None = None,
    max_thread_blocks: int | None = None,
    placement: str | None = None,
) -> None:
    """Lower a plan for one of the MSCCL runtimes and write it as XML.

    Raises `UnsupportedError` if the plan's schedule cannot be lowered or does not fit the runtime, saying what to
    change; `OSError` if the file cannot be written.

    Parameters
    ----------
    plan : Plan
        With equal shards.  A file for broadcast or reduce is right for the plan's root alone; see `to_xml_text`.
    path : path
        File to write.
    channels : int
        Channels per connection at least; more than the busiest connection has transfers are refused.  See `lower`.
    instances : int
        Parts that every transfer is divided into, with thread blocks and channels of their own; see `lower`.
    runtime : {"msccl", "msccl-executor-nccl", "rccl"}
        Its limit of steps decides how many channels a connection needs.
    min_bytes, max_bytes, protocol : int or str, int, str or None, str or None
        As for `to_xml_text`.
    max_thread_blocks : int or None
        Where a rank has more, some of them are joined.
    placement : {"out-of-place", "in-place", "both"} or None
        As for `to_xml_text`.
    """
    if not hasattr(plan, "schedule"):
        raise UnsupportedError(f"the plan is a {type(plan).__name__}; expected a Plan")
    refuse_switches(plan.schedule, "MSCCL XML")
    if protocol == "Simple" and plan.collective.has_one_root and max(boxes_of(plan.topology)) > 0:
        raise UnsupportedError(
            f"protocol is 'Simple', with which a {plan.collective} over a network hangs, and {plan.topology.name} has "
            "several boxes; expected LL, or LL128 where NCCL uses it"
        )
    limits = runtime_limits(runtime)
    blocks = limits.max_thread_blocks if max_thread_blocks is None else max_thread_blocks
    check_counts({"instances": instances})
    if instances > limits.max_channels:
        raise UnsupportedError(
            f"instances is {instances}, each with channels of its own; {limits.name} has {limits.max_channels}"
        )
    lowered = partial(_program, plan, limits, channels, blocks)
    program = lowered(instances)
    if instances > 1:
        _check_instances(program, instances, limits, blocks, lowered)
    text = to_xml_text(
        program,
        runtime=runtime,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        protocol=protocol,
        max_thread_blocks=max_thread_blocks,
        placement=placement,
    )
    write_whole(path, text)


def _program(plan: Plan, limits: RuntimeLimits, channels: int, max_thread_blocks: int, instances: int) -> Program:
    """Lower a plan within the runtime's limit of steps per block, and merge blocks if there are too many."""
    max_steps = limits.max_steps
    while True:
        program = lower_plan(plan, max_steps=max_steps, channels=channels, instances=instances)
        check_channels(program, channels, instances)
        if not limits.adds_on_receive:
            program = without_receive_reduce(program)
        longest = max(document_steps(block) for rank in program.ranks for block in rank.thread_blocks)
        if longest <= limits.max_steps or max_steps == 1:
            return packed(program, max_thread_blocks, limits.max_steps)
        # Steps were split, or wait for several; the fewer there are of them, the sooner they fit.
        max_steps = min(max_steps - 1, max_steps * limits.max_steps // longest)


def _check_instances(
    program: Program, instances: int, limits: RuntimeLimits, blocks: int, lowered: Callable[[int], Program]
) -> None:
    """Refuse too many instances, if a single one is within the limits; the message has the largest possible number."""

    def is_refused(fewer: int) -> bool:
        try:
            check_limits(lowered(fewer), limits, blocks)
        except UnsupportedError:
            return True
        return False

    try:
        check_limits(program, limits, blocks)
    except UnsupportedError as error:
        # If it refuses a single one too, instances are not what is wrong.
        check_limits(lowered(1), limits, blocks)
        fitting = 1 + bisect_left(range(2, instances), True, key=is_refused)
        raise type(error)(
            f"instances is {instances}: {str(error).partition(';')[0]}; expected fewer instances, such as {fitting}, "
            "which fits"
        ) from None
