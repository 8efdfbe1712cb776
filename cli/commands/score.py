"""``collopt score``: what a schedule that anybody made is worth on a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ...support.formatting import abbreviated_names, count_text, gap_text, percentage_text, rate_text, time_text
from ..terminal.options import NetworkOptions, ShardOptions, check_planners, distinct_sizes
from ..terminal.output import CHECK_FAILED, Formats, emit, emit_rows, number_table, plain_rows
from ..terminal.parameters import UsageError
from ..terminal.progress import computing

if TYPE_CHECKING:
    from rich.table import Table

    from ...runtime import Score
    from ...topologies import Topology


def score(
    file: Path,
    described: NetworkOptions,
    formats: Formats,
    topology: str | None = None,
    collective: str | None = None,
    root: str | None = None,
    num_bytes: str | None = None,
    size: list[str] | None = None,
    slices: int | None = None,
    costs: str | None = None,
    planner: str = "auto",
) -> None:
    """Score a schedule from any source: data, loads of links, bandwidth against the bound, and simulated times."""
    from ...runtime import score as score_file
    from ...runtime.scoring.score import SIZES

    check_planners([planner])
    network = _network(file, topology, described)
    with computing(f"scoring {file}"):
        found = score_file(
            file,
            network,
            collective=collective,
            root=ShardOptions(root).read().get("root"),
            num_bytes=num_bytes,
            sizes=distinct_sizes(size) or SIZES,
            slices=slices,
            costs=costs,  # type: ignore[arg-type] # which it checks
            planner=planner,
        )
    if not formats.emit(lambda: plain_rows(found.to_frame()), lambda: _figures(found)):
        _print(found, planner)
    if found.data.outcome == "wrong":
        raise typer.Exit(CHECK_FAILED)


def _network(file: Path, topology: str | None, described: NetworkOptions) -> Topology:
    """Return the network that was asked for, or that of a plan file."""
    from ...support.file_kinds import PLAN_KIND, kind_of
    from ..terminal.networks import find_network

    if topology is not None:
        return find_network(topology, described)
    if described.given():
        raise UsageError(f"{described.given()[0]} describes a network; give --topology too, or leave it out")
    kind = kind_of(file)
    if kind is None or kind.name != PLAN_KIND:
        raise UsageError(f"--topology is missing; expected the network whose ranks run {file}")
    from ...planners import load_plan

    return load_plan(file).topology


def _print(found: Score, planner: str) -> None:
    what = f"{found.kind}, {found.collective or 'collective not known'}"
    title = f"{found.path}: {what} on {found.topology.name}, {found.topology.num_ranks} ranks"
    emit_rows(title, _rows(found, planner))
    if found.times:
        emit(_time_table(found, planner))


def _rows(found: Score, planner: str) -> dict[str, str]:
    rows = {"data": str(found.data), "routes": found.routes}
    if found.algbw is not None:
        rows |= _load_rows(found)
        rows["algbw"] = f"{rate_text(found.algbw)}, by the busiest link"
    if found.bound is not None:
        rows["bound"] = rate_text(found.bound.algbw)
    if found.gap is not None:
        rows["optimality gap"] = gap_text(found.gap)
    if found.plan is not None:
        missed = "optimal" if found.plan.gap == 0 else f"{percentage_text(found.plan.gap)} below the bound"
        rows[f"plan by {planner}"] = f"{rate_text(found.plan.algbw)}, {missed}"
    if found.times:
        pieces = sorted({each.pieces for each in found.times})
        cut = f", each send in {count_text(pieces[-1], 'piece')}" if len(pieces) == 1 else ""
        rows["times"] = f"simulated, {found.costs.label}{cut}"
    if found.remark:
        rows["note"] = found.remark
    return rows


def _load_rows(found: Score) -> dict[str, str]:
    """Busiest links, and the data on links of each class."""
    from ...topologies import link_classes

    links = found.topology.links
    busiest = [f"{links[place].tail} -> {links[place].head}" for place in found.busiest_links]
    share = found.shares[found.busiest_links[0]]
    rows = {
        "busiest links": f"{abbreviated_names(busiest[:3])}{', ...' if len(busiest) > 3 else ''} "
        f"({len(busiest)} of {len(links)}), with {percentage_text(share)} of all data"
    }
    shares = dict(zip(links, found.shares, strict=True))
    for each in link_classes(found.topology):
        own = [shares[link] for link in each.links]
        most, mean = percentage_text(max(own)), percentage_text(sum(own) / len(own))
        some = "" if min(own) == max(own) else f"{percentage_text(min(own))} to "
        average = f", {mean} on average" if some else ""
        rows[each.name] = f"{count_text(len(own), 'link')} with {some}{most} of all data{average}"
    return rows


def _time_table(found: Score, planner: str) -> Table:
    table = number_table("size in bytes", "time", f"plan by {planner}", "time / plan", "bound", "time / bound")
    for each in found.times:
        least = None if each.bound is None else each.bound.microseconds
        cells = [str(each.num_bytes), time_text(each.microseconds)]
        for other in (each.plan_microseconds, least):
            cells += ["", ""] if not other else [time_text(other), f"{each.microseconds / other:.3f}"]
        table.add_row(*cells)
    return table


def _figures(found: Score) -> dict[str, Any]:
    algbw, gap, limit = found.algbw, found.gap, found.bound
    return {
        "file": found.path,
        "kind": found.kind,
        "topology": found.topology.name,
        "digest": found.topology.digest,
        "num_ranks": found.topology.num_ranks,
        "collective": None if found.collective is None else str(found.collective),
        "data": found.data.outcome,
        "reason": found.data.reason,
        "routes": found.routes,
        "algbw": None if algbw is None else float(algbw),
        "algbw_exact": None if algbw is None else str(algbw),
        "bound": None if limit is None else float(limit.algbw),
        "bound_exact": None if limit is None else str(limit.algbw),
        "gap": None if gap is None else str(gap),
        "plan_algbw": None if found.plan is None else float(found.plan.algbw),
        "remark": found.remark,
        "costs": found.costs.to_json(),
        "times": [
            {"size": each.num_bytes, "time_us": each.microseconds, "plan_time_us": each.plan_microseconds}
            | {"bound_time_us": None if each.bound is None else each.bound.microseconds, "slices": each.pieces}
            for each in found.times
        ],
        "links": plain_rows(found.to_frame()),
    }
