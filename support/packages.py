"""Which packages are here and work."""

import importlib
import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from typing import NamedTuple

from ..errors import MissingDependencyError

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
