"""Findings of `lint_file`: severity, message and location."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Severity = Literal["rejected", "ignored", "hangs", "wrong data", "not checked", "note"]

SEVERITIES: tuple[Severity, ...] = ("rejected", "ignored", "hangs", "wrong data", "not checked", "note")
"""Refuses a file or call, never picks it, waits for ever, computes something else; the first decides."""

MAX_FINDINGS = 100  # A file with more that is wrong is not read on; of notes, no more are kept


class Finding(NamedTuple):
    """One finding about a file: its effect in the runtime, and the reason."""

    severity: Severity
    message: str  # What is wrong, and how to fix it
    where: str  # Such as ``"line 12"``; empty for the whole file

    def __str__(self) -> str:
        """On one line."""
        return f"{self.severity}: {f'{self.where}: ' if self.where else ''}{self.message}"


class TooManyFindingsError(Exception):
    """The limit of findings is reached; never leaves `lint_file`."""


class Findings:
    """Collects findings, each once, up to a limit."""

    def __init__(self) -> None:
        self._found: dict[Finding, None] = {}
        self._notes = 0

    def add(self, severity: Severity, message: str, where: str = "") -> None:
        """Add a finding; `TooManyFindingsError` at the limit, which notes do not count towards."""
        finding = Finding(severity, message, where)
        if finding in self._found or (severity == "note" and self._notes >= MAX_FINDINGS):
            return
        if severity == "note":
            self._notes += 1
        elif len(self._found) - self._notes >= MAX_FINDINGS:
            raise TooManyFindingsError
        self._found[finding] = None

    def has(self, *severities: Severity) -> bool:
        """Whether there is one of these severities."""
        return any(finding.severity in severities for finding in self._found)

    def __iter__(self) -> Iterator[Finding]:
        """In the order found, the worst first."""
        return iter(sorted(self._found, key=lambda finding: SEVERITIES.index(finding.severity)))


class Window(NamedTuple):
    """Calls for which a runtime selects a file."""

    collective: str  # As the file spells it
    num_ranks: int
    in_place: bool
    first: int  # Bytes of the whole buffer: from the first of the sizes up to, not including, the other
    end: int


@dataclass(frozen=True)
class LintReport:
    """Result of `lint_file`: the behavior of a runtime with a file."""

    path: str
    runtime: str
    version: str  # Of the runtime: its own, or for RCCL the release of ROCm
    findings: tuple[Finding, ...]  # The worst first
    summary: str = ""  # What the file says it is, or empty if unknown
    environment: Mapping[str, str] = field(default_factory=dict)  # makes the runtime pick the file up
    loading: tuple[str, ...] = ()  # What else it takes
    windows: tuple[Window, ...] = ()  # Calls that the file is for; none if unknown

    @property
    def verdict(self) -> str:
        """``"accepted"``, or the worst severity of the findings."""
        return next((finding.severity for finding in self.findings if finding.severity != "note"), "accepted")

    @property
    def runs(self) -> bool:
        """Whether the runtime loads the file, selects it for some call, and computes correct results."""
        return self.verdict == "accepted"

    def __str__(self) -> str:
        """Verdict and findings, one a line."""
        title = f"{self.path}: {self.verdict} by {self.runtime} {self.version}"
        return "\n".join([title, *(f"  {finding}" for finding in self.findings)])
