"""Boxes of GPUs joined by a scale-out network: what the vendor boxes and the rail fabric share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from .sizes import as_size, check_links
from .topology import Link, Topology
from .validation import Exact

__all__ = ["FABRIC_LATENCY", "MAX_BOXES", "PCIE_LATENCY", "SCALE_UP_LATENCY", "Box", "Nic", "join_boxes"]

MAX_BOXES = 4096

SCALE_UP_LATENCY = Fraction(7, 10)
"""µs from GPU to GPU over NVLink, and here over xGMI as well, direct or through a switch.

TACCL (Shah et al., NSDI 23, arXiv:2111.04867) profiles 0.7 µs for NVLink and 1.7 µs for InfiniBand on NDv2; both
figures are repeated in https://github.com/NVIDIA/nccl/issues/1640.
"""
PCIE_LATENCY = Fraction(7, 20)
"""µs between a GPU and its NIC: a share of TACCL's 1.7 µs, as much as one hop to an NVSwitch."""
FABRIC_LATENCY = Fraction(1, 2)
"""µs between a NIC and its network switch, so that GPU, NIC, switch, NIC, GPU add up to 1.7 µs."""


class Nic(NamedTuple):
    """One network card of a box.

    Attributes
    ----------
    gpus : tuple of int
        The GPUs that reach it over PCIe.
    gpu_bandwidth : int, float, str or Fraction
        GB/s between each of them and the card, in each direction.
    bandwidth : int, float, str or Fraction
        GB/s between the card and the network, in each direction.
    """

    gpus: tuple[int, ...]
    gpu_bandwidth: Exact
    bandwidth: Exact


@dataclass(frozen=True)
class Box:
    """One box, in names local to it (``gpu0``, ``nvswitch``).

    Attributes
    ----------
    name : str
        Product name in kebab case.
    gpus : int
        How many GPUs there are: ``gpu0``, ``gpu1``, ...
    links : tuple of Link
        Links inside the box, each standing for both directions.
    nics : tuple of Nic
        Used only when there are several boxes.
    switches : tuple of str
        Switches inside the box.
    abilities : tuple of str
        Those of `switches` that can copy and add up data on its way.
    """

    name: str
    gpus: int
    links: tuple[Link, ...]
    nics: tuple[Nic, ...]
    switches: tuple[str, ...] = ()
    abilities: tuple[str, ...] = ()


def join_boxes(
    box: Box,
    boxes: int,
    *,
    fabrics: Sequence[str] = ("ib",),
    backbone: Sequence[Link] = (),
) -> Topology:
    """Repeat `box` and join the copies through their NICs.

    One box alone gets neither NICs nor fabric: without a second box they lead nowhere.

    Parameters
    ----------
    box : Box
        What to repeat; node ``gpu3`` of copy 1 is called ``box1/gpu3``.
    boxes : int
        1 to 4096.
    fabrics : sequence of str
        Network switches: NIC ``i`` of every box is plugged into ``fabrics[i % len(fabrics)]``.
    backbone : sequence of Link
        Links between `fabrics` and further switches, each standing for both directions.

    Returns
    -------
    Topology
        Ranks in box order; every switch takes in as much as it gives out.

    Raises
    ------
    TopologyError
        If `boxes` is not a whole number from 1 to 4096, or a bandwidth is not usable.
    """
    boxes = as_size(boxes, "boxes", most=MAX_BOXES)
    links_per_box = 2 * (len(box.links) + sum(len(nic.gpus) + 1 for nic in box.nics))
    check_links(boxes * links_per_box + 2 * len(backbone), f"{box.name} with {boxes} boxes")
    prefixes = [f"box{number}/" for number in range(boxes)]
    links = [
        link._replace(tail=prefix + link.tail, head=prefix + link.head) for prefix in prefixes for link in box.links
    ]
    switches = [prefix + switch for prefix in prefixes for switch in box.switches]
    if boxes > 1:
        for prefix in prefixes:
            links += _uplinks(box, prefix, fabrics)
        links += backbone
        switches += [f"{prefix}nic{number}" for prefix in prefixes for number in range(len(box.nics))]
        switches += dict.fromkeys([*fabrics, *(node for link in backbone for node in link[:2])])
    able = [prefix + switch for prefix in prefixes for switch in box.abilities]
    return Topology.from_links(
        links,
        compute=[f"{prefix}gpu{number}" for prefix in prefixes for number in range(box.gpus)],
        switches=switches,
        bidirectional=True,
        multicast=able,
        aggregation=able,
        name=box.name if boxes == 1 else f"{box.name}-{boxes}boxes",
    )


def _uplinks(box: Box, prefix: str, fabrics: Sequence[str]) -> list[Link]:
    rows: list[tuple[str, str, Exact, Fraction]] = []
    for number, nic in enumerate(box.nics):
        card = f"{prefix}nic{number}"
        rows += [(f"{prefix}gpu{gpu}", card, nic.gpu_bandwidth, PCIE_LATENCY) for gpu in nic.gpus]
        rows.append((card, fabrics[number % len(fabrics)], nic.bandwidth, FABRIC_LATENCY))
    # Bandwidths are still as the caller wrote them; Topology makes them exact.
    return [Link(*row) for row in rows]  # type: ignore[arg-type]
