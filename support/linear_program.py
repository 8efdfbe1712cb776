"""Linear and integer programs as arrays, in which models hand them to solvers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from .arrays import BoolArray, FloatArray, IntArray


class Labels(Protocol):
    """Columns or rows of one named block of a model, and the form in which its user indexes them."""

    @property
    def positions(self) -> IntArray:
        """Columns or rows, in the block's own shape."""

    def arrange(self, values: FloatArray) -> Any:
        """Convert `values` from the shape of `positions` to the form in which the user indexes the block."""

    def to_array(self, values: Any) -> FloatArray:
        """Convert values from the user's form to the shape of `positions`: the inverse of `arrange`."""

    def label(self, place: int) -> str:
        """Name the entry at a flat index of `positions`, for messages."""


class LinearProgram(NamedTuple):
    """A linear or integer program: optimize ``costs @ x + offset`` over rows and columns with bounds."""

    name: str  # For messages
    maximize: bool
    costs: FloatArray  # One per column
    offset: float
    matrix: Any  # A `scipy.sparse.csc_array`, rows by columns
    row_bounds: tuple[FloatArray, FloatArray]  # Lower and upper
    column_bounds: tuple[FloatArray, FloatArray]
    integral: BoolArray  # Which columns must be integers
    variables: Mapping[str, Labels]  # Columns by name of their block
    constraints: Mapping[str, Labels]  # Rows by name of their block

    def linear_program(self) -> LinearProgram:
        """Return itself, as its own model."""
        return self
