"""Turns what users write into exact values, or says what is wrong with it."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from numbers import Rational
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from ..errors import ColloptError, TopologyError, UnsupportedError
from .quantities import as_gigabytes, looks_like_unit
from .wording import shown

__all__ = [
    "MAX_BANDWIDTH",
    "Exact",
    "as_amount",
    "as_bandwidth",
    "as_factor",
    "as_flag",
    "as_integers",
    "as_latency",
    "as_list",
    "as_name",
    "as_names",
    "as_path",
    "as_several",
    "as_title",
    "as_whole",
    "is_int",
    "is_whole",
    "shown",
]

Exact = int | float | str | Fraction | Decimal
"""What a number may be written as; floats are read by their shortest decimal form, so ``0.1`` is 1/10."""

MAX_BANDWIDTH = Fraction(10**9)
"""GB/s; a thousand petabytes per second per link is a typing error, not a network."""
MAX_LATENCY = Fraction(10**12)
"""Microseconds."""
MAX_DENOMINATOR = 10**12
"""A finer grain than this cannot be scaled to int64 next to ordinary bandwidths."""
MAX_EXPONENT = 400
"""Writing out a larger power of ten would take long; floats end at 308."""

MAX_LISTED = 2**22
"""Entries of a list that is read; one that goes on longer may have no end."""


def as_bandwidth(value: object, where: str) -> Fraction:
    """Read a bandwidth in GB/s as an exact positive fraction.

    Parameters
    ----------
    value : int, float, str, Decimal or Fraction
        GB/s (1e9 bytes per second), one direction; or text with its unit, such as ``"400Gb/s"``.
    where : str
        Names the thing in the error message, such as ``"link ('gpu0', 'sw0')"``.

    Returns
    -------
    Fraction

    Raises
    ------
    TopologyError
        If the value is not a number, not finite, not positive, absurdly large, or too fine-grained.

    Examples
    --------
    >>> as_bandwidth(0.1, "link ('a', 'b')")
    Fraction(1, 10)
    >>> as_bandwidth("400Gb/s", "every NIC")
    Fraction(50, 1)
    """
    expected = "a positive number of GB/s"
    if looks_like_unit(value):
        expected += ", or one with another unit, such as 400Gb/s"
    bandwidth = _as_fraction(as_gigabytes(value), f"bandwidth of {where}", expected)
    if bandwidth <= 0:
        raise TopologyError(
            f"bandwidth of {where} is {shown(value)}; expected a positive number of GB/s (leave out dead links)"
        )
    if bandwidth > MAX_BANDWIDTH:
        raise TopologyError(
            f"bandwidth of {where} is {shown(value)}; "
            f"expected at most {float(MAX_BANDWIDTH):g} GB/s (GB/s, not bytes/s)"
        )
    return bandwidth


def as_latency(value: object, where: str) -> Fraction:
    """Read a latency in µs as an exact non-negative fraction; errors as in `as_bandwidth`."""
    latency = _as_fraction(value, f"latency of {where}", "a number of microseconds, zero or more")
    if latency < 0 or latency > MAX_LATENCY:
        raise TopologyError(
            f"latency of {where} is {shown(value)}; "
            f"expected a number of microseconds between 0 and {float(MAX_LATENCY):g}"
        )
    return latency


def as_amount(value: object) -> Fraction:
    """Read a relative amount exactly: a number of at least 0; errors as in `as_bandwidth`."""
    amount = _as_fraction(value, "amount", "a number of at least 0")
    if amount < 0:
        raise TopologyError(f"amount is {shown(value)}; expected a number of at least 0")
    return amount


def as_factor(value: object, what: str) -> Fraction:
    """Read a positive multiplier exactly; errors as in `as_bandwidth`."""
    factor = _as_fraction(value, what, "a positive number")
    if factor <= 0:
        raise TopologyError(f"{what} is {shown(value)}; expected a positive number")
    return factor


def as_flag(value: object, what: str) -> bool:
    """Read True or False; anything else raises `TopologyError`."""
    if not isinstance(value, (bool, np.bool_)):
        raise TopologyError(f"{what} is {shown(value)}; expected True or False")
    return bool(value)


def as_several(values: object, what: str) -> Iterable[Any]:
    """Read things one by one, as there may be too many to keep; what cannot be gone through raises `TopologyError`."""
    # A numpy array without dimensions says that it can be gone through, but cannot.
    if not isinstance(values, Iterable) or isinstance(values, bytes) or getattr(values, "shape", None) == ():
        raise TopologyError(f"{what} are {shown(values)}; expected a list")
    return values


def as_list(values: object, what: str, *, most: int = MAX_LISTED) -> tuple[Any, ...]:
    """Read several things and keep them; errors as in `as_several`, or if there are more than `most`."""
    kept = tuple(islice(as_several(values, what), most + 1))
    if len(kept) > most:
        raise TopologyError(f"{what} are more than {most}; expected a list of at most that many")
    return kept


def is_int(value: object) -> TypeGuard[int]:
    """Whether it is an integer of Python's own, of which booleans are none here."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether it is an integer of Python or numpy; booleans are none, nor are floats and text."""
    return is_int(value) or isinstance(value, np.integer)


