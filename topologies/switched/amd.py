"""AMD boxes: 16 GCDs of MI250 and 8 MI300X, alone or several on one InfiniBand fabric."""

from __future__ import annotations

from fractions import Fraction

from ..network.topology import Link, Topology
from .scale_out import SCALE_UP_LATENCY, Box, Nic, repeat_box

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
