"""``collopt plan``: plans a collective, verifies the plan and writes it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ColloptError
from ...schedules import EVERY_SCHEDULE, as_bytes
from ...schedules.collective import as_collective
from ...support.formatting import count_text, percentage_text, rate_text, time_text
from ...topologies.network.link_costs import as_costs
from ..terminal.options import NetworkOptions, ShardOptions, check_planners
from ..terminal.output import Formats, advise, emit_rows, flat, note
from ..terminal.output_files import check_targets, write_files
from ..terminal.parameters import UsageError
from ..terminal.plan_summary import plan_figures
from ..terminal.progress import computing
from ..terminal.runtime_files import RuntimeFiles, write_fitting

if TYPE_CHECKING:
    from ...planners import Plan
    from ...schedules import Bound


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
    costs: str | None = None,
    no_in_network: bool = False,
    output: Path | None = None,
) -> None:
    """Plan a collective, verify the plan, and write it as a plan file or export it for a runtime."""
    from ...planners import bound as find_bound
    from ...planners import plan as make_plan
    from ..terminal.networks import find_network, network_file

    # Whatever can be refused is refused before the work.
    known = as_collective(collective)
    check_planners([planner])
    files.check(known)
    if output is not None and output.suffix.lower() == ".xml":
        raise UsageError(f"--output {output}: plan files are JSON; give --xml {output} for MSCCL XML")
    if size is not None:
        as_bytes(size)
    elif costs is not None:
        raise UsageError("--costs matter at a size; give --size too")
    check_targets(
        {"--output": output, "--xml": files.xml, "--mscclpp": files.mscclpp, "--register": files.register},
        sources=(network_file(topology), data.traffic),
    )
    network, shards = find_network(topology, described), data.read()
    with computing(f"planning {collective} on {network.name}"):
        options = _given(trees_per_root=trees_per_root, chunks=chunks, size=size)
        options |= {"in_network": False} if no_in_network else {}
        options |= {} if costs is None else {"costs": costs}
        made = make_plan(network, known, planner=planner, **options, **shards)
        # Weights are for the ranks that are left, so they say nothing of the whole network.
        loses = bool(described.without) and data.weights is None
        whole = find_network(topology, described._replace(without=None)) if loses else None
        intact = find_bound(whole, known, **shards) if whole else None
    written: list[Path] = []
    try:
        found: list[dict[Path, bytes]] = []
        try:
            if trees_per_root or chunks:
                found.append(files.contents(made))
            else:
                made = write_fitting(made, lambda each: found.append(files.contents(each)), planner, options | shards)
        except ColloptError:
            # The plan itself is kept where runtimes' limits refuse the rest: `export` tries other options then.
            _write(made, output, {}, written)
            raise
        _write(made, output, found[-1], written)
        figures = partial(_figures, made, intact, size)
        if not formats.emit(lambda: [flat(figures())], figures):
            _print(made, intact, size)
    finally:
        for path in written:
            note(f"wrote {path}{files.calls(path)}")
        for text in files.notes(made, written):
            note(f"collopt: note: {text}")
        if {files.xml, files.mscclpp} & set(written) and files.channels is None and files.instances is None:
            advise("one thread block rarely saturates a GPU link; also try --instances 4, and measure both")


def _write(made: Plan, output: Path | None, exported: Mapping[Path, bytes], written: list[Path]) -> None:
    """Write a plan and what was exported of it, all or nothing, and list the files in `written`."""
    from ...planners.plans.plan import document_text

    own = {} if output is None else {output: document_text(made.to_json())}
    write_files({**own, **exported})
    written += [*own, *exported]


def _given(**options: object) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _figures(made: Plan, intact: Bound | None, size: str | None) -> dict[str, Any]:
    """Collect the figures of a plan, the cost of failures, and the predicted time, for JSON and CSV."""
    figures = plan_figures(made)
    if intact is not None:
        figures |= {"intact_algbw": float(intact.algbw), "loss": float(1 - made.algbw / intact.algbw)}
    if size is not None:
        notes = {name: made.provenance.get(name) for name in ("planned_for", "predicted_us")}
        costs = as_costs(None, made.topology).label
        figures |= {"size": as_bytes(size), "estimate_us": made.estimate(size), "costs": costs} | _given(**notes)
    return figures


def _print(made: Plan, intact: Bound | None, size: str | None) -> None:
    from ...report.summary import optimality, schedule_rows

    network, scope = made.topology, made.bound.scope
    about = "" if scope == EVERY_SCHEDULE else f" for {scope}"
    rows = {
        "algbw": rate_text(made.algbw),
        "busbw": rate_text(made.busbw),
        "bound": f"algbw at most {rate_text(made.bound.algbw)}{about}",
        "optimality gap": optimality(made),
    } | schedule_rows(made)
    if size is not None:
        rows |= _times(made, size)
    if intact is not None:
        lost = percentage_text(1 - made.algbw / intact.algbw)
        rows["loss"] = f"{lost} of the bound of the intact network, {rate_text(intact.algbw)}"
    emit_rows(f"{made.collective} on {network.name}, {network.num_ranks} ranks, by {made.planner}, verified", rows)


BOUNDED_RANKS = 256  # up to which bounding the time takes a second


def _times(made: Plan, size: str) -> dict[str, str]:
    """Times for a size: predicted if the plan is for that size, or else estimated; and what they count."""
    from ...planners import bound_sizes
    from ...report.summary import optimality

    counted = as_costs(None, made.topology).label
    if "predicted_us" in made.provenance:
        predicted = time_text(float(made.provenance["predicted_us"]))
        gap = optimality(made) if made.gap == 0 else f"{optimality(made)} for endless data"
        rows = {"optimality gap": gap}
        if made.topology.num_ranks <= BOUNDED_RANKS:
            problem = made.schedule.problem(made.collective)
            (least,) = bound_sizes(made.topology, made.collective, [size], **problem)
            rows["bound at size"] = f"at least {time_text(float(least.time))}"
        among = f"the fastest of {count_text(int(made.provenance['plans_compared']), 'plan')}"
        return rows | {"time": f"{predicted} for {size} bytes ({counted}), {among}"}
    flow = "fully pipelined" if made.schedule.pipelined else "synchronous steps"
    # Not of every plan: links of equal latency are used in the same way for all sizes.
    flow += f"; planned for {made.provenance['planned_for']}" if "planned_for" in made.provenance else ""
    return {"estimate": f"{time_text(made.estimate(size))} for {size} bytes ({counted}), {flow}"}
