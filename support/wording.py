"""How values that people give stand in error messages."""

from __future__ import annotations

import reprlib

__all__ = ["shown"]

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
