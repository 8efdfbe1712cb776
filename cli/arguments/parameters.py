"""What several commands take: a network, and where the answer goes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand

from ...support.validation import shown
from .traffic_files import read_traffic

if TYPE_CHECKING:
    from ...schedules import Collective


def complete_topology(incomplete: str) -> list[str]:
    """List the names of the catalogue, and else files, that begin with what was typed; for shells."""
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
    """List the collectives that begin with what was typed; for shells."""
    from ...schedules import COLLECTIVES

    return [name for name in COLLECTIVES if name.startswith(incomplete.replace("-", "_"))]


def complete_planner(incomplete: str) -> list[str]:
    """List the planners whose names begin with what was typed; for shells."""
    from ...planners import PLANNERS

    return [name for name in PLANNERS if name.startswith(incomplete)]


def planners_option(text: str, panel: str | None = None) -> Any:
    """Make the option ``--planner`` of a command that takes several, with its help."""
    return typer.Option("--planner", metavar="NAME", help=text, autocompletion=complete_planner, rich_help_panel=panel)


def sizes_option(text: str) -> Any:
    """Make the option ``--size`` of a command that takes several, with its help."""
    return typer.Option("--size", metavar="SIZE", help=text)


CollectiveArgument = Annotated[
    str,
    typer.Argument(
        metavar="COLLECTIVE",
        help="allgather, reduce_scatter, allreduce, broadcast, reduce, all_to_all or all_to_allv.",
        autocompletion=complete_collective,
    ),
]
PlanArgument = Annotated[Path, typer.Argument(metavar="PLAN", help="Plan file written by `collopt plan -o`.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print only JSON on standard output.")]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print only CSV on standard output.")]
TopologyArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPOLOGY",
        help="Name from `collopt topologies`, or path of a topology file.",
        autocompletion=complete_topology,
    ),
]

PANEL_SHARDS = "Shards"
RootOption = Annotated[
    str | None,
    typer.Option(
        "--root",
        "-r",
        metavar="RANK",
        help="Root of a broadcast or reduce: rank number or node name.",
        rich_help_panel=PANEL_SHARDS,
    ),
]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        "--weights",
        help="Relative shard sizes of an allgather or reduce_scatter, one per rank: 1,1,2,0.5.",
        rich_help_panel=PANEL_SHARDS,
    ),
]


class UsageError(typer.TyperException):
    """Options that do not go together or are not understood; the message says which and how to mend it."""


class Command(TyperCommand):
    """A command that refuses an option given twice, of which only the last would count, and two forms of output."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words, after a look at what is there twice."""
        if not ctx.resilient_parsing:
            given = self.make_parser(ctx).parse_args(args=list(args))[2]
            for option in given:
                once = option.param_type_name == "option" and not (option.multiple or _takes_no_value(option))
                if once and given.count(option) > 1:
                    raise UsageError(f"{option.opts[0]} is given twice; keep one")
        rest = super().parse_args(ctx, args)
        if ctx.params.get("as_json") and ctx.params.get("as_csv"):
            raise UsageError("--json and --csv are mutually exclusive; give one of them")
        return rest


def _takes_no_value(option: Any) -> bool:
    return getattr(option, "is_flag", False) or getattr(option, "count", False)


TrafficOption = Annotated[
    Path | None,
    typer.Option(
        "--traffic",
        metavar="FILE",
        help="Traffic matrix of an all_to_allv, bytes from each rank (row) to each rank (column): CSV without a "
        "header, or .npy.",
        rich_help_panel=PANEL_SHARDS,
    ),
]


class ShardOptions(NamedTuple):
    """What was typed about the data of each rank."""

    root: RootOption = None
    weights: WeightsOption = None
    traffic: TrafficOption = None

    def given(self) -> list[str]:
        """Options that were typed, as they were."""
        return [f"--{name}" for name, value in self._asdict().items() if value is not None]

    def read(self) -> dict[str, Any]:
        """Turn the texts into what planners take, which check the values, and read the file of the traffic."""
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
    """Raise `UnsupportedError` for a planner that there is not, before anything else is looked at."""
    from ...planners.registry import as_planner

    for name in names:
        as_planner(name)


def size_option(planner: str, collective: Collective, size: str | None) -> dict[str, Any]:
    """Return the size for a planner that plans for one; plans of the others are the same for all sizes."""
    return {} if size is None or not takes_option(planner, collective, "size") else {"size": size}


def takes_option(planner: str, collective: Collective, name: str) -> bool:
    """Whether a planner has an option for a collective."""
    from ...planners import PLANNERS

    return planner in PLANNERS and PLANNERS[planner].takes(collective, name)


def whole_number(name: str, least: int | None = None, most: int | None = None) -> Callable[[object], int]:
    """Make the reader of a whole number, whose errors name the option and the value.

    >>> whole_number("--chunks")("12")
    12
    """
    between = "" if least is None or most is None else f" from {least} to {most}"

    def read(value: object) -> int:
        if re.fullmatch(r"[+-]?[0-9]{1,18}", text := str(value).strip()):
            number = int(text)
            if (least is None or least <= number) and (most is None or number <= most):
                return number
        raise UsageError(f"{name} is {shown(value)}; expected a whole number{between}")

    return read


def number_between(name: str, least: float, most: float) -> Callable[[object], float]:
    """Make the reader of a decimal number; see `whole_number`."""

    def read(value: object) -> float:
        try:
            number = float(str(value))
        except ValueError:
            number = math.nan
        if least <= number <= most:
            return number
        raise UsageError(f"{name} is {shown(value)}; expected a number from {least:.10g} to {most:.10g}")

    return read


# Here, not with the others, because its reader is made when this module is imported.
TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="S",
        parser=number_between("--timeout", 0.001, 10**6),
        help="Time limit in seconds, including startup of the ranks.",
    ),
]
