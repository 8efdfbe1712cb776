"""Looks at what callers of this room give, and refuses it in one sentence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ...errors import UnsupportedError
from ...support.validation import is_int, shown
from .program import Program


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse what is none of the words in `choices`."""
    known = tuple(choices)
    if not isinstance(value, str) or value not in known:
        raise UnsupportedError(f"{name} is {shown(value)}; expected one of {', '.join(known)}")


def check_counts(values: Mapping[str, object], least: int = 1) -> None:
    """Refuse what is not a whole number of at least `least`, by its name; numpy's end up in files and messages."""
    for name, value in values.items():
        if not is_int(value) or value < least:
            raise UnsupportedError(f"{name} is {shown(value)}; expected a whole number of at least {least}")


def check_seconds(name: str, value: object) -> None:
    """Refuse what is not a positive, finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise UnsupportedError(f"{name} is {shown(value)}; expected a positive number of seconds")


def require_program(program: object) -> None:
    """Refuse what is not a program."""
    if not isinstance(program, Program):
        raise UnsupportedError(
            f"the program is a {type(program).__name__}; expected a Program, such as lower makes of a plan's schedule"
        )
