"""``collopt score``: what a schedule that anybody made is worth on a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ... import planners
from ...support.files import PLAN_KIND, kind_of
from ...support.formatting import (
    abbreviated_names,
    count_text,
    gap_text,
    percentage_text,
    rate_text,
    time_text,
    times_text,
)
from ...topologies import Topology
from ..terminal.networks import network_if_named
from ..terminal.output import CHECK_FAILED, Formats, emit, emit_rows, number_table, plain_rows
from ..terminal.parameters import NetworkOptions, ShardOptions, UsageError, check_planners, distinct_sizes
from ..terminal.progress import computing

if TYPE_CHECKING:
    from rich.table import Table

    from ...runtime import Score


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
        scored = score_file(
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
    if not formats.emit(lambda: plain_rows(scored.to_frame()), lambda: _figures(scored)):
        _print(scored, planner)
    if scored.data.outcome == "wrong":
        raise typer.Exit(CHECK_FAILED)


def _network(file: Path, topology: str | None, described: NetworkOptions) -> Topology:
    """Return the network that was asked for, or that of a plan file."""
    if (network := network_if_named(topology, described)) is not None:
        return network
    kind = kind_of(file)
    if kind is None or kind.name != PLAN_KIND:
        raise UsageError(f"--topology is missing; expected the network whose ranks run {file}")
    return planners.load_plan(file).topology


def _print(scored: Score, planner: str) -> None:
    what = f"{scored.kind}, {scored.collective or 'collective not known'}"
    title = f"{scored.path}: {what} on {scored.topology.name}, {scored.topology.num_ranks} ranks"
    emit_rows(title, _rows(scored, planner))
    if scored.times:
        emit(_time_table(scored, planner))


def _rows(scored: Score, planner: str) -> dict[str, str]:
    rows = {"data": str(scored.data), "routes": scored.routes}
    if scored.algbw is not None:
        rows |= _load_rows(scored)
        rows["algbw"] = f"{rate_text(scored.algbw)}, by the busiest link"
    if scored.bound is not None:
        rows["bound"] = rate_text(scored.bound.algbw)
    if scored.gap is not None:
        rows["optimality gap"] = gap_text(scored.gap)
    if scored.plan is not None:
        missed = "optimal" if scored.plan.gap == 0 else f"{percentage_text(scored.plan.gap)} below the bound"
        rows[f"plan by {planner}"] = f"{rate_text(scored.plan.algbw)}, {missed}"
    if scored.times:
        pieces = sorted({timed.pieces for timed in scored.times})
        cut = f", each send in {count_text(pieces[-1], 'piece')}" if len(pieces) == 1 else ""
        rows["times"] = f"simulated, {scored.costs.label}{cut}"
    if scored.remark:
        rows["note"] = scored.remark
    return rows


def _load_rows(scored: Score) -> dict[str, str]:
    """Busiest links, and the data on links of each class."""
    from ...topologies import link_classes

    links = scored.topology.links
    busiest = [f"{links[place].tail} -> {links[place].head}" for place in scored.busiest_links]
    share = scored.shares[scored.busiest_links[0]]
    rows = {
        "busiest links": f"{abbreviated_names(busiest[:3])}{', ...' if len(busiest) > 3 else ''} "
        f"({len(busiest)} of {len(links)}), with {percentage_text(share)} of all data"
    }
    shares = dict(zip(links, scored.shares, strict=True))
    for link_class in link_classes(scored.topology):
        own = [shares[link] for link in link_class.links]
        largest, mean = percentage_text(max(own)), percentage_text(sum(own) / len(own))
        some = "" if min(own) == max(own) else f"{percentage_text(min(own))} to "
        average = f", {mean} on average" if some else ""
        rows[link_class.name] = f"{count_text(len(own), 'link')} with {some}{largest} of all data{average}"
    return rows


def _time_table(scored: Score, planner: str) -> Table:
    table = number_table("size in bytes", "time", f"plan by {planner}", "time / plan", "bound", "time / bound")
    for timed in scored.times:
        bound = None if timed.bound is None else timed.bound.microseconds
        cells = [str(timed.num_bytes), times_text(timed.microseconds, timed.ends)]
        for other in (timed.plan_microseconds, bound):
            cells += ["", ""] if not other else [time_text(other), f"{timed.microseconds / other:.3f}"]
        table.add_row(*cells)
    return table


def _figures(scored: Score) -> dict[str, Any]:
    algbw, gap, limit = scored.algbw, scored.gap, scored.bound
    return {
        "file": scored.path,
        "kind": scored.kind,
        "topology": scored.topology.name,
        "digest": scored.topology.digest,
        "num_ranks": scored.topology.num_ranks,
        "collective": None if scored.collective is None else str(scored.collective),
        "data": scored.data.outcome,
        "reason": scored.data.reason,
        "routes": scored.routes,
        "algbw": None if algbw is None else float(algbw),
        "algbw_exact": None if algbw is None else str(algbw),
        "bound": None if limit is None else float(limit.algbw),
        "bound_exact": None if limit is None else str(limit.algbw),
        "gap": None if gap is None else str(gap),
        "plan_algbw": None if scored.plan is None else float(scored.plan.algbw),
        "remark": scored.remark,
        "costs": scored.costs.to_json(),
        "times": [
            {"size": timed.num_bytes, "time_us": timed.microseconds, "plan_time_us": timed.plan_microseconds}
            | {"bound_time_us": None if timed.bound is None else timed.bound.microseconds, "slices": timed.pieces}
            | ({} if timed.ends is None else {"range_us": timed.ends})
            for timed in scored.times
        ],
        "links": plain_rows(scored.to_frame()),
    }
