"""What a terminal shows of long work."""

from __future__ import annotations

import io
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress

from cli_calls import terminal_output
from collopt.cli.terminal.progress import computing, progress_shown
from collopt.planners import plan
from collopt.solvers.flows.bottleneck import bottleneck_cut
from collopt.support import progress
from collopt.topologies import ring, torus, write_topology

if TYPE_CHECKING:
    from pathlib import Path


def seen_of(monkeypatch: pytest.MonkeyPatch, work: Any, width: int = 200) -> str:
    """Everything that a terminal was sent, without what moves its cursor."""
    screen = io.StringIO()
    pretended = partial(Console, file=screen, force_terminal=True, width=width, color_system=None, markup=False)
    monkeypatch.setattr("rich.console.Console", lambda **_: pretended())
    # Every change is drawn, and not ten per second.
    drawn = Progress.update

    def update(self: Any, *arguments: Any, **options: Any) -> None:
        drawn(self, *arguments, **options)
        self.refresh()

    monkeypatch.setattr(Progress, "update", update)
    with progress_shown("working [hard]"):
        work()
    return re.sub(r"\x1b\[[0-9?;]*[A-Za-z]", "", screen.getvalue())


def lines_of(seen: str) -> list[str]:
    """Each as it was drawn."""
    return [line.strip() for line in re.split(r"[\r\n]+", seen) if line.strip()]


def test_stages_follow_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a bar where nobody knows how much there is."""
    lines = lines_of(seen_of(monkeypatch, lambda: plan(ring(3), "allgather")))
    shown = [line for line in lines if "working [hard]: verification" in line]
    assert shown
    assert all(" of " not in line and "━" not in line for line in shown)


def test_counts_come_with_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until all is done; the clock and what turns go on."""

    def work() -> None:
        assert list(progress.iterate("abc", 3)) == ["a", "b", "c"]
        plan(ring(4), "allgather")

    counted_part, then = seen_of(monkeypatch, work).split("3 of 3")
    assert [f"{done} of 3" in counted_part for done in range(3)] == [True, True, True]
    assert "━" in counted_part
    assert " of 3" not in then
    assert re.search("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] working .hard.: tree packing", then)


def test_nothing_is_shown_to_what_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """And nothing is told to nobody."""
    tails, heads, capacities, _ = ring(1000).arrays
    weights = np.ones(1000, dtype=np.int64)
    bottleneck_cut(1000, tails, heads, capacities, weights)  # Compiling would be told.
    with computing("working"):
        bottleneck_cut(1000, tails, heads, capacities, weights)
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_large_plans_show_bars_on_a_real_terminal(tmp_path: Path) -> None:
    """Ten times per second, while kernels work."""
    write_topology(torus(14, 15), tmp_path / "torus.json")
    seen = terminal_output("plan", str(tmp_path / "torus.json"), "allgather")
    lines = lines_of(re.sub(r"\x1b\[[0-9?;]*[A-Za-z]", "", seen))
    packing = [found for line in lines if (found := re.search(r"tree packing ━+.* ([\d,]+) of 840", line))]
    counts = [int(found[1].replace(",", "")) for found in packing]
    assert len(set(counts)) > 3
    assert counts == sorted(counts)
    assert not [line for line in lines if "verification" in line and "━" in line]
