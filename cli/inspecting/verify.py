"""``collopt verify``: verifies a plan file and lists what was checked."""

from pathlib import Path

from ...errors import CertificateError
from ..arguments.network_options import NetworkOptions
from ..arguments.parameters import UsageError
from ..arguments.plan_summary import plan_figures
from ..terminal.output import emit_json, emit_rows
from ..terminal.progress import working


def verify(plan: Path, described: NetworkOptions, topology: str | None = None, as_json: bool = False) -> None:
    """Verify everything that a plan file claims; nothing in the file is trusted."""
    from ...planners import load_plan
    from ..arguments.networks import find_network

    if topology is None and described.given():
        raise UsageError(f"{described.given()[0]} describes a network; give --topology too, or leave it out")
    network = None if topology is None else find_network(topology, described)
    try:
        with working(f"verifying {plan}"):
            checked = load_plan(plan, network)
    except CertificateError as error:
        if as_json:
            emit_json({"plan": str(plan), "verified": False, "reason": str(error)})
        raise
    if as_json:
        emit_json({"plan": str(plan), "verified": True, "compared": network is not None} | plan_figures(checked))
    else:
        from ...report.tables.summary import check_rows

        title = f"{plan}: {checked.collective} on {checked.topology.name} by {checked.planner}, verified"
        origin = "matches --topology" if network is not None else "read from the plan file; check it with --topology"
        emit_rows(title, check_rows(checked, origin))
