"""Readers of the fields of schedules, from JSON values and from Python."""

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any

import numpy as np

from ..errors import FileFormatError, UnsupportedError
from ..support.arrays import IntArray
from ..support.validation import is_whole, shown


def schedule_fields(data: object, kind: str, names: Sequence[str], where: str) -> Mapping[str, Any]:
    """Read the fields of a schedule of some kind, or raise `FileFormatError`."""
    if not isinstance(data, Mapping) or set(data) != set(names) or data["kind"] != kind:
        raise FileFormatError(
            f"{where}: field schedule is not of the kind {kind!r}; expected the fields {', '.join(names)}"
        )
    return data


def whole_count(value: object, what: str) -> int:
    """Read a count from 1, or raise `FileFormatError` that names it as `what`."""
    if type(value) is not int or not 1 <= value < 2**63:
        raise FileFormatError(f"{what} is {shown(value)}; expected a whole number from 1 to {2**63 - 1}")
    return value


def whole_numbers(values: object, what: str) -> IntArray:
    """Read a list of whole numbers from 0, or raise `FileFormatError`.

    Types first, for numpy takes true for 1 and makes of one text a table of texts.
    """
    if not isinstance(values, list) or set(map(type, values)) - {int}:
        raise FileFormatError(f"{what} is not a list of whole numbers")
    try:
        array = np.array(values, dtype=np.int64)
    except OverflowError:
        raise FileFormatError(f"{what} has a number beyond 64 bits") from None
    if len(array) and array.min() < 0:
        raise FileFormatError(f"{what} has the negative number {array.min()}; expected numbers from 0")
    return array


def path_arrays(values: object, where: str) -> dict[str, IntArray]:
    """Read the paths of a schedule as `path_starts` and `path_nodes`, or raise `FileFormatError`."""
    if not isinstance(values, list) or not all(isinstance(path, list) for path in values):
        raise FileFormatError(f"{where}: field schedule.paths is not a list of lists of node numbers")
    nodes = whole_numbers([node for path in values for node in path], f"{where}: field schedule.paths")
    return {"path_starts": np.cumsum([0, *map(len, values)], dtype=np.int64), "path_nodes": nodes}


def as_count(value: object, name: str) -> int:
    """Read a whole number of a schedule; anything else raises `UnsupportedError`."""
    if not is_whole(value):
        raise UnsupportedError(f"the schedule's {name} is {shown(value)}; expected a whole number")
    return int(value)


def as_rows(sends: object, numbers: dict[tuple[int, ...], int], second: str) -> list[tuple[int, ...]]:
    """Read sends as rows of five whole numbers; the last is that of the path, by which `numbers` then knows it."""
    expected = f"(step, {second}, lower, upper, path)"
    if not isinstance(sends, Iterable):
        raise UnsupportedError(f"the sends are {shown(sends)}; expected a list of {expected}")
    rows: list[tuple[int, ...]] = []
    for send in sends:
        try:
            step, source, lower, upper, path = send
            counts = (index(step), index(source), index(lower), index(upper))
            nodes = tuple(map(index, path))
        except (TypeError, ValueError):
            raise UnsupportedError(f"send {len(rows)} is {shown(send)}; expected {expected} in whole numbers") from None
        rows.append((*counts, numbers.setdefault(nodes, len(numbers))))
    return rows


def as_paths(paths: object) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Read paths of a flow as ``(chunks, path, steps)`` in whole numbers."""
    if not isinstance(paths, Iterable) or getattr(paths, "shape", None) == ():
        raise UnsupportedError(f"the paths are {shown(paths)}; expected a list of (chunks, path, steps)")
    rows: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []
    for row in paths:
        try:
            chunks, path, steps = row
            rows.append((index(chunks), tuple(map(index, path)), tuple(map(index, steps))))
        except (TypeError, ValueError):
            raise UnsupportedError(
                f"path {len(rows)} is {shown(row)}; expected (chunks, path, steps) in whole numbers"
            ) from None
    return rows
