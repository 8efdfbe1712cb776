"""The text that people know from nccl-tests: a row per size, lines that are no row after a ``#``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .report import BenchReport, BenchRow, Reading

__all__ = ["head_lines", "row_line", "table_text", "tail_lines"]

WHAT = (("size", "(B)", 12), ("count", "(elements)", 12), ("type", "", 8), ("redop", "", 6), ("root", "", 6))
READ = (("time", "(us)", 9), ("algbw", "(GB/s)", 7), ("busbw", "(GB/s)", 7), ("#wrong", "", 7))
GAP = "  "


def table_text(report: BenchReport) -> str:
    """Write a report.

    Parameters
    ----------
    report : BenchReport
        With at least one row.

    Returns
    -------
    str
        Without a newline at its end.  After the columns of nccl-tests there is one more, which says who did it.
    """
    return "\n".join([*head_lines(report), *(row_line(report, row) for row in report.rows), *tail_lines(report)])


def head_lines(report: BenchReport) -> list[str]:
    """Write what comes before the first row."""
    config = report.config
    step = f"{config['step_factor']}(factor)" if "step_factor" in config else f"{config['step_bytes']}(bytes)"
    columns = (*WHAT, *READ, *READ)
    what = sum(width for _, _, width in WHAT) + len(GAP) * len(WHAT)
    read = sum(width for _, _, width in READ) + len(GAP) * (len(READ) - 1)
    return [
        f"# collopt bench: {report.collective}, {report.num_ranks} ranks, {report.backend}",
        f"# minBytes {config['minimum_bytes']} maxBytes {config['maximum_bytes']} step: {step}",
        f"# warmup iters: {config['warmup_iters']} iters: {config['iterations']} validation: {config['validation']}",
        "#",
        "#" + f"{' ' * what}{'out-of-place':^{read}}{GAP}{'in-place':^{read}}"[1:].rstrip(),
        _commented([name for name, _, _ in columns], "by"),
        _commented([unit for _, unit, _ in columns], ""),
    ]


def tail_lines(report: BenchReport) -> list[str]:
    """Write what comes after the last row."""
    return [
        f"# Out of bounds values : {report.wrong} {'FAILED' if report.wrong else 'OK'}",
        *(f"# Avg bus bandwidth    : {report.average_busbw(name):g} {name}" for name in report.names),
    ]


def row_line(report: BenchReport, row: BenchRow) -> str:
    """Write a row."""
    what = (str(row.size), str(row.count), report.datatype, report.redop, str(report.root))
    read = [entry for reading in (row.out_of_place, row.in_place) for entry in _entries(report, row, reading)]
    return _aligned([*what, *read], row.name)


def _entries(report: BenchReport, row: BenchRow, reading: Reading | None) -> tuple[str, str, str, str]:
    if reading is None:
        return ("N/A",) * 4
    return (
        _figure(reading.microseconds),
        f"{report.algbw(row, reading):.2f}",
        f"{report.busbw(row, reading):.2f}",
        "N/A" if reading.wrong is None else str(reading.wrong),
    )


def _figure(microseconds: float) -> str:
    """Two decimals while they mean something."""
    return f"{microseconds:.2f}" if microseconds < 10**4 else f"{microseconds:.0f}"


def _commented(entries: list[str], name: str) -> str:
    return "#" + _aligned(entries, name)[1:].rstrip()


def _aligned(entries: list[str], name: str) -> str:
    widths = [width for _, _, width in (*WHAT, *READ, *READ)]
    return GAP.join(f"{entry:>{width}}" for entry, width in zip(entries, widths, strict=True)) + GAP + name
