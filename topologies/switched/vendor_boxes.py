"""NVIDIA and AMD boxes, alone or several on one InfiniBand fabric: DGX A100, H100 and 1-V100, MI250 and MI300X."""

from __future__ import annotations

from fractions import Fraction

from ..network.topology import Link, Topology
from .scale_out import SCALE_UP_LATENCY, Box, Nic, repeat_box

SINGLE_LINKS = ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))
DOUBLE_LINKS = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
CUBE_MESH = tuple(sorted([(a, b, 1) for a, b in SINGLE_LINKS] + [(a, b, 2) for a, b in DOUBLE_LINKS]))
"""Pairs of GPUs of a DGX-1 V100 and the NVLinks between them, as ``nvidia-smi topo -m`` shows them (NV1, NV2)."""


def dgx_a100(boxes: int = 1) -> Topology:
    """DGX A100: 8 GPUs on an NVSwitch of 300 GB/s per GPU, one 200 Gb/s NIC per GPU.

    Line rates in each direction: 12 third-generation NVLinks of 25 GB/s are 300 GB/s, and a NIC gives 25 GB/s
    (ForestColl section 6.2.2), so a GPU of several boxes takes in 325 GB/s.  The real box has two NICs on the PCIe
    switch of two GPUs; here every GPU has its own.  This NVSwitch has neither in-network multicast nor reduction.

    Parameters
    ----------
    boxes : int
        How many boxes share one InfiniBand fabric, 1 to 4096.  A single box has neither NICs nor fabric.

    Returns
    -------
    Topology
        ``box0/gpu0`` ... , ``box0/nvswitch``, and with several boxes ``box0/nic0`` ... and ``ib``.

    Examples
    --------
    >>> dgx_a100(boxes=2).ingress("box0/gpu0")
    Fraction(325, 1)
    """
    return repeat_box(_nvswitch_box("dgx-a100", nvswitch=300, nic=25), boxes)


def dgx_h100(boxes: int = 1) -> Topology:
    """DGX H100: 8 GPUs on an NVSwitch of 450 GB/s per GPU with multicast and reduction, one 400 Gb/s NIC per GPU.

    Line rates in each direction: 18 fourth-generation NVLinks of 25 GB/s are 450 GB/s, and a NIC gives 50 GB/s
    (ForestColl section 6.3).  The third-generation NVSwitch has NVLink SHARP, so it is marked as able to multicast
    and to aggregate; the InfiniBand fabric is not.

    Parameters
    ----------
    boxes : int
        How many boxes share one InfiniBand fabric, 1 to 4096.  A single box has neither NICs nor fabric.

    Returns
    -------
    Topology
        Nodes named as in `dgx_a100`.

    Examples
    --------
    >>> sorted(dgx_h100(boxes=2).multicast)
    ['box0/nvswitch', 'box1/nvswitch']
    """
    return repeat_box(_nvswitch_box("dgx-h100", nvswitch=450, nic=50, abilities=("nvswitch",)), boxes)


def dgx1_v100(boxes: int = 1) -> Topology:
    """DGX-1 V100: 8 GPUs in a hybrid cube mesh of NVLinks of 25 GB/s, one 100 Gb/s NIC per two GPUs.

    Line rates in each direction: a GPU has 6 second-generation NVLinks of 25 GB/s, two of them bonded towards some
    peers (Li et al., IEEE TPDS 31(1), 2020, describes the mesh).  GPUs 2i and 2i+1 share a PCIe switch and the NIC on
    it: each can fill the NIC's 12.5 GB/s, both together cannot exceed it.

    Parameters
    ----------
    boxes : int
        How many boxes share one InfiniBand fabric, 1 to 4096.  A single box has neither NICs nor fabric.

    Returns
    -------
    Topology
        ``box0/gpu0`` ... , and with several boxes ``box0/nic0`` ... ``box0/nic3`` and ``ib``.

    Examples
    --------
    >>> dgx1_v100().egress("box0/gpu0")
    Fraction(150, 1)
    """
    links = tuple(Link(f"gpu{a}", f"gpu{b}", Fraction(25 * count), SCALE_UP_LATENCY) for a, b, count in CUBE_MESH)
    nics = tuple(Nic((f"gpu{2 * pair}", f"gpu{2 * pair + 1}"), Fraction(25, 2), Fraction(25, 2)) for pair in range(4))
    return repeat_box(Box("dgx1-v100", 8, links, nics), boxes)


