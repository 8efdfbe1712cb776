"""`collopt survive`."""

from pathlib import Path

import pytest

from cli_calls import call
from collopt.planners import PlanFolder

A100 = ("dgx-a100", "--boxes", 2)


def test_people_see_what_each_failure_costs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One table for each collective, and a folder to pick from, which a second run finds complete."""
    words = ("survive", *A100, "allgather,allreduce", "--failures", "nic,switch", "--jobs", 1, "-o", tmp_path / "plans")
    answer = call(capsys, *words)
    assert answer.status == 0
    lines = answer.out.splitlines()
    assert lines[0] == "allgather on dgx-a100-2boxes, 16 ranks"
    assert lines[2].split() == ["intact", "1", "16", "346.67", "optimal", "0", "%", "0", "%"]
    assert lines[3].split()[:7] == ["box0/nic0", "16", "16", "320.00", "optimal", "7.69", "%"]
    assert lines[5].split() == ["ib", "1", "16", "disconnected"]
    assert answer.err.endswith("has plans for 6 cases\n")
    assert call(capsys, *words).out == answer.out
    assert PlanFolder(tmp_path / "plans").pick("box1/nic1", "allreduce").gap == 0
    fewer = call(capsys, "survive", *A100, "allgather", "--failures", "none", "-o", tmp_path / "plans")
    assert fewer.err.endswith("has plans for 6 cases\n")


def test_programs_get_exact_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """Pairs by kinds and by name, and derated links."""
    options = ("--failures", "none", "--pairs", "nic+nic", "--pairs", "box0/nic0 + box1/gpu1", "--derate", "1/2")
    rows = call(capsys, "survive", *A100, "allgather", *options, "--jobs", 1, "--json").data
    kinds = [row["kind"] for row in rows]
    assert kinds == ["intact", *["link x 1/2"] * 3, *["nic + nic"] * 2, "chosen"]
    assert rows[-1]["failure"] == "box1/gpu1 + box0/nic0"
    assert all(row["status"] == "ok" and row["gap_exact"] == "0" for row in rows)
