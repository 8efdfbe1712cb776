"""Whole numbers and paths of schedules, as JSON files have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import FileFormatError
from ...support.validation import shown

__all__ = ["node_paths", "whole_count", "whole_numbers"]

IntArray = npt.NDArray[np.int64]


def whole_count(value: object, what: str) -> int:
    """Read a count from 1, or raise `FileFormatError` that names it as `what`."""
    if type(value) is not int or not 1 <= value < 2**63:
        raise FileFormatError(f"{what} is {shown(value)}; expected a whole number from 1")
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


def node_paths(values: object, where: str) -> list[list[Any]]:
    """Read the paths of a schedule, whose nodes are yet to be looked at, or raise `FileFormatError`."""
    if not isinstance(values, list) or not all(isinstance(path, list) for path in values):
        raise FileFormatError(f"{where}: field schedule.paths is not a list of lists of node numbers")
    return values
