"""``collopt find``: which direct-connect topologies a number of nodes and ports allows, and what each is good for."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..schedules.units import time_text
from .files import check_targets, writing
from .output import emit, emit_json, emit_rows, note
from .parameters import JsonOption, UsageError
from .progress import computing

if TYPE_CHECKING:
    from rich.table import Table

    from ..planners import Candidate, Frontier

__all__ = ["find"]

NodesArgument = Annotated[int, typer.Argument(metavar="NODES", help="How many nodes.")]
DegreeOption = Annotated[
    int, typer.Option("--degree", metavar="D", help="Links out of each node, and as many into it.")
]
BidirectionalOption = Annotated[
    bool, typer.Option("--bidirectional", help="Only topologies in which each link has an opposite one.")
]
AlphaOption = Annotated[str, typer.Option("--alpha", metavar="US", help="µs per step.")]
WorkloadOption = Annotated[
    str, typer.Option("--size", metavar="SIZE", help="Bytes to exchange: 64M, 1G; see `collopt find` in the manual.")
]
BandwidthOption = Annotated[
    str, typer.Option("--bandwidth", metavar="GBPS", help="GB/s of all links out of a node together.")
]
NoAllToAllOption = Annotated[bool, typer.Option("--no-all-to-all", help="Leave all-to-all out.")]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print CSV, and nothing else, on standard output.")]
SaveOption = Annotated[
    Path | None, typer.Option("--save", metavar="FILE", help="Write a topology as a file to plan on.")
]
CandidateOption = Annotated[
    int | None, typer.Option("--candidate", metavar="K", help="Which to write, as numbered; the best if left out.")
]


def find(
    nodes: NodesArgument,
    degree: DegreeOption = 4,
    bidirectional: BidirectionalOption = False,
    alpha: AlphaOption = "10",
    size: WorkloadOption = "1M",
    bandwidth: BandwidthOption = "12.5",
    no_all_to_all: NoAllToAllOption = False,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
    save: SaveOption = None,
    candidate: CandidateOption = None,
) -> None:
    """Find direct-connect topologies that trade few steps for little data per link in the best known ways."""
    from ..planners import find_topologies

    if as_json and as_csv:
        raise UsageError("--json and --csv are two forms of the same; give one of them")
    if candidate is not None and save is None:
        raise UsageError("--candidate says which topology to write; give --save FILE too, or leave it out")
    check_targets({"--save": save})
    with computing(f"looking for topologies of {nodes} nodes"):
        found = find_topologies(
            nodes,
            degree,
            bidirectional=bidirectional,
            alpha=alpha,
            size=size,
            node_bandwidth=bandwidth,
            all_to_all=not no_all_to_all,
        )
    chosen = _chosen(found, candidate)
    if save is not None:
        _save(chosen, found, save)
    if as_json:
        emit_json(_plain(found))
    elif as_csv:
        emit(found.to_frame().drop(columns="candidate").to_csv(index=False).rstrip("\n"))
    else:
        _print(found, size)
    if save is not None:
        note(f"wrote {chosen.name} to {save}")


def _chosen(found: Frontier, number: int | None) -> Candidate:
    if number is None:
        return found.best()
    if not 1 <= number <= len(found):
        raise UsageError(f"--candidate is {number}; expected a number from 1 to {len(found)}")
    return found[number - 1]


def _save(chosen: Candidate, found: Frontier, path: Path) -> None:
    """Write a topology whose links share the bandwidth of a node evenly, and take alpha each."""
    from ..topologies import write_topology

    workload = found.workload
    network = chosen.topology(bandwidth=workload.node_bandwidth / found.degree, latency=workload.alpha)
    with writing(path):
        write_topology(network, path)


def _plain(found: Frontier) -> dict[str, Any]:
    """Everything for JSON: exact numbers as text."""
    best, bounds, workload = found.best(), found.bounds, found.workload
    rows = found.to_frame().drop(columns="candidate").to_dict("records")
    return {
        "nodes": found.nodes,
        "degree": found.degree,
        "bidirectional": found.bidirectional,
        "size": workload.num_bytes,
        "alpha_us": float(workload.alpha),
        "node_bandwidth": float(workload.node_bandwidth),
        "bounds": {
            "steps": bounds.steps,
            "bandwidth_factor": float(bounds.bandwidth_factor),
            "bandwidth_factor_exact": str(bounds.bandwidth_factor),
            "all_to_all": float(bounds.all_to_all),
        },
        "best": list(found).index(best) + 1,
        "candidates": [
            {str(name): str(value) if isinstance(value, Fraction) else value for name, value in row.items()}
            for row in rows
        ],
    }


def _print(found: Frontier, size: str) -> None:
    workload, bounds = found.workload, found.bounds
    kind = "two-way links" if found.bidirectional else "links"
    least = 2 * (bounds.steps * workload.alpha + bounds.bandwidth_factor * workload.transfer)
    shown = {
        "bound of T_L": f"{bounds.steps} α",
        "bound of T_B": f"{_factor(bounds.bandwidth_factor)} M/B",
        "bound of allreduce": f"{time_text(least)} for {size} by a reduce-scatter and an allgather",
    }
    if found[0].all_to_all is not None:
        slowest = workload.transfer * Fraction(found.degree, found.nodes) / bounds.all_to_all
        shown["bound of all-to-all"] = f"{time_text(slowest)}, {float(bounds.all_to_all):.3e} of a link for each pair"
    emit_rows(f"{found.nodes} nodes, {found.degree} {kind} each", shown)
    emit(_table(found, size))


def _table(found: Frontier, size: str) -> Table:
    """Candidates by increasing T_L; a star marks the best allreduce."""
    from rich.table import Table

    table, best = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0)), found.best()
    for header in ("", "T_L", "T_B"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("exactly", no_wrap=True)
    table.add_column(f"allreduce {size}", justify="right", no_wrap=True)
    if found[0].all_to_all is not None:
        table.add_column("all-to-all", justify="right", no_wrap=True)
    table.add_column("topology", overflow="fold")
    for number, candidate in enumerate(found, 1):
        factor = candidate.cost.bandwidth_factor
        cells = [
            f"{'*' if candidate is best else ''}{number}",
            f"{candidate.cost.steps} α",
            f"{float(factor):.4f}",
            str(factor),
            time_text(candidate.time_of("allreduce", found.workload)),
        ]
        if candidate.all_to_all is not None:
            cells.append(_all_to_all(candidate, found))
        table.add_row(*cells, candidate.name)
    return table


def _all_to_all(candidate: Candidate, found: Frontier) -> str:
    """Time between what nothing can beat and what shortest paths in equal parts reach."""
    assert candidate.all_to_all is not None
    slowest, fastest = (
        time_text(found.workload.transfer * Fraction(found.degree, found.nodes) / rate) for rate in candidate.all_to_all
    )
    return slowest if slowest == fastest else f"{fastest} to {slowest}"


def _factor(value: Fraction) -> str:
    return f"{float(value):.4f} (exactly {value})"
