"""Joining boxes: what all vendor boxes have in common."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import networkx as nx
import pytest

from collopt.errors import TopologyError
from collopt.topologies import (
    Link,
    Topology,
    dgx1_v100,
    dgx_a100,
    dgx_b300,
    dgx_h100,
    gaudi3,
    mi250,
    mi300x,
    mi355x,
    trn2,
)
from collopt.topologies.switched.scale_out import Box, Nic, repeat_box

VENDOR_BOXES = [dgx_a100, dgx_h100, dgx_b300, dgx1_v100, mi250, mi300x, mi355x, gaudi3, trn2]
PAIR = Box("pair", 2, (Link("gpu0", "gpu1", Fraction(8)),), (Nic(("gpu0", "gpu1"), "1.5", 2),))


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
def test_one_box_has_no_scale_out_network(builder: Callable[..., Topology]) -> None:
    """NICs and fabric would lead nowhere."""
    assert not [node for node in builder().switch_nodes if "nic" in node or node == "ib"]
    assert builder() == builder(1) == builder(boxes=1)


@pytest.mark.parametrize("builder", VENDOR_BOXES)
def test_ranks_count_through_the_boxes_in_order(builder: Callable[..., Topology]) -> None:
    """All of box 0 comes before box 1."""
    ranks = builder(3).compute_nodes
    gpus = len(ranks) // 3
    assert ranks == tuple(f"box{box}/gpu{gpu}" for box in range(3) for gpu in range(gpus))


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


@pytest.mark.parametrize("builder", VENDOR_BOXES)
@pytest.mark.parametrize("wrong", [0, -1, 131073, True, "2", 2.0, None])
def test_a_number_of_boxes_that_makes_no_sense_is_refused(builder: Callable[..., Topology], wrong: object) -> None:
    """1 to 131072 boxes can be built."""
    with pytest.raises(TopologyError, match=r"boxes is .*; expected a whole number from 1 to 131072"):
        builder(wrong)


def test_names_tell_machines_apart() -> None:
    """The number of boxes is part of the name."""
    assert dgx_a100().name == "dgx-a100"
    assert dgx_a100(2).name == "dgx-a100-2boxes"


def test_nics_join_the_fabric_in_turn() -> None:
    """With several fabrics, NIC i goes to fabric i; a backbone adds its own switches."""
    box = Box("pair", 2, (), (Nic(("gpu0",), 1, 1), Nic(("gpu1",), 1, 1)))
    topology = repeat_box(box, 2, fabrics=["left", "right"], backbone=[Link("left", "top", Fraction(3))])
    assert {link.head for link in topology.out_links("left")} == {"box0/nic0", "box1/nic0", "top"}
    assert {link.head for link in topology.out_links("right")} == {"box0/nic1", "box1/nic1"}
    assert topology.switch_nodes[-3:] == ("left", "right", "top")


def test_a_shared_nic_has_its_own_limit() -> None:
    """Both GPUs reach it, and what leaves it is the NIC's bandwidth."""
    topology = repeat_box(PAIR, 2)
    assert topology.link("box1/gpu1", "box1/nic0").bandwidth == Fraction(3, 2)
    assert topology.link("box1/nic0", "ib").bandwidth == 2
    assert topology.ingress("ib") == 4


def test_too_large_a_machine_is_refused_before_it_is_built() -> None:
    """The links are counted first."""
    huge = Box("huge", 512, tuple(Link(f"gpu{a}", f"gpu{b}", Fraction(1)) for a in range(512) for b in range(a)), ())
    with pytest.raises(TopologyError, match="huge with 33 boxes would have 8633856 links"):
        repeat_box(huge, 33)
