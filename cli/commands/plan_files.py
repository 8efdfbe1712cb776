"""``collopt verify``, ``report`` and ``export``: what they do with plan files."""

import re
from collections.abc import Sequence
from pathlib import Path

from ... import planners
from ...errors import CertificateError
from ...schedules import as_bytes
from ...support.files import name_of
from ...support.validation import shown
from ..terminal.networks import network_if_named
from ..terminal.output import emit_json, emit_rows, note
from ..terminal.output_files import check_targets, checker_beside, name_errors_after, write_files
from ..terminal.parameters import NetworkOptions, UsageError
from ..terminal.progress import working
from .diagnose import diagnosis_of
from .plan import plan_figures


def verify(plan: Path, described: NetworkOptions, topology: str | None = None, as_json: bool = False) -> None:
    """Verify everything that a plan file claims; nothing in the file is trusted."""
    network = network_if_named(topology, described)
    try:
        with working(f"verifying {plan}"):
            checked = planners.load_plan(plan, network)
    except CertificateError as error:
        if as_json:
            reason = str(error).removeprefix(f"{name_of(plan)}: ")
            emit_json({"plan": str(plan), "verified": False, "reason": reason})
        raise
    if as_json:
        emit_json({"plan": str(plan), "verified": True, "compared": network is not None} | plan_figures(checked))
    else:
        from ...report.tables import check_rows

        title = f"{plan}: {checked.collective} on {checked.topology.name} by {checked.planner}, verified"
        origin = "matches --topology" if network is not None else "read from the plan file; check it with --topology"
        emit_rows(title, check_rows(checked, origin))


def report(
    plans: list[Path],
    output: Path | None = None,
    size: list[str] | None = None,
    title: str | None = None,
    failures: bool = False,
    log: Path | None = None,
) -> None:
    """Write an HTML report on plans: the certificate of the bound, and the utilization of each link over time."""
    from ...report import write_report

    if output is None and not plans[0].name:
        raise UsageError(f"{str(plans[0])!r} is a folder; expected plan files")
    target = plans[0].with_suffix(".html") if output is None else output
    # Whatever can be refused is refused before the work.
    for text in size or ():
        as_bytes(text)
    check_targets({"--output": target}, sources=[*plans, log])
    names = [path.stem for path in plans]
    # Files of the same name in different folders keep these.
    named = names if len(set(names)) == len(names) else [str(path) for path in plans]
    with working(f"verifying {', '.join(map(str, plans))}"):
        loaded = {name: planners.load_plan(path) for name, path in zip(named, plans, strict=True)}
    diagnosis = diagnosis_of(log, next(iter(loaded.values())).topology) if log else None
    with working(f"writing {target}"), name_errors_after(target):
        shown = loaded if len(plans) > 1 else list(loaded.values())
        write_report(shown, target, sizes=size, title=title, failures=failures, diagnosis=diagnosis)
    note(f"wrote {target}")


def export(plan: Path, form: str, output: Path, settings: list[str] | None = None, checker: bool = False) -> None:
    """Export a plan file in a format that a runtime, a simulator or NCCL reads."""
    from ...planners.plans.plan import EXPORTERS
    from ...runtime.mscclpp.export import mscclpp_notes
    from ...support.packages import call_registered

    options = _options(settings or [])
    check_targets({"--output": output}, sources=(plan,))
    if checker and plan.name == output.name:
        raise UsageError(f"--checker writes {plan.name} beside the output; give that another name")
    companions = checker_beside(output) | {output.parent / plan.name: plan.read_bytes()} if checker else {}
    with working(f"verifying {plan}"):
        loaded = planners.load_plan(plan)
    with working(f"writing {output}"), name_errors_after(output):
        call_registered(EXPORTERS, "export format", form, (loaded, output), options)
    note(f"wrote {output if output.exists() else f'{output}.*'}")
    if companions:
        write_files(companions)
        for path in companions:
            note(f"wrote {path}")
    if form == "mscclpp-json":
        for text in mscclpp_notes(loaded, output):
            note(f"collopt: note: {text}")


def _options(settings: Sequence[str]) -> dict[str, object]:
    """Read options of a format; those that look like whole numbers are, also several with commas."""
    options: dict[str, object] = {}
    for setting in settings:
        name, equals, value = (part.strip() for part in setting.partition("="))
        name = name.replace("-", "_")
        if not name.isidentifier() or not equals:
            raise UsageError(f"--set {shown(setting)} is not of the form NAME=VALUE, such as boxes=2")
        if name in options:
            raise UsageError(f"--set {name} is given twice; keep one")
        values = [int(word) if re.fullmatch(r"-?[0-9]{1,18}", word) else word for word in value.split(",")]
        options[name] = None if value == "none" else values if len(values) > 1 else values[0]
    return options
