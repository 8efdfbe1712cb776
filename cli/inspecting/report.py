"""``collopt report``: one HTML page about a plan, with its certificate in words."""

from pathlib import Path

from ...schedules import as_bytes
from ..arguments.output_files import check_targets, name_errors_after
from ..arguments.parameters import UsageError
from ..terminal.output import note
from ..terminal.progress import working


def report(
    plans: list[Path],
    output: Path | None = None,
    size: list[str] | None = None,
    title: str | None = None,
    failures: bool = False,
) -> None:
    """Write an HTML report on plans: the certificate of the bound, and the utilization of each link over time."""
    from ...planners import load_plan
    from ...report import write_report

    if output is None and not plans[0].name:
        raise UsageError(f"{str(plans[0])!r} is a folder; expected plan files")
    target = plans[0].with_suffix(".html") if output is None else output
    # Whatever can be refused is refused before the work.
    for given in size or ():
        as_bytes(given)
    check_targets({"--output": target}, sources=plans)
    names = [path.stem for path in plans]
    # Files of the same name in different folders keep these.
    named = names if len(set(names)) == len(names) else [str(path) for path in plans]
    with working(f"verifying {', '.join(map(str, plans))}"):
        loaded = {name: load_plan(path) for name, path in zip(named, plans, strict=True)}
    with working(f"writing {target}"), name_errors_after(target):
        shown = loaded if len(plans) > 1 else list(loaded.values())
        write_report(shown, target, sizes=size, title=title, failures=failures)
    note(f"wrote {target}")
