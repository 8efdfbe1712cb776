"""The writers of this room as `Plan.export` calls them; pyproject.toml lists them as entry points."""

from __future__ import annotations

import os
import re
from collections import Counter

from ...errors import UnsupportedError
from ...planners import Plan
from ...schedules import Forest
from ..programs.layout import ROOTED
from ..programs.lowering import lower
from ..programs.packing import document_steps, packed
from ..programs.program import Program
from ..programs.unfused import without_receive_reduce
from .files import write_xml
from .limits import RuntimeLimits, runtime_limits

__all__ = ["export_msccl_xml"]

NAME_LENGTH = 63


def export_msccl_xml(
    plan: Plan,
    path: str | os.PathLike[str],
    *,
    runtime: str = "msccl-executor-nccl",
    channels: int = 1,
    min_bytes: int = 0,
    max_bytes: int | None = None,
    protocol: str = "Simple",
    max_thread_blocks: int | None = None,
    placement: str | None = None,
) -> None:
    """Lower a plan for one of the MSCCL runtimes and write it as XML.

    Parameters
    ----------
    plan : Plan
        With equal shards.  A file for broadcast or reduce is right for the plan's root alone, and no
        runtime looks at that.
    path : path
        File to write.
    runtime : str
        As for `to_xml_text`; its step limit decides how many channels a connection needs.
    channels : int
        Channels per connection at least, where it has as many transfers; see `lower`.  More than the busiest connection
        has transfers are refused.
    min_bytes, max_bytes : int or None
        As for `to_xml_text`.
    protocol : str
        As for `to_xml_text`.
    max_thread_blocks : int or None
        As for `to_xml_text`.  Where a rank has more, some of them are joined: `collopt.runtime.programs.packing`.
    placement : str or None
        As for `to_xml_text`.

    Raises
    ------
    UnsupportedError
        If the plan's schedule cannot be lowered or does not fit the runtime; the message says what to change.
    OSError
        If the file cannot be written.
    """
    if not hasattr(plan, "schedule"):
        raise UnsupportedError(f"the plan is a {type(plan).__name__}; expected a Plan")
    write_xml(
        _program(plan, runtime_limits(runtime), channels, max_thread_blocks),
        path,
        runtime=runtime,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        protocol=protocol,
        max_thread_blocks=max_thread_blocks,
        placement=placement,
    )


def _program(plan: Plan, limits: RuntimeLimits, channels: int, max_thread_blocks: int | None) -> Program:
    """Lower a plan to steps that the runtime takes, with as many of them in a thread block as it takes.

    Where a rank has more thread blocks than the GPU runs at once, some are joined.
    """
    blocks = limits.max_thread_blocks if max_thread_blocks is None else max_thread_blocks
    root = ""
    if plan.collective in ROOTED and isinstance(plan.schedule, Forest):
        root = f"-root{int(plan.schedule.root_weights.argmax())}"
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", f"{plan.collective}{root}-{plan.topology.name}")[:NAME_LENGTH]
    max_steps = limits.max_steps
    while True:
        program = lower(plan.schedule, plan.collective, max_steps=max_steps, channels=channels, name=name)
        _check_channels(program, channels)
        if not limits.adds_on_receive:
            program = without_receive_reduce(program)
        longest = max(document_steps(block) for rank in program.ranks for block in rank.thread_blocks)
        if longest <= limits.max_steps or max_steps == 1:
            return packed(program, blocks, limits.max_steps)
        # Steps were split, or wait for several; the fewer there are of them, the sooner they fit.
        max_steps = min(max_steps - 1, max_steps * limits.max_steps // longest)


def _check_channels(program: Program, channels: int) -> None:
    """Refuse channels of which no connection can use as many."""
    transfers = Counter(
        (rank.rank, block.send_peer)
        for rank in program.ranks
        for block in rank.thread_blocks
        for step in block.instructions
        if step.kind == "send"
    )
    most = max(transfers.values(), default=1)
    if channels > most:
        raise UnsupportedError(
            f"channels is {channels}, but no connection of this plan has more than {most} transfers to spread over "
            f"channels; expected at most {most}"
        )
