"""The example that plans a made-up mixture of experts step by step."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "moe_all_to_allv.py"


@pytest.fixture
def example() -> dict[str, Any]:
    """Names of the example."""
    return runpy.run_path(str(EXAMPLE))


def test_every_step_is_near_the_optimum_and_far_from_spread_out(
    example: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The optimum is the busiest server's bytes over its bandwidth, worked out here from the trace alone."""
    example["main"](["--steps", "3"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [line[0] for line in lines] == ["0", "1", "2", "median"]
    traces = example["Gating"](gpus=32, skew=0.8, seed=0).traffic(3)
    for (_, *numbers), traffic in zip(lines, traces, strict=False):
        optimum, by_stage, fast, spread_out, planning = map(float, numbers)
        servers = traffic.reshape(4, 8, 4, 8).sum(axis=(1, 3))
        np.fill_diagonal(servers, 0)
        busiest = max(servers.sum(axis=0).max(), servers.sum(axis=1).max())
        assert optimum == pytest.approx(busiest / 8 / 50e9 * 1e3, abs=0.006)
        assert optimum < by_stage < 1.05 * optimum < fast < 1.3 * optimum < 3 * optimum < spread_out
        assert planning > 0


def test_traces_are_uneven_change_and_repeat(example: dict[str, Any]) -> None:
    """All tokens go somewhere; popular experts differ from step to step; a seed gives one trace."""
    gating = example["Gating"](gpus=16, skew=1.0, seed=3)
    first, *others = list(gating.traffic(30))
    sent = example["TOKENS"] * example["EXPERTS_PER_TOKEN"] * example["TOKEN_BYTES"]
    assert all((step.sum(axis=1) == sent).all() for step in (first, *others))
    received = first.sum(axis=0)
    assert received.max() > 5 * np.median(received) / 2
    assert any(step.sum(axis=0).argmax() != received.argmax() for step in others)
    assert all(np.array_equal(*pair) for pair in zip(gating.traffic(30), [first, *others], strict=True))


def test_figure_has_a_line_for_each_way(example: dict[str, Any], tmp_path: Path) -> None:
    """Completion above, planning below; the file is there."""
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    rows = [
        example["Step"](optimum=1000 + step, by_stage=2000, fast=3000, spread_out=4000, planning=50)
        for step in range(4)
    ]
    completion, planning = example["draw"](rows).axes
    drawn = {line.get_label(): line.get_ydata().tolist() for line in completion.lines}
    assert drawn == {"SpreadOut": [4] * 4, "FAST": [3] * 4, "by stage": [2] * 4, "optimum": [1, 1.001, 1.002, 1.003]}
    assert planning.lines[0].get_ydata().tolist() == [50] * 4
    example["main"](["--servers", "2", "--gpus", "2", "--steps", "2", "--figure", str(tmp_path / "moe.svg")])
    assert (tmp_path / "moe.svg").read_text(encoding="utf-8").startswith("<?xml")
