"""Selection of MSCCL and MSCCL++ files by message size: which file of a folder a runtime picks for a call."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from ...errors import FileFormatError, UnsupportedError
from ...support.validation import as_path
from ..msccl.limits import RUNTIMES, UNLIMITED, Dialect, dialect_of
from ..msccl.linter import lint_file, loading_environment, sizes_text
from ..mscclpp.executor import VERSIONS as MSCCLPP_VERSIONS
from ..mscclpp.lint import RUNTIME as MSCCLPP
from ..mscclpp.lint import lint_plan
from ..mscclpp.lower import DEFAULT_THREAD_BLOCKS
from ..programs.findings import Finding, Findings, LintReport
from ..programs.program import check_choice, check_counts

MICROSOFT_FILES = 4
MAX_NEIGHBORS = 32
MAX_NEIGHBOR_BYTES = 2**20  # Files next to a single one that are looked at, and how large they may be
MAX_FILES = 1024  # Handles of the two later runtimes


class Span(NamedTuple):
    """Range of sizes of one kind of call, and the file selected for it."""

    collective: str
    num_ranks: int
    in_place: bool
    first: int  # bytes of the whole buffer, from the first up to, not including, the other
    end: int
    path: str  # Empty where no file is picked, and the library's own algorithms run
    later_paths: tuple[str, ...]  # Files that are for the same sizes and come later

    def __str__(self) -> str:
        """Describe the range in one line."""
        place = "in place" if self.in_place else "out of place"
        picked = self.path or "the library's own algorithms"
        later = f", before {', '.join(self.later_paths)}" if self.later_paths else ""
        sizes = sizes_text(self.first, self.end)
        return f"{self.collective} on {self.num_ranks} ranks, {place}, {sizes}: {picked}{later}"


@dataclass(frozen=True)
class FamilyReport:
    """Result of `lint_family`: which of several files a runtime loads, and selects for each size."""

    runtime: str
    version: str
    reports: tuple[LintReport, ...]  # Of each file, in the order in which they are tried
    spans: tuple[Span, ...]  # Every size of every call that one of them is for
    findings: tuple[Finding, ...]  # About the files together
    environment: Mapping[str, str] = field(default_factory=dict)  # Variables to set so that the runtime picks them up

    def path_for(self, collective: str, num_ranks: int, size: int, *, in_place: bool = False) -> str:
        """Path of the file selected for a call of `size` bytes; empty if the library's own algorithms run."""
        for span in self.spans:
            if span[:3] == (collective, num_ranks, in_place) and span.first <= size < span.end:
                return span.path
        return ""


def lint_family(
    paths: Iterable[str | os.PathLike[str]],
    runtime: str,
    version: str | None = None,
    *,
    max_thread_blocks: int | None = None,
    gpus_per_box: int | None = None,
) -> FamilyReport:
    """Check whether a runtime loads several files, and which one it selects for each size.

    Raises `FileFormatError` if a file cannot be read or is too large.

    Parameters
    ----------
    paths : iterable of paths
        Files, and folders whose files are all checked.
    runtime : {"msccl", "msccl-executor-nccl", "rccl", "mscclpp"}
        Runtime that loads them; "mscclpp" takes MSCCL++ plans, the others MSCCL XML.
    version, max_thread_blocks, gpus_per_box : str, int or None
        As for `lint_file`; of MSCCL XML only, the last.
    """
    check_choice("runtime", runtime, (*RUNTIMES, MSCCLPP))
    files = _files(paths, runtime)
    if runtime == MSCCLPP:
        return _lint_plans(files, version, max_thread_blocks)
    dialect = dialect_of(runtime, version)
    # The first runtime has a list to go through, the others a folder.
    files = files if dialect.is_microsoft else sorted(files)
    limits = {"max_thread_blocks": max_thread_blocks, "gpus_per_box": gpus_per_box}
    reports = tuple(lint_file(path, runtime, version, **limits) for path in files)
    if len(reports) == 1:
        note = _neighbor_findings(Path(reports[0].path).absolute(), dialect, version, max_thread_blocks)
        reports = (replace(reports[0], findings=(*reports[0].findings, *note)),)
    findings = Findings()
    _check_together(reports, dialect, findings)
    spans = window_report(reports)
    _check_spans(spans, dialect.name, findings)
    # The first runtime passes refused files over, so they need not be listed.
    named = [report.path for report in reports if not (dialect.is_microsoft and report.verdict == "rejected")]
    environment = loading_environment(named, dialect)
    return FamilyReport(dialect.name, dialect.version, reports, spans, tuple(findings), environment)


def _lint_plans(files: list[Path], version: str | None, max_thread_blocks: int | None) -> FamilyReport:
    resident = DEFAULT_THREAD_BLOCKS if max_thread_blocks is None else max_thread_blocks
    check_counts({"max_thread_blocks": resident})
    reports, findings = tuple(lint_plan(path, version, max_thread_blocks=resident) for path in files), Findings()
    spans = window_report(reports)
    _check_spans(spans, MSCCLPP, findings)
    newest = max((report.version for report in reports), key=MSCCLPP_VERSIONS.index, default=MSCCLPP_VERSIONS[0])
    return FamilyReport(MSCCLPP, newest, reports, spans, tuple(findings))