def _nvswitch_box(name: str, *, nvswitch: int, nic: int, abilities: tuple[str, ...] = ()) -> Box:
    hop = SCALE_UP_LATENCY / 2
    links = tuple(Link(f"gpu{gpu}", "nvswitch", Fraction(nvswitch), hop) for gpu in range(8))
    nics = tuple(Nic((f"gpu{gpu}",), nic, nic) for gpu in range(8))
    return Box(name, 8, links, nics, switches=("nvswitch",), abilities=abilities)


MI250_LINKS: dict[int, dict[int, int]] = {
    0: {1: 4, 2: 1, 4: 2},
    1: {0: 4, 2: 1, 3: 1, 5: 1},
    2: {0: 1, 1: 1, 3: 4, 6: 1},
    3: {1: 1, 2: 4, 7: 2},
    4: {0: 2, 5: 4, 12: 1},
    5: {1: 1, 4: 4, 13: 1, 14: 1},
    6: {2: 1, 7: 4, 13: 1, 14: 1},
    7: {3: 2, 6: 4, 15: 1},
    8: {9: 4, 10: 1, 12: 2},
    9: {8: 4, 10: 1, 11: 1, 13: 1},
    10: {8: 1, 9: 1, 11: 4, 14: 1},
    11: {9: 1, 10: 4, 15: 2},
    12: {4: 1, 8: 2, 13: 4},
    13: {5: 1, 6: 1, 9: 1, 12: 4},
    14: {5: 1, 6: 1, 10: 1, 15: 4},
    15: {7: 1, 11: 2, 14: 4},
}
"""Infinity Fabric links of each GCD by peer, as RCCL's model of this machine lists them
(ROCm/rccl, tools/topo_expl/models/topo_16p1h.xml)."""


def mi250(boxes: int = 1) -> Topology:
    """MI250 box: 16 GCDs with seven 50 GB/s Infinity Fabric links each, one NIC of 32 GB/s per package.

    Line rates in each direction: an Infinity Fabric link of 25 GT/s and two bytes gives 50 GB/s; the eight NICs of a
    box give 256 GB/s, 16 GB/s for each GCD (ForestColl section 6.2.1).

    Parameters
    ----------
    boxes : int
        How many boxes share one InfiniBand fabric, 1 to 4096.  A single box has neither NICs nor fabric.

    Returns
    -------
    Topology
        ``box0/gpu0`` ... ``box0/gpu15``, one per GCD; GCDs 2i and 2i+1 are one package.  With several boxes also
        ``box0/nic0`` ... ``box0/nic7`` and ``ib``.

    Examples
    --------
    >>> mi250().egress("box0/gpu0")
    Fraction(350, 1)
    """
    links = tuple(
        Link(f"gpu{gcd}", f"gpu{peer}", Fraction(50 * count), SCALE_UP_LATENCY)
        for gcd, peers in MI250_LINKS.items()
        for peer, count in peers.items()
        if gcd < peer
    )
    nics = tuple(Nic((f"gpu{2 * package}", f"gpu{2 * package + 1}"), 16, 32) for package in range(8))
    return repeat_box(Box("mi250", 16, links, nics), boxes)


def mi300x(boxes: int = 1) -> Topology:
    """MI300X box: 8 GPUs, each pair joined by an xGMI link of 64 GB/s, one 400 Gb/s NIC per GPU.

    Line rates in each direction: AMD states 128 GB/s for both directions of a link (16 lanes of 32 GT/s), so 64 GB/s
    each way and 448 GB/s per GPU; a NIC gives 50 GB/s.  RCCL's model (ROCm/rccl,
    tools/topo_expl/models/topo_8p_940.xml) has the same full mesh with one link per pair and one 400 Gb/s NIC per GPU.

    Parameters
    ----------
    boxes : int
        How many boxes share one fabric, 1 to 4096.  A single box has neither NICs nor fabric.

    Returns
    -------
    Topology
        ``box0/gpu0`` ... , and with several boxes ``box0/nic0`` ... and ``ib``.

    Examples
    --------
    >>> mi300x(boxes=2).ingress("box1/gpu0")
    Fraction(498, 1)
    """
    links = tuple(
        Link(f"gpu{gpu}", f"gpu{peer}", Fraction(64), SCALE_UP_LATENCY) for gpu in range(8) for peer in range(gpu)
    )
    nics = tuple(Nic((f"gpu{gpu}",), 50, 50) for gpu in range(8))
    return repeat_box(Box("mi300x", 8, links, nics), boxes)
