"""``collopt survive``: what each failure costs, and a folder of plans to pick from when one happens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...schedules.collective import as_collective
from ...support.formatting import count_text, percentage_text
from ..terminal.output import Formats, bare_table, emit, note, plain_rows
from ..terminal.parameters import NetworkOptions, ShardOptions, check_planners
from ..terminal.progress import computing

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

BASELINES = {"rings": "ring", "trees": "double-binary-tree"}  # those that `survive` compares with by default


def survive(
    topology: str,
    collective: str,
    described: NetworkOptions,
    formats: Formats,
    failures: str = "link,nic,gpu,switch",
    derate: list[str] | None = None,
    pairs: list[str] | None = None,
    planner: str = "auto",
    root: str | None = None,
    jobs: int | None = None,
    output: Path | None = None,
) -> None:
    """Plan for every failed link, NIC, GPU and switch, and show the cost of each.

    Failures that are alike by symmetry are one case. COLLECTIVE may be several, comma-separated.
    """
    from ...planners import PlanFolder
    from ...planners import survive as plan_failures
    from ..terminal.networks import find_network

    collectives = [as_collective(name.strip()) for name in collective.split(",")]
    check_planners([planner])
    kinds = [] if failures == "none" else [kind.strip() for kind in failures.split(",")]
    network = find_network(topology, described)
    with computing(f"planning for failures of {network.name}"):
        frame = plan_failures(
            network,
            collectives,
            failures=kinds,
            derate=derate or (),
            pairs=pairs or (),
            planner=planner,
            root=ShardOptions(root).read().get("root"),
            folder=output,
            jobs=jobs,
        )
    if not formats.emit(lambda: plain_rows(frame)):
        for name, rows in frame.groupby("collective", sort=False):
            emit(f"{name} on {network.name}, {network.num_ranks} ranks")
            emit(_table(rows))
    if output is not None:
        planned = [case for case in PlanFolder(output).cases if case.file is not None]
        note(f"{output} has plans for {count_text(len(planned), 'case')}")


def _table(frame: pd.DataFrame) -> Table:
    """One row per case, the intact network first."""
    import pandas as pd

    table = bare_table()
    table.add_column("failure", no_wrap=True)
    for header in (
        "alike",
        "ranks",
        "algbw GB/s",
        "optimality gap",
        "loss",
        *(f"{baseline} lose" for baseline in BASELINES),
    ):
        table.add_column(header, justify="right", no_wrap=True)
    for row in frame.to_dict("records"):
        losses = [row["loss_exact"], *(row[f"loss_{name}"] for name in BASELINES.values())]
        planned = row["status"] == "ok"
        gap = ("optimal" if row["gap_exact"] == 0 else percentage_text(row["gap_exact"])) if planned else row["status"]
        algbw = f"{row['algbw']:.2f}" if planned else ""
        texts = ["" if pd.isna(loss) else percentage_text(loss) for loss in losses]
        table.add_row(row["failure"], str(row["count"]), str(row["ranks"]), algbw, gap, *texts)
    return table
