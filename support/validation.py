"""Turns what users write into exact values, or says what is wrong with it.

Checks on the sizes that people ask topology builders for.

How values that people give stand in error messages.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from ..errors import ColloptError, TopologyError, UnsupportedError

__all__ = [
    "MAX_LINKS",
    "as_flag",
    "as_integers",
    "as_list",
    "as_name",
    "as_names",
    "as_path",
    "as_several",
    "as_size",
    "as_title",
    "as_whole",
    "check_links",
    "is_int",
    "is_whole",
    "shown",
]


MAX_LISTED = 2**22
"""Entries of a list that is read; one that goes on longer may have no end."""


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

    >>> as_whole(4, "chunks", most=8)
    4
    """
    if not is_whole(value) or value < least or (most is not None and value > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise error(f"{what} is {shown(value)}; expected a whole number {limits}")
    return int(value)


def as_integers(values: object, what: str, expected: str) -> npt.NDArray[np.int64]:
    """Read an array, or lists in lists, of whole numbers; anything else raises `TopologyError`.

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


MAX_LINKS = 2**20
"""Directed links of a generated topology; beyond it, building alone takes minutes and gigabytes."""


def as_size(value: object, what: str, *, least: int = 1, most: int = 2**16) -> int:
    """Read a whole number between `least` and `most`.

    >>> as_size(4, "boxes")
    4
    """
    return as_whole(value, what, least=least, most=most, error=TopologyError)


def check_links(links: int, what: str) -> None:
    """Refuse, before anything is built, a topology of more than `MAX_LINKS` directed links."""
    if links > MAX_LINKS:
        raise TopologyError(f"{what} would have {links} links; expected at most {MAX_LINKS}, ask for a smaller one")


MAX_SHOWN = 100
"""Characters of a value in an error message."""

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlevel = 3


def shown(value: object) -> str:
    """Show `value` in an error message: its repr in one line, cut to a readable length and depth."""
    try:
        text = _SHORT.repr(value)
    except Exception as error:  # noqa: BLE001 - the repr of a stranger may fail in any way
        # Python refuses to print an integer of more than 4300 digits.
        huge = isinstance(value, int) and isinstance(error, ValueError)
        text = "an integer of more than 4300 digits" if huge else f"something of type {type(value).__name__}"
    if not text.isprintable():
        text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 40]}...{text[-37:]}"
