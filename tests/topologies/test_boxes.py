"""Boxes: their files, their fabric, and how their NICs divide the links on the way to GPUs."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from fractions import Fraction
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt import topologies
from collopt.errors import FileFormatError, TopologyError
from collopt.topologies import (
    SwitchLimits,
    Topology,
    build,
    catalogue,
    compose,
    dgx1_v100,
    dgx_a100,
    dgx_b300,
    dgx_h100,
    gaudi3,
    mi250,
    mi300x,
    mi355x,
    read_box,
    read_topology,
    torus,
    trn2,
    twisted_torus,
)
from collopt.topologies.switched.box_files import box_from_json, stored_fields
from collopt.topologies.switched.scale_out import (
    UNLIMITED,
    Share,
    SharedLink,
    max_min_shares,
    share_notes,
)
from sample_sizes import examples

FILES = sorted(path.name.removesuffix(".json") for path in (files(topologies) / "switched" / "boxes").iterdir())
NVLS = SwitchLimits(
    "nvswitch",
    loopback=True,
    operators=("max", "min", "sum"),
    types=("bfloat16", "float16", "float32", "float64", "int32", "int64", "uint32", "uint64"),
)

# Name, ranks of one box, GB/s out of a GPU in one box and in two, and whether switches multicast and aggregate.
FIGURES = [
    ("dgx_a100", 8, 300, 325, False),
    ("dgx_h100", 8, 450, 500, True),
    ("dgx_h200", 8, 450, 500, True),
    ("hgx_h20", 8, 450, 500, True),
    ("dgx_b200", 8, 900, 950, True),
    ("dgx_b300", 8, 900, 1000, True),
    ("gb200_nvl72", 72, 900, 950, True),
    ("gb300_nvl72", 72, 900, 1000, True),
    ("nvl576", 576, 1300, 1400, True),
    ("dgx1_v100", 8, 150, 162.5, False),
    ("mi250", 16, 350, 366, False),
    ("mi300a", 4, 384, 409, False),
    ("l40s", 8, 2048 / 65, 2048 / 65, False),
    ("rtx_pro_6000", 8, 4096 / 65, 4096 / 65, False),
    ("mi300x", 8, 448, 498, False),
    ("mi325x", 8, 448, 498, False),
    ("mi355x", 8, 537.6, 587.6, False),
    ("helios", 72, 1800, 2100, False),
    ("gaudi3", 8, 525, 600, False),
    ("trn2", 16, 512, 537, False),
    ("trn2_ultraserver", 64, 640, 665, False),
    ("trn3_ultraserver", 144, 1280, 1305, False),
]


def test_there_is_a_figure_for_every_file() -> None:
    """And a function of the catalogue, whose boxes carry the name of the file."""
    slices = [name for name in FILES if stored_fields(name)["links"]["pattern"] == "slice"]
    assert sorted([name.replace("_", "-") for name, *_ in FIGURES] + slices) == FILES
    assert set(FILES) <= {entry.name for entry in catalogue()}
    assert all(build(name).name == name == stored_fields(name)["name"] for name in set(FILES) - set(slices))


@pytest.mark.parametrize(("name", "ranks", "alone", "joined", "able"), FIGURES, ids=[row[0] for row in FIGURES])
def test_boxes_have_the_figures_of_their_data_sheets(
    name: str, ranks: int, alone: float, joined: float, able: bool
) -> None:
    """GB/s out of every GPU, and abilities of every switch inside of a box and of no other."""
    one, two = (getattr(topologies, name)(boxes) for boxes in (1, 2))
    assert (one.num_ranks, two.num_ranks) == (ranks, 2 * ranks)
    assert {float(one.egress(rank)) for rank in one.compute_nodes} == {alone}
    assert {float(two.egress(rank)) for rank in two.compute_nodes} == {joined}
    switches = [node for node in two.switch_nodes if "switch" in node]
    assert two.multicast == two.aggregation == two.loopback == (set(switches) if able else set())
    assert all(two.ingress(switch) == ranks * alone for switch in switches)


def test_nvlink_sharp_has_loopback_unless_it_is_left_out() -> None:
    """Operators and types are those of NCCL's NVLS; Blackwell adds floats of 8 bits as well."""
    assert dgx_h100().limits == (NVLS._replace(switch="box0/nvswitch"),)
    assert dgx_h100(2, loopback=False) == build("dgx-h100", boxes="2", loopback="false")
    assert not dgx_h100(2, loopback=False).loopback
    assert dgx_h100(2, loopback=False).multicast == dgx_h100(2).multicast
    assert {"float8_e4m3fn", "float8_e5m2"} == set(dgx_b300().limits[0].types) - set(NVLS.types)
    with pytest.raises(TopologyError, match="loopback is 1; expected True or False"):
        dgx_h100(loopback=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(4, 4, 4), (4, 8, 4)])
