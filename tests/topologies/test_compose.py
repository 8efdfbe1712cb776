"""Boxes joined by a fabric, and notes on latencies that files do not state."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collopt import Topology
from collopt.errors import TopologyError
from collopt.topologies import Box, Link, Nic, compose, dgx_h100, link_classes, rail, read_box
from collopt.topologies.importing.read import FABRICS, ImportOptions, import_network
from collopt.topologies.switched.scale_out import SharedLink
from nccl_texts import cpu, gpu, link, nic, port, slot, switched, system

PAIR = Box("pair", 2, (Link("gpu0", "gpu1", Fraction(50)),), (Nic(("gpu0",), 25, 12), Nic(("gpu1",), 25, 12)))
BARE = Box("bare", 4, tuple(Link(f"gpu{a}", f"gpu{b}", Fraction(40)) for a in range(4) for b in range(a)), ())


def test_boxes_of_different_kinds_keep_their_order_and_their_links() -> None:
    """Ranks are those of the first box, then those of the second."""
    other = Box("trio", 3, tuple(Link(f"gpu{gpu}", "hub", Fraction(80)) for gpu in range(3)), PAIR.nics, ("hub",))
    network = compose([PAIR, other])
    assert network.compute_nodes == ("box0/gpu0", "box0/gpu1", "box1/gpu0", "box1/gpu1", "box1/gpu2")
    assert network.link("box1/gpu2", "box1/hub").bandwidth == 80
    assert network.link("box0/nic1", "fabric").bandwidth == 12
    assert network.name == "pair-and-trio-2boxes"


def test_rails_join_cards_of_the_same_position() -> None:
    """Each rail's uplink has the bandwidth of its cards over the oversubscription."""
    network = compose([PAIR] * 3, fabric="rail", oversubscription=2)
    assert {link.head for link in network.links if link.tail == "box2/nic1"} == {"box2/gpu1", "rail1"}
    assert network.link("rail1", "spine").bandwidth == Fraction(3 * 12, 2)


def test_leaves_take_whole_boxes() -> None:
    """Five boxes, two on a leaf: three leaves, the last half full."""
    network = compose([PAIR] * 5, fabric="leaf_spine", boxes_per_leaf=2)
    assert network.link("box4/nic0", "leaf2").bandwidth == 12
    assert [network.link(f"leaf{leaf}", "spine").bandwidth for leaf in range(3)] == [48, 48, 24]


@pytest.mark.parametrize("boxes", [2, 3])
def test_boxes_like_those_of_the_catalogue_give_its_networks(boxes: int) -> None:
    """The same links, but for the names of switches and for the multicast that the catalogue's H100 has."""
    switch = tuple(Link(f"gpu{gpu}", "nvswitch", Fraction(450), Fraction(7, 20)) for gpu in range(8))
    box = Box("h", 8, switch, tuple(Nic((f"gpu{gpu}",), 50, 50) for gpu in range(8)), ("nvswitch",), ("nvswitch",))
    full, expected = compose([box] * boxes), dgx_h100(boxes=boxes)
    assert sorted(_renamed(full, "fabric", "ib")) == sorted(expected.links)
    assert full.multicast == expected.multicast
    assert sorted(compose([box] * boxes, fabric="rail").links) == sorted(rail(boxes).links)


def test_boxes_that_have_cards_keep_them_beside_boxes_that_have_none() -> None:
    """The number of cards is for those of which nothing is known."""
    network = compose([PAIR, BARE], nics=4, nic_bandwidth=30)
    cards = [node for node in network.switch_nodes if "/nic" in node]
    assert cards == ["box0/nic0", "box0/nic1", *(f"box1/nic{nic}" for nic in range(4))]
    assert network.link("box0/nic0", "fabric").bandwidth == network.link("box1/nic3", "fabric").bandwidth == 30


@pytest.mark.parametrize("ports", [None, 20, 80])
def test_what_a_box_says_of_the_ways_to_its_cards_counts_for_any_ports(ports: int | None) -> None:
    """Two cards on one link of 60 GB/s; a third is not on it."""
    ways = (SharedLink("a PCIe link", Fraction(60), ((0, 1), (1, 1))),)
    cards = tuple(Nic((f"gpu{gpu}",), 30, 30) for gpu in range(3))
    box = Box(
        "trio", 3, tuple(Link(f"gpu{gpu}", "hub", Fraction(90)) for gpu in range(3)), cards, ("hub",), shared=ways
    )
    network = compose([box, box], nic_bandwidth=ports)
    found = [network.link(f"box0/nic{nic}", "fabric").bandwidth for nic in range(3)]
    assert found == [min(ports or 30, 30)] * 2 + [ports or 30]
    assert network.link("box0/gpu2", "box0/nic2").bandwidth == 30


@pytest.mark.parametrize(
    ("nodes", "options", "message"),
    [
        ([], {}, "there are no boxes to compose"),
        ("box.xml", {}, "boxes is 'box.xml', a single box; expected a list, such as [box, box]"),
        ([PAIR], {"boxes_per_leaf": 0}, "boxes_per_leaf is 0; expected a whole number"),
        ([PAIR] * 2, {"oversubscription": 4}, "oversubscription is 4, but fabric 'full' is non-blocking; leave it out"),
        ([PAIR] * 2, {"boxes_per_leaf": 4, "fabric": "rail"}, "boxes_per_leaf is 4, but fabric 'rail' has no leaves"),
        ([PAIR], {"fabric": "clos"}, "fabric is 'clos'; expected one of full, rail, leaf_spine"),
        ([PAIR] * 2, {"oversubscription": None}, "but fabric 'full' needs a spine"),
        ([PAIR] * 2, {"nics": 2}, "box 'pair' has 2 NICs already; leave out nics"),
        ([BARE] * 2, {}, "the NICs of box 'bare' are unknown; give nics and nic_bandwidth, such as nics=4"),
        ([BARE] * 2, {"nics": 5, "nic_bandwidth": 1}, "nics is 5; expected a whole number"),
        ([Box("mute", 2, PAIR.links, (Nic(("gpu0", "gpu1"), 25, None),))] * 2, {}, "the bandwidth of nic0 of box"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(
    nodes: list[Box], options: dict[str, object], message: str
) -> None:
    """The message names the option and a usable value."""
    with pytest.raises(TopologyError, match=re.escape(message)):
        compose(nodes, **options)  # type: ignore[arg-type]


@st.composite
def networks(draw: st.DrawFn) -> Topology:
    """Boxes of two kinds, with any fabric."""
    boxes = draw(st.lists(st.sampled_from([PAIR, BARE]), min_size=2, max_size=5))
    fabric = draw(st.sampled_from(sorted(FABRICS)))
    nics = tuple(Nic((f"gpu{gpu}",), 25, 12) for gpu in range(2))
    equipped = [box if box.nics else Box(box.name, box.gpus, box.links, nics) for box in boxes]
    leaves = {"boxes_per_leaf": draw(st.integers(1, 3))} if fabric == "leaf_spine" else {}
    return compose(equipped, fabric=fabric, **leaves)  # type: ignore[arg-type]


@given(networks())
def test_switches_always_take_in_what_they_give_out(network: Topology) -> None:
    """Ingress and egress of every switch are equal, as planners require."""
    assert all(network.ingress(switch) == network.egress(switch) for switch in network.switch_nodes)


def _renamed(network: Topology, old: str, new: str) -> list[Link]:
    names = {old: new}
    return [
        link._replace(tail=names.get(link.tail, link.tail), head=names.get(link.head, link.head))
        for link in network.links
    ]


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
    """One note lists the latencies of all classes and how to measure them."""
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
