"""What several commands take: a network, and where the answer goes."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand

from ..topologies.validation import shown
from .traffic_files import read_traffic

__all__ = [
    "BoxesOption",
    "CollectiveArgument",
    "Command",
    "CsvOption",
    "FabricOption",
    "JsonOption",
    "NetworkOptions",
    "NodesOption",
    "PlanArgument",
    "RanksOption",
    "RootOption",
    "SetOption",
    "ShapeOption",
    "TimeoutOption",
    "TopologyArgument",
    "TrafficOption",
    "UsageError",
    "WeightsOption",
    "WithoutOption",
    "complete_collective",
    "complete_planner",
    "complete_topology",
    "number_between",
    "shard_options",
    "size_option",
    "whole_number",
]

COLLECTIVES = ("allgather", "reduce_scatter", "allreduce", "broadcast", "reduce", "all_to_all", "all_to_allv")


def complete_topology(incomplete: str) -> list[str]:
    """List the names of the catalogue, and else files, that begin with what was typed; for shells."""
    from ..topologies import catalogue

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
    return [name for name in COLLECTIVES if name.startswith(incomplete.replace("-", "_"))]


def complete_planner(incomplete: str) -> list[str]:
    """List the planners whose names begin with what was typed; for shells."""
    from ..planners import PLANNERS

    return [name for name in PLANNERS if name.startswith(incomplete)]


CollectiveArgument = Annotated[
    str,
    typer.Argument(
        metavar="COLLECTIVE",
        help="allgather, reduce_scatter, allreduce, broadcast, reduce, all_to_all or all_to_allv.",
        autocompletion=complete_collective,
    ),
]
PlanArgument = Annotated[Path, typer.Argument(metavar="PLAN", help="A file that `collopt plan -o` wrote.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print CSV, and nothing else, on standard output.")]
TopologyArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPOLOGY",
        help="A name from `collopt topologies`, or the path of a topology file.",
        autocompletion=complete_topology,
    ),
]

PANEL = "Network"
BoxesOption = Annotated[str | None, typer.Option("--boxes", metavar="N", help="How many boxes.", rich_help_panel=PANEL)]
NodesOption = Annotated[
    str | None,
    typer.Option("--nodes", metavar="N", help="How many nodes a ring or complete graph has.", rich_help_panel=PANEL),
]
ShapeOption = Annotated[
    str | None, typer.Option("--shape", help="Sizes of a torus, such as 4x4.", rich_help_panel=PANEL)
]
FabricOption = Annotated[
    str | None,
    typer.Option(
        "--fabric",
        metavar="NAME",
        help="What joins the boxes of a file that describes one: full, rail or leaf_spine.",
        rich_help_panel=PANEL,
    ),
]
RanksOption = Annotated[
    str | None,
    typer.Option("--ranks", help="Keep only these ranks: numbers, ranges, names; 0-7,16-23.", rich_help_panel=PANEL),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other option: of a topology, those of `collopt topologies NAME`; of a file of one box, gpu, figures, "
        "nic_bandwidth, pcie_bandwidth, nics, oversubscription, boxes_per_leaf. Repeatable.",
        rich_help_panel=PANEL,
    ),
]


WithoutOption = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        metavar="NODE|NODE--NODE",
        help="A failed GPU, NIC or switch, or a failed link between two of them. Repeatable.",
        rich_help_panel=PANEL,
    ),
]

PANEL_SHARDS = "Shards"
RootOption = Annotated[
    str | None,
    typer.Option(
        "--root", metavar="RANK", help="Root of a broadcast or reduce: number or name.", rich_help_panel=PANEL_SHARDS
    ),
]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        "--weights",
        help="Relative sizes of the shards of an allgather or reduce_scatter, one per rank: 1,1,2,0.5.",
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
            raise UsageError("--json and --csv are two forms of the same; give one of them")
        return rest


def _takes_no_value(option: Any) -> bool:
    return getattr(option, "is_flag", False) or getattr(option, "count", False)


TrafficOption = Annotated[
    Path | None,
    typer.Option(
        "--traffic",
        metavar="FILE",
        help="Bytes from each rank (row) to each other (column) of an all_to_allv: CSV without a header, or .npy.",
        rich_help_panel=PANEL_SHARDS,
    ),
]


def shard_options(root: str | None, weights: str | None, traffic: Path | None = None) -> dict[str, Any]:
    """Turn the texts into what planners take, which check the values, and read the file of the traffic."""
    options: dict[str, Any] = {} if traffic is None else {"traffic": read_traffic(traffic)}
    if root is not None:
        options["root"] = int(root) if root.isascii() and root.isdigit() and len(root) < 10 else root
    if weights is not None:
        options["weights"] = [weight.strip() for weight in weights.split(",")]
    return options


def size_option(planner: str, collective: str, size: str | None) -> dict[str, Any]:
    """Return the size for a planner that plans for one; plans of the others are the same for all sizes."""
    from ..planners import PLANNERS

    entry = PLANNERS.get(planner)
    function = None if entry is None else entry.functions.get(collective)
    if size is None or function is None or "size" not in inspect.signature(function).parameters:
        return {}
    return {"size": size}


def whole_number(name: str, least: int | None = None, most: int | None = None) -> Callable[[object], int]:
    """Make the reader of a whole number, whose errors name the option and the value.

    Parameters
    ----------
    name : str
        Of the option or argument, as it is typed.
    least, most : int, optional
        Where its range is not checked by what takes it.

    Returns
    -------
    callable
        For `typer.Option` to take as its `parser`.

    Examples
    --------
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
        help="Seconds for everything, starting up included.",
    ),
]


class NetworkOptions(NamedTuple):
    """What was typed besides the name; the builder reads the texts."""

    boxes: str | None = None
    nodes: str | None = None
    shape: str | None = None
    ranks: str | None = None
    settings: list[str] | None = None
    without: list[str] | None = None
    fabric: str | None = None

    def given(self) -> list[str]:
        """Options that were typed, as they were."""
        flags = ("--boxes", "--nodes", "--shape", "--ranks", "--set", "--without", "--fabric")
        return [flag for flag, value in zip(flags, self, strict=True) if value not in (None, [])]
