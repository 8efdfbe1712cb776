"""Functions that packages register by entry points."""

import inspect
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from ...errors import UnsupportedError
from ..validation import shown


def call_registered(
    group: str, kind: str, name: object, arguments: tuple[object, ...], options: Mapping[str, object]
) -> Any:
    """Call the function that is registered in an entry point group under a name."""
    known = entry_points(group=group)
    if not isinstance(name, str) or name not in known.names:
        raise UnsupportedError(f"there is no {kind} {shown(name)}; expected one of {', '.join(sorted(known.names))}")
    return call_with_options(known[name].load(), f"the {kind} {name}", arguments, options)


def call_with_options(
    function: Callable[..., Any], what: str, arguments: tuple[object, ...], options: Mapping[str, object]
) -> Any:
    """Call a function with options that it has; `UnsupportedError` names them otherwise."""
    signature = inspect.signature(function)
    try:
        call = signature.bind(*arguments, **options)
    except TypeError as error:
        problem = str(error).replace("got an unexpected keyword argument", "it has no option")
        taken = list(signature.parameters)[len(arguments) :]
        raise UnsupportedError(
            f"{what} cannot be used with these options: {problem}; it has {', '.join(taken) or 'none'}"
        ) from None
    return function(*call.args, **call.kwargs)
