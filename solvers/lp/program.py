"""What the solver takes: a model that hands over a linear program as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["BoolArray", "FloatArray", "IntArray", "Labels", "LinearProgram", "Model", "named"]

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

NAMES_SHOWN = 3


class Labels(Protocol):
    """Which columns or rows one named block of a model occupies, and how its user indexes them."""

    @property
    def positions(self) -> IntArray:
        """Columns or rows, in the block's own shape."""

    def arrange(self, values: FloatArray) -> Any:
        """Give `values`, in the shape of `positions`, the form in which the user indexes the block."""

    def spread(self, values: Any) -> FloatArray:
        """Undo `arrange`: from the form in which the user indexes the block to the shape of `positions`."""

    def label(self, place: int) -> str:
        """Name the entry at a flat place of `positions`, for messages."""


class LinearProgram(Protocol):
    """A linear or integer program as arrays: optimise ``costs @ x + offset`` over rows and columns with bounds."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def maximize(self) -> bool:
        """The sense of the objective."""

    @property
    def costs(self) -> FloatArray:
        """One per column."""

    @property
    def offset(self) -> float:
        """Constant part of the objective."""

    @property
    def matrix(self) -> Any:
        """A `scipy.sparse.csc_array`, rows by columns."""

    @property
    def row_bounds(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper."""

    @property
    def column_bounds(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper."""

    @property
    def whole(self) -> BoolArray:
        """Which columns must be integers."""

    @property
    def variables(self) -> Mapping[str, Labels]:
        """Columns by name of their block."""

    @property
    def constraints(self) -> Mapping[str, Labels]:
        """Rows by name of their block."""


class Model(Protocol):
    """What `solve` takes: a formulation's model or `Blocks`."""

    def linear_program(self) -> LinearProgram:
        """Return the model as it stands, as arrays that nobody changes any more."""


def named(blocks: Mapping[str, Labels], chosen: IntArray) -> str:
    """Name a few of the columns or rows chosen: one per block, last blocks first, for those are what users add."""
    names: list[str] = []
    for block in reversed(list(blocks.values())):
        places = np.flatnonzero(np.isin(block.positions.ravel(), chosen))
        if len(places) and len(names) < NAMES_SHOWN:
            names.append(repr(block.label(int(places[0]))))
    more = len(chosen) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
