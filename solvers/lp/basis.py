"""Where the columns and rows of a linear program rest at the end of a solve."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from .program import IntArray, Labels, LinearProgram

__all__ = ["BASIC", "LOWER", "UPPER", "Basis"]

LOWER, BASIC, UPPER = 0, 1, 2
"""HiGHS's numbers of the states that matter; its further ones are those of columns without bounds."""


class Basis:
    """A basis of HiGHS, read when first asked for, since that costs time and few solves need it."""

    def __init__(self, found: Any) -> None:
        self._found = found

    @cached_property
    def columns(self) -> IntArray:
        """State of every column."""
        return np.array([int(state) for state in self._found.col_status], dtype=np.int64)

    @cached_property
    def rows(self) -> IntArray:
        """State of every row."""
        return np.array([int(state) for state in self._found.row_status], dtype=np.int64)

    def moved(self, old: LinearProgram, new: LinearProgram) -> tuple[IntArray, IntArray]:
        """Give the blocks of another program the states that blocks of the same name and shape have in this basis."""
        rows, columns = new.matrix.shape
        return (
            _moved(self.columns, old.variables, new.variables, np.full(columns, LOWER)),
            _moved(self.rows, old.constraints, new.constraints, np.full(rows, BASIC)),
        )

    def __getstate__(self) -> dict[str, IntArray]:
        """Leave out what belongs to HiGHS, so that a solution can be sent to another process."""
        return {"columns": self.columns, "rows": self.rows}


def _moved(states: IntArray, old: Mapping[str, Labels], new: Mapping[str, Labels], moved: IntArray) -> IntArray:
    for name, block in new.items():
        if name in old and old[name].positions.shape == block.positions.shape:
            moved[block.positions] = states[old[name].positions]
    return moved
