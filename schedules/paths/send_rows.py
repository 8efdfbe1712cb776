"""Reads sends and paths as people write them, or says which of them is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index

from ...errors import UnsupportedError
from ...support.validation import is_whole, shown

__all__ = ["as_count", "as_paths", "as_rows"]


def as_count(value: object, name: str) -> int:
    """Read a whole number of a schedule; anything else raises `UnsupportedError`."""
    if not is_whole(value):
        raise UnsupportedError(f"the schedule's {name} is {shown(value)}; expected a whole number")
    return int(value)


def as_rows(sends: object, numbers: dict[tuple[int, ...], int]) -> list[tuple[int, ...]]:
    """Read sends as rows of five whole numbers; the last is that of the path, by which `numbers` then knows it."""
    if not isinstance(sends, Iterable):
        raise UnsupportedError(f"the sends are {shown(sends)}; expected a list of (step, source, lower, upper, path)")
    rows: list[tuple[int, ...]] = []
    for send in sends:
        try:
            step, source, lower, upper, path = send
            whole = (index(step), index(source), index(lower), index(upper))
            nodes = tuple(map(index, path))
        except (TypeError, ValueError):
            raise UnsupportedError(
                f"send {len(rows)} is {shown(send)}; expected (step, source, lower, upper, path) in whole numbers"
            ) from None
        rows.append((*whole, numbers.setdefault(nodes, len(numbers))))
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
