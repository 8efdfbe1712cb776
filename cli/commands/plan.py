"""``collopt plan``: plans a collective, verifies the plan and writes it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ... import planners
from ...errors import ColloptError
from ...schedules import Bound, as_bytes
from ...support.formatting import count_text, percentage_text, rate_text, time_text, times_text
from ...topologies.network.link_costs import as_costs
from ..terminal.networks import find_network, network_file
from ..terminal.output import Formats, advise, emit_rows, flat, note
from ..terminal.output_files import RuntimeFiles, check_targets, checker_beside, write_files, write_fitting
from ..terminal.parameters import NetworkOptions, ShardOptions, UsageError, check_planners, read_operation
from ..terminal.progress import computing
from .bound import rates, request_figures


def plan(
    topology: str,
    collective: str,
    described: NetworkOptions,
    data: ShardOptions,
    files: RuntimeFiles,
    formats: Formats,
    trees_per_root: int | None = None,
    chunks: int | None = None,
    planner: str = "auto",
    size: str | None = None,
    effort: str | None = None,
    costs: str | None = None,
    no_in_network: bool = False,
    output: Path | None = None,
    checker: bool = False,
) -> None:
    """Plan a collective, verify the plan, and write it as a plan file or export it for a runtime."""
    # Whatever can be refused is refused before the work.
    operation = read_operation(collective)
    check_planners([planner])
    files.check(operation)
    if output is not None and output.suffix.lower() == ".xml":
        raise UsageError(f"--output {output}: plan files are JSON; give --xml {output} for MSCCL XML")
    if size is not None:
        as_bytes(size)
    elif costs is not None:
        raise UsageError("--costs matter at a size; give --size too")
    companions = checker_beside(output) if checker else {}
    check_targets(
        {"--output": output, "--xml": files.xml, "--mscclpp": files.mscclpp, "--register": files.register},
        sources=(network_file(topology), data.traffic),
    )
    network, shards = find_network(topology, described), data.read()
    with computing(f"planning {collective} on {network.name}"):
        options = _present(trees_per_root=trees_per_root, chunks=chunks, size=size, effort=effort)
        options |= {"in_network": False} if no_in_network else {}
        options |= {} if costs is None else {"costs": costs}
        planned = planners.plan(network, operation, planner=planner, **options, **shards)
        if files.xml and not files.mscclpp:
            from ...runtime.lowering.trees import without_switches

            planned = without_switches(planned, "MSCCL XML")  # So that the plan file and the figures are of what runs.
        # Weights are for the ranks that are left, so they say nothing of the whole network.
        loses = bool(described.without) and data.weights is None
        intact_network = find_network(topology, described._replace(without=None)) if loses else None
        intact = planners.bound(intact_network, operation, **shards) if intact_network else None
    paths: list[Path] = []
    try:
        exports: list[dict[Path, bytes]] = []
        try:
            if trees_per_root or chunks:
                exports.append(files.contents(planned))
            else:
                planned = write_fitting(
                    planned, lambda smaller: exports.append(files.contents(smaller)), planner, options | shards
                )
        except ColloptError:
            # The plan itself is kept where runtimes' limits refuse the rest: `export` tries other options then.
            _write(planned, output, companions, paths)
            raise
        _write(planned, output, companions | exports[-1], paths)
        figures = partial(_figures, planned, intact, size)
        if not formats.emit(lambda: [flat(figures())], figures):
            _print(planned, intact, size)
    finally:
        for path in paths:
            note(f"wrote {path}{files.calls(path)}")
        for text in files.notes(planned, paths):
            note(f"collopt: note: {text}")
        if {files.xml, files.mscclpp} & set(paths) and files.channels is None and files.instances is None:
            advise("one thread block rarely saturates a GPU link; also try --instances 4, and measure both")


def _write(plan: planners.Plan, output: Path | None, exported: Mapping[Path, bytes], paths: list[Path]) -> None:
    """Write a plan and what was exported of it, all or nothing, and list the files in `paths`."""
    from ...planners.plans.plan import document_text

    own = {} if output is None else {output: document_text(plan.to_json())}
    write_files({**own, **exported})
    paths += [*own, *exported]


def _present(**options: object) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _figures(plan: planners.Plan, intact: Bound | None, size: str | None) -> dict[str, Any]:
    """Collect the figures of a plan, the cost of failures, and the predicted time, for JSON and CSV."""
    figures = plan_figures(plan)
    if intact is not None:
        figures |= {"intact_algbw": float(intact.algbw), "loss": float(1 - plan.algbw / intact.algbw)}
    if size is not None:
        notes = {name: plan.provenance.get(name) for name in ("planned_for", "predicted_us")}
        costs = as_costs(None, plan.topology).label
        figures |= {"size": as_bytes(size), "estimate_us": plan.estimate(size), "costs": costs} | _present(**notes)
        figures |= _present(range_us=plan.time_range(size))
    return figures


def _print(plan: planners.Plan, intact: Bound | None, size: str | None) -> None:
    from ...report.tables import bound_text, optimality, schedule_rows

    network = plan.topology
    rows = {
        "algbw": rate_text(plan.algbw),
        "busbw": rate_text(plan.busbw),
        "bound": bound_text(plan),
        "optimality gap": optimality(plan),
    } | schedule_rows(plan)
    if size is not None:
        rows |= _times(plan, size)
    if intact is not None:
        lost = percentage_text(1 - plan.algbw / intact.algbw)
        rows["loss"] = f"{lost} of the bound of the intact network, {rate_text(intact.algbw)}"
    emit_rows(f"{plan.collective} on {network.name}, {network.num_ranks} ranks, by {plan.planner}, verified", rows)


BOUNDED_RANKS = 256  # up to which bounding the time takes a second


def _times(plan: planners.Plan, size: str) -> dict[str, str]:
    """Times for a size: predicted if the plan is for that size, or else estimated; and what they count."""
    from ...report.tables import optimality

    counted = as_costs(None, plan.topology).label
    if "predicted_us" in plan.provenance:
        predicted = times_text(float(plan.provenance["predicted_us"]), plan.time_range(size))
        gap = optimality(plan) if plan.gap == 0 else f"{optimality(plan)} for endless data"
        rows = {"optimality gap": gap}
        if plan.topology.num_ranks <= BOUNDED_RANKS:
            problem = plan.schedule.problem(plan.collective)
            (bound,) = planners.bound_sizes(plan.topology, plan.collective, [size], **problem)
            rows["bound at size"] = f"at least {time_text(float(bound.time))}"
        among = f"the fastest of {count_text(int(plan.provenance['plans_compared']), 'plan')}"
        return rows | {"time": f"{predicted} for {size} bytes ({counted}), {among}"}
    flow = "fully pipelined" if plan.schedule.pipelined else "synchronous steps"
    # Not of every plan: links of equal latency are used in the same way for all sizes.
    flow += f"; planned for {plan.provenance['planned_for']}" if "planned_for" in plan.provenance else ""
    estimate = times_text(plan.estimate(size), plan.time_range(size))
    return {"estimate": f"{estimate} for {size} bytes ({counted}), {flow}"}


def plan_figures(plan: planners.Plan) -> dict[str, Any]:
    """Return the key figures of a plan for JSON; exact numbers are strings such as ``"15/166"``."""
    from ...report.tables import busiest_links

    scoped = plan.scoped_bound
    return {
        **request_figures(plan),
        "planner": plan.planner,
        "options": dict(plan.options),
        **rates(plan),
        "busbw": float(plan.busbw),
        "bound": rates(plan.bound) | {"scope": plan.bound.scope},
        "gap": str(plan.gap),
        "optimal": plan.gap == 0,
        "scoped_bound": scoped and rates(scoped) | {"scope": scoped.scope},
        "scoped_gap": scoped and str(plan.scoped_gap),
        **plan.schedule.figures(plan.topology),
        "num_links": plan.topology.num_links,
        "busiest_links": busiest_links(plan),
    }
