"""What `benchmarks/astra_sim.py` does without ASTRA-sim: its networks, its settings and its table."""

from __future__ import annotations

import sys
from pathlib import Path

import astra_sim as program
import pytest
from astra_sim import dimension

from collopt.topologies import Topology, dgx_a100, kautz, torus, write_topology

FAKE = """#!/bin/sh
cycles=2000
grep -q custom system.json && cycles=500
for rank in 0 1 2 3; do echo "[info] sys[$rank] finished, $cycles cycles, exposed communication 5 cycles."; done
"""


@pytest.mark.parametrize("name", program.NETWORKS)
def test_dimensions_of_the_networks_are_found(name: str) -> None:
    """From their links alone."""
    assert program.dimensions_of(program.product_network(program.NETWORKS[name])) == program.NETWORKS[name]


def test_the_last_index_of_a_torus_varies_fastest() -> None:
    """A ring of two has the links of both directions in one."""
    found = program.dimensions_of(torus(2, 4, bandwidth=25, latency=1))
    assert found == [dimension("Ring", 4, 25, "1"), dimension("Ring", 2, 50, "1")]


@pytest.mark.parametrize("network", [dgx_a100(boxes=2), kautz(2, 2)], ids=lambda each: each.name)
def test_other_networks_are_no_products(network: Topology) -> None:
    """One fabric for all GPUs of two boxes, and a graph."""
    assert program.dimensions_of(network) is None


@pytest.mark.parametrize(("name", "collective", "whole"), [
    ("ring 8", "allgather", set()),
    ("2 DGX A100", "all_to_all", {"oneRing", "oneDirect"}),
    ("torus 4x4", "allreduce", {"oneRing", "oneDirect", "oneHalvingDoubling"}),
])  # fmt: skip
def test_built_ins_on_all_ranks_as_one_dimension(name: str, collective: str, whole: set[str]) -> None:
    """Where there are several; dimension by dimension, the all-to-all on a torus takes 1.6 times as long."""
    labels = [label for label, _, _ in program.built_ins(program.NETWORKS[name], collective, 2**20)]
    assert {label.partition(",")[0] for label in labels if label.startswith("one")} == whole


@pytest.mark.slow
def test_a_network_file_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """On a stand-in for ASTRA-sim, where plans take a quarter of what built-in collectives take, not as simulated."""
    fake = tmp_path / "build" / program.BINARY
    fake.parent.mkdir()
    fake.write_text(FAKE)
    fake.chmod(0o755)
    network = tmp_path / "square.yml"
    network.write_text("topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50 ]\nlatency: [ 500 ]\n")
    other = tmp_path / "other.json"
    write_topology(kautz(2, 2), other)
    arguments = [str(tmp_path), str(network), str(other), "--sizes", "4K"]
    monkeypatch.setattr(sys, "argv", ["astra_sim.py", *arguments])
    assert program.main() == 1
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if line.startswith("| square.yml | ")]
    assert [row.split(" | ")[1] for row in rows[:4]] == list(program.IMPLEMENTATIONS)
    assert all("| 2000 |" in row and "| 500 |" in row and "| 4.00 |" in row for row in rows)
    assert "other.json: skipped, as it is no product of rings, switches and full meshes" in lines
    assert "slower than a built-in collective, or simulated more than 5 % off: 4" in lines
