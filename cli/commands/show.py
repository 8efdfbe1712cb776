"""``collopt show``: figures of networks, their bottlenecks and plans."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import planners
from ...errors import FileFormatError
from ...schedules import Collective
from ...support.validation import shown
from ..terminal.networks import find_network, network_file
from ..terminal.output import note
from ..terminal.output_files import check_figure, check_targets, name_errors_after
from ..terminal.parameters import (
    NetworkOptions,
    ShardOptions,
    UsageError,
    check_planners,
    distinct_sizes,
    read_operation,
)
from ..terminal.progress import computing, working

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
DEFAULT_SIZE = "64M"
SIZES = tuple(2**power for power in range(10, 31))
MAX_TABLE_BYTES = 2**26
TABLES = ".csv"


class Request(NamedTuple):
    """What is to be drawn, and options of the figures."""

    collective: Collective | None
    planners: list[str]
    sizes: list[str]
    tree: str | None
    model: str | None
    shards: dict[str, Any]

    def check(self, kind: str, kind_of_file: str) -> None:
        """Refuse a figure that the input cannot provide, and options that do not apply to it."""
        source = REQUIRED_INPUT[kind]
        if (source == "table") != (kind_of_file == "table"):
            table = "a table printed by `collopt find --csv`, in a file that ends in .csv"
            if kind_of_file == "table":
                raise UsageError(f"--figure {kind} is not drawn from a table; expected pareto")
            raise UsageError(f"--figure {kind} is drawn from {table}; name one instead of a network or plan")
        if kind_of_file == "network" and source in ("bound", "plan") and self.collective is None:
            raise UsageError(f"--figure {kind} needs a plan file, or a COLLECTIVE after the network")
        if kind_of_file == "network" and source == "network" and self.collective is not None:
            shows = f"shows no collective; leave {str(self.collective)!r} out, or choose --figure cut"
            raise UsageError(f"--figure {kind} {shows}")
        values = {"--planner": self.planners, "--size": self.sizes, "--tree": self.tree, "--model": self.model}
        for flag, value in values.items():
            if value and kind not in FIGURE_OPTIONS[flag]:
                figures = " or ".join(FIGURE_OPTIONS[flag])
                raise UsageError(f"{flag} applies to --figure {figures}, not to {kind}; leave it out")
            if isinstance(value, list) and len(value) > 1 and kind != "curves":
                raise UsageError(f"{flag} is given {len(value)} times; only --figure curves takes it more than once")


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

    file = Path(what) if what.lower().endswith(TABLES) else network_file(what)
    kind_of_file = _kind_of_file(file)
    if kind_of_file != "network":
        holds = "contains a plan and its network" if kind_of_file == "plan" else "contains a table"
        flags = filter(None, [collective, *described.flags(), *data.flags(), "--planner" if planner else None])
        if given_too := next(flags, None):
            raise UsageError(f"{given_too} does not go with {what}, which {holds}; leave it out")
    if figure is not None and figure not in REQUIRED_INPUT:
        raise UsageError(f"--figure is {shown(figure)}; expected one of {', '.join(REQUIRED_INPUT)}")
    if collective is None and (stray := data.flags()):
        raise UsageError(f"{stray[0]} applies to a collective; name one after {what}, or leave {stray[0]} out")
    requested = None if collective is None else read_operation(collective)
    check_planners(planner or ())
    names, sizes = list(dict.fromkeys(planner or [])), distinct_sizes(size)
    request = Request(requested, names, sizes, tree, model, data.read())
    # Of a plan it depends on the schedule.
    of_network = "topology" if collective is None else "cut"
    kind = figure or {"network": of_network, "table": "pareto"}.get(kind_of_file)
    if kind is not None:
        request.check(kind, kind_of_file)
    # What may fail comes before what takes time.
    empty_figure()
    check_figure("--output", output)
    check_targets({"--output": output}, sources=(file, data.traffic))
    drawn, name = _drawn(what, kind_of_file, kind, described, request)
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


def _drawn(
    what: str, kind_of_file: str, kind: str | None, options: NetworkOptions, request: Request
) -> tuple[tuple[str, Figure], str]:
    """Draw the figure; return its kind, the figure and a default file name."""
    if kind_of_file == "plan":
        with working(f"verifying {what}"):
            loaded = planners.load_plan(what)
        if kind is None:
            kind = "trees" if loaded.schedule.num_trees else "steps"
            request.check(kind, "plan")
        with computing(f"drawing {what}"):
            return (kind, _figure_of_plan(kind, [loaded], request)), _file_name(Path(what).stem)
    assert kind is not None, "only of plans it depends on the schedule"
    if kind_of_file == "table":
        return (kind, _figure_of_table(Path(what))), _file_name(Path(what).stem)
    network, collective = find_network(what, options), request.collective
    if collective is None:
        return (kind, network.plot()), _file_name(network.name)
    name = _file_name(f"{network.name}-{collective}")
    with computing(f"drawing {collective} on {network.name}"):
        if REQUIRED_INPUT[kind] == "bound":
            limit = planners.bound(network, collective, **request.shards)
            limit.verify()
            return (kind, limit.plot(kind)), name
        size = (request.sizes or [DEFAULT_SIZE])[0] if kind == "steps" else None
        names = request.planners or ["auto"]
        plans = [planners.plan(network, collective, planner=planner, size=size, **request.shards) for planner in names]
        return (kind, _figure_of_plan(kind, plans, request)), name


def _file_name(text: str) -> str:
    """Replace characters that are unsafe in file names."""
    return re.sub(r"[^A-Za-z0-9._+]+", "-", text).strip("-.")[:100] or "network"


def _figure_of_plan(kind: str, plans: Sequence[planners.Plan], request: Request) -> Figure:
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
