"""Output of ``collopt bound --size``: least times, and why no schedule is faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...support.formatting import bandwidth_text, time_text
from ..arguments.plan_summary import request_figures
from ..terminal.output import bare_table, emit, emit_rows

if TYPE_CHECKING:
    from ...schedules import SizeBound


def size_figures(sizes: Sequence[str], bounds: Sequence[SizeBound]) -> dict[str, Any]:
    """Return the figures of one or several sizes for JSON, one row for each."""
    first = bounds[0]
    return {
        **request_figures(first),
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
            **({name: f"at most {value}" for name, value in _bandwidths(first).items()} if first.time else {}),
            first.argument: first.witness.reason(first.request),
        }
        emit_rows(title, rows)
        return
    emit(title)
    table = bare_table("size", "time at least", "algbw at most", "busbw at most", "by its")
    for size, found in zip(sizes, bounds, strict=True):
        table.add_row(size, time_text(found.time), *_bandwidths(found).values(), found.argument)
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


def _bandwidths(found: SizeBound) -> dict[str, str]:
    if not found.time:
        return dict.fromkeys(("algbw", "busbw"), "no limit")
    return {"algbw": bandwidth_text(found.algbw, 2), "busbw": bandwidth_text(found.busbw, 2)}
