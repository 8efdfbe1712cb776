"""``collopt lint``: checks MSCCL XML files and MSCCL++ plans, and says how a runtime is made to load them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..terminal.output import CHECK_FAILED, emit, emit_json
from ..terminal.parameters import UsageError
from ..terminal.progress import working

if TYPE_CHECKING:
    from ...runtime.nccl.windows import FamilyReport
    from ...runtime.programs.findings import Finding, LintReport

FAILING = ("rejected", "hangs", "wrong data")
WIDTH = len("environment")

RUNTIME_NAMES = "msccl, msccl-executor-nccl, rccl, or mscclpp for MSCCL++ plans"


def lint(
    files: list[str],
    runtime: str | None = None,
    version: str | None = None,
    max_thread_blocks: int | None = None,
    gpus_per_box: int | None = None,
    as_json: bool = False,
) -> None:
    """Check whether a runtime would reject a file, ignore it, deadlock or compute wrong results, and why."""
    from ...runtime.nccl.windows import lint_family
    from ...support.files import MSCCLPP_KIND, kind_of

    _refuse_other_files(files)
    kinds = [kind_of(Path(file)) for file in files]
    if runtime is None and all(kind and kind.name == MSCCLPP_KIND for kind in kinds):
        runtime = "mscclpp"
    if runtime is None:
        raise UsageError(f"--runtime is missing; expected one of {RUNTIME_NAMES}")
    with working(f"reading {', '.join(files)}"):
        family = lint_family(files, runtime, version, max_thread_blocks=max_thread_blocks, gpus_per_box=gpus_per_box)
    if as_json:
        emit_json(_as_json(family))
    else:
        emit("\n".join(_lines(family)))
    findings = [finding for report in family.reports for finding in report.findings]
    if any(finding.severity in FAILING for finding in (*findings, *family.findings)):
        raise typer.Exit(CHECK_FAILED)


def _refuse_other_files(files: list[str]) -> None:
    """Refuse files of other commands by naming the command; in folders all files are checked."""
    from ...support.files import MSCCL_KIND, MSCCLPP_KIND, wrong_kind

    for file in files:
        if file and not Path(file).exists():
            raise UsageError(f"{file} does not exist; check the path")
        if problem := wrong_kind(file, "a file for MSCCL or MSCCL++", [MSCCL_KIND, MSCCLPP_KIND]):
            raise UsageError(problem)


def _lines(family: FamilyReport) -> Iterator[str]:
    alone = len(family.reports) == 1
    for report in family.reports:
        yield _printable(f"{report.path}: {report.verdict} by {report.runtime} {report.version}")
        if report.summary:
            yield row("for", report.summary)
        yield from _findings(report.findings)
        if alone:
            yield from _loading(family, report)
    if alone:
        return
    yield f"{len(family.reports)} files together"
    yield from _findings(family.findings)
    for span in family.spans:
        yield row("picked", str(span))
    yield from _loading(family, family.reports[0])


def _findings(findings: Iterable[Finding]) -> Iterator[str]:
    for finding in findings:
        yield row(finding.severity, f"{f'{finding.where}: ' if finding.where else ''}{finding.message}")


def _loading(family: FamilyReport, report: LintReport) -> Iterator[str]:
    for name, value in family.environment.items():
        yield row("environment", f"{name}={value}")
    for line in report.loading:
        yield row("loading", line)


def row(name: str, text: str) -> str:
    """Format a name and its text in one row."""
    return f"  {name:<{WIDTH}}  {_printable(text)}"


def _printable(text: str) -> str:
    """Escape control characters of file contents and names."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _as_json(family: FamilyReport) -> dict[str, Any]:
    return {
        "runtime": family.runtime,
        "version": family.version,
        "files": [
            {name: getattr(report, name) for name in ("path", "verdict", "summary")}
            | {"findings": [finding._asdict() for finding in report.findings], "loading": list(report.loading)}
            for report in family.reports
        ],
        "findings": [finding._asdict() for finding in family.findings],
        "picked": [span._asdict() for span in family.spans],
        "environment": dict(family.environment),
    }
