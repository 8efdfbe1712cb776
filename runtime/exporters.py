"""The writers of this room as `Plan.export` calls them; pyproject.toml lists them as entry points."""

from __future__ import annotations

import os
import re

from ..errors import UnsupportedError
from ..planners import Plan
from ..schedules import Forest
from .lowering import lower_allgather
from .msccl import DEFAULT_MAX_BYTES, write_xml
from .msccl_limits import runtime_limits

__all__ = ["export_msccl_xml"]

NAME_LENGTH = 63


def export_msccl_xml(
    plan: Plan,
    path: str | os.PathLike[str],
    *,
    runtime: str = "msccl-executor-nccl",
    channels: int = 1,
    min_bytes: int = 0,
    max_bytes: int = DEFAULT_MAX_BYTES,
    protocol: str = "Simple",
    max_thread_blocks: int | None = None,
) -> None:
    """Lower a plan for one of the MSCCL runtimes and write it as XML.

    Parameters
    ----------
    plan : Plan
        An allgather plan made of trees.
    path : path
        File to write.
    runtime : str
        As for `to_xml_text`; its step limit decides how many channels a connection needs.
    channels : int
        Channels per connection at least; see `lower_allgather`.
    min_bytes, max_bytes : int
        As for `to_xml_text`.
    protocol : str
        As for `to_xml_text`.
    max_thread_blocks : int or None
        As for `to_xml_text`.

    Raises
    ------
    UnsupportedError
        If the plan is not an allgather made of trees or does not fit the runtime; the message says what to change.
    OSError
        If the file cannot be written.
    """
    if plan.collective != "allgather" or not isinstance(plan.schedule, Forest):
        raise UnsupportedError(
            f"the plan is for {plan.collective} and holds a {type(plan.schedule).__name__}; only allgather plans made "
            "of trees can be written as MSCCL XML"
        )
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", f"{plan.collective}-{plan.topology.name}")[:NAME_LENGTH]
    program = lower_allgather(plan.schedule, max_steps=runtime_limits(runtime).max_steps, channels=channels, name=name)
    write_xml(
        program,
        path,
        runtime=runtime,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        protocol=protocol,
        max_thread_blocks=max_thread_blocks,
    )
