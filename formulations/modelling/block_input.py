"""Input checks of block models: shapes, terms and numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import UnsupportedError
from ...support.arrays import FloatArray, IntArray
from ...support.validation import is_whole, shown

Numbers = npt.ArrayLike
Shape = int | tuple[int, ...]

MAX_ENTRIES = 10**8  # limit of variables or constraints in one block, for the memory of a solver


def as_shape(shape: Shape) -> tuple[int, ...]:
    """Read the shape of a block that is not too large."""
    sizes = shape if isinstance(shape, tuple) else (shape,)
    if not all(is_whole(size) and size >= 0 for size in sizes):
        raise UnsupportedError(f"the shape of a block is {shape!r}; expected whole numbers of at least 0")
    if prod(map(int, sizes)) > MAX_ENTRIES:
        raise UnsupportedError(f"the shape of a block is {shown(shape)}; expected at most {MAX_ENTRIES} entries")
    return tuple(int(size) for size in sizes)


def as_terms(terms: object, what: str) -> list[Any]:
    """Read terms as a list."""
    if not isinstance(terms, Iterable) or isinstance(terms, (str, bytes, Mapping, np.ndarray)):
        raise UnsupportedError(f"the terms of {what} are {shown(terms)}; expected a list of tuples")
    return list(terms)


def in_one_row(terms: object, what: str) -> list[tuple[Any, ...]]:
    """Put ``(columns, coefficients)`` terms into the only row of a constraint or an objective."""
    given = as_terms(terms, what)
    for term in given:
        if not isinstance(term, tuple) or len(term) != 2:
            raise UnsupportedError(f"a term of {what} is {shown(term)}; expected (columns, coefficients)")
    return [(0, *term) for term in given]


def as_places(values: npt.ArrayLike, size: int, what: str) -> IntArray:
    """Read rows or columns from 0 to below `size`."""
    places = np.asarray(values)
    if places.size == 0:
        return places.astype(np.int64)
    if not np.issubdtype(places.dtype, np.integer):
        raise UnsupportedError(f"{what} is of type {places.dtype}; expected whole numbers")
    wrong = places[(places < 0) | (places >= size)]
    if wrong.size:
        raise UnsupportedError(f"{what} is {int(wrong.flat[0])}; expected 0 to {size - 1}")
    return places.astype(np.int64)


def as_coefficients(values: Numbers, what: str) -> FloatArray:
    """Read finite numbers."""
    numbers = as_floats(values, f"a coefficient of {what}")
    if not np.isfinite(numbers).all():
        raise UnsupportedError(f"a coefficient of {what} is not finite; expected a number")
    return numbers


def as_bounds(values: Numbers, shape: tuple[int, ...], what: str) -> FloatArray:
    """Read bounds, which may be infinite, and broadcast them over a flattened block."""
    numbers = as_floats(values, f"a bound of {what}")
    if np.isnan(numbers).any():
        raise UnsupportedError(f"a bound of {what} is not a number; use infinity for none")
    return as_shaped(numbers, shape, f"a bound of {what}").ravel()


def as_shaped(numbers: FloatArray, shape: tuple[int, ...], what: str) -> FloatArray:
    """Broadcast numbers to a shape."""
    try:
        return np.broadcast_to(numbers, shape)
    except ValueError:
        raise UnsupportedError(f"{what} has shape {numbers.shape}; expected {shape}") from None


def as_floats(values: Numbers, what: str) -> FloatArray:
    """Read numbers as floats."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise UnsupportedError(f"{what} is {shown(values)}; expected numbers within the range of floats") from None
