"""NVIDIA boxes against their data sheets."""

from __future__ import annotations

from fractions import Fraction

from collopt.topologies import dgx1_v100, dgx_a100, dgx_h100

# `nvidia-smi topo -m` on an 8 x V100-SXM2 machine with the hybrid cube mesh; digits are bonded NVLinks.
NVLINKS = """
X 1 1 2 2 . . .
1 X 2 1 . 2 . .
1 2 X 2 . . 1 .
2 1 2 X . . . 1
2 . . . X 1 1 2
. 2 . . 1 X 2 1
. . 1 . 1 2 X 2
. . . 1 2 1 2 X
"""


def test_a100_boxes_match_forestcoll() -> None:
    """Two boxes give B(v) = 325 GB/s: 300 over NVLink and 25 over the GPU's own NIC (section 6.2.2)."""
    topology = dgx_a100(boxes=2)
    assert topology.num_ranks == 16
    assert len(topology.switch_nodes) == 2 + 16 + 1
    assert {topology.ingress(rank) for rank in topology.compute_nodes} == {325}
    assert topology.ingress("box0/nvswitch") == 2400
    assert topology.ingress("ib") == 400
    assert topology.link("box1/gpu3", "box1/nvswitch").bandwidth == 300
    assert topology.link("box1/nic3", "ib").bandwidth == 25


def test_a_single_a100_box_is_a_star() -> None:
    """8 GPUs around one NVSwitch."""
    topology = dgx_a100()
    assert topology.switch_nodes == ("box0/nvswitch",)
    assert len(topology.links) == 16


def test_the_a100_nvswitch_only_forwards() -> None:
    """NVLink SHARP came with the next generation."""
    assert dgx_a100(2).multicast == dgx_a100(2).aggregation == set()


def test_h100_boxes_match_forestcoll_and_can_multicast() -> None:
    """450 GB/s over NVLink, 50 GB/s over the NIC (section 6.3); NVSwitches copy and add, the fabric does not."""
    topology = dgx_h100(boxes=2)
    assert {topology.ingress(rank) for rank in topology.compute_nodes} == {500}
    assert topology.multicast == topology.aggregation == {"box0/nvswitch", "box1/nvswitch"}


def test_dgx1_has_the_hybrid_cube_mesh() -> None:
    """The NVLinks are those that nvidia-smi lists, six per GPU."""
    topology = dgx1_v100()
    for gpu, row in enumerate(NVLINKS.split("\n")[1:-1]):
        counts = {peer: int(cell) for peer, cell in enumerate(row.split()) if cell.isdigit()}
        found = {link.head: link.bandwidth for link in topology.out_links(f"box0/gpu{gpu}")}
        assert found == {f"box0/gpu{peer}": 25 * count for peer, count in counts.items()}
        assert topology.egress(f"box0/gpu{gpu}") == 6 * 25


def test_dgx1_shares_each_nic_between_two_gpus() -> None:
    """Four 100 Gb/s NICs per box, on the PCIe switches of GPUs 0-1, 2-3, 4-5 and 6-7."""
    topology = dgx1_v100(boxes=2)
    assert {link.tail for link in topology.in_links("box1/nic2")} == {"box1/gpu4", "box1/gpu5", "ib"}
    assert topology.link("box1/nic2", "ib").bandwidth == Fraction(25, 2)
    assert topology.ingress("ib") == 8 * Fraction(25, 2)
