"""Schedules of any kind as plain JSON values; ``docs/reference/plan-json.md`` describes them."""

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import FileFormatError, UnsupportedError
from ..support.validation import shown
from .paths.schedule import Schedule
from .steps.allreduce import StepAllreduce, exchange_from_json
from .steps.flow import flow_from_json, staged_flow_from_json
from .steps.step_schedule import steps_from_json
from .trees.allreduce import Allreduce
from .trees.forest_json import forest_from_json, symmetric_forest_from_json
from .trees.symmetric_forest import SymmetricAllreduce


def schedule_to_json(schedule: Schedule) -> dict[str, Any]:
    """Return the JSON document of a schedule, or of both of an allreduce.

    Examples
    --------
    >>> from collopt.schedules import Forest
    >>> forest = Forest.from_paths(2, 1, [(0, 1, [(0, 2, 1)]), (1, 1, [(1, 2, 0)])])
    >>> schedule_to_json(forest)["trees"]
    [[0, 1, [-1, 0]], [1, 1, [1, -1]]]
    """
    if not isinstance(schedule, Schedule):
        raise UnsupportedError(
            f"the schedule is {shown(schedule)}; expected a Forest, a StepSchedule, an allreduce or a FlowSchedule"
        )
    return schedule.to_json()


def schedule_from_json(data: object, where: str) -> Schedule:
    """Build a schedule of any kind from a decoded JSON value; only its form is checked.

    Parameters
    ----------
    data : dict
        As `schedule_to_json` makes it.
    where : str
        Names the document in error messages.
    """
    where = where if isinstance(where, str) else shown(where)
    kind = data.get("kind") if isinstance(data, Mapping) else None
    # What is of no known kind is refused as no forest.
    return SCHEDULE_READERS.get(kind if isinstance(kind, str) else "forest", forest_from_json)(data, where)


def schedule_kind(data: object) -> object:
    """Return the kind of a decoded schedule; of an allreduce, that of its reduction."""
    if isinstance(data, Mapping) and data.get("kind") == "allreduce":
        data = data.get("reduce")
    return data.get("kind") if isinstance(data, Mapping) else None


def _allreduce_from_json(data: Any, where: str) -> Schedule:
    if set(data) != {"kind", "reduce", "broadcast"}:
        raise FileFormatError(f"{where}: field schedule is not an allreduce; expected reduce and broadcast")
    parts = (data["reduce"], data["broadcast"])
    if schedule_kind(data) == "steps":
        return StepAllreduce(*(steps_from_json(part, where) for part in parts))
    if schedule_kind(data) == "symmetric-forest":
        return SymmetricAllreduce(*(symmetric_forest_from_json(part, where) for part in parts))
    return Allreduce(*(forest_from_json(part, where) for part in parts))


SCHEDULE_READERS: dict[str, Callable[[object, str], Schedule]] = {
    "forest": forest_from_json,
    "steps": steps_from_json,
    "exchange": exchange_from_json,
    "flow": flow_from_json,
    "staged-flow": staged_flow_from_json,
    "symmetric-forest": symmetric_forest_from_json,
    "allreduce": _allreduce_from_json,
}
"""What reads each ``"kind"`` of schedule in a plan file: a function of the decoded JSON value and the file's name."""
