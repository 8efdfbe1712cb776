"""Which packages are here and work, and the functions that they have registered as entry points."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, entry_points, requires, version
from typing import Any, NamedTuple

from ..errors import MissingDependencyError, UnsupportedError
from .validation import shown

__all__ = ["ABSENT", "Need", "call_registered", "check_extra", "mending", "needs", "trouble"]

ABSENT = "is not installed"

MODULES = {
    "python-flint": "flint",
    "pyyaml": "yaml",
    "matplotlib": "matplotlib.figure",
    "plotly": "plotly.offline",
    "mkdocs-material": "material",
}
"""What is imported, where a package is not called like its module, or its module loads too little to tell."""

_REQUIREMENT = re.compile(
    r"""([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*>=\s*([0-9.]+)\s*(?:;\s*extra\s*==\s*["']([\w-]+)["'])?\s*"""
)


class Need(NamedTuple):
    """A package and its oldest version that will do."""

    package: str
    least: str

    def __str__(self) -> str:
        """As pip takes it."""
        return f"'{self.package}>={self.least}'"


def needs(extra: str = "") -> tuple[Need, ...]:
    """List what collopt itself, or one of its extras, asks for.

    >>> [need.package for need in needs("plot")]
    ['matplotlib']
    """
    found = (_REQUIREMENT.fullmatch(text) for text in requires("collopt") or ())
    return tuple(Need(each[1], each[2]) for each in found if each and (each[3] or "") == extra)


def trouble(need: Need) -> str:
    """Import a package and say what is wrong with it."""
    module = MODULES.get(need.package, need.package)
    package = module.partition(".")[0]
    try:
        importlib.import_module(package)
        importlib.import_module(module)
    except Exception as error:  # noqa: BLE001 - broken packages fail in every way
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            return f"{need.package} {ABSENT}"
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return f"{need.package} cannot be imported here ({reason})"
    try:
        found = version(need.package)
    except PackageNotFoundError:
        return ""
    return f"{need.package} is of version {found}" if _numbers(found) < _numbers(need.least) else ""


def mending(wanted: Sequence[Need], whole: str) -> tuple[list[str], str]:
    """Say what is wrong with packages, and what mends it."""
    found = {need: told for need in wanted if (told := trouble(need))}
    if not found:
        return [], ""
    if all(told.endswith(ABSENT) for told in found.values()):
        return list(found.values()), f"pip install {whole or ' '.join(map(str, found))}"
    return list(found.values()), f"pip install --upgrade --force-reinstall {' '.join(map(str, found))}"


def check_extra(what: str, extra: str) -> None:
    """See to it that the packages of an extra can be used."""
    wanted = needs(extra)
    told, command = mending(wanted, f"'collopt[{extra}]'")
    if not told:
        return
    them = "it" if len(wanted) == 1 else "them"
    if all(each.endswith(ABSENT) for each in told):
        names = " and ".join(need.package for need in wanted)
        raise MissingDependencyError(f"{what} need {names}; install {them} with: {command}")
    raise MissingDependencyError(
        f"{what} need {' and '.join(map(str, wanted))}, but {', and '.join(told)}; fix with: {command}"
    )


def _numbers(text: str) -> tuple[int, ...]:
    """Read the numbers that a version begins with."""
    found = re.match(r"\d{1,9}(?:\.\d{1,9})*", text)
    return tuple(map(int, found[0].split("."))) if found else ()


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
