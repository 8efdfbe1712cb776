"""``collopt compare`` and ``compare-networks``: several planners on one network, and several networks."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import planners
from ...errors import FileFormatError, UnsupportedError
from ...schedules import Collective
from ...support.files import MAX_BYTES, read_text
from ...support.formatting import percentage_text, rate_text, time_text, times_text
from ...topologies import Topology
from ..terminal.networks import find_network, find_networks
from ..terminal.output import Formats, emit, emit_rows, note, number_table, plain_rows
from ..terminal.output_files import check_figure, check_targets, name_errors_after, write_files
from ..terminal.parameters import (
    NetworkOptions,
    ShardOptions,
    UsageError,
    check_planners,
    distinct_sizes,
    read_calls,
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


def compare_networks(
    networks: list[str],
    formats: Formats,
    call: list[str] | None = None,
    planner: str = "auto",
    prices: Path | None = None,
    parts: Path | None = None,
    failures: str | None = None,
    bisection: bool = False,
    jobs: int | None = None,
    output: Path | None = None,
) -> None:
    """Compare networks by the time of a mix of calls, their parts and price, and the worst failure.

    Each network is one word: quote it with its own options, as in "torus --shape 4x4x4".
    """
    check_planners([planner])
    check_figure("--output", output)
    check_targets({"--parts": parts, "--output": output}, sources=(prices,))
    calls, costs = read_calls(call or ["allreduce:1G"]), None if prices is None else _prices(prices)
    listed = find_networks(networks)
    if parts is not None:
        names = dict.fromkeys(part for network in listed for part in planners.network_parts(network)["part"])
        write_files({parts: "part,price\n" + "".join(f"{name},\n" for name in names)})
        note(f"wrote the parts of {len(listed)} networks to {parts}; fill in their prices, and give --prices {parts}")
    kinds = [] if failures is None else [kind.strip() for kind in failures.split(",")]
    with computing(f"comparing {len(listed)} networks"):
        frame = planners.compare_networks(
            listed, calls, planner=planner, prices=costs, failures=kinds, bisection=bisection, jobs=jobs
        )
    if not formats.emit(lambda: plain_rows(frame.drop(columns="network"))):
        emit(_network_table(frame))
    if output is not None:
        from ...report import pareto_figure, save_figure

        with name_errors_after(output):
            save_figure(pareto_figure(frame, "cables" if prices is None else "price", "us"), output)
        note(f"wrote {output}")


def _prices(path: Path) -> dict[str, str]:
    """Read a CSV table of parts and prices."""
    import pandas as pd

    try:
        table = pd.read_csv(StringIO(read_text(path, MAX_BYTES)), dtype=str, keep_default_na=False)
    except ValueError as error:
        raise FileFormatError(f"{path} is no table of prices: {str(error).strip().partition(chr(10))[0]}") from None
    if list(table.columns[:2]) != ["part", "price"]:
        raise FileFormatError(f"{path} begins with columns {', '.join(table.columns)}; expected part,price")
    if not isinstance(table.index, pd.RangeIndex):
        raise FileFormatError(f"{path} has rows with more entries than columns; write a price without commas")
    if empty := [part for part, price in zip(table["part"], table["price"], strict=True) if not price.strip()]:
        raise FileFormatError(f"{path} has no price of {', '.join(empty)}")
    if twice := list(table["part"][table["part"].duplicated()]):
        raise FileFormatError(f"{path} lists {twice[0]} twice; expected one price of each part")
    return dict(zip(table["part"], table["price"], strict=True))


def _network_table(frame: pd.DataFrame) -> Table:
    """Networks in their order, with what was asked for; parts are those of each rank."""
    counts = ("switches", "ports", "cables", "cables_between_boxes")
    headers = ["ranks", "time", "at least", *(name.replace("_", " ") + "/rank" for name in counts)]
    shown = {"bisection": "bisection GB/s", "price": "price", "worst_loss": "worst loss", "worst_failure": "by"}
    columns = {name: header for name, header in shown.items() if name in frame}
    table = number_table("network", *headers, *columns.values(), text=["network", "by"])
    texts: dict[str, Callable[[Any], str]] = {
        "bisection": "{:.1f}".format,
        "price": "{:,.0f}".format,
        "worst_loss": percentage_text,
        "worst_failure": str,
    }
    for row in frame.to_dict("records"):
        table.add_row(
            row["name"],
            str(row["ranks"]),
            time_text(row["us"]),
            time_text(row["bound_us"]),
            *(f"{row[name] / row['ranks']:.2f}" for name in counts),
            *(texts[name](row[name]) for name in columns),
        )
    return table
