"""Output of ``collopt bound --size``: least times, and why no schedule is faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...support.formatting import bandwidth_text, time_text
from ..terminal.output import bare_table, emit, emit_rows

if TYPE_CHECKING:
    from ...schedules import SizeBound


def size_figures(sizes: Sequence[str], bounds: Sequence[SizeBound]) -> dict[str, Any]:
    """Return the figures of one or several sizes for JSON, one row for each."""
    first = bounds[0]
    return {
        "topology": first.topology.name,
        "digest": first.topology.digest,
        "collective": str(first.collective),
        "num_ranks": first.topology.num_ranks,
        "costs": first.costs.to_json(),
        "costs_label": first.costs.label,
        "weights": list(first.rate.weights),
        "sizes": [_row(size, found) for size, found in zip(sizes, bounds, strict=True)],
    }


def show_size_bounds(sizes: Sequence[str], bounds: Sequence[SizeBound]) -> None:
    """Print one size in full, several as a table."""
    first = bounds[0]
    title = f"{first.collective} on {first.topology.name}, {first.topology.num_ranks} ranks ({first.costs.label})"
    if len(bounds) == 1:
        rows = {
            "size": f"{sizes[0]} ({first.num_bytes} bytes)",
            "time": f"at least {time_text(first.time)}",
            **({"algbw": f"at most {_algbw(first)}", "busbw": f"at most {_busbw(first)}"} if first.time else {}),
            first.argument: first.witness.reason(first.request),
        }
        emit_rows(title, rows)
        return
    emit(title)
    table = bare_table("size", "time at least", "algbw at most", "busbw at most", "by its")
    for size, found in zip(sizes, bounds, strict=True):
        table.add_row(size, time_text(found.time), _algbw(found), _busbw(found), found.argument)
    emit(table)


def _row(size: str, found: SizeBound) -> dict[str, Any]:
    return {
        "size": size,
        "bytes": found.num_bytes,
        "time_us": found.microseconds,
        "time_exact": str(found.time),
        "algbw": float(found.algbw) if found.time else None,
        "busbw": float(found.busbw) if found.time else None,
        "argument": found.argument,
        "reason": found.witness.reason(found.request),
    }


def _algbw(found: SizeBound) -> str:
    return bandwidth_text(found.algbw, 2) if found.time else "no limit"


def _busbw(found: SizeBound) -> str:
    return bandwidth_text(found.busbw, 2) if found.time else "no limit"
