"""Options of typer from the table of their usage and help, with completion in shells, and parsers of numbers."""

from __future__ import annotations

import csv
import inspect
import io
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand

from ... import planners
from ...errors import FileFormatError
from ...schedules import COLLECTIVES, Collective, Demands
from ...schedules.collective import AnyCollective, as_collective
from ...support.files import read_bytes, read_text
from ...support.quantities import as_bytes, as_factor
from ...support.validation import shown
from ...topologies import catalogue

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


Field = tuple[str, Any, Any]
"""Name, annotation and default of a parameter."""
MAX_RANKS = 2**10  # Of a traffic matrix; files for runtimes hold all-to-alls of at most as many
MAX_BYTES = 32 * MAX_RANKS**2  # Numbers of 24 characters, as numpy.savetxt writes them, and separators


class UsageError(typer.TyperException):
    """Invalid or incompatible options; the message says which, and how to fix them."""


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
            from .output import emit_rows

            emit_rows("Planners", {planner.name: planner.summary for planner in planners.PLANNERS.values()})

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
    names = [entry.name for entry in catalogue() if entry.name.startswith(incomplete.replace("_", "-"))]
    folder, slash, start = incomplete.rpartition("/")
    try:
        paths = sorted(path for path in Path(folder + slash or ".").iterdir() if path.name.startswith(start))
    except OSError:
        paths = []
    return names or [f"{path}/" if path.is_dir() else str(path) for path in paths if path.name[0] != "."]


def complete_collective(incomplete: str) -> list[str]:
    """Complete names of collectives in shells."""
    return [name for name in COLLECTIVES if name.startswith(incomplete.replace("-", "_"))]


def complete_planner(incomplete: str) -> list[str]:
    """Complete names of planners in shells."""
    return [name for name in planners.PLANNERS if name.startswith(incomplete)]


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
        return as_bytes(str(value), name, low=low)

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


def read_operation(text: str) -> Collective:
    """Look up a collective by name, or read demands from a file named ``.json``."""
    return Demands.load(Path(text)) if text.lower().endswith(".json") else as_collective(text)


def check_planners(names: Iterable[str]) -> None:
    """Raise `UnsupportedError` for an unknown planner, before any other work."""
    from ...planners.plans.registry import as_planner

    for name in names:
        as_planner(name)


def distinct_sizes(texts: Iterable[str] | None) -> list[str]:
    """Leave out sizes that equal an earlier one, such as 1024 after 1K."""
    firsts: dict[int, str] = {}
    for size in texts or ():
        firsts.setdefault(as_bytes(size), size)
    return list(firsts.values())


def read_calls(texts: Iterable[str]) -> dict[AnyCollective, dict[int | str, Fraction]]:
    """Read ``--call COLLECTIVE:SIZE[:COUNT]``; calls that are given twice are added up."""
    calls: dict[AnyCollective, dict[int | str, Fraction]] = {}
    for parts in (text.split(":") for text in texts):
        if not 2 <= len(parts) <= 3:
            raise UsageError(
                f"--call is {shown(':'.join(parts))}; expected COLLECTIVE:SIZE[:COUNT], such as allreduce:64M:4"
            )
        as_bytes(parts[1])
        sizes = calls.setdefault(as_collective(parts[0]), {})
        count = as_factor(parts[2] if parts[2:] else 1, "the number of calls")
        sizes[parts[1]] = sizes.get(parts[1], Fraction(0)) + count
    return calls


def takes_option(planner: str, collective: Collective, name: str) -> bool:
    """Whether a planner has an option for a collective."""
    return planner in planners.PLANNERS and planners.PLANNERS[planner].takes(collective, name)


class NetworkOptions(NamedTuple):
    """Options given besides the network's name, as text; its builder, or the reader of its file, parses them."""

    boxes: str | None = None
    fabric: str | None = None
    nodes: str | None = None
    shape: str | None = None
    ranks: str | None = None
    relay: bool = False
    settings: list[str] | None = None
    scale: list[str] | None = None
    without: list[str] | None = None

    def flags(self) -> list[str]:
        """Flags of the options that were given."""
        return list(dict.fromkeys(flag for flag, *_ in self._pairs()))

    def words(self) -> list[str]:
        """Write the options as they are typed."""
        return [word for pair in self._pairs() for word in pair]

    def _pairs(self) -> Iterator[tuple[str, ...]]:
        """Yield the flag of each option that was given, and its value if it takes one."""
        for flag, value in zip(NETWORK_FLAGS, self, strict=True):
            if isinstance(value, list):
                yield from ((flag, entry) for entry in value)
            elif value not in (None, False):
                yield (flag,) if value is True else (flag, str(value))


NETWORK_FLAGS = dict(
    zip(
        ("--boxes", "--fabric", "--nodes", "--shape", "--ranks", "--relay", "--set", "--scale", "--without"),
        NetworkOptions._fields,
        strict=True,
    )
)
"""Fields of `NetworkOptions` by their flags."""


class ShardOptions(NamedTuple):
    """Options that describe the data of each rank."""

    root: str | None = None
    weights: str | None = None
    traffic: Path | None = None

    def flags(self) -> list[str]:
        """Flags of the options that were given."""
        return [f"--{name}" for name, value in self._asdict().items() if value is not None]

    def read(self) -> dict[str, Any]:
        """Convert the options to arguments of planners, which check the values; read the traffic file."""
        options: dict[str, Any] = {} if self.traffic is None else {"traffic": read_traffic(self.traffic)}
        if self.root is not None:
            is_number = self.root.isascii() and self.root.isdigit() and len(self.root) < 10
            options["root"] = int(self.root) if is_number else self.root
        if self.weights is not None:
            options["weights"] = [weight.strip() for weight in self.weights.split(",")]
        return options


def read_traffic(path: Path) -> list[list[str]] | npt.NDArray[np.generic]:
    """Read a traffic matrix; the planner checks its entries."""
    from ...support.files import NUMBERS_KIND, wrong_kind

    is_array = path.suffix == ".npy"
    if not is_array and (problem := wrong_kind(path, "a traffic matrix", [NUMBERS_KIND])):
        raise FileFormatError(problem)
    return _array(path) if is_array else _rows(path)


def _array(path: Path) -> Any:
    import numpy as np

    content = read_bytes(path, MAX_BYTES)
    try:
        array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except Exception:  # noqa: BLE001 - numpy reads the header as Python, and allocates whatever it promises
        raise FileFormatError(f"{path}: the traffic is not an array written by numpy.save") from None
    _check_entries(path, array.size)
    return array


def _rows(path: Path) -> list[list[str]]:
    text = read_text(path, MAX_BYTES)
    # Short numbers take many times as much memory as a file.
    _check_entries(path, text.count(",") + max(text.count("\n"), text.count("\r")) - MAX_RANKS)
    lines = io.StringIO(text, newline="")
    try:
        rows = [[entry.strip() for entry in row] for row in csv.reader(lines, strict=True) if any(row)]
    except csv.Error as error:
        raise FileFormatError(f"{path}: the traffic is not valid CSV: {error}") from None
    if not rows:
        raise FileFormatError(f"{path}: the traffic is empty; expected one line of numbers per rank")
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise FileFormatError(
                f"{path}, row {number}: the traffic has {len(row)} entries; expected {len(rows[0])}, as in row 1"
            )
    return rows


def _check_entries(path: Path, entries: int) -> None:
    if entries > MAX_RANKS**2:
        raise FileFormatError(f"{path}: the traffic has more than {MAX_RANKS} ranks; expected at most {MAX_RANKS}")
