"""The MSCCL++ writer as `Plan.export` calls it; pyproject.toml lists it as an entry point."""

from __future__ import annotations

import os
import re
from typing import Any

from ...errors import UnsupportedError
from ...planners import Plan
from ...schedules import Forest
from ...topologies import Topology
from ...topologies.files import write_whole
from ..options import check_counts
from ..programs.channels import check_channels
from ..programs.layout import ROOTED
from ..programs.lowering import lower
from .document import to_mscclpp_text
from .plan import ExecutionPlan
from .writer import to_execution_plan

__all__ = ["boxes_of", "export_mscclpp_json"]

NAME_LENGTH = 63
STEPS = (16, 12, 10, 8, 6, 5, 4, 3, 2, 1)
"""Steps of a thread block to try, most first: fewer steps make more thread blocks that have to wait for each other."""


def export_mscclpp_json(
    plan: Plan, path: str | os.PathLike[str], *, channels: int = 1, instances: int = 1, **options: Any
) -> None:
    """Lower a plan for the MSCCL++ executor and write it as an execution plan.

    Parameters
    ----------
    plan : Plan
        With equal shards.  A file for broadcast or reduce is right for the plan's root alone.
    path : path
        File to write.
    channels : int
        Channels per connection at least, where it has as many transfers; see `lower`.  More than the busiest connection
        has transfers are refused.
    instances : int
        Parts that every transfer is divided into, with thread blocks and channels of their own; see `lower`.
    **options : object
        `placement`, `slice_bytes`, `min_bytes`, `max_bytes`, `max_thread_blocks` and `threads_per_block` as for
        `to_execution_plan`.  Ranks are joined by memory channels if `boxes_of` puts them into one box, and by port
        channels otherwise, unless `boxes` says otherwise.

    Raises
    ------
    UnsupportedError
        If the plan's schedule cannot be lowered or does not fit the executor; the message says what to change.
    OSError
        If the file cannot be written; nothing is left behind.
    """
    if not hasattr(plan, "schedule"):
        raise UnsupportedError(f"the plan is a {type(plan).__name__}; expected a Plan")
    check_counts({"channels": channels, "instances": instances})
    options = {"boxes": boxes_of(plan.topology), **options}
    try:
        written = _execution_plan(plan, channels, instances, options)
    except UnsupportedError as error:
        if instances == 1:
            raise
        # If it refuses a single one too, instances are not what is wrong.
        _execution_plan(plan, channels, 1, options)
        raise UnsupportedError(
            f"instances is {instances}: {str(error).partition(';')[0]}; expected fewer instances, such as 1, which fits"
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


def _execution_plan(plan: Plan, channels: int, instances: int, options: dict[str, Any]) -> ExecutionPlan:
    """Lower with as many steps in a thread block as the executor takes."""
    root = ""
    if plan.collective in ROOTED and isinstance(plan.schedule, Forest):
        root = f"-root{int(plan.schedule.root_weights.argmax())}"
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", f"{plan.collective}{root}-{plan.topology.name}")[:NAME_LENGTH]
    refusal: UnsupportedError | None = None
    for max_steps in STEPS:
        program = lower(
            plan.schedule, plan.collective, max_steps=max_steps, channels=channels, instances=instances, name=name
        )
        check_channels(program, channels, instances)
        try:
            return to_execution_plan(program, **options)
        except UnsupportedError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal
