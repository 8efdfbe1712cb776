"""``collopt diagnose``: whether the bandwidths in a log of nccl-tests are normal, and what is wrong."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ...errors import FileFormatError
from ...support.files import MEASURED_KIND, wrong_kind
from ...support.formatting import count_text
from ..terminal.networks import network_if_named
from ..terminal.output import CHECK_FAILED, Formats, emit, emit_rows, number_table, plain_rows
from ..terminal.parameters import NetworkOptions
from ..terminal.progress import computing

if TYPE_CHECKING:
    from rich.table import Table

    from ...runtime.health.diagnose import Diagnosis, RunDiagnosis
    from ...topologies import Topology


def diagnose(
    log: Path,
    described: NetworkOptions,
    formats: Formats,
    topology: str | None = None,
    collective: str | None = None,
    graph: Path | None = None,
    reference: Path | None = None,
) -> None:
    """Say whether the bandwidths in a log of nccl-tests are normal, what limits them, and what explains less.

    Exit status 0: normal, or too little data to tell; 1: low, wrong data, or more than the network can carry; 2: the
    log cannot be used.
    """
    network = network_if_named(topology, described)
    result = diagnosis_of(log, network, collective=collective, graph=graph, reference=reference)
    if not formats.emit(lambda: plain_rows(result.to_frame()), lambda: _figures(result)):
        _print(result)
    if result.verdict in ("low", "impossible", "wrong data"):
        raise typer.Exit(CHECK_FAILED)


def diagnosis_of(log: Path, network: Topology | None, **options: Any) -> Diagnosis:
    """Diagnose a log; files of other kinds are named."""
    from ...runtime.health.diagnose import diagnose as diagnosed

    try:
        with computing(f"diagnosing {log}"):
            return diagnosed(log, network, **options)
    except FileFormatError:
        if problem := wrong_kind(log, MEASURED_KIND, [MEASURED_KIND]):
            raise FileFormatError(problem) from None
        raise


def _print(result: Diagnosis) -> None:
    for run in result.runs:
        title = f"{run.collective} on {result.topology.name}, {count_text(run.ranks, 'rank')}: {run.verdict}"
        rows = {"verdict": run.reason, "limit": run.limit, "compared with": run.compared}
        rows |= {f"NCCL's {score.kind}s": str(score) for score in run.channels}
        emit_rows(title, rows)
        if run.shown:
            emit(_table(run))
    if result.choice:
        emit(result.choice)
        for explanation in result.explanations:
            emit(f"  {explanation}")
    if result.next_run:
        emit(f"next  {result.next_run}")
    for text in result.notes:
        emit(f"note  {text}")


def _table(run: RunDiagnosis) -> Table:
    from ...runtime.health.diagnose import COLUMNS

    table = number_table(*COLUMNS, "", text=[""])
    for size in run.shown:
        table.add_row(*size.cells)
    return table


def _figures(result: Diagnosis) -> dict[str, Any]:
    return {
        "source": result.source,
        "topology": result.topology.name,
        "verdict": result.verdict,
        "runs": [
            {"collective": run.collective.name, "ranks": run.ranks, "verdict": run.verdict, "reason": run.reason}
            | {"limit": run.limit, "machines": list(run.expectation.machines)}
            | {"sizes": [size._asdict() for size in run.sizes]}
            | {
                "channels": [
                    score._asdict() | {"algbw": float(score.algbw), "share": float(score.share)}
                    for score in run.channels
                ]
            }
            for run in result.runs
        ],
        "explanations": [
            asdict(entry) | {"failure": None if entry.failure is None else str(entry.failure)}
            for entry in result.explanations
        ],
        "next_run": result.next_run,
        "notes": list(result.notes),
    }