def as_whole(
    value: object,
    what: str,
    *,
    least: int = 1,
    most: int | None = None,
    error: type[ColloptError] = UnsupportedError,
) -> int:
    """Read a whole number of at least `least`, and at most `most` if that is given.

    Parameters
    ----------
    value : int
        One of Python or numpy; see `is_whole`.
    what : str
        Names the thing in the error message, such as ``"chunks"``.
    least, most : int
        Both included.
    error : type of ColloptError
        Raised for anything else.

    Returns
    -------
    int
        Python's own, which does not overflow.

    Examples
    --------
    >>> as_whole(4, "chunks", most=8)
    4
    """
    if not is_whole(value) or value < least or (most is not None and value > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise error(f"{what} is {shown(value)}; expected a whole number {limits}")
    return int(value)


def as_integers(values: object, what: str, expected: str) -> npt.NDArray[np.int64]:
    """Read an array, or lists in lists, of whole numbers; anything else raises `TopologyError`.

    Parameters
    ----------
    values : array_like of int
        Numbers of 64 bits; booleans and floats are none.
    what, expected : str
        Begin and end the error message, such as ``"the arcs"`` and ``"pairs (tail, head) of whole numbers"``.

    Returns
    -------
    ndarray of int64
        The array itself, where it is one of int64; its shape is not checked.

    Examples
    --------
    >>> as_integers([(0, 1), (1, 0)], "the arcs", "pairs of whole numbers").shape
    (2, 2)
    """
    try:
        if isinstance(values, np.ndarray) and values.dtype != np.object_:
            if np.issubdtype(values.dtype, np.integer) and (values <= np.iinfo(np.int64).max).all():
                return values.astype(np.int64, copy=False)
        else:
            entries = np.array(values, dtype=np.object_)
            if all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in set(map(type, entries.flat))):
                return entries.astype(np.int64)
    except (TypeError, ValueError, OverflowError):
        pass
    raise TopologyError(f"{what} are {shown(values)}; expected {expected}")


def as_path(value: object) -> Path:
    """Read the path of a file, or raise `UnsupportedError`."""
    try:
        return Path(os.fsdecode(value))  # type: ignore[arg-type]
    except TypeError:
        raise UnsupportedError(f"the path is {shown(value)}; expected text or a path") from None


def as_name(value: object) -> str:
    """Read a node name: non-empty text, or an integer, which becomes its decimal digits."""
    if is_int(value) and abs(value) < 10**18:
        return str(value)
    if not isinstance(value, str) or not value.strip() or value != value.strip() or not value.isprintable():
        raise TopologyError(
            f"node name {shown(value)} is not usable; expected printable text without spaces around it, or an integer"
        )
    return value


def as_title(value: object, what: str) -> str:
    """Read what a network or a graph is called: any printable text; anything else raises `TopologyError`."""
    if not isinstance(value, str) or not value.isprintable():
        raise TopologyError(f"{what} is {shown(value)}; expected printable text")
    return value


def as_names(values: Iterable[object], kind: str) -> tuple[str, ...]:
    """Read several node names and refuse one that occurs twice."""
    if isinstance(values, str):
        raise TopologyError(f"{kind} nodes are given as the text {shown(values)}; expected a list of names")
    names = tuple(as_name(value) for value in as_list(values, f"{kind} nodes"))
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise TopologyError(f"{kind} node {name!r} is listed twice; every node needs its own name")
        seen.add(name)
    return names


def _as_fraction(value: object, what: str, expected: str) -> Fraction:
    if type(value) is Fraction and value.denominator <= MAX_DENOMINATOR:
        return value
    if isinstance(value, str) and len(value) > 64:
        raise TopologyError(f"{what} has {len(value)} characters; expected {expected}")
    finite = not isinstance(value, float) or math.isfinite(value)
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float, str, Decimal, Rational))
        or not finite
        or _exponent(value) > MAX_EXPONENT
    ):
        raise TopologyError(f"{what} is {shown(value)}; expected {expected}")
    try:
        # A float's repr is what the user typed: 0.1 means one tenth, not its binary neighbour.
        number = Fraction(repr(float(value)) if isinstance(value, float) else value)
    except (ValueError, OverflowError, ZeroDivisionError) as error:
        raise TopologyError(f"{what} is {shown(value)}; expected {expected}") from error
    if number.denominator > MAX_DENOMINATOR:
        raise TopologyError(f"{what} is {shown(value)}; expected a number with at most 12 decimal places")
    # Numpy integers would stay inside the fraction and overflow later.
    return Fraction(int(number.numerator), int(number.denominator))


def _exponent(value: object) -> int:
    """Size of the power of ten that turning `value` into a fraction writes out."""
    if isinstance(value, Decimal) and value.is_finite():
        return abs(int(value.as_tuple().exponent))
    if isinstance(value, str) and (match := re.search(r"e([+-]?\d[\d_]*)\s*$", value, re.IGNORECASE)):
        return abs(int(match[1].replace("_", "")))
    return 0
