"""AMD boxes against RCCL's models and ForestColl's figures."""

from __future__ import annotations

from collopt.topologies import mi250, mi300x
from collopt.topologies.switched.box_files import stored_fields


def test_infinity_fabric_links_are_symmetric_and_seven_per_gcd() -> None:
    """Four of them to the other GCD of the package, as in RCCL's model."""
    pairs = stored_fields("mi250")["links"]["pairs"]
    for gcd in range(16):
        counts = {pair[0] + pair[1] - gcd: pair[2] for pair in pairs if gcd in pair[:2]}
        assert sum(counts.values()) == 7
        assert counts[gcd ^ 1] == 4


def test_mi250_links_carry_50_gigabytes_each() -> None:
    """350 GB/s per GCD inside the box, to three or four neighbors (ForestColl section 6.2.1)."""
    topology = mi250()
    assert topology.switch_nodes == ()
    assert {topology.egress(rank) for rank in topology.compute_nodes} == {350}
    assert {len(topology.out_links(rank)) for rank in topology.compute_nodes} == {3, 4}
    assert topology.link("box0/gpu0", "box0/gpu1").bandwidth == 200
    assert topology.link("box0/gpu4", "box0/gpu12").bandwidth == 50


def test_mi250_boxes_have_one_nic_per_package() -> None:
    """256 GB/s per box, 16 GB/s per GCD."""
    topology = mi250(boxes=2)
    assert {topology.egress(rank) for rank in topology.compute_nodes} == {366}
    assert topology.ingress("ib") == 2 * 256
    assert {link.tail for link in topology.in_links("box1/nic7")} == {"box1/gpu14", "box1/gpu15", "ib"}


def test_the_bottleneck_of_two_mi250_boxes_is_a_package() -> None:
    """ForestColl's optimum 1/x* = 15/166 is the cut around everything but one package of 332 GB/s."""
    topology = mi250(boxes=2)
    package = {"box0/gpu0", "box0/gpu1", "box0/nic0"}
    leaving = sum(
        link.bandwidth for node in sorted(package) for link in topology.out_links(node) if link.head not in package
    )
    assert leaving == 332


def test_mi300x_is_fully_connected() -> None:
    """Seven xGMI links of 64 GB/s per GPU, and one 400 Gb/s NIC."""
    alone, joined = mi300x(), mi300x(boxes=2)
    assert len(alone.links) == 8 * 7
    assert {link.bandwidth for link in alone.links} == {64}
    assert {joined.egress(rank) for rank in joined.compute_nodes} == {448 + 50}
    assert joined.ingress("ib") == 16 * 50
