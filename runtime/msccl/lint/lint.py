"""Says what becomes of an MSCCL XML file in a runtime: is it rejected, ignored, does it hang, are its data right.

The runtimes say little about that themselves: a file that lacks an attribute, or lies in another folder, leaves NCCL's
own algorithms at work without a word, and one that is wrong can stop a communicator or wait for ever.
"""

from __future__ import annotations

import os

from ....support.reading import read_bytes
from ...interpreter.findings import EnoughError, Findings, LintReport, Severity
from ...mscclpp.lint import RUNTIME, lint_plan
from ...programs.checks import check_counts
from ..format.dialects import Dialect, dialect_of
from ..format.document import Document, read_document
from .header_rules import check_gpus, check_header
from .loading import environment_of, loading_of, summary_of, windows_of
from .run import check_meaning
from .step_rules import check_blocks
from .to_program import layout_of, program_of

MAX_BYTES = 2**26
"""A rank keeps 4095 elements of some 130 bytes; this is enough for hundreds of ranks that all have so many."""

PLACES = {"Simple": 2, "LL": 8, "LL128": 8}
"""Chunks that a connection holds, by protocol: eight steps of NCCL, of which Simple takes four for one."""
WRONG: tuple[Severity, ...] = ("rejected", "hangs", "wrong data")
"""With one of these there is nothing to run."""


def lint_file(
    path: str | os.PathLike[str], runtime: str, version: str | None = None, *, max_thread_blocks: int | None = None
) -> LintReport:
    """Find out what a runtime makes of an MSCCL XML file.

    Parameters
    ----------
    path : path
        Any file, from anybody.
    runtime : {"msccl", "msccl-executor-nccl", "rccl"}
        What will load it.
    version : str or None
        For RCCL the release of ROCm, such as ``"6.4"``; the last that the runtime has if left out.
    max_thread_blocks : int or None
        Thread blocks that the GPU runs at once, if not the 108 of an A100 (RCCL: 64).

    Returns
    -------
    LintReport
        With the reasons, and how to have the file picked up.

    Raises
    ------
    UnsupportedError
        For a runtime or version that is not known.
    FileFormatError
        If the file cannot be read, or is too large to be one.

    Notes
    -----
    What the runtimes' parsers check is checked as they do, and what they do not is worked out: the steps are put in an
    order that excludes deadlocks, for which connections hold nothing, or else what they hold at least; accesses to the
    same chunk are looked at for races; and the file is run on numbers, and its results compared with the collective's.
    """
    dialect = dialect_of(runtime, version)
    resident = dialect.limits.max_thread_blocks if max_thread_blocks is None else max_thread_blocks
    check_counts({"max_thread_blocks": resident})
    # The parsers know no encoding: each byte is a character of its own.
    text = read_bytes(path, MAX_BYTES).decode("latin-1")
    findings = Findings()
    document = None
    if dialect.absent:
        findings.add("ignored", f"{dialect.absent}; run the plan through torch.distributed, or load it elsewhere")
    try:
        if text.lstrip()[:1] == "{":
            findings.add("rejected", _about_json(path, dialect))
        else:
            document = read_document(text, dialect.required, findings)
        if document is not None:
            _check(document, dialect, resident, findings)
    except EnoughError:
        pass
    return LintReport(
        str(path),
        dialect.name,
        dialect.version,
        tuple(findings),
        summary_of(dialect, document),
        environment_of([str(path)], dialect),
        loading_of(dialect, document),
        windows_of(dialect, document) if not (dialect.absent or findings.has("rejected")) else (),
    )


def _about_json(path: str | os.PathLike[str], dialect: Dialect) -> str:
    """Say what else a file may be that is no XML."""
    report = lint_plan(path)
    plan = f"an MSCCL++ plan of {report.summary}" if report.summary else "JSON"
    mend = "leave it out" if dialect.is_microsoft else "move it out of the folder, of which all files are opened"
    return f"the file is {plan}, and no MSCCL XML; {mend}, and look at it with --runtime {RUNTIME}"


def _check(document: Document, dialect: Dialect, resident: int, findings: Findings) -> None:
    check_header(document, dialect, findings)
    layout = layout_of(document, findings)
    check_gpus(document, layout, dialect, findings)
    check_blocks(document, layout, dialect, resident, findings)
    if layout is None or findings.has(*WRONG):
        return
    program = program_of(document, layout, findings)
    if not findings.has(*WRONG):
        placements = dialect.placements(document.numbers.get("inplace", 0), document.numbers.get("outofplace", 1))
        check_meaning(program, *placements, PLACES.get(document.words.get("proto", ""), 2), findings)
