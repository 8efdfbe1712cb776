"""Schedules of any kind as plain JSON values; ``docs/reference/plan-json.md`` describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import FileFormatError, UnsupportedError
from ..support.validation import shown
from .any_schedule import AnySchedule
from .flows.flow_json import flow_from_json, flow_to_json, is_flow_json
from .flows.schedule import FlowSchedule
from .steps.allreduce import StepAllreduce
from .steps.schedule import StepSchedule
from .steps.steps_json import is_step_json, steps_from_json, steps_to_json
from .trees.allreduce import Allreduce
from .trees.forest import Forest
from .trees.forest_json import forest_from_json, forest_to_json

__all__ = ["schedule_from_json", "schedule_to_json"]


def schedule_to_json(schedule: AnySchedule) -> dict[str, Any]:
    """Describe a schedule, or the two of an allreduce, by lists and integers, ready for `json.dumps`.

    Raises `UnsupportedError` if it is something else.
    """
    if isinstance(schedule, Forest):
        return forest_to_json(schedule)
    if isinstance(schedule, StepSchedule):
        return steps_to_json(schedule)
    if isinstance(schedule, FlowSchedule):
        return flow_to_json(schedule)
    if not isinstance(schedule, (Allreduce, StepAllreduce)):
        raise UnsupportedError(
            f"the schedule is {shown(schedule)}; expected a Forest, a StepSchedule, an allreduce or a FlowSchedule"
        )
    parts = {"reduce": schedule.reduce, "broadcast": schedule.broadcast}
    return {"kind": "allreduce", **{name: schedule_to_json(part) for name, part in parts.items()}}


def schedule_from_json(data: object, where: str) -> AnySchedule:
    """Build the schedule that a decoded JSON value describes; errors as for `forest_from_json`."""
    where = where if isinstance(where, str) else shown(where)
    stepped = is_step_json(data)
    if isinstance(data, Mapping) and data.get("kind") == "allreduce":
        if set(data) != {"kind", "reduce", "broadcast"}:
            raise FileFormatError(f"{where}: field schedule is not an allreduce; expected reduce and broadcast")
        parts = (data["reduce"], data["broadcast"])
        if stepped:
            return StepAllreduce(*(steps_from_json(part, where) for part in parts))
        return Allreduce(*(forest_from_json(part, where) for part in parts))
    if is_flow_json(data):
        return flow_from_json(data, where)
    return steps_from_json(data, where) if stepped else forest_from_json(data, where)
