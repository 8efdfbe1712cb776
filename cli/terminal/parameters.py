"""Options of typer from the table of their usage and help, with completion in shells, and parsers of numbers."""

import inspect
import math
import re
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ...errors import UnsupportedError
from ...support.quantities import as_bytes
from ...support.validation import shown


class UsageError(typer.TyperException):
    """Invalid or incompatible options; the message says which, and how to fix them."""


Field = tuple[str, Any, Any]
"""Name, annotation and default of a parameter."""


def with_fields(function: Callable[..., None], fields: Sequence[Field]) -> Callable[..., None]:
    """Give a function that takes any keywords the signature that typer reads."""
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, kind, default=default, annotation=hint) for name, hint, default in fields]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {name: hint for name, hint, _ in fields}
    return function


class Command(TyperCommand):
    """A command that refuses two output formats, and options that are repeated wrongly."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help, of `collopt plan` with all planners."""
        super().format_help(ctx, formatter)
        if self.name == "plan":
            from ...planners import PLANNERS
            from .output import emit_rows

            emit_rows("Planners", {planner.name: planner.summary for planner in PLANNERS.values()})

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments after a check for repeated options."""
        if not ctx.resilient_parsing:
            values, unexpected, parameters = self.make_parser(ctx).parse_args(args=list(args))
            for parameter in parameters:
                if parameter.param_type_name == "option" and parameter.multiple:
                    _check_repeatable(parameter.opts[0], values[parameter.name], unexpected, args)
                takes_no_value = getattr(parameter, "is_flag", False) or getattr(parameter, "count", False)
                once = parameter.param_type_name == "option" and not (parameter.multiple or takes_no_value)
                if once and parameters.count(parameter) > 1:
                    raise UsageError(f"{parameter.opts[0]} is given twice; keep one")
        unparsed = super().parse_args(ctx, args)
        if ctx.params.get("as_json") and ctx.params.get("as_csv"):
            raise UsageError("--json and --csv are mutually exclusive; give one of them")
        return unparsed


def _check_repeatable(name: str, values: Sequence[str], unexpected: Sequence[str], args: Sequence[str]) -> None:
    """Refuse several values behind a repeatable option, such as ``--size 64K 1M`` or ``--size 64K,1M``."""
    parts = next((value.split(",") for value in values if name == "--size" and "," in value), [])
    if unexpected and (values[-1], unexpected[0]) in pairwise(args):
        parts = [values[-1], *unexpected]
    if parts:
        text = " ".join(f"{name} {part.strip()}" for part in parts)
        raise UsageError(f"{name} takes one value at a time; repeat it: {text[:100]}")


def complete_topology(incomplete: str) -> list[str]:
    """Complete names of the catalogue, or else files, in shells."""
    from ...topologies import catalogue

    names = [entry.name for entry in catalogue() if entry.name.startswith(incomplete.replace("_", "-"))]
    folder, _, start = incomplete.rpartition("/")
    try:
        files = sorted(path for path in Path(folder or ("/" if incomplete.startswith("/") else ".")).iterdir())
    except OSError:
        files = []
    matches = [f"{path}/" if path.is_dir() else str(path) for path in files if path.name.startswith(start)]
    return names or [name for name in matches if not name.rpartition("/")[2].startswith(".")]


def complete_collective(incomplete: str) -> list[str]:
    """Complete names of collectives in shells."""
    from ...schedules import COLLECTIVES

    return [name for name in COLLECTIVES if name.startswith(incomplete.replace("-", "_"))]


def complete_planner(incomplete: str) -> list[str]:
    """Complete names of planners in shells."""
    from ...planners import PLANNERS

    return [name for name in PLANNERS if name.startswith(incomplete)]


def whole_number(name: str, low: int | None = None, high: int | None = None) -> Callable[[object], int]:
    """Return a parser of integers, whose errors name the option and the value."""
    between = "" if low is None else f" of at least {low}" if high is None else f" from {low} to {high}"

    def read(value: object) -> int:
        if re.fullmatch(r"[+-]?[0-9]{1,18}", text := str(value).strip()):
            number = int(text)
            if (low is None or low <= number) and (high is None or number <= high):
                return number
        limit = between or (" of at most 18 digits" if text.lstrip("+-").isdecimal() else "")
        raise UsageError(f"{name} is {shown(value)}; expected a whole number{limit}")

    return read


def number_between(name: str, low: float, high: float) -> Callable[[object], float]:
    """Return a parser of decimal numbers; see `whole_number`."""

    def read(value: object) -> float:
        try:
            number = float(str(value)) if str(value).isascii() else math.nan
        except ValueError:
            number = math.nan
        if low <= number <= high:
            return number
        raise UsageError(f"{name} is {shown(value)}; expected a number from {low:.10g} to {high:.10g}")

    return read


def size_in_bytes(name: str, low: int = 1) -> Callable[[object], int]:
    """Return a parser of sizes in bytes; see `whole_number`."""

    def read(value: object) -> int:
        try:
            return as_bytes(str(value), name, low=low)
        except UnsupportedError as error:
            raise UsageError(str(error)) from None

    return read


COMPLETIONS = {"topology": complete_topology, "collective": complete_collective, "planner": complete_planner}
PARSERS: dict[Any, Callable[..., Any]] = {int: whole_number, int | None: whole_number, float: number_between}


@cache
def _descriptions() -> dict[str, dict[str, Any]]:
    return tomllib.loads(files(__package__).joinpath("options.toml").read_text(encoding="utf-8"))


def described(owner: str, name: str, annotation: Any) -> Any:
    """Annotate a parameter of a command or group with what `options.toml` says of it."""
    own, shared = _descriptions().get(owner, {}), _descriptions()["shared"]
    if (about := own.get(name, shared.get(name))) is None:
        return annotation
    usage, settings = about["usage"], {key: about[key] for key in ("show_default",) if key in about}
    parser = size_in_bytes if about.get("parser") == "bytes" else PARSERS.get(annotation)
    if parser is not None:
        settings["parser"] = parser(usage.split(maxsplit=1)[0], *about.get("range", ()))
    if "complete" in about:
        settings["autocompletion"] = COMPLETIONS[about["complete"]]
    if "choices" in about:
        choices = about["choices"]
        settings["autocompletion"] = lambda incomplete: [name for name in choices if name.startswith(incomplete)]
    if not usage.startswith("-"):
        return Annotated[annotation, typer.Argument(metavar=usage, help=about["help"], **settings)]
    return Annotated[annotation, option(usage, about["help"], panel=about.get("panel", own.get("panel")), **settings)]


def option(usage: str, text: str, *, panel: str | None = None, **settings: Any) -> Any:
    """Make an option from its usage, such as ``--output -o FILE``, and its help text."""
    flags = [word for word in usage.split() if word.startswith("-")]
    metavar = usage.rsplit(maxsplit=1)[-1] if len(flags) < len(usage.split()) else None
    return typer.Option(*flags, metavar=metavar, help=text, rich_help_panel=panel, **settings)
