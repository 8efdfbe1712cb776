"""Every MSCCL++ plan that collopt writes comes back and runs with correct data, by any planner, on any network."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest
from lint_programs import TOPOLOGIES, calls, plans

from collopt.errors import UnsupportedError
from collopt.runtime import interpret_mscclpp

SAMPLE = [("torus-2x2x2", "allgather"), ("ring-4", "allreduce")]


SEEN: set[bytes] = set()


def is_new(path: Path) -> bool:
    """Whether no plan before was the same; planners write many that differ at most in the name of the topology."""
    text = re.sub(r'"name": "[^"]*"', "", path.read_text(), count=1)
    key = sha256(text.encode()).digest()
    known = key in SEEN
    SEEN.add(key)
    return not known


def check(folder: Path, topology: str, collective: str) -> int:
    """Write what each planner makes of a call, read it back and run it; return how many fit the executor's limits."""
    written = 0
    for planner, plan in plans(TOPOLOGIES[topology], collective):
        path = folder / f"{planner}.json"
        try:
            plan.to_mscclpp_json(path)
        except UnsupportedError:
            # The exporter tells which limit of the executor a plan is beyond, and leaves no file.
            assert not path.exists()
            continue
        if is_new(path):
            interpret_mscclpp(path, interleavings=1, seed=1)  # The exporter ran it with seed 0.
        written += 1
    return written


@pytest.mark.parametrize(("topology", "collective"), SAMPLE)
def test_a_sample_of_plans_runs(tmp_path: Path, topology: str, collective: str) -> None:
    """By all planners."""
    assert check(tmp_path, topology, collective) >= 3


@pytest.mark.slow
@pytest.mark.parametrize(("topology", "collective"), [call for call in calls(1) if call not in SAMPLE])
def test_all_plans_run(tmp_path: Path, topology: str, collective: str) -> None:
    """On twelve networks with two collectives each, one planner at least."""
    assert check(tmp_path, topology, collective) >= 1
