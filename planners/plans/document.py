"""The text of a plan file: its version, its layout, and how it is written."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from ...errors import UnsupportedError
from ...support.validation import shown
from ...support.writing import write_whole

PLAN_FORMAT = "collopt-plan"
PLAN_VERSION = 4
"""Version 2 added partitions and prices as witnesses, and allreduce with any roots; version 3 schedules in steps;
version 4 all-to-all(v), with flows and lengths.

Older files are read as they are.
"""


def write_document(fields: Mapping[str, object], path: str | os.PathLike[str]) -> None:
    """Write the fields of a plan to a file, whole or not at all."""
    check_path(path)
    body = ",\n".join(f"{json.dumps(key)}: {_laid_out(value)}" for key, value in fields.items())
    write_whole(path, f"{{\n{body}\n}}\n")


def check_path(path: object) -> None:
    """Raise `UnsupportedError` unless it is the name of a file."""
    if not isinstance(path, (str, os.PathLike)):
        raise UnsupportedError(f"the path is {shown(path)}; expected a file's name")


def _laid_out(value: object) -> str:
    """JSON text with one row per link, path or tree, which people can compare and edit."""
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    rows = {
        key: "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in entry) + "\n]"
        if isinstance(entry, list) and entry and isinstance(entry[0], (list, dict))
        else json.dumps(entry, ensure_ascii=False)
        for key, entry in value.items()
    }
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {text}" for key, text in rows.items()) + "\n}"
