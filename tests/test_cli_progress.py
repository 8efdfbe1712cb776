"""What a terminal shows of long work."""

from __future__ import annotations

import io
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console

from collopt.cli import progress_bar
from collopt.cli.progress_bar import progress_shown
from collopt.planners import plan
from collopt.planners.compare import outcomes
from collopt.planners.trace import counted
from collopt.topologies import ring

if TYPE_CHECKING:
    import pytest


def seen_of(monkeypatch: pytest.MonkeyPatch, work: Any) -> str:
    """Everything that a terminal was sent, without what moves its cursor."""
    screen = io.StringIO()
    pretended = partial(Console, file=screen, force_terminal=True, width=200, color_system=None, markup=False)
    monkeypatch.setattr(progress_bar, "Console", lambda **_: pretended())
    # Every change is drawn, and not ten per second.
    drawn = progress_bar.Progress.update

    def update(self: Any, *arguments: Any, **options: Any) -> None:
        drawn(self, *arguments, **options)
        self.refresh()

    monkeypatch.setattr(progress_bar.Progress, "update", update)
    with progress_shown("working [hard]"):
        work()
    return re.sub(r"\x1b\[[0-9?;]*[A-Za-z]", "", screen.getvalue())


def test_stages_follow_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a bar, as nobody knows how much there is."""
    seen = seen_of(monkeypatch, lambda: plan(ring(3), "allgather"))
    assert "working [hard]: tree packing" in seen
    assert " of " not in seen


def test_counts_come_with_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until all is done."""

    def work() -> None:
        assert list(counted("abc", 3)) == ["a", "b", "c"]
        plan(ring(3), "allgather")

    counted_part, then = seen_of(monkeypatch, work).split("3 of 3")
    assert [f"{done} of 3" in counted_part for done in range(3)] == [True, True, True]
    assert "━" in counted_part
    assert "tree packing" in then
    assert " of 3" not in then.partition("bottleneck")[2]


def test_comparisons_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planner by planner, with the stages of each."""
    seen = seen_of(
        monkeypatch,
        lambda: list(outcomes(ring(3), "allgather", planners=["ring", "forestcoll"], bounds=["forestcoll"])),
    )
    assert re.search(r"working \[hard\]: tree packing .*2 of 3", seen)
