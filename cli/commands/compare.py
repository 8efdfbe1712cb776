"""``collopt compare``: results of several planners on one network, beside the proven bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import planners
from ...errors import UnsupportedError
from ...schedules import Collective
from ...support.formatting import percentage_text, rate_text, time_text, times_text
from ...topologies import Topology
from ..terminal.networks import find_network
from ..terminal.output import Formats, emit, emit_rows, note, number_table, plain_rows
from ..terminal.parameters import (
    NetworkOptions,
    ShardOptions,
    UsageError,
    check_planners,
    distinct_sizes,
    read_operation,
)
from ..terminal.progress import computing

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table


MICROSECONDS = 10**6
SCHEDULES = {"trees": "num_trees", "hops": "max_height", "steps": "num_steps"}
"""Columns about schedules, which show where some plan has such figures."""


def compare(
    topology: str,
    collective: str,
    described: NetworkOptions,
    data: ShardOptions,
    formats: Formats,
    planner: list[str] | None = None,
    size: list[str] | None = None,
    costs: str | None = None,
) -> None:
    """Plan a collective with every planner, and compare the results with the proven bounds."""
    from ...planners.what_if.compare import check_feasible

    operation = read_operation(collective)
    check_planners(planner or ())
    network = find_network(topology, described)
    if costs is not None and not size:
        raise UsageError("--costs matter at a size; give --size too")
    sizes, shards = distinct_sizes(size), data.read()
    options: dict[str, Any] = {**shards, "costs": costs}
    # What no planner can mend is told once, not in every row.
    check_feasible(network, operation, **shards)
    with computing(f"comparing planners of {collective} on {network.name}"):
        frame = planners.compare(network, operation, planners=planner or None, sizes=sizes, **options)
    if not formats.emit(lambda: plain_rows(frame.drop(columns="plan"))):
        _print(frame, operation, network, sizes)
    attempts = frame[frame["kind"] == "plan"].to_dict("records")
    if len(attempts) == 1 and attempts[0]["status"] != "ok":
        raise UnsupportedError(f"{attempts[0]['planner']} has no plan: {attempts[0]['reason']}")
    if all(row["status"] != "ok" for row in attempts):
        what = f"plan {collective} on {network.name}"
        raise UnsupportedError(f"none of {len(attempts)} planners can {what}; the reasons are listed above")


def _print(frame: pd.DataFrame, collective: Collective, network: Topology, sizes: list[str]) -> None:
    answered, bounds = frame["status"] == "ok", frame["kind"] == "bound"
    title = f"{collective} on {network.name}, {network.num_ranks} ranks"
    emit_rows(title, _bounds(frame[bounds & answered]) or {"bound": "none"})
    if len(plans := frame[~bounds & answered]):
        emit(_table(plans.sort_values("algbw", ascending=False, kind="stable"), sizes))
        if remarks := {row["planner"]: row["reason"] for row in plans.to_dict("records") if row["reason"]}:
            emit_rows("searches", remarks)
    if compiling := frame["compile_seconds"].sum():
        took = time_text(compiling * MICROSECONDS)
        note(f"collopt: note: compiling kernels took {took}, which no planning time includes")
    from ...planners.plans.registry import as_planner

    for status in ("not applicable", "failed"):
        reasons: dict[str, str] = {}
        elsewhere: list[str] = []
        for row in frame[frame["status"] == status].to_dict("records"):
            if row["kind"] == "plan" and not as_planner(row["planner"]).plans(collective):
                elsewhere.append(row["planner"])
            else:
                reasons[f"{row['kind']} {row['planner']}"] = row["reason"]
        if elsewhere:
            reasons[f"not for {collective}"] = ", ".join(elsewhere)
        if reasons:
            emit_rows(status, reasons)


def _bounds(frame: pd.DataFrame) -> dict[str, str]:
    return {
        f"bound by {row['planner']}": f"{rate_text(row['algbw_exact'])}, "
        f"found in {time_text(row['seconds'] * MICROSECONDS)}" + (f"; {row['reason']}" if row["reason"] else "")
        for row in frame.to_dict("records")
    }


def _table(frame: pd.DataFrame, sizes: list[str]) -> Table:
    """Plans, the fastest first."""
    import pandas as pd

    kinds = {header: name for header, name in SCHEDULES.items() if frame[name].notna().any()}
    limits = {"optimality gap": "bound_exact"}
    # The same in every row.
    if frame["tree_bound_exact"].iloc[0] != frame["bound_exact"].iloc[0]:
        limits = {"gap, all schedules": "bound_exact", "gap, trees": "tree_bound_exact"}
    table = number_table("planner", "algbw GB/s", *limits, *kinds, *sizes, "planning time", text=["planner"])
    for row in frame.to_dict("records"):
        table.add_row(
            row["planner"],
            f"{row['algbw']:.2f}",
            *(_gap(row, limit) for limit in limits.values()),
            *("" if pd.isna(row[name]) else str(row[name]) for name in kinds.values()),
            *(times_text(row[f"us_{size}"], row.get(f"range_us_{size}")) for size in sizes),
            time_text(row["seconds"] * MICROSECONDS),
        )
    return table


def _gap(row: dict[Any, Any], limit: str) -> str:
    """Share of a bound that a plan misses; nothing if there is none, or not about it."""
    import pandas as pd

    if row[limit] is None or (limit == "tree_bound_exact" and pd.isna(row["num_trees"])):
        return ""
    missed = 1 - row["algbw_exact"] / row[limit]
    return "optimal" if missed == 0 else percentage_text(missed)
