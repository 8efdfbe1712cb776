"""Arguments and options that several commands share, and the readers of their values."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand

from ...errors import FileFormatError
from ...support.reading import read_bytes, read_text
from ...support.validation import shown

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ...schedules import Collective

MAX_RANKS = 2**10  # Of a traffic matrix; files for runtimes hold all-to-alls of at most as many
MAX_BYTES = 32 * MAX_RANKS**2  # Numbers of 24 characters, as numpy.savetxt writes them, and separators


class UsageError(typer.TyperException):
    """Invalid or incompatible options; the message says which, and how to fix them."""


class Command(TyperCommand):
    """A command that refuses two output formats, and options that are repeated wrongly."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments after a check for repeated options."""
        if not ctx.resilient_parsing:
            values, unexpected, given = self.make_parser(ctx).parse_args(args=list(args))
            for each in given:
                if each.param_type_name == "option" and each.multiple:
                    _check_repeatable(each.opts[0], values[each.name], unexpected, args)
                takes_no_value = getattr(each, "is_flag", False) or getattr(each, "count", False)
                once = each.param_type_name == "option" and not (each.multiple or takes_no_value)
                if once and given.count(each) > 1:
                    raise UsageError(f"{each.opts[0]} is given twice; keep one")
        rest = super().parse_args(ctx, args)
        if ctx.params.get("as_json") and ctx.params.get("as_csv"):
            raise UsageError("--json and --csv are mutually exclusive; give one of them")
        return rest


def _check_repeatable(name: str, values: Sequence[str], unexpected: Sequence[str], args: Sequence[str]) -> None:
    """Refuse several values behind a repeatable option, such as ``--size 64K 1M`` or ``--size 64K,1M``."""
    several = next((value.split(",") for value in values if name == "--size" and "," in value), [])
    if unexpected and (values[-1], unexpected[0]) in pairwise(args):
        several = [values[-1], *unexpected]
    if several:
        text = " ".join(f"{name} {part.strip()}" for part in several)
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
    found = [f"{path}/" if path.is_dir() else str(path) for path in files if path.name.startswith(start)]
    return names or [name for name in found if not name.rpartition("/")[2].startswith(".")]


def complete_collective(incomplete: str) -> list[str]:
    """Complete names of collectives in shells."""
    from ...schedules import COLLECTIVES

    return [name for name in COLLECTIVES if name.startswith(incomplete.replace("-", "_"))]


def complete_planner(incomplete: str) -> list[str]:
    """Complete names of planners in shells."""
    from ...planners import PLANNERS

    return [name for name in PLANNERS if name.startswith(incomplete)]


def whole_number(name: str, least: int | None = None, most: int | None = None) -> Callable[[object], int]:
    """Return a parser of integers, whose errors name the option and the value.

    >>> whole_number("--chunks")("12")
    12
    """
    between = "" if least is None else f" of at least {least}" if most is None else f" from {least} to {most}"

    def read(value: object) -> int:
        if re.fullmatch(r"[+-]?[0-9]{1,18}", text := str(value).strip()):
            number = int(text)
            if (least is None or least <= number) and (most is None or number <= most):
                return number
        limit = between or (" of at most 18 digits" if text.lstrip("+-").isdecimal() else "")
        raise UsageError(f"{name} is {shown(value)}; expected a whole number{limit}")

    return read


def number_between(name: str, least: float, most: float) -> Callable[[object], float]:
    """Return a parser of decimal numbers; see `whole_number`."""

    def read(value: object) -> float:
        try:
            number = float(str(value)) if str(value).isascii() else math.nan
        except ValueError:
            number = math.nan
        if least <= number <= most:
            return number
        raise UsageError(f"{name} is {shown(value)}; expected a number from {least:.10g} to {most:.10g}")

    return read


def option(usage: str, text: str, *, panel: str | None = None, **more: Any) -> Any:
    """Make an option from its usage, such as ``--output -o FILE``, and its help text."""
    flags = [word for word in usage.split() if word.startswith("-")]
    metavar = usage.rsplit(maxsplit=1)[-1] if len(flags) < len(usage.split()) else None
    return typer.Option(*flags, metavar=metavar, help=text, rich_help_panel=panel, **more)


