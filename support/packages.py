"""Other packages: those that are here and work, functions that they register, and views of objects, which are such."""

from __future__ import annotations

import importlib
import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, entry_points, requires, version
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..errors import MissingDependencyError, UnsupportedError
from .validation import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


ABSENT = "is not installed"
MODULES = {
    "python-flint": "flint",
    "pyyaml": "yaml",
    "protobuf": "google.protobuf.message",
    "matplotlib": "matplotlib.figure",
    "mkdocs-material": "material",
}
"""Module to import, where its name differs from the package's or the top-level module loads too little."""

_REQUIREMENT = re.compile(
    r"""([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*>=\s*([0-9.]+)\s*(?:;\s*extra\s*==\s*["']([\w-]+)["'])?\s*"""
)


class Requirement(NamedTuple):
    """A package and its minimum version."""

    package: str
    min_version: str

    def __str__(self) -> str:
        """Format as a pip argument."""
        return f"'{self.package}>={self.min_version}'"


def requirements(extra: str = "") -> tuple[Requirement, ...]:
    """List the requirements of collopt itself or of one of its extras."""
    matches = (_REQUIREMENT.fullmatch(text) for text in requires("collopt") or ())
    return tuple(Requirement(match[1], match[2]) for match in matches if match and (match[3] or "") == extra)


def problem_with(requirement: Requirement) -> str:
    """Import a package and describe what is wrong with it; an empty text if nothing is."""
    module = MODULES.get(requirement.package, requirement.package)
    package = module.partition(".")[0]
    try:
        importlib.import_module(package)
        importlib.import_module(module)
    except Exception as error:  # noqa: BLE001 - broken packages fail in every way
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            return f"{requirement.package} {ABSENT}"
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return f"{requirement.package} cannot be imported here ({reason})"
    try:
        installed = version(requirement.package)
    except PackageNotFoundError:
        return ""
    return (
        f"{requirement.package} is of version {installed}"
        if _numbers(installed) < _numbers(requirement.min_version)
        else ""
    )


def remedy(needs: Sequence[Requirement], extra: str) -> tuple[list[str], str]:
    """Return the problems of packages and the pip command that fixes them."""
    unmet = {requirement: problems for requirement in needs if (problems := problem_with(requirement))}
    if not unmet:
        return [], ""
    if all(problems.endswith(ABSENT) for problems in unmet.values()):
        return list(unmet.values()), f"pip install {extra or ' '.join(map(str, unmet))}"
    return list(unmet.values()), f"pip install --upgrade --force-reinstall {' '.join(map(str, unmet))}"


def check_extra(what: str, extra: str) -> None:
    """Raise `MissingDependencyError` unless the packages of an extra can be used."""
    needs = requirements(extra)
    problems, command = remedy(needs, f"'collopt[{extra}]'")
    if not problems:
        return
    them = "it" if len(needs) == 1 else "them"
    if all(problem.endswith(ABSENT) for problem in problems):
        names = " and ".join(requirement.package for requirement in needs)
        raise MissingDependencyError(f"{what} need {names}; install {them} with: {command}")
    raise MissingDependencyError(
        f"{what} need {' and '.join(map(str, needs))}, but {', and '.join(problems)}; fix with: {command}"
    )


def _numbers(text: str) -> tuple[int, ...]:
    """Parse the leading numbers of a version."""
    match = re.match(r"\d{1,9}(?:\.\d{1,9})*", text)
    return tuple(map(int, match[0].split("."))) if match else ()


Function = TypeVar("Function", bound=Callable[..., Any])

_registered: defaultdict[str, dict[str, Callable[..., Any]]] = defaultdict(dict)
"""Functions of this program by group and name; those of packages are entry points."""


def register(group: str, name: str) -> Callable[[Function], Function]:
    """Return a decorator that registers a function for this program, as an entry point of the group does for all.

    Raises `UnsupportedError` for a name that is no string, or that of an entry point.
    """
    if not isinstance(name, str) or not name:
        raise UnsupportedError(f"the name to register is {shown(name)}; expected a string such as 'steps-jsonl'")
    if name in (packaged := entry_points(group=group).names):
        raise UnsupportedError(f"the name to register is {name!r}; expected one besides {', '.join(sorted(packaged))}")

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