def test_slices_of_whole_cubes_are_tori(shape: tuple[int, ...]) -> None:
    """Slices of TPUs have the links that `torus` makes."""
    assert topologies.tpu_v4(*shape) == torus(*shape, bandwidth=50, latency=1)
    assert topologies.tpu_v5p(*shape) == torus(*shape, bandwidth=100, latency=1)


@pytest.mark.parametrize("shape", [(4, 4, 8), (8, 4, 8)])
def test_slices_can_be_twisted(shape: tuple[int, ...]) -> None:
    """With the links of `twisted_torus`, whose ranks have other names."""
    ours, theirs = topologies.tpu_v4(*shape, twisted=True), twisted_torus(*shape, bandwidth=50, latency=1)
    assert arcs(ours) == arcs(theirs)
    assert arcs(ours) != arcs(topologies.tpu_v4(*shape))


def arcs(topology: Topology) -> set[tuple[int, int, Any]]:
    """Links between numbered ranks."""
    return {(topology.node_index[a], topology.node_index[b], bandwidth) for a, b, bandwidth, _ in topology.links}


def test_dimensions_of_small_slices_are_lines() -> None:
    """TPU v5e closes dimensions of 16 chips, each by itself; v4 and v5p all dimensions of whole cubes, or none."""
    assert len(topologies.tpu_v5e(4, 16).links) == 2 * (3 * 16 + 4 * 16)
    assert len(topologies.tpu_v6e(2, 2).links) == 8
    assert len(topologies.tpu_v4(2, 4, 4).links) == 2 * (1 * 16 + 2 * (2 * 4 * 3))
    assert topologies.tpu_v4(2, 2, 1).egress("gpu0.0.0") == 100


def test_slices_are_not_boxes() -> None:
    """Of files, `box_from_json` reads those of one shape alone."""
    with pytest.raises(FileFormatError, match="describes slices of any shape, not one box"):
        box_from_json(dict(stored_fields("tpu-v4")), "tpu-v4")


TORUS = {"pattern": "torus", "shape": [4, 4], "bandwidths": [1], "latency": 0}
PAIRS = {"pattern": "pairs", "pairs": [[0, 9, 1]], "bandwidth": 1, "latency": 0}


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (["gpus"], 0, "field gpus is 0; it should be greater than or equal to 1"),
        (["links", "pattern"], "ring", "'star', 'full', 'pairs', 'torus', 'slice'"),
        (["links", "bandwidth"], -1, "field links.star.bandwidth: bandwidth of every link is -1; expected a positive"),
        (["links", "switch"], "x", "field links: 'x' is not listed in switches"),
        (["links"], TORUS, r"field links: the shape \[4, 4\] does not fit 8 GPUs and 1 bandwidths"),
        (["links"], PAIRS, r"field links: \[0, 9, 1\] are not two of 8 GPUs and a number of links"),
        (["switches", 0, "aggregation"], False, "field switches: 'nvswitch' has one of multicast and aggregation"),
        (["switches", 0, "group"], 1, "group limit of switch 'nvswitch' is 1; expected a whole number from 2"),
        (["switches", 0, "operators"], ["add"], "switch 'nvswitch' has 'add' among its operators; expected some of"),
        (["switches", 0], {"name": "nvswitch", "loopback": True}, "'nvswitch' has loopback, but neither multicast nor"),
        (["gpus"], 1, "field links: switch 'nvswitch' is said to multicast and aggregate, but has links to 1 GPUs"),
        (["nics", "gpus"], 3, "field nics: 8 GPUs cannot share NICs in groups of 3; expected a divisor"),
        (["sources", "nics"], None, "field sources: there is none for nics; cite where the figures come from"),
    ],
)
def test_wrong_fields_are_named(where: list[Any], value: Any, message: str) -> None:
    """One clear error each; None leaves a field out."""
    data = deepcopy(dict(stored_fields("dgx-b300")))
    part: Any = data
    for key in where[:-1]:
        part = part[key]
    if value is None:
        del part[where[-1]]
    else:
        part[where[-1]] = value
    with pytest.raises(FileFormatError, match=message) as caught:
        box_from_json(data, "mine.json")
    assert str(caught.value).startswith("mine.json")
    assert "\n" not in str(caught.value)


def test_a_file_of_ones_own_is_a_network_like_those_of_other_tools(tmp_path: Path) -> None:
    """Alone, or joined to others, with abilities, latencies and other cards."""
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(stored_fields("dgx-b300")), encoding="utf-8")
    assert read_topology(path) == dgx_b300()
    assert compose([read_box(path)] * 3, fabric="full").loopback == dgx_b300(3).loopback
    faster = read_topology(path, boxes=2, fabric="rail", nic_bandwidth="1600Gb/s")
    assert faster.link("box0/nic0", "rail0").bandwidth == 200
    assert any(note.startswith("assumed: ") for note in read_box(path).notes)
    with pytest.raises(FileFormatError, match="gpu does not go with a file of the format collopt box, which takes nic"):
        read_topology(path, gpu="h100")


