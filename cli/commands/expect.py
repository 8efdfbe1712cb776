"""``collopt expect``: which bus bandwidth is normal on a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...schedules.collective import as_collective
from ...support.formatting import rate_text
from ..terminal.networks import find_network
from ..terminal.output import Formats, emit, emit_rows, number_table
from ..terminal.parameters import NetworkOptions, ShardOptions, distinct_sizes
from ..terminal.progress import computing
from .bound import request_figures

if TYPE_CHECKING:
    from ...runtime import Expectation


def expect(
    topology: str,
    described: NetworkOptions,
    formats: Formats,
    collective: str = "allreduce",
    size: list[str] | None = None,
    root: str | None = None,
) -> None:
    """State which bus bandwidth is normal: the proven bound, NCCL's model, and measurements of such machines.

    A result below the threshold is worth a look at links and settings, one above the bound is no such machine's.
    """
    from ...runtime.health.expect import SIZES
    from ...runtime.health.expect import expect as state_expectation

    operation = as_collective(collective)
    network = find_network(topology, described)
    with computing(f"looking up {collective} on {network.name}"):
        sizes = distinct_sizes(size) or SIZES
        expectation = state_expectation(network, operation, sizes=sizes, **ShardOptions(root).read())
        expectation.bound.verify()
    figures = _figures(expectation)
    if not formats.emit(lambda: figures["sizes"], lambda: figures):
        _print(expectation)


def _figures(expectation: Expectation) -> dict[str, Any]:
    rows = [row._asdict() | {"tables": list(row.tables)} for row in expectation.sizes]
    return {**request_figures(expectation.bound), "machines": list(expectation.machines), "sizes": rows}


def _print(expectation: Expectation) -> None:
    network = expectation.topology
    sources = dict.fromkeys(table for row in expectation.sizes for table in row.tables)
    rows = {
        "bound": f"busbw at most {rate_text(expectation.bound.busbw)}",
        "such machines": "; ".join(expectation.machines) or "none measured",
        **({"measured by": ", ".join(sources)} if sources else {}),
    }
    emit_rows(f"{expectation.collective} on {network.name}, {network.num_ranks} ranks", rows)
    columns = ("size in bytes", "NCCL's model", "NCCL's choice", "measured", "curves", "normal", "normal, as")
    table = number_table(*columns, text=("NCCL's choice", "normal, as"))
    for row in expectation.sizes:
        table.add_row(
            str(row.size),
            "" if row.nccl is None else f"{row.nccl:.4g}",
            row.algorithm,
            _range(row.low, row.high),
            str(row.rows),
            _range(row.threshold, row.normal_high),
            row.reason,
        )
    emit(table)


def _range(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:.4g} to {high:.4g}"
