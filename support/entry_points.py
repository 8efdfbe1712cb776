"""Functions that rooms above this one, or other packages, have registered as entry points; nobody imports them here."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from ..errors import UnsupportedError
from .validation import shown

__all__ = ["call_registered"]


def call_registered(
    group: str, kind: str, name: object, arguments: tuple[object, ...], options: Mapping[str, object]
) -> Any:
    """Look up a function by its name and call it."""
    known = entry_points(group=group)
    if not isinstance(name, str) or name not in known.names:
        raise UnsupportedError(f"there is no {kind} {shown(name)}; expected one of {', '.join(sorted(known.names))}")
    function = known[name].load()
    try:
        call = inspect.signature(function).bind(*arguments, **options)
    except TypeError as error:
        raise UnsupportedError(f"the {kind} {name} cannot be used with these options: {error}") from None
    return function(*call.args, **call.kwargs)
