"""The table of ``collopt bench``, whose rows come as they are measured, and what a terminal shows in between."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .output import emit
from .progress import working

if TYPE_CHECKING:
    from ...planners import Plan
    from ...runtime import BenchReport


class LiveTable:
    """Tells how many rows are measured, within its context, and prints them."""

    def __init__(self, message: str, *, prints: bool) -> None:
        self._message, self._prints = message, prints
        self._shown = ExitStack()
        self._reached: Callable[[int], None] | None = None
        self._printed = 0

    def __enter__(self) -> Self:
        """Begin to tell."""
        self._shown.enter_context(working(self._message))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""
        self._shown.close()

    def add(self, report: BenchReport, total: int) -> None:
        """Take in a report with one more row, of `total`."""
        if self._prints and sys.stdout is not None and sys.stdout.isatty():
            # A terminal has one place to write at, where the bar stands.
            self._shown.close()
            self._print(report)
            self._shown.enter_context(working(self._message))
            self._reached = None
        elif self._prints:
            self._print(report)
        if self._reached is None:
            from ...support import progress

            self._reached = self._shown.enter_context(progress.task(total))
        self._reached(len(report.rows))

    def finish(self, report: BenchReport, plans: Mapping[str, Plan]) -> None:
        """Print what has not been printed yet, and the lines below the rows."""
        from ...runtime.measuring.bench.report import tail_lines

        self._print(report)
        planned = [
            f"# Planned bus bandwidth: {float(plan.busbw):g} {name} on {plan.topology.name}"
            for name, plan in plans.items()
        ]
        emit("\n".join([*tail_lines(report), *planned]))

    def _print(self, report: BenchReport) -> None:
        from ...runtime.measuring.bench.report import head_lines, row_line

        head = [] if self._printed else head_lines(report)
        if lines := head + [row_line(report, row) for row in report.rows[self._printed :]]:
            emit("\n".join(lines))
        self._printed = len(report.rows)
