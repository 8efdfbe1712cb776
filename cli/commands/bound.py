"""``collopt bound``: the bandwidth bound of a collective, and its bottleneck cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import planners
from ...schedules import Bound, Cut, SizeBound
from ...schedules.bounds.bound import witness_to_json
from ...support.formatting import bandwidth_text, exact, rate_text, time_text
from ..terminal.networks import find_network
from ..terminal.output import Formats, bare_table, emit, emit_rows, flat
from ..terminal.parameters import NetworkOptions, ShardOptions, UsageError, distinct_sizes, read_operation
from ..terminal.progress import computing


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

    With `--size`, bound the time for this much data, and name the argument that proves it.
    """
    operation = read_operation(collective)
    network = find_network(topology, described)
    if costs is not None and not size:
        raise UsageError("--costs matter at a size; give --size too")
    if size:
        with computing(f"bounding the time of {collective} on {network.name}"):
            options: dict[str, Any] = {**data.read(), "costs": costs}
            bounds = planners.bound_sizes(network, operation, sizes := distinct_sizes(size), **options)
            for limit in bounds:
                limit.verify()
        figures = _size_figures(sizes, bounds)
        if not formats.emit(lambda: figures["sizes"], lambda: figures):
            _print_sizes(sizes, bounds)
        return
    with computing(f"computing the bound of {collective} on {network.name}"):
        proven = planners.bound(network, operation, **data.read())
        proven.verify()
    if not formats.emit(lambda: [flat(_as_json(proven))], lambda: _as_json(proven)):
        _print(proven)


def _as_json(proven: Bound) -> dict[str, Any]:
    network, collective, witness = proven.topology, proven.collective, proven.witness
    crossing = witness.crossing(network, collective, proven.weights)
    return {
        **request_figures(proven),
        **rates(proven),
        "scope": proven.scope,
        "busbw": float(proven.busbw),
        **({} if collective.in_pairs else {"trees_per_root": proven.trees_per_root}),
        "weights": list(proven.weights),
        "cut_bandwidth": str(crossing.bandwidth),
        **witness_to_json(witness),
        **({"cut_ranks": witness.supply(network)} if isinstance(witness, Cut) else {}),
    }


def _print(proven: Bound) -> None:
    network, pairs = proven.topology, proven.collective.in_pairs
    items = "a unit of the items" if proven.collective.has_items else "a shard"
    part = items if not pairs else "one unit of traffic" if proven.weights else "the data from one rank to another"
    rows = {
        "algbw": f"at most {rate_text(proven.algbw)}",
        "busbw": f"at most {rate_text(proven.busbw)}",
        "time": f"at least {exact(proven.inverse_rate, 'ns')} per byte of {part}",
    }
    if not proven.collective.has_two_phases and not pairs and not proven.collective.has_items:
        rows["trees per root"] = f"{proven.trees_per_root} attain the bound exactly"
    rows |= proven.witness.rows(network, proven.collective)
    emit_rows(f"{proven.collective} on {network.name}, {network.num_ranks} ranks", rows)


def _size_figures(sizes: Sequence[str], bounds: Sequence[SizeBound]) -> dict[str, Any]:
    """Return the figures of one or several sizes for JSON, one row for each."""
    first = bounds[0]
    return {
        **request_figures(first),
        "costs": first.costs.to_json(),
        "costs_label": first.costs.label,
        "weights": list(first.rate.weights),
        "sizes": [_row(size, limit) for size, limit in zip(sizes, bounds, strict=True)],
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
    for size, limit in zip(sizes, bounds, strict=True):
        table.add_row(size, time_text(limit.time), *_bandwidths(limit).values(), limit.argument)
    emit(table)


def _row(size: str, limit: SizeBound) -> dict[str, Any]:
    return {
        "size": size,
        "bytes": limit.num_bytes,
        "time_us": limit.microseconds,
        "time_exact": str(limit.time),
        "algbw": float(limit.algbw) if limit.time else None,
        "busbw": float(limit.busbw) if limit.time else None,
        "argument": limit.argument,
        "reason": limit.witness.reason(limit.request),
    }


def _bandwidths(limit: SizeBound) -> dict[str, str]:
    if not limit.time:
        return dict.fromkeys(("algbw", "busbw"), "no limit")
    return {"algbw": bandwidth_text(limit.algbw, 2), "busbw": bandwidth_text(limit.busbw, 2)}


def request_figures(of: planners.Plan | Bound | SizeBound) -> dict[str, Any]:
    """Return what was asked for, for JSON."""
    network = of.topology
    return {
        "topology": network.name,
        "digest": network.digest,
        "collective": str(of.collective),
        "num_ranks": network.num_ranks,
    }


def rates(of: planners.Plan | Bound) -> dict[str, Any]:
    """Return the rate of a plan, or its bound, for JSON."""
    return {"inverse_rate": str(of.inverse_rate), "algbw": float(of.algbw), "algbw_exact": str(of.algbw)}
