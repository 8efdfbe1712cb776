"""``collopt import``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli_calls import Cli, refusal
from collopt import read_topology
from collopt.topologies import compose, read_box

PROFILE = {"name": "lab_1MB", "gpus_per_node": 4, "nics_per_node": 2, "alpha": 1, "node_betas_list": [20]}
REMOTE = {"remote_alpha": 2, "remote_beta": 80, "remote_invbw": 82}


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A profile of TACCL, whose name says nothing."""
    path = tmp_path / "lab"
    path.write_text(json.dumps(PROFILE | REMOTE), encoding="utf-8")
    return path


def test_it_says_what_was_understood(cli: Cli, profile: Path) -> None:
    """Nodes and links by class go to standard output, notes to standard error."""
    answer = cli("import", profile, "--fabric", "rail", "--boxes", "2")
    assert answer.status == 0
    assert "8: box0/gpu0..3, box1/gpu0..3" in answer.out
    assert "16 x gpu-nvswitch" in answer.out
    assert "50.00 GB/s" in answer.out
    assert "note: bandwidths are" in answer.err


def test_it_writes_a_topology_file(cli: Cli, profile: Path, tmp_path: Path) -> None:
    """The file reads back as the network that the same options make."""
    target = tmp_path / "cluster.json"
    options = ("--fabric", "leaf_spine", "--boxes", "3", "--set", "boxes_per_leaf=2", "--set", "nic_bandwidth=25")
    answer = cli("import", profile, *options, "-o", target)
    assert (answer.status, answer.err.splitlines()[-1]) == (0, f"wrote {target}")
    expected = read_topology(profile, boxes=3, fabric="leaf_spine", boxes_per_leaf=2, nic_bandwidth=25)
    assert read_topology(target) == expected


def test_several_files_are_boxes_of_different_kinds(cli: Cli, profile: Path, tmp_path: Path) -> None:
    """Several files are boxes in their order, and equal notes are written once."""
    other = tmp_path / "other"
    other.write_text(json.dumps(PROFILE | REMOTE | {"gpus_per_node": 2, "name": "small_1MB"}), encoding="utf-8")
    target = tmp_path / "cluster.json"
    answer = cli("import", profile, other, profile, "--fabric", "rail", "-o", target)
    assert answer.status == 0
    assert f", from {profile}, {other}\n" in answer.out
    assert answer.err.count("note: bandwidths are TACCL's") == 1
    assert f"{profile}: " not in answer.err
    boxes = [read_box(path) for path in (profile, other, profile)]
    assert read_topology(target) == compose(boxes, fabric="rail")


def test_a_file_may_come_from_standard_input(profile: Path, tmp_path: Path) -> None:
    """A pipe is read like a file."""
    command = [sys.executable, "-m", "collopt", "import", "-", "-o", str(tmp_path / "lab.json")]
    done = subprocess.run(command, input=profile.read_bytes(), capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, b"lab_1MB, from standard input"), done.stderr
    assert read_topology(tmp_path / "lab.json") == read_topology(profile)


def test_a_bandwidth_may_have_a_unit_and_one_without_is_doubted(cli: Cli, profile: Path) -> None:
    """A bandwidth that no card has raises a note and is used all the same."""
    words = ("import", profile, "--boxes", "2", "--fabric", "full", "--json", "--set")
    bare, with_unit = (cli(*words, f"nic_bandwidth={value}") for value in ("400", "400Gb/s"))
    rates = [{row["bandwidth_gbps"] for row in json.loads(answer.out)["link_classes"]} for answer in (bare, with_unit)]
    assert rates == [{50.0, 400.0}, {50.0}]
    assert "note: --set nic_bandwidth=400 means 400 GB/s" in bare.err
    assert "give --set nic_bandwidth=400Gb/s\n" in bare.err
    assert "no card has" not in with_unit.err
    assert "one with another unit, such as 400Gb/s" in refusal(cli(*words, "nic_bandwidth=400gbps"))
