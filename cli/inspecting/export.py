"""``collopt export``: exports an existing plan file to a format of a runtime, a simulator or NCCL."""

import re
from collections.abc import Sequence
from pathlib import Path

from ...support.validation import shown
from ..arguments.output_files import check_targets, name_errors_after
from ..arguments.parameters import UsageError
from ..terminal.output import note
from ..terminal.progress import working


def export(plan: Path, form: str, output: Path, settings: list[str] | None = None) -> None:
    """Export a plan file in a format that a runtime, a simulator or NCCL reads."""
    from ...planners import load_plan
    from ...planners.plans.plan import EXPORTERS
    from ...runtime.mscclpp.export import mscclpp_notes
    from ...support.plugins.views import call_registered

    options = _options(settings or [])
    check_targets({"--output": output}, sources=(plan,))
    with working(f"verifying {plan}"):
        loaded = load_plan(plan)
    with working(f"writing {output}"), name_errors_after(output):
        call_registered(EXPORTERS, "export format", form, (loaded, output), options)
    note(f"wrote {output if output.exists() else f'{output}.*'}")
    if form == "mscclpp-json":
        for text in mscclpp_notes(loaded, output):
            note(f"collopt: note: {text}")


def _options(settings: Sequence[str]) -> dict[str, object]:
    """Read options of a format; those that look like whole numbers are."""
    options: dict[str, object] = {}
    for setting in settings:
        name, equals, value = (part.strip() for part in setting.partition("="))
        name = name.replace("-", "_")
        if not name.isidentifier() or not equals:
            raise UsageError(f"--set {shown(setting)} is not of the form NAME=VALUE, such as boxes=2")
        if name in options:
            raise UsageError(f"--set {name} is given twice; keep one")
        options[name] = int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else None if value == "none" else value
    return options
