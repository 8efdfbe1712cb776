"""Schedules in steps as plain JSON values; ``docs/reference/plan-json.md`` describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import FileFormatError, UnsupportedError
from ...support.validation import shown
from ..paths.written_paths import node_paths, whole_count, whole_numbers
from .schedule import StepSchedule

KIND = "steps"
COUNTS = ("num_ranks", "chunks_per_shard")
COLUMNS = ("steps", "sources", "lower", "upper", "routes")
FIELDS = ("kind", "direction", *COUNTS, "paths", *COLUMNS)


def is_step_json(data: object) -> bool:
    """Whether a decoded JSON value says that it is a schedule in steps, or an allreduce that begins with one."""
    if isinstance(data, Mapping) and data.get("kind") == "allreduce":
        data = data.get("reduce")
    return isinstance(data, Mapping) and data.get("kind") == KIND


def steps_to_json(schedule: StepSchedule) -> dict[str, Any]:
    """Describe a schedule in steps by lists and integers, ready for `json.dumps`.

    Parameters
    ----------
    schedule : StepSchedule
        Left alone.

    Returns
    -------
    dict
        Sends are columns, for there can be millions of them.

    Examples
    --------
    >>> exchange = StepSchedule.from_sends(2, 1, [(0, 0, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0))])
    >>> fields = steps_to_json(exchange)
    >>> fields["paths"], fields["sources"]
    ([[0, 1], [1, 0]], [0, 1])
    """
    if not isinstance(schedule, StepSchedule):
        raise UnsupportedError(f"the schedule is {shown(schedule)}; expected a StepSchedule")
    return schedule.to_json()


def steps_from_json(data: object, where: str) -> StepSchedule:
    """Build the schedule in steps that a decoded JSON value describes.

    Only the form is checked here; whether it is a schedule for some topology is for `verified_step_loads` to say.

    Parameters
    ----------
    data : dict
        As `steps_to_json` makes it.
    where : str
        Names the document in error messages.

    Returns
    -------
    StepSchedule
    """
    where = where if isinstance(where, str) else shown(where)
    if not isinstance(data, Mapping) or set(data) != set(FIELDS) or data["kind"] != KIND:
        raise FileFormatError(
            f"{where}: field schedule is not a schedule in steps; expected the fields {', '.join(FIELDS)}"
        )
    if data["direction"] not in ("broadcast", "reduce"):
        raise FileFormatError(
            f"{where}: field schedule.direction is {shown(data['direction'])}; expected 'broadcast' or 'reduce'"
        )
    ranks, chunks = (whole_count(data[name], f"{where}: field schedule.{name}") for name in COUNTS)
    columns = {name: whole_numbers(data[name], f"{where}: field schedule.{name}") for name in COLUMNS}
    for name, column in columns.items():
        if len(column) != len(columns["steps"]):
            raise FileFormatError(
                f"{where}: field schedule.{name} has {len(column)} entries, but schedule.steps has "
                f"{len(columns['steps'])}; expected one for each send"
            )
    paths = node_paths(data["paths"], where)
    return StepSchedule(
        ranks,
        chunks,
        columns["steps"],
        columns["sources"],
        columns["lower"],
        columns["upper"],
        columns["routes"],
        np.cumsum([0, *map(len, paths)], dtype=np.int64),
        whole_numbers([node for path in paths for node in path], f"{where}: field schedule.paths"),
        data["direction"],
    )