def _files(paths: Iterable[str | os.PathLike[str]], runtime: str) -> list[Path]:
    """List the files, those of a folder by name."""
    files: list[Path] = []
    searched: list[str] = []
    for name in paths:
        if name == "":
            raise FileFormatError("the path is empty; expected the name of a file or folder")
        path = as_path(name)
        searched.append(str(path))
        in_folder = "\0" not in str(path) and path.is_dir()
        files.extend(sorted(entry for entry in path.iterdir() if entry.is_file()) if in_folder else [path])
    if not files:
        kind = "MSCCL++ plans" if runtime == MSCCLPP else "MSCCL XML files"
        raise UnsupportedError(f"there is no file in {', '.join(searched) or 'the list'}; expected {kind}")
    if len(files) > MAX_FILES:
        raise UnsupportedError(f"there are {len(files)} files; {runtime} loads {MAX_FILES} at most")
    return files


def _check_together(reports: tuple[LintReport, ...], dialect: Dialect, findings: Findings) -> None:
    if dialect.is_microsoft:
        if len(reports) > MICROSOFT_FILES:
            findings.add("ignored", f"there are {len(reports)} files; {dialect.name} loads {MICROSOFT_FILES}")
        return
    folders = sorted({str(Path(report.path).parent) for report in reports})
    if len(folders) > 1:
        findings.add("ignored", f"the files are in {len(folders)} folders; {dialect.name} looks into one, {folders[0]}")
    for report in reports:
        if report.verdict == "rejected":
            message = "the communicator does not start as long as this file is in the folder"
            findings.add("rejected", message, report.path)


def _neighbor_findings(
    path: Path, dialect: Dialect, version: str | None, max_thread_blocks: int | None
) -> list[Finding]:
    """Find unlisted files in the folder of a single file that would stop the communicator."""
    if dialect.is_microsoft or dialect.absent:
        return []
    try:
        neighbors = sorted(entry for entry in path.parent.iterdir() if entry.is_file() and entry.name != path.name)
    except OSError:
        # A file can be read in a folder that cannot be listed.
        return []
    stopping = [
        entry.name for entry in neighbors[:MAX_NEIGHBORS] if _stops(entry, dialect.name, version, max_thread_blocks)
    ]
    if not stopping:
        return []
    suffix = f" and {len(stopping) - 1} more" if len(stopping) > 1 else ""
    stopped = f"other files in this folder keep the communicator from starting, {stopping[0]}{suffix}"
    return [Finding("note", f"{stopped}: move this one to a folder of its own", "")]


def _stops(path: Path, runtime: str, version: str | None, max_thread_blocks: int | None) -> bool:
    try:
        # Files that are no plans are refused at a glance; a large one is not looked into for a note.
        if path.stat().st_size > MAX_NEIGHBOR_BYTES:
            return path.suffix != ".xml"
        report = lint_file(path, runtime, version, max_thread_blocks=max_thread_blocks)
    except (FileFormatError, OSError):
        return True
    return report.verdict == "rejected"


def window_report(reports: Iterable[LintReport]) -> tuple[Span, ...]:
    """List which of several files is selected for every size of every call."""
    windows = [(window, report.path) for report in reports for window in report.windows if window.first < window.end]
    spans: list[Span] = []
    for call in sorted({window[:3] for window, _ in windows}):
        mine = [(window, path) for window, path in windows if window[:3] == call]
        edges = sorted({0, UNLIMITED, *(edge for window, _ in mine for edge in (window.first, window.end))})
        picked = [
            (first, end, tuple(path for window, path in mine if window.first <= first and end <= window.end))
            for first, end in pairwise(edges)
        ]
        for paths, group in groupby(picked, key=lambda entry: entry[2]):
            run = list(group)
            spans.append(Span(*call, run[0][0], run[-1][1], *((paths[0], paths[1:]) if paths else ("", ()))))
    return tuple(spans)


def _check_spans(spans: tuple[Span, ...], runtime: str, findings: Findings) -> None:
    order = {
        MSCCLPP: "the caller chooses",
        "msccl": "the runtime decides which one is picked",
        "msccl-executor-nccl": "the first by name is picked",
        "rccl": "the first by name is picked, or by some versions the first that the file system lists",
    }
    picked = {span.path for span in spans}
    for before, span, after in zip((None, *spans), spans, (*spans[1:], None), strict=False):
        if span.later_paths:
            findings.add("note", f"{span}: several files are for these sizes; {order[runtime]}")
        has_files = [other is not None and other[:3] == span[:3] and bool(other.path) for other in (before, after)]
        if not span.path and all(has_files):
            findings.add("note", f"{span}, because there is a gap between the files")
    for path in sorted({other for span in spans for other in span.later_paths} - picked):
        if runtime == "msccl-executor-nccl":
            findings.add("ignored", "other files come first for all of its sizes", path)
