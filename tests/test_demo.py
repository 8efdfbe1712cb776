"""The demo is the README's first command, so its promises are tests."""

from __future__ import annotations

from pathlib import Path

import pytest

import collopt
from collopt.runtime import interpret_file
from forked_programs import forked

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


@pytest.mark.slow
def test_the_demo_plans_proves_writes_and_runs(tmp_path: Path) -> None:
    """Two DGX A100 boxes at 346.67 GB/s, files that load and execute, and the right data on 16 processes."""
    answer = forked(DEMO, "--output", tmp_path)
    assert answer.status == 0, answer.err
    for promise in ("346.67 GB/s", "1/x* = 3/65", "gap 0", "correct on all ranks", "Data       verified"):
        assert promise in answer.out
    collopt.load_plan(tmp_path / "allgather.json", collopt.topologies.dgx_a100(boxes=2))
    interpret_file(tmp_path / "allgather.xml")
