"""``collopt find``: Pareto-optimal direct-connect topologies for a number of nodes and ports."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import planners
from ...errors import TopologyError
from ...schedules import Collective
from ...schedules.collective import as_collective
from ...support.formatting import bandwidth_text, count_text, time_text
from ...support.quantities import as_factor, as_latency
from ..terminal.output import Formats, emit, emit_rows, note, number_table, plain_rows
from ..terminal.output_files import check_targets, name_errors_after
from ..terminal.parameters import UsageError, read_calls
from ..terminal.progress import computing

if TYPE_CHECKING:
    from rich.table import Table

    from ...planners.direct_connect.candidate import Calls


def find(
    nodes: int,
    formats: Formats,
    degree: int = 4,
    bidirectional: bool = False,
    alpha: str = "10",
    size: str | None = None,
    bandwidth: str = "12.5",
    host: str | None = None,
    nics: str | None = None,
    no_all_to_all: bool = False,
    collective: str | None = None,
    call: list[str] | None = None,
    save: Path | None = None,
    plan: Path | None = None,
    xml: Path | None = None,
    candidate: int | None = None,
) -> None:
    """Find the Pareto-optimal direct-connect topologies in latency, bandwidth and all-to-all, and build them.

    Names follow the literature: L(G) is the line graph of G, □ a Cartesian product, Π a generalized Kautz graph, C and
    DirCirc are circulant graphs, MetaCirc is a Cayley graph of a metacyclic group.  T_L is the number of steps, of α
    each; T_B is the bandwidth factor in units of M/B, the time to send M bytes over all ports of a node.
    """
    from ...schedules.collective import ALL_TO_ALL

    targets = {"--save": save, "--plan": plan, "--xml": xml}
    if candidate is not None and candidate < 1:
        raise UsageError(f"--candidate is {candidate}; expected a number from 1")
    if candidate is not None and not any(targets.values()):
        raise UsageError("--candidate selects the topology to write; give --save, --plan or --xml FILE too")
    check_targets(targets)
    calls = _calls(call, collective, size)
    # Bounds and plans are for one call, the first.
    operation, first = next((as_collective(name), str(amount)) for name, sizes in calls.items() for amount in sizes)
    # Errors name the options, and not the library's parameters.
    caps = {"--bandwidth": bandwidth, "--host": host, "--nics": nics}
    if no_all_to_all and ALL_TO_ALL in calls:
        raise UsageError("--no-all-to-all skips what ranks topologies for all_to_all; leave it out")
    egress = min(as_factor(rate, flag) for flag, rate in caps.items() if rate is not None)
    try:
        as_latency(alpha, "a step")
    except TopologyError as error:
        raise UsageError(f"--alpha: {error}") from None
    with computing(f"searching topologies of {nodes} nodes"):
        frontier = planners.find_topologies(
            nodes,
            degree,
            bidirectional=bidirectional,
            alpha=alpha,
            size=first,
            node_bandwidth=egress,
            all_to_all=not no_all_to_all,
        )
    best = frontier.best_mix(calls)
    if candidate is not None and candidate > len(frontier):
        raise UsageError(f"--candidate is {candidate}; expected a number from 1 to {len(frontier)}")
    selected = best if candidate is None else frontier[candidate - 1]
    with computing(f"writing {selected.name}"):
        _write(selected, frontier, operation, targets)
    if not formats.emit(lambda: _rows(frontier), lambda: _plain(frontier, operation, best)):
        _print(frontier, first, calls, best)
    share = bandwidth_text(frontier.workload.node_bandwidth / frontier.degree, 3)
    link = f"each link has {share} and {time_text(frontier.workload.alpha)} latency"
    for flag, path in targets.items():
        if path is not None:
            what = "" if flag == "--save" else f"the {operation} plan for "
            note(f"wrote {what}{selected.name} to {path}; {link}")


def _calls(texts: list[str] | None, collective: str | None, size: str | None) -> Calls:
    """Read calls by collective and size, or make one."""
    from ...schedules.collective import ALL_TO_ALL, ALLREDUCE, EVERY_ROOT

    for flag, value in {"--collective": collective, "--size": size}.items():
        if texts and value is not None:
            raise UsageError(f"{flag} does not go with --call, which has its own; leave it out")
    calls = read_calls(texts or [f"{collective or ALLREDUCE}:{size or '1M'}"])
    for entry in calls:
        as_collective(entry, (*EVERY_ROOT, ALL_TO_ALL), "nothing is known of")
    return calls


def _write(
    selected: planners.Candidate, frontier: planners.Frontier, collective: Collective, targets: dict[str, Path | None]
) -> None:
    """Write a topology whose links divide the node bandwidth evenly and have latency alpha, or a plan on it."""
    from ...topologies import write_topology

    workload = frontier.workload
    link = {"bandwidth": workload.node_bandwidth / frontier.degree, "latency": workload.alpha}
    if path := targets["--save"]:
        with name_errors_after(path):
            write_topology(selected.topology(**link), path)
    if not targets["--plan"] and not targets["--xml"]:
        return
    plan = selected.plan(collective, **link)
    for path, write in ((targets["--plan"], plan.save), (targets["--xml"], plan.to_msccl_xml)):
        if path:
            with name_errors_after(path):
                write(path)


def _plain(frontier: planners.Frontier, collective: Collective, best: planners.Candidate) -> dict[str, Any]:
    """Return all results for JSON; exact numbers as strings."""
    bounds, workload = frontier.bounds, frontier.workload
    return {
        "nodes": frontier.nodes,
        "degree": frontier.degree,
        "bidirectional": frontier.bidirectional,
        "size": workload.num_bytes,
        "alpha_us": float(workload.alpha),
        "node_bandwidth": float(workload.node_bandwidth),
        "collective": str(collective),
        "bounds": {
            "steps": bounds.steps,
            "bandwidth_factor": float(bounds.bandwidth_factor),
            "bandwidth_factor_exact": str(bounds.bandwidth_factor),
            "all_to_all": float(bounds.all_to_all),
        },
        "unmeasured": frontier.unmeasured,
        "best": list(frontier).index(best) + 1,
        "candidates": _rows(frontier),
    }


def _rows(frontier: planners.Frontier) -> list[dict[str, Any]]:
    return plain_rows(frontier.to_frame().drop(columns="candidate"))


def _print(frontier: planners.Frontier, size: str, calls: Calls, best: planners.Candidate) -> None:
    workload, bounds = frontier.workload, frontier.bounds
    kind = "bidirectional link" if frontier.bidirectional else "link"
    fastest = 2 * (bounds.steps * workload.alpha + bounds.bandwidth_factor * workload.transfer)
    rows = {
        "bound on T_L": f"{bounds.steps} α",
        "bound on T_B": f"{float(bounds.bandwidth_factor):.4f} ({bounds.bandwidth_factor}) M/B",
        "bound on allreduce": f"{time_text(fastest)} for {size}, as reduce-scatter and allgather",
    }
    if frontier[0].all_to_all is not None:
        slowest = workload.transfer * Fraction(frontier.degree, frontier.nodes) / bounds.all_to_all
        share = f"{float(bounds.all_to_all):.4g} of a link's bandwidth per pair"
        rows["bound on all-to-all"] = f"{time_text(slowest)} for {size}, {share}"
    room = [f"at {steps} α by {float(part):.1%} at most" for steps, part in frontier.room().items() if part]
    rows["T_B may be lower"] = ", ".join(room) or "nowhere"
    emit_rows(f"{frontier.nodes} nodes, {count_text(frontier.degree, kind)} each", rows)
    emit(_table(frontier, calls, best))
    if frontier.unmeasured:
        left = "they are left out or use the cost that theorems give"
        note(f"{frontier.unmeasured} topologies are too large to evaluate; {left}")
    if frontier.degree >= frontier.nodes:
        neighbors = count_text(frontier.nodes - 1, "neighbor")
        advice = f"--degree {frontier.nodes - 1} needs none"
        note(f"collopt: note: a node has at most {neighbors}, so links are parallel; {advice}")
    # The graphs of the others are too large to build.
    looped = [
        topology.name for topology in frontier if topology.all_to_all is not None and topology.graph().num_self_loops
    ]
    if looped:
        note(f"collopt: note: links of nodes to themselves carry nothing and may be left out: {', '.join(looped)}")


def _table(frontier: planners.Frontier, calls: Calls, best: planners.Candidate) -> Table:
    """Candidates by T_L of the allgather, with columns of a reduce-scatter of other cost; a star marks the best."""
    differ = any(topology.cost != topology.reduce_scatter_cost for topology in frontier)
    (title, *later_titles) = (
        f"{str(name).replace('_', '-')} {size}" for name, sizes in calls.items() for size in sizes
    )
    text = ["exact", "reduce-scatter"] if differ else ["exact"]
    last = [] if frontier[0].all_to_all is None else ["all-to-all"]
    table = number_table("", "T_L", "T_B", *text, "all calls" if later_titles else title, *last, text=text)
    table.add_column("topology", overflow="fold")
    for number, candidate in enumerate(frontier, 1):
        steps, factor = candidate.cost
        cells = [f"{'*' if candidate is best else ''}{number}", f"{steps} α", f"{float(factor):.4f}", str(factor)]
        if differ:
            steps, factor = candidate.reduce_scatter_cost
            cells.append(f"{steps} α  {float(factor):.4f}  {factor}")
        cells.append(time_text(candidate.time_of_calls(calls, frontier.workload)))
        if candidate.all_to_all is not None:
            unit = frontier.workload.transfer * Fraction(frontier.degree, frontier.nodes)
            slowest, fastest = (time_text(unit / rate) for rate in candidate.all_to_all)
            cells.append(slowest if slowest == fastest else f"{fastest} to {slowest}")
        table.add_row(*cells, candidate.name)
    return table