VENDOR_BOXES = [dgx_a100, dgx_h100, dgx_b300, dgx1_v100, mi250, mi300x, mi355x, gaudi3, trn2]


def path_latency(topology: Topology, *nodes: str) -> Fraction:
    """Add up the latencies along a path."""
    return sum((topology.link(*hop).latency for hop in pairwise(nodes)), Fraction(0))


@pytest.mark.parametrize("builder", VENDOR_BOXES)
@pytest.mark.parametrize("boxes", [1, 2, 3])
def test_boxes_are_balanced_and_connected(builder: Callable[..., Topology], boxes: int) -> None:
    """Every node takes in what it gives out and reaches every other."""
    topology = builder(boxes)
    assert all(topology.ingress(node) == topology.egress(node) for node in topology.nodes)
    assert nx.is_strongly_connected(topology.to_networkx())
    assert len({topology.egress(rank) for rank in topology.compute_nodes}) == 1


@pytest.mark.parametrize("builder", VENDOR_BOXES)
def test_latencies_add_up_to_the_published_ones(builder: Callable[..., Topology]) -> None:
    """0.7 µs from GPU to GPU within a box, 1.7 µs from box to box, as TACCL reports."""
    topology = builder(2)
    across = path_latency(topology, "box0/gpu0", "box0/nic0", "ib", "box1/nic0", "box1/gpu0")
    assert across == Fraction(17, 10)
    if "box0/nvswitch" in topology.nodes:
        assert path_latency(topology, "box0/gpu0", "box0/nvswitch", "box0/gpu1") == Fraction(7, 10)
    else:
        assert path_latency(topology, "box0/gpu0", "box0/gpu1") == Fraction(7, 10)


def shared_link(bandwidth: int, *ways: tuple[int, int]) -> SharedLink:
    """A link on the ways of some cards."""
    return SharedLink("a PCIe link", Fraction(bandwidth), ways)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], list[Fraction | None], list[SharedLink]]:
    """Cards with their ports, and links on which some of the ways to their nodes lead."""
    near = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    speeds = st.none() | st.sampled_from([Fraction(1, 8), Fraction(25), Fraction(50), Fraction(100)])
    ports = [draw(speeds) for _ in near]
    links = []
    for _ in range(draw(st.integers(0, 5))):
        cards = draw(st.sets(st.integers(0, len(near) - 1), min_size=1))
        ways = tuple((card, draw(st.integers(1, near[card]))) for card in sorted(cards))
        links.append(shared_link(draw(st.integers(1, 120)), *ways))
    return near, ports, links


@settings(max_examples=examples(200))
@given(cases())
def test_no_link_can_be_exceeded_and_none_is_wasted(
    case: tuple[list[int], list[Fraction | None], list[SharedLink]],
) -> None:
    """Whichever GPUs are busy, and though every card reaches all that it has; who has less than its ports is stopped
    by a full link, on which nobody has more."""
    near, ports, links = case
    shares = max_min_shares(near, ports, links)
    for way in links:
        assert (
            sum(min(shares[card].bandwidth, count * shares[card].near_bandwidth) for card, count in way.paths)
            <= way.bandwidth
        )
    for card, share in enumerate(shares):
        most = UNLIMITED if ports[card] is None else ports[card]
        assert most is not None
        assert 0 < share.bandwidth <= most
        assert share.near_bandwidth <= share.bandwidth <= share.near_bandwidth * near[card]
        assert (share.limit is None) is (share.bandwidth == most)
        if share.limit is not None:
            ways = dict(share.limit.paths)
            full = sum(shares[other].bandwidth * count / near[other] for other, count in ways.items())
            assert full == share.limit.bandwidth
            assert share.bandwidth == max(shares[other].bandwidth for other in ways)


def test_cards_that_are_stopped_elsewhere_leave_their_part() -> None:
    """The first is held at 10 GB/s by its own link, so the second gets 50 of 60."""
    shares = max_min_shares([1, 1], [Fraction(90)] * 2, [shared_link(10, (0, 1)), shared_link(60, (0, 1), (1, 1))])
    assert [share.bandwidth for share in shares] == [10, 50]


def test_many_cards_of_one_kind_are_told_in_one_note() -> None:
    """A note names four of six cards and counts the others."""
    own = [shared_link(10, (card, 1)) for card in range(6)]
    ports: list[Fraction | None] = [Fraction(25)] * 6
    assert share_notes(max_min_shares([1] * 6, ports, own), ports) == [
        "nic0, nic1, nic2, nic3 and 2 more are modeled with 10 of 25 GB/s, because a PCIe link has 10 GB/s"
    ]
    assert share_notes([Share(Fraction(5), Fraction(5), own[0])], [None]) == []
