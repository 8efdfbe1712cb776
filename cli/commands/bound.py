"""``collopt bound``: the bandwidth bound of a collective, and its bottleneck cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...schedules.collective import as_collective
from ...support.formatting import bandwidth_text, exact, rate_text, time_text
from ..terminal.options import NetworkOptions, ShardOptions, distinct_sizes
from ..terminal.output import Formats, bare_table, emit, emit_rows, flat
from ..terminal.parameters import UsageError
from ..terminal.plan_summary import rates, request_figures, witness_figures
from ..terminal.progress import computing

if TYPE_CHECKING:
    from ...schedules import Bound, SizeBound


def bound(
    topology: str,
    collective: str,
    described: NetworkOptions,
    data: ShardOptions,
    formats: Formats,
    size: list[str] | None = None,
    costs: str | None = None,
) -> None:
    """Compute the exact bandwidth bound of a collective, and the bottleneck cut that proves it.

    With `--size`, compute the least time for so much data, and what proves it.
    """
    from ...planners import bound as find_bound
    from ...planners import bound_sizes
    from ..terminal.networks import find_network

    known = as_collective(collective)
    network = find_network(topology, described)
    if costs is not None and not size:
        raise UsageError("--costs matter at a size; give --size too")
    if size:
        with computing(f"bounding the time of {collective} on {network.name}"):
            options: dict[str, Any] = {**data.read(), "costs": costs}
            bounds = bound_sizes(network, known, sizes := distinct_sizes(size), **options)
            for each in bounds:
                each.verify()
        figures = _size_figures(sizes, bounds)
        if not formats.emit(lambda: figures["sizes"], lambda: figures):
            _print_sizes(sizes, bounds)
        return
    with computing(f"computing the bound of {collective} on {network.name}"):
        found = find_bound(network, known, **data.read())
        found.verify()
    if not formats.emit(lambda: [flat(_as_json(found))], lambda: _as_json(found)):
        _print(found)


def _as_json(found: Bound) -> dict[str, Any]:
    return {
        **request_figures(found),
        **rates(found),
        "busbw": float(found.busbw),
        **({} if found.collective.in_pairs else {"trees_per_root": found.trees_per_root}),
        "weights": list(found.weights),
        **witness_figures(found),
    }


def _print(found: Bound) -> None:
    network, pairs = found.topology, found.collective.in_pairs
    part = "a shard" if not pairs else "one unit of traffic" if found.weights else "the data from one rank to another"
    rows = {
        "algbw": f"at most {rate_text(found.algbw)}",
        "busbw": f"at most {rate_text(found.busbw)}",
        "time": f"at least {exact(found.inverse_rate, 'ns')} per byte of {part}",
    }
    if not found.collective.has_two_phases and not pairs:
        rows["trees per root"] = f"{found.trees_per_root} attain the bound exactly"
    rows |= found.witness.rows(network, found.collective)
    emit_rows(f"{found.collective} on {network.name}, {network.num_ranks} ranks", rows)


def _size_figures(sizes: Sequence[str], bounds: Sequence[SizeBound]) -> dict[str, Any]:
    """Return the figures of one or several sizes for JSON, one row for each."""
    first = bounds[0]
    return {
        **request_figures(first),
        "costs": first.costs.to_json(),
        "costs_label": first.costs.label,
        "weights": list(first.rate.weights),
        "sizes": [_row(size, found) for size, found in zip(sizes, bounds, strict=True)],
    }


def _print_sizes(sizes: Sequence[str], bounds: Sequence[SizeBound]) -> None:
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
