"""``collopt show``: figures of networks, of what limits them, and of plans."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...schedules import as_bytes
from ...support.validation import shown
from ..arguments.network_options import NetworkOptions
from ..arguments.output_files import check_targets, writing
from ..arguments.parameters import (
    ShardOptions,
    UsageError,
    check_planners,
    complete_collective,
    complete_topology,
    planners_option,
    read_collective,
    sizes_option,
)
from ..terminal.output import note
from ..terminal.progress import computing, working
from .figures import Asked, figure_of_bound, figure_of_plan, figure_of_table, file_name, plans_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEEDS: Mapping[str, str] = {
    "topology": "network",
    "cut": "bound",
    "trees": "plan",
    "utilisation": "plan",
    "steps": "plan",
    "curves": "plan",
    "pareto": "table",
}
"""What each figure is drawn from; a plan comes with its bound and network."""
TAKES: Mapping[str, tuple[str, ...]] = {
    "--planner": ("trees", "utilisation", "steps", "curves"),
    "--size": ("steps", "curves"),
    "--tree": ("trees",),
    "--model": ("curves",),
}
SEVERAL = {"--planner": ("curves",), "--size": ("curves",)}
"""Options that these figures take more than once."""
FORMATS = ("png", "svg", "pdf")
TABLES = ".csv"
HEAD = 2**16
"""Bytes of a file in which its format has to be named."""

WhatArgument = Annotated[
    str,
    typer.Argument(
        metavar="WHAT",
        help="Network (name from `collopt topologies` or file), plan file written by `collopt plan -o`, or table "
        "printed by "
        "`collopt find --csv`.",
        autocompletion=complete_topology,
    ),
]
OptionalCollective = Annotated[
    str | None,
    typer.Argument(
        metavar="COLLECTIVE",
        help="Show the bottleneck of this collective on the network, or with --figure a plan of it.",
        autocompletion=complete_collective,
    ),
]
FigureOption = Annotated[
    str | None,
    typer.Option(
        "--figure",
        metavar="KIND",
        help="topology, cut, trees, utilisation, steps, curves or pareto. Default: topology for a network, cut with "
        "a collective, trees or steps for a plan, pareto for a table.",
        autocompletion=lambda incomplete: [kind for kind in NEEDS if kind.startswith(incomplete)],
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="File to write: .svg, .png or .pdf (default: NAME-KIND.svg)."),
]
PlannersOption = Annotated[
    list[str] | None,
    planners_option("Planner to use (default: auto). Repeatable for curves."),
]
SizesOption = Annotated[
    list[str] | None,
    sizes_option("Total size in bytes, for steps and curves: 64M, 1G. Repeatable for curves (default: 1K to 1G)."),
]
TreeOption = Annotated[
    str | None,
    typer.Option(
        "--tree",
        metavar="RANK[:N]",
        help="Show the trees of this rank, by number or name, or only its tree N, counted from 1.",
    ),
]
ModelOption = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="Time model of curves: estimate (default) or simulate.")
]


def show(
    what: WhatArgument,
    described: NetworkOptions,
    data: ShardOptions,
    collective: OptionalCollective = None,
    figure: FigureOption = None,
    output: OutputOption = None,
    planner: PlannersOption = None,
    size: SizesOption = None,
    tree: TreeOption = None,
    model: ModelOption = None,
) -> None:
    """Draw a network, its bottleneck cut, or a plan: trees, steps, link utilization, bandwidth by size."""
    from ...report import save_figure
    from ...report.figures.style import empty_figure
    from ..arguments.networks import network_file

    file = Path(what) if what.lower().endswith(TABLES) else network_file(what)
    kind_of_file = _kind_of_file(file)
    if kind_of_file != "network":
        _refuse_stray(
            what, kind_of_file, collective, [*described.given(), *data.given(), *(["--planner"] if planner else [])]
        )
    kind = figure or _default(kind_of_file, collective)
    given = {"--planner": planner, "--size": size, "--tree": tree, "--model": model}
    _check_kind(kind, kind_of_file, collective, {flag: value for flag, value in given.items() if value})
    if collective is None and (stray := data.given()):
        raise UsageError(f"{stray[0]} applies to a collective; name one after {what}, or leave {stray[0]} out")
    known = None if collective is None else read_collective(collective)
    check_planners(planner or ())
    for one in size or []:
        as_bytes(one)
    # What may fail comes before what takes time.
    empty_figure()
    target = _checked_target(output, file, data.traffic)
    asked = Asked(known, list(dict.fromkeys(planner or [])), list(dict.fromkeys(size or [])), tree, model, data.read())
    drawn, name = _drawn(what, kind_of_file, kind or "", described, asked)
    target = target or Path(f"{name}-{drawn[0]}.svg")
    check_targets({"--output": target}, sources=(file, data.traffic))
    with working(f"drawing {target}"), writing(target):
        save_figure(drawn[1], target)
    note(f"wrote {target}")


def _default(kind_of_file: str, collective: str | None) -> str | None:
    """Choose a figure; of a plan, its schedule decides."""
    if kind_of_file == "network":
        return "topology" if collective is None else "cut"
    return "pareto" if kind_of_file == "table" else None


def _kind_of_file(file: Path | None) -> str:
    """Say whether a file holds a plan or a table; all else is for the readers of networks to judge."""
    from ...planners.plans.plan import PLAN_FORMAT

    if file is None:
        return "network"
    if file.suffix.lower() == TABLES:
        return "table"
    if not file.is_file():
        # A pipe would have to be read twice.
        return "network"
    try:
        with file.open("rb") as opened:
            head = opened.read(HEAD)
    except OSError:
        return "network"
    return "plan" if re.search(rb'"format"\s*:\s*"' + PLAN_FORMAT.encode() + rb'"', head) else "network"


def _refuse_stray(what: str, kind: str, collective: str | None, flags: Sequence[str]) -> None:
    """Refuse what would describe a network or a plan beside a file that says everything."""
    holds = "contains a plan and its network" if kind == "plan" else "contains a table"
    if stray := [*([collective] if collective else []), *flags]:
        raise UsageError(f"{stray[0]} does not go with {what}, which {holds}; leave it out")


def _check_kind(kind: str | None, kind_of_file: str, collective: str | None, given: Mapping[str, Any]) -> None:
    """Refuse a figure that cannot be drawn of what was named, and options that say nothing about it."""
    if kind is not None and kind not in NEEDS:
        raise UsageError(f"--figure is {shown(kind)}; expected one of {', '.join(NEEDS)}")
    if kind is not None and (NEEDS[kind] == "table") != (kind_of_file == "table"):
        table = "a table printed by `collopt find --csv`, in a file that ends in .csv"
        raise UsageError(
            f"--figure {kind} is not drawn from a table; expected pareto"
            if kind_of_file == "table"
            else f"--figure {kind} is drawn from {table}; name one instead of a network or plan"
        )
    if kind_of_file == "network" and kind is not None:
        if NEEDS[kind] in ("bound", "plan") and collective is None:
            raise UsageError(f"--figure {kind} needs a plan file, or a COLLECTIVE after the network")
        if NEEDS[kind] == "network" and collective is not None:
            raise UsageError(
                f"--figure {kind} shows no collective; leave {shown(collective)} out, or choose --figure cut"
            )
    for flag, value in given.items():
        if kind is not None and kind not in TAKES[flag]:
            raise UsageError(f"{flag} applies to --figure {' or '.join(TAKES[flag])}, not to {kind}; leave it out")
        if isinstance(value, list) and len(value) > 1 and kind not in SEVERAL[flag]:
            raise UsageError(f"{flag} is given {len(value)} times; only --figure curves takes it more than once")


def _checked_target(output: Path | None, *sources: Path | None) -> Path | None:
    if output is None:
        return None
    if output.suffix.lower().removeprefix(".") not in FORMATS:
        raise UsageError(f"--output {output} does not end in .svg, .png or .pdf; name one of them")
    check_targets({"--output": output}, sources=sources)
    return output


def _drawn(
    what: str, kind_of_file: str, kind: str, options: NetworkOptions, asked: Asked
) -> tuple[tuple[str, Figure], str]:
    """Draw the figure: its kind, itself, and a name for the file."""
    from ..arguments.networks import find_network

    if kind_of_file == "table":
        return (kind, figure_of_table(Path(what))), file_name(Path(what).stem)
    if kind_of_file == "plan":
        from ...planners import load_plan

        with working(f"verifying {what}"):
            plan = load_plan(what)
        kind = kind or ("trees" if plan.schedule.num_trees else "steps")
        _check_kind(kind, "plan", None, _given(asked))
        with computing(f"drawing {what}"):
            return (kind, figure_of_plan(kind, [plan], asked)), file_name(Path(what).stem)
    network = find_network(what, options)
    if asked.collective is None:
        from ...report import topology_figure

        return (kind, topology_figure(network)), file_name(network.name)
    name = file_name(f"{network.name}-{asked.collective}")
    with computing(f"drawing {asked.collective} on {network.name}"):
        if kind == "cut":
            return (kind, figure_of_bound(network, asked)), name
        return (kind, figure_of_plan(kind, plans_of(network, kind, asked), asked)), name


def _given(asked: Asked) -> dict[str, Any]:
    given = {"--planner": asked.planners, "--size": asked.sizes, "--tree": asked.tree, "--model": asked.model}
    return {flag: value for flag, value in given.items() if value}
