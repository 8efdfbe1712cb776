"""Notes on latencies that files do not state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collopt.topologies import compose, link_classes, read_box
from collopt.topologies.importing.read import ImportOptions, import_network
from collopt.topologies.switched.scale_out import Box
from nccl_texts import cpu, gpu, link, nic, port, slot, switched, system

PROFILE = {"name": "lab_1MB", "gpus_per_node": 4, "alpha": 1, "node_betas_list": [20]}
REMOTE = {"nics_per_node": 2, "remote_alpha": 2, "remote_beta": 80, "remote_invbw": 82}
MEASURED = "collopt calibrate fits them to measured times"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Two GPUs with NVLinks to a switch and between them, and a card."""
    path = tmp_path / "machine.xml"
    card = nic("0000:b0:00.0", port(0))
    path.write_text(
        system(cpu(gpu(0, switched(), link(slot(1), 2)), gpu(1, switched(), link(slot(0), 2)), card)), encoding="utf-8"
    )
    return path


def told(notes: tuple[str, ...]) -> list[str]:
    """The notes on latencies."""
    return [note for note in notes if note.startswith("latencies are assumed")]


def test_a_box_says_which_links_got_which_latency(machine: Path) -> None:
    """Once, with who measures them."""
    (note,) = told(read_box(machine).notes)
    assert ": 0.7 µs for gpu-gpu, 0.35 µs for gpu-nvswitch, gpu-nic, 0.5 µs for nic-network; " in note
    assert note.endswith(MEASURED)


@pytest.mark.parametrize(
    ("options", "classes"),
    [
        ({}, "0.7 µs for gpu-gpu, 0.35 µs for gpu-nvswitch;"),
        (
            {"boxes": 2, "fabric": "leaf_spine", "boxes_per_leaf": 1},
            "0.7 µs for gpu-gpu, 0.35 µs for gpu-nvswitch, gpu-nic, 0.5 µs for nic-leaf, leaf-spine;",
        ),
    ],
)
def test_a_network_names_its_own_classes(machine: Path, options: ImportOptions, classes: str) -> None:
    """Those of what is between the boxes as well; each with the latency that it has."""
    made = import_network(machine, options)
    (note,) = told(made.notes)
    assert f": {classes} " in note
    for each in link_classes(made.topology):
        assert each.kinds in note
        assert f"{float(each.latency):g} µs" in note


def test_what_a_profile_measured_is_not_called_assumed(tmp_path: Path) -> None:
    """Only the spine is, or the cards where the profile has none."""
    path = tmp_path / "lab"
    path.write_text(json.dumps(PROFILE | REMOTE), encoding="utf-8")
    assert told(read_box(path).notes) == told(import_network(path, {}).notes) == []
    (note,) = told(import_network(path, {"boxes": 2, "fabric": "rail"}).notes)
    assert ": 0.5 µs for rail-spine; " in note
    path.write_text(json.dumps(PROFILE), encoding="utf-8")
    (note,) = told(import_network(path, {"boxes": 2, "fabric": "full", "nics": 4, "nic_bandwidth": 25}).notes)
    assert ": 0.35 µs for gpu-nic, 0.5 µs for nic-fabric; " in note


def test_files_that_state_everything_have_no_such_note(tmp_path: Path) -> None:
    """A simulator's input, for one."""
    path = tmp_path / "net.yml"
    path.write_text("topology: [Ring]\nnpus_count: [4]\nbandwidth: [50]\nlatency: [500]\n", encoding="utf-8")
    assert told(import_network(path, {}).notes) == []


def test_boxes_are_composed_as_before(machine: Path) -> None:
    """A note changes nothing."""
    box = read_box(machine)
    bare = Box(box.name, box.gpus, box.links, box.nics, box.switches, box.abilities, limits=box.limits)
    assert compose([box, box]) == compose([bare, bare])
