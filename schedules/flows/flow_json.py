"""Flows as plain JSON values; ``docs/reference/plan-json.md`` describes them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...errors import FileFormatError
from ..paths.written_paths import whole_count, whole_numbers
from .schedule import FlowSchedule

KIND = "flow"
FIELDS = ("kind", "chunks_per_unit", "traffic", "weights", "paths", "steps")


def is_flow_json(data: object) -> bool:
    """Whether a decoded JSON value says that it is a flow."""
    return isinstance(data, Mapping) and data.get("kind") == KIND


def flow_from_json(data: object, where: str) -> FlowSchedule:
    """Build the flow that a decoded JSON value describes.

    Only the form is checked here; whether it is a schedule for some topology is for `verified_flow_loads` to say.
    """
    if not isinstance(data, Mapping) or set(data) != set(FIELDS) or data["kind"] != KIND:
        raise FileFormatError(f"{where}: field schedule is not a flow; expected the fields {', '.join(FIELDS)}")
    rows, paths = data["traffic"], data["paths"]
    if not isinstance(rows, list) or any(not isinstance(row, list) or len(row) != len(rows) for row in rows):
        raise FileFormatError(f"{where}: field schedule.traffic is not a square matrix, a list of lists")
    if not isinstance(paths, list) or not all(isinstance(path, list) for path in paths):
        raise FileFormatError(f"{where}: field schedule.paths is not a list of lists of node numbers")
    traffic = whole_numbers([entry for row in rows for entry in row], f"{where}: field schedule.traffic")
    return FlowSchedule(
        len(rows),
        whole_count(data["chunks_per_unit"], f"{where}: field schedule.chunks_per_unit"),
        traffic.reshape(len(rows), len(rows)),
        whole_numbers(data["weights"], f"{where}: field schedule.weights"),
        np.cumsum([0, *map(len, paths)], dtype=np.int64),
        whole_numbers([node for path in paths for node in path], f"{where}: field schedule.paths"),
        whole_numbers(data["steps"], f"{where}: field schedule.steps"),
    )
