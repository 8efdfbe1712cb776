"""The table of `collopt bench` while it is measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import collopt
from collopt.cli.commands import bench as live_table
from collopt.cli.commands.bench import LiveTable
from collopt.planners.plans.stages import on_stage
from collopt.runtime import BenchReport
from collopt.runtime.measuring.bench_report import BenchRow, Reading
from collopt.topologies import ring

if TYPE_CHECKING:
    import pytest

CONFIG = {"minimum_bytes": 64, "maximum_bytes": 128, "step_factor": 2, "warmup_iters": 0, "iterations": 1}


def report(rows: int) -> BenchReport:
    """An allreduce of two ranks, with so many rows of three."""
    told = tuple(BenchRow("mine", size, size // 4, Reading(1.0, 0), None) for size in (64, 96, 128)[:rows])
    return BenchReport("allreduce", "gloo", 2, "float", "sum", -1, {**CONFIG, "validation": 1}, (), told, "then", "")


def sizes(printed: str) -> list[str]:
    """The first words of what is no comment."""
    return [line.split()[0] for line in printed.splitlines() if not line.startswith("#")]


def test_rows_are_printed_when_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    """The head with the first one, the tail at the end; together they are the table."""
    with LiveTable("measuring", prints=True) as table:
        assert capsys.readouterr().out == ""
        printed = []
        for done in (1, 2, 3):
            table.add(report(done), 3)
            printed.append(capsys.readouterr().out)
    assert [sizes(each) for each in printed] == [["64"], ["96"], ["128"]]
    table.finish(report(3), {"mine": collopt.plan(ring(2, bandwidth=25), "allreduce")})
    whole = "".join(printed) + capsys.readouterr().out
    assert whole == f"{report(3)}\n# Planned bus bandwidth: 50 mine on ring-2\n"


def test_what_was_not_printed_before_comes_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever measures need not tell."""
    with LiveTable("measuring", prints=True) as table:
        pass
    table.finish(report(3), {})
    assert capsys.readouterr().out == f"{report(3)}\n"


def test_programs_hear_nothing_in_between(capsys: pytest.CaptureFixture[str]) -> None:
    """While rows are counted for people."""
    counts: list[tuple[int, int]] = []
    with (
        on_stage(lambda _: None, lambda done, total: counts.append((done, total))),
        LiveTable("measuring", prints=False) as table,
    ):
        for done in (1, 2, 3):
            table.add(report(done), 3)
    assert capsys.readouterr() == ("", "")
    assert counts == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_a_terminal_is_left_to_a_row_while_it_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bar stands where the row is to be written, so it makes room, and counts on from there."""
    events: list[object] = []

    @contextmanager
    def working(message: str) -> Iterator[None]:
        events.append(message)
        with on_stage(lambda _: None, lambda *count: events.append(count)):
            yield
        events.append("aside")

    monkeypatch.setattr(live_table, "working", working)
    monkeypatch.setattr(live_table, "emit", lambda text: events.append(sizes(text)))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with LiveTable("measuring", prints=True) as table:
        table.add(report(1), 3)
        table.add(report(2), 3)
    first, second = [(0, 3), (1, 3), (3, 3)], [(0, 3), (2, 3), (3, 3)]
    assert events == ["measuring", "aside", ["64"], "measuring", *first, "aside", ["96"], "measuring", *second, "aside"]
