"""Functions that packages register by entry points, and views of objects, figures and notebooks, which are such."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import MissingDependencyError, UnsupportedError
from .validation import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Function = TypeVar("Function", bound=Callable[..., Any])

_registered: defaultdict[str, dict[str, Callable[..., Any]]] = defaultdict(dict)
"""Functions of this program by group and name; those of packages are entry points."""


def register(group: str, name: str) -> Callable[[Function], Function]:
    """Return a decorator that registers a function for this program, as an entry point of the group does for all.

    Raises `UnsupportedError` for a name that is no string.
    """
    if not isinstance(name, str) or not name:
        raise UnsupportedError(f"the name to register is {shown(name)}; expected a string such as 'steps-jsonl'")

    def decorate(function: Function) -> Function:
        _registered[group][name] = function
        return function

    return decorate


def call_registered(
    group: str, kind: str, name: object, arguments: tuple[object, ...], options: Mapping[str, object]
) -> Any:
    """Call the function that is registered in an entry point group, or by `register`, under a name."""
    packaged, own = entry_points(group=group), _registered[group]
    if not isinstance(name, str) or name not in packaged.names | own.keys():
        points = ", ".join(sorted(packaged.names | own.keys()))
        raise UnsupportedError(f"there is no {kind} {shown(name)}; expected one of {points}")
    function = own[name] if name in own else packaged[name].load()
    return call_with_options(function, f"the {kind} {name}", arguments, options)


def call_with_options(
    function: Callable[..., Any], what: str, arguments: tuple[object, ...], options: Mapping[str, object]
) -> Any:
    """Call a function with options that it has; `UnsupportedError` names them otherwise."""
    signature = inspect.signature(function)
    try:
        call = signature.bind(*arguments, **options)
    except TypeError as error:
        problem = str(error).replace("got an unexpected keyword argument", "it has no option")
        options_of_function = list(signature.parameters)[len(arguments) :]
        raise UnsupportedError(
            f"{what} cannot be used with these options: {problem}; it has {', '.join(options_of_function) or 'none'}"
        ) from None
    return function(*call.args, **call.kwargs)


VIEWS = "collopt.views"
"""The entry point group of ``frame``, ``html`` and ``plot``."""


class Viewed:
    """An object that notebooks show as a figure."""

    def plot(self, kind: str | None = None, **options: Any) -> Figure:
        """Draw a figure, which notebooks show, and `collopt.report.save_figure` writes to a file.

        Raises `UnsupportedError` for an unknown kind or option; `MissingDependencyError` without matplotlib.

        Parameters
        ----------
        kind : str, optional
            ``"topology"``; of bounds and plans also ``"cut"``, the default there, and ``"logical"``; of plans also
            ``"utilization"``, ``"trees"``, ``"steps"`` and ``"curves"``; of calibrations ``"residuals"``, the first.
        **options
            Of the function for that kind in `collopt.report`, such as ``size="64M"`` for ``"steps"``.
        """
        figure: Figure = call_registered(VIEWS, "view", "plot", (self, kind), {"options": options})
        return figure

    def _repr_html_(self) -> str | None:
        """What notebooks show; None, for the text instead, without matplotlib."""
        try:
            page: str = call_registered(VIEWS, "view", "html", (self,), {})
        except MissingDependencyError:
            return None
        return page
