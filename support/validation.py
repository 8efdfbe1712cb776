"""Validation of arguments, and their representation in error messages."""

import os
import reprlib
from collections import Counter
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import ColloptError, TopologyError, UnsupportedError

Kind = TypeVar("Kind")

MAX_LISTED = 2**22  # entries of a list; longer iterables may be infinite


def as_flag(value: object, what: str) -> bool:
    """Return a boolean; anything else raises `TopologyError`."""
    if not isinstance(value, (bool, np.bool_)):
        raise TopologyError(f"{what} is {shown(value)}; expected True or False")
    return bool(value)


def as_several(values: object, what: str) -> Iterable[Any]:
    """Return an iterable unchanged; anything else raises `TopologyError`."""
    # A numpy array without dimensions has __iter__, which raises.
    if not isinstance(values, Iterable) or isinstance(values, bytes) or getattr(values, "shape", None) == ():
        raise TopologyError(f"{what} are {shown(values)}; expected a list")
    return values


def as_options(values: object, what: str) -> Iterable[Any]:
    """Return an iterable that is no text, of which the parts would be letters; otherwise as `as_several`."""
    if isinstance(values, str):
        raise TopologyError(f"{what} are the text {shown(values)}; expected a list")
    return as_several(values, what)


def as_list(values: object, what: str, *, high: int = MAX_LISTED) -> tuple[Any, ...]:
    """Return the entries of an iterable; `TopologyError` if it is none or has more than `high`."""
    kept = tuple(islice(as_several(values, what), high + 1))
    if len(kept) > high:
        raise TopologyError(f"{what} are more than {high}; expected a list of at most that many")
    return kept


def as_kind(
    value: object, kind: type[Kind], what: str, *, hint: str = "", error: type[ColloptError] = UnsupportedError
) -> Kind:
    """Return a value of a type unchanged; for anything else raise the error, which ends with the hint."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise error(f"{what} is {shown(value)}; expected {article} {kind.__name__}{hint}")
    return value


def is_int(value: object) -> TypeGuard[int]:
    """Return whether a value is an int and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is an integer of Python or numpy, and not a bool."""
    return is_int(value) or isinstance(value, np.integer)


def as_whole(
    value: object, what: str, *, low: int = 1, high: int | None = None, error: type[ColloptError] = UnsupportedError
) -> int:
    """Return an int of at least `low`, and at most `high` if that is given."""
    if not is_whole(value) or value < low or (high is not None and value > high):
        limits = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise error(f"{what} is {shown(value)}; expected a whole number {limits}")
    return int(value)


def as_integers(values: object, what: str, expected: str) -> npt.NDArray[np.int64]:
    """Convert an array or nested lists of integers to int64; anything else raises `TopologyError`."""
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
    """Convert text or a path object to a `Path`, or raise `UnsupportedError`."""
    try:
        text = os.fsdecode(value)  # type: ignore[arg-type]
    except TypeError:
        text = ""
    if not text:
        raise UnsupportedError(f"the path is {shown(value)}; expected the path of a file or folder")
    return Path(text)


def as_name(value: object) -> str:
    """Return a node name: non-empty text, or the decimal digits of an integer."""
    if is_int(value) and abs(value) < 10**18:
        return str(value)
    if not isinstance(value, str) or not value.strip() or value != value.strip() or not value.isprintable():
        raise TopologyError(
            f"node name {shown(value)} is not usable; expected printable text without spaces around it, or an integer"
        )
    return value


def as_title(value: object, what: str) -> str:
    """Return the name of a network or graph: printable text; anything else raises `TopologyError`."""
    if not isinstance(value, str) or not value.isprintable():
        raise TopologyError(f"{what} is {shown(value)}; expected printable text")
    return value


def as_names(values: Iterable[object], kind: str) -> tuple[str, ...]:
    """Return node names; `TopologyError` if one occurs twice."""
    if isinstance(values, str):
        raise TopologyError(f"{kind} nodes are given as the text {shown(values)}; expected a list of names")
    listed = as_list(values, f"{kind} nodes")
    text = "".join(listed) if set(map(type, listed)) == {str} else " "
    # Most names have no space, so that all are checked at once.
    usable = text.isprintable() and " " not in text and all(listed)
    names = listed if usable else tuple(map(as_name, listed))
    if len(set(names)) < len(names):
        twice = next(name for name, times in Counter(names).items() if times > 1)
        raise TopologyError(f"{kind} node {twice!r} is listed twice; every node needs its own name")
    return names


MAX_LINKS = 2**20  # directed links of a generated graph; larger ones take minutes and gigabytes to build
MAX_SWITCHED_LINKS = 2**23  # of equal parts, which are built as arrays


def as_size(value: object, what: str, *, low: int = 1, high: int = 2**16) -> int:
    """Return a size from `low` to `high`, or raise `TopologyError`."""
    return as_whole(value, what, low=low, high=high, error=TopologyError)


def check_links(links: int, what: str, limit: int = MAX_LINKS) -> None:
    """Raise `TopologyError` for more than `limit` directed links, before anything is built."""
    if links > limit:
        raise TopologyError(f"{what} would have {links} links; expected at most {limit}, ask for a smaller one")


def hint(name: object, names: Iterable[str]) -> str:
    """Return `` (did you mean ...?)`` with the known names that are spelled like one, at most two; or nothing."""
    close = get_close_matches(name.lower()[:50], list(names), n=2) if isinstance(name, str) else []
    return f" (did you mean {' or '.join(close)}?)" if close else ""


MAX_SHOWN = 100  # characters of a value in an error message
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlevel = 3


def shown(value: object) -> str:
    """Format a value for an error message: its repr on one line, limited in length and depth."""
    try:
        text = _SHORT.repr(value)
    except Exception as error:  # noqa: BLE001 - any repr may fail in any way
        # Python refuses to print an integer of more than 4300 digits.
        huge = isinstance(value, int) and isinstance(error, ValueError)
        text = "an integer of more than 4300 digits" if huge else f"something of type {type(value).__name__}"
    if not text.isprintable():
        text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 40]}...{text[-37:]}"
