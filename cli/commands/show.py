"""``collopt show``: figures of networks, their bottlenecks and plans."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import FileFormatError
from ...schedules.collective import as_collective
from ...support.validation import shown
from ..terminal.output import note
from ..terminal.output_files import check_figure, check_targets, name_errors_after
from ..terminal.parameters import NetworkOptions, ShardOptions, UsageError, check_planners, distinct_sizes
from ..terminal.progress import computing, working

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...planners import Plan
    from ...schedules import Collective
    from ...topologies import Topology

PLAN_FIGURES = ("trees", "utilization", "steps", "curves")
REQUIRED_INPUT = (
    {"topology": "network", "cut": "bound", "logical": "bound"}
    | dict.fromkeys(PLAN_FIGURES, "plan")
    | {"pareto": "table"}
)
"""Input that each figure requires; a plan includes its bound and network."""
FIGURE_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "--planner": PLAN_FIGURES,
    "--size": ("steps", "curves"),
    "--tree": ("trees",),
    "--model": ("curves",),
}
REPEATABLE_IN = {"--planner": ("curves",), "--size": ("curves",)}  # Options that these figures take more than once
DEFAULT_SIZE = "64M"
SIZES = tuple(2**power for power in range(10, 31))
MAX_TABLE_BYTES = 2**26
TABLES = ".csv"


class Request(NamedTuple):
    """Options of the figures of a network."""

    collective: Collective | None
    planners: list[str]
    sizes: list[str]
    tree: str | None
    model: str | None
    shards: dict[str, Any]

    def figure_options(self) -> dict[str, Any]:
        """The options that apply to some figures only, by flag."""
        flags = {"--planner": self.planners, "--size": self.sizes, "--tree": self.tree, "--model": self.model}
        return {flag: value for flag, value in flags.items() if value}


def show(
    what: str,
    described: NetworkOptions,
    data: ShardOptions,
    collective: str | None = None,
    figure: str | None = None,
    output: Path | None = None,
    planner: list[str] | None = None,
    size: list[str] | None = None,
    tree: str | None = None,
    model: str | None = None,
) -> None:
    """Draw a network, its bottleneck cut, or a plan: trees, steps, link utilization, bandwidth by size."""
    from ...report import save_figure
    from ...report.figures.style import empty_figure
    from ..terminal.networks import network_file

    file = Path(what) if what.lower().endswith(TABLES) else network_file(what)
    kind_of_file = _kind_of_file(file)
    if kind_of_file != "network":
        holds = "contains a plan and its network" if kind_of_file == "plan" else "contains a table"
        flags = filter(None, [collective, *described.flags(), *data.flags(), "--planner" if planner else None])
        if given_too := next(flags, None):
            raise UsageError(f"{given_too} does not go with {what}, which {holds}; leave it out")
    of_network = "topology" if collective is None else "cut"
    # Of a plan it depends on the schedule.
    kind = figure or {"network": of_network, "table": "pareto"}.get(kind_of_file)
    figure_options = {"--planner": planner, "--size": size, "--tree": tree, "--model": model}
    _check_kind(kind, kind_of_file, collective, {flag: value for flag, value in figure_options.items() if value})
    if collective is None and (stray := data.flags()):
        raise UsageError(f"{stray[0]} applies to a collective; name one after {what}, or leave {stray[0]} out")
    requested = None if collective is None else as_collective(collective)
    check_planners(planner or ())
    sizes = distinct_sizes(size)
    # What may fail comes before what takes time.
    empty_figure()
    check_figure("--output", output)
    check_targets({"--output": output}, sources=(file, data.traffic))
    request = Request(requested, list(dict.fromkeys(planner or [])), sizes, tree, model, data.read())
    drawn, name = _drawn(what, kind_of_file, kind or "", described, request)
    target = output or Path(f"{name}-{drawn[0]}.svg")
    check_targets({"--output": target}, sources=(file, data.traffic))
    with working(f"drawing {target}"), name_errors_after(target):
        save_figure(drawn[1], target)
    note(f"wrote {target}")


def _kind_of_file(file: Path | None) -> str:
    """Return whether a file is a plan, a table, or else a network."""
    from ...support.files import PLAN_KIND, kind_of

    if file is not None and file.suffix.lower() == TABLES:
        return "table"
    kind = None if file is None else kind_of(file)
    return "plan" if kind is not None and kind.name == PLAN_KIND else "network"


def _check_kind(kind: str | None, kind_of_file: str, collective: str | None, figure_options: Mapping[str, Any]) -> None:
    """Refuse a figure that the input cannot provide, and options that do not apply to it."""
    if kind is not None and kind not in REQUIRED_INPUT:
        raise UsageError(f"--figure is {shown(kind)}; expected one of {', '.join(REQUIRED_INPUT)}")
    if kind is not None and (REQUIRED_INPUT[kind] == "table") != (kind_of_file == "table"):
        table = "a table printed by `collopt find --csv`, in a file that ends in .csv"
        raise UsageError(
            f"--figure {kind} is not drawn from a table; expected pareto"
            if kind_of_file == "table"
            else f"--figure {kind} is drawn from {table}; name one instead of a network or plan"
        )
    if kind_of_file == "network" and kind is not None:
        if REQUIRED_INPUT[kind] in ("bound", "plan") and collective is None:
            raise UsageError(f"--figure {kind} needs a plan file, or a COLLECTIVE after the network")
        if REQUIRED_INPUT[kind] == "network" and collective is not None:
            raise UsageError(
                f"--figure {kind} shows no collective; leave {shown(collective)} out, or choose --figure cut"
            )
    for flag, value in figure_options.items():
        if kind is not None and kind not in FIGURE_OPTIONS[flag]:
            raise UsageError(
                f"{flag} applies to --figure {' or '.join(FIGURE_OPTIONS[flag])}, not to {kind}; leave it out"
            )
        if isinstance(value, list) and len(value) > 1 and kind not in REPEATABLE_IN[flag]:
            raise UsageError(f"{flag} is given {len(value)} times; only --figure curves takes it more than once")


def _drawn(
    what: str, kind_of_file: str, kind: str, options: NetworkOptions, request: Request
) -> tuple[tuple[str, Figure], str]:
    """Draw the figure; return its kind, the figure and a default file name."""
    from ...planners import bound
    from ..terminal.networks import find_network

    if kind_of_file == "table":
        return (kind, _figure_of_table(Path(what))), _file_name(Path(what).stem)
    if kind_of_file == "plan":
        from ...planners import load_plan

        with working(f"verifying {what}"):
            plan = load_plan(what)
        kind = kind or ("trees" if plan.schedule.num_trees else "steps")
        _check_kind(kind, "plan", None, request.figure_options())
        with computing(f"drawing {what}"):
            return (kind, _figure_of_plan(kind, [plan], request)), _file_name(Path(what).stem)
    network = find_network(what, options)
    if request.collective is None:
        return (kind, network.plot()), _file_name(network.name)
    name = _file_name(f"{network.name}-{request.collective}")
    with computing(f"drawing {request.collective} on {network.name}"):
        if REQUIRED_INPUT[kind] == "bound":
            limit = bound(network, request.collective, **request.shards)
            limit.verify()
            return (kind, limit.plot(kind)), name
        return (kind, _figure_of_plan(kind, _plans_of(network, kind, request), request)), name


def _file_name(text: str) -> str:
    """Replace characters that are unsafe in file names."""
    return re.sub(r"[^A-Za-z0-9._+]+", "-", text).strip("-.")[:100] or "network"


def _plans_of(network: Topology, kind: str, request: Request) -> list[Plan]:
    """Plan the collective with each of the planners."""
    from ...planners import plan

    assert request.collective is not None  # `_check_kind` has refused that.
    collective = request.collective
    planned_for = (request.sizes or [DEFAULT_SIZE])[0] if kind == "steps" else None
    return [
        plan(
            network,
            collective,
            planner=name,
            size=planned_for,
            **request.shards,
        )
        for name in request.planners or ["auto"]
    ]


def _figure_of_plan(kind: str, plans: Sequence[Plan], request: Request) -> Figure:
    """Draw a plan, or curves of several."""
    from ... import report

    if kind == "curves":
        model: Any = request.model or "estimate"  # The table checks it.
        return report.bandwidth_figure(report.curve_table(plans, request.sizes or SIZES, model=model))
    options: dict[str, dict[str, Any]] = {
        "trees": dict(zip(("root", "tree"), _tree(request.tree), strict=True)),
        "steps": {"size": (request.sizes or [DEFAULT_SIZE])[0]},
    }
    return plans[0].plot(kind, **options.get(kind, {}))


def _tree(text: str | None) -> tuple[int | str | None, int | None]:
    """Read RANK or RANK:N, where RANK is a number or a name."""
    if text is None:
        return None, None
    match = re.fullmatch(r"(.*?)(?::([0-9]{1,9}))?", text, re.DOTALL)
    assert match  # Both parts may be empty.
    rank = int(match[1]) if re.fullmatch("[0-9]{1,9}", match[1]) else match[1]
    return rank, None if match[2] is None else int(match[2])


def _figure_of_table(file: Path) -> Figure:
    """Draw the table in a file."""
    import pandas as pd

    from ...report import pareto_figure

    try:
        if file.stat().st_size > MAX_TABLE_BYTES:
            raise FileFormatError(f"{file} is larger than 64 MiB; expected a table printed by `collopt find --csv`")
        table = pd.read_csv(file)
    except OSError as error:
        raise FileFormatError(f"{file} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        reason = str(error).strip().partition("\n")[0]
        raise FileFormatError(f"{file} is not a CSV table with a header: {reason}") from None
    return pareto_figure(table)
