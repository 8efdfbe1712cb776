"""``collopt certify``: anybody's schedule as a plan file, with bound, gap and their proof."""

from __future__ import annotations

import glob
from pathlib import Path

from ...support.files import name_of
from ...support.formatting import gap_text, rate_text
from ..terminal.networks import network_if_named
from ..terminal.output import emit_json, emit_rows
from ..terminal.output_files import check_targets
from ..terminal.parameters import NetworkOptions, ShardOptions, UsageError
from ..terminal.progress import computing
from .plan import plan_figures


def certify(
    file: Path,
    described: NetworkOptions,
    topology: str | None = None,
    collective: str | None = None,
    root: str | None = None,
    num_bytes: str | None = None,
    output: Path | None = None,
    as_json: bool = False,
) -> None:
    """Turn a schedule from any source into a plan file that proves its bandwidth, the bound and the gap."""
    from ...runtime import certify as certify_file
    from ...runtime.scoring.readings import trace_prefix

    network = network_if_named(topology, described)
    if network is None:
        raise UsageError(f"--topology is missing; expected the network whose ranks run {file}")
    prefix = trace_prefix(file)
    traces = [] if prefix is None else prefix.parent.glob(f"{glob.escape(prefix.name)}.*.et")
    check_targets({"--output": output}, sources=[file, *traces])
    with computing(f"certifying {file}"):
        options = {"collective": collective, "root": ShardOptions(root).read().get("root"), "num_bytes": num_bytes}
        plan = certify_file(file, network, **options)
    if output is not None:
        plan.save(output)
    if as_json:
        emit_json({"file": str(file), "plan": None if output is None else str(output)} | plan_figures(plan))
        return
    rows = {
        "schedule": plan.schedule.size_text,
        "algbw": rate_text(plan.algbw),
        "bound": str(plan.bound),
        "optimality gap": gap_text(plan.gap),
    }
    if output is not None:
        rows["written"] = f"{name_of(output)}; collopt verify {name_of(output)} checks it"
    emit_rows(f"{file}: {plan.collective} on {plan.topology.name}, {network.num_ranks} ranks, verified", rows)