def count_option(usage: str, text: str, least: int | None = None, most: int | None = None, **more: Any) -> Any:
    """Make an option whose value is a whole number."""
    return option(usage, text, parser=whole_number(usage.split(maxsplit=1)[0], least, most), **more)


def sizes_option(text: str) -> Any:
    """Make the repeatable option ``--size`` with its help."""
    return option("--size SIZE", f"{text} Repeatable.")


def topology_option(text: str, panel: str) -> Any:
    """Make the option ``--topology`` with its help."""
    return option("--topology TOPOLOGY", text, panel=panel, autocompletion=complete_topology)


def collective_option(text: str, panel: str | None = None) -> Any:
    """Make the option ``--collective`` with its help."""
    return option("--collective NAME", text, panel=panel, autocompletion=complete_collective)


def planners_option(text: str, panel: str | None = None) -> Any:
    """Make the option ``--planner`` of a command that takes several, with its help."""
    return option("--planner NAME", text, panel=panel, autocompletion=complete_planner)


CollectiveArgument = Annotated[
    str,
    typer.Argument(
        metavar="COLLECTIVE",
        help="allgather, reduce_scatter, allreduce, broadcast, reduce, all_to_all or all_to_allv.",
        autocompletion=complete_collective,
    ),
]
PlanArgument = Annotated[Path, typer.Argument(metavar="PLAN", help="Plan file written by `collopt plan -o`.")]
JsonOption = Annotated[bool, option("--json", "Print only JSON on standard output.")]
CsvOption = Annotated[bool, option("--csv", "Print only CSV on standard output.")]
TopologyArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPOLOGY",
        help="Name from `collopt topologies`, or path of a topology file.",
        autocompletion=complete_topology,
    ),
]
BackendOption = Annotated[str, option("--backend", "torch.distributed backend: gloo, or nccl (NCCL or RCCL).")]
TimeoutOption = Annotated[
    float,
    option(
        "--timeout S",
        "Time limit in seconds, including startup of the ranks.",
        parser=number_between("--timeout", 0.001, 10**6),
    ),
]
RootOption = Annotated[
    str | None,
    option("--root -r RANK", "Root of a broadcast or reduce: rank number or node name.", panel="Shards"),
]


CostsOption = Annotated[
    str | None,
    option(
        "--costs NAME",
        "What the software adds at a size: links (nothing), generic or fused (guesses); else what the topology says.",
    ),
]


class ShardOptions(NamedTuple):
    """Options that describe the data of each rank."""

    root: RootOption = None
    weights: Annotated[
        str | None,
        option(
            "--weights",
            "Relative shard sizes of an allgather or reduce_scatter, one per rank: 1,1,2,0.5.",
            panel="Shards",
        ),
    ] = None
    traffic: Annotated[
        Path | None,
        option(
            "--traffic FILE",
            "Traffic matrix of an all_to_allv, bytes from each rank (row) to each rank (column): CSV without a header, "
            "or .npy.",
            panel="Shards",
        ),
    ] = None

    def given(self) -> list[str]:
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


def read_collective(name: str) -> Collective:
    """Look up a collective; raise `UnsupportedError` if there is none of this name."""
    from ...schedules.traffic.collective import as_collective

    return as_collective(name)


def check_planners(names: Iterable[str]) -> None:
    """Raise `UnsupportedError` for an unknown planner, before any other work."""
    from ...planners.registry import as_planner

    for name in names:
        as_planner(name)


def size_option(planner: str, collective: Collective, size: str | None) -> dict[str, Any]:
    """Return the size option for a planner that has one."""
    return {} if size is None or not takes_option(planner, collective, "size") else {"size": size}


def takes_option(planner: str, collective: Collective, name: str) -> bool:
    """Whether a planner has an option for a collective."""
    from ...planners import PLANNERS

    return planner in PLANNERS and PLANNERS[planner].takes(collective, name)


def read_traffic(path: Path) -> list[list[str]] | npt.NDArray[np.generic]:
    """Read a traffic matrix; the planner checks its entries."""
    from ...support.files.file_kinds import NUMBERS_KIND, wrong_kind

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
