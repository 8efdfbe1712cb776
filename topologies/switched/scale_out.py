"""Boxes of GPUs and NICs, and their connection by a scale-out network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import NamedTuple

from ...errors import TopologyError
from ...support.quantities import Exact
from ...support.validation import as_size, check_links
from ..network.topology import Link, SwitchLimits, Topology

MAX_BOXES = 4096

SCALE_UP_LATENCY = Fraction(7, 10)
"""µs from GPU to GPU over NVLink, and here over xGMI as well, direct or through a switch.

TACCL (Shah et al., NSDI 23, arXiv:2111.04867) profiles 0.7 µs for NVLink and 1.7 µs for InfiniBand on NDv2; both
figures are repeated in https://github.com/NVIDIA/nccl/issues/1640.
"""
PCIE_LATENCY = Fraction(7, 20)
"""µs between a GPU and its NIC: a share of TACCL's 1.7 µs, as much as one hop to an NVSwitch."""
FABRIC_LATENCY = Fraction(1, 2)
"""µs between a NIC and its network switch, so that GPU, NIC, switch, NIC, GPU is 1.7 µs in total."""


class Nic(NamedTuple):
    """One NIC of a box.

    Attributes
    ----------
    near : tuple of str
        The GPUs, or the switches inside the box, that it is attached to.
    near_bandwidth : int, float, str or Fraction
        GB/s between each of them and the NIC, in each direction.
    bandwidth : int, float, str, Fraction or None
        GB/s between the NIC and the network, in each direction; None if the source of the box does not state it.
    near_latency, latency : int, float, str or Fraction
        µs of the same links.
    port : int, float, str, Fraction or None
        GB/s of its ports, where links inside the box limit `bandwidth` to less.
    """

    near: tuple[str, ...]
    near_bandwidth: Exact
    bandwidth: Exact | None
    near_latency: Exact = PCIE_LATENCY
    latency: Exact = FABRIC_LATENCY
    port: Exact | None = None


class SharedLink(NamedTuple):
    """A PCIe link shared by NICs, which limits their total but is not a link of the box."""

    name: str  # as it ends a sentence about a NIC: ``"a card's own PCIe link"``
    bandwidth: Fraction  # GB/s in each direction
    # Each NIC that uses it, by position, and the number of its near nodes that it reaches through it
    paths: tuple[tuple[int, int], ...]


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
        Links inside the box, each for both directions.
    nics : tuple of Nic
        Used only when there are several boxes.
    switches : tuple of str
        Switches inside the box.
    abilities : tuple of str
        Those of `switches` with in-network multicast and reduction.
    notes : tuple of str
        Sentences on assumptions behind the numbers.
    shared : tuple of SharedLink
        What `nic_shares.with_port_bandwidth` divides among `nics` once the speed of their ports is known.
    limits : tuple of SwitchLimits
        Of the switches in `abilities`.
    """

    name: str
    gpus: int
    links: tuple[Link, ...]
    nics: tuple[Nic, ...]
    switches: tuple[str, ...] = ()
    abilities: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    shared: tuple[SharedLink, ...] = ()
    limits: tuple[SwitchLimits, ...] = ()


def repeat_box(box: Box, boxes: int, *, fabrics: Sequence[str] = ("ib",), backbone: Sequence[Link] = ()) -> Topology:
    """Repeat `box` and join the copies through their NICs."""
    boxes = as_size(boxes, "boxes", most=MAX_BOXES)
    name = box.name if boxes == 1 else f"{box.name}-{boxes}boxes"
    return join_boxes([box] * boxes, name, fabric_switch=lambda _, nic: fabrics[nic % len(fabrics)], backbone=backbone)


def join_boxes(
    boxes: Sequence[Box], name: str, *, fabric_switch: Callable[[int, int], str], backbone: Sequence[Link] = ()
) -> Topology:
    """Join boxes through their NICs; one box alone gets neither NICs nor fabric, which would lead nowhere."""
    joined = len(boxes) > 1
    count = sum(len(box.links) + joined * sum(len(nic.near) + 1 for nic in box.nics) for box in boxes)
    check_links(2 * (count + len(backbone)), f"{boxes[0].name} with {len(boxes)} boxes")
    links: list[Link] = []
    limits: list[SwitchLimits] = []
    nodes: dict[str, list[str]] = {"compute": [], "switches": [], "capable": [], "nics": []}
    for number, box in enumerate(boxes):
        prefix = f"box{number}/"
        links += [link._replace(tail=prefix + link.tail, head=prefix + link.head) for link in box.links]
        nodes["compute"] += [f"{prefix}gpu{gpu}" for gpu in range(box.gpus)]
        nodes["switches"] += [prefix + switch for switch in box.switches]
        nodes["capable"] += [prefix + switch for switch in box.abilities if _has_two_ports(box, switch)]
        limits += [each._replace(switch=prefix + each.switch) for each in box.limits]
        nodes["nics"] += [f"{prefix}nic{nic}" for nic in range(len(box.nics))]
    if joined:
        fabric_switches = [
            [fabric_switch(number, nic) for nic in range(len(box.nics))] for number, box in enumerate(boxes)
        ]
        for number, box in enumerate(boxes):
            links += _nic_links(box, f"box{number}/", fabric_switches[number])
        links += backbone
        network = [*chain.from_iterable(fabric_switches), *(node for link in backbone for node in link[:2])]
        nodes["switches"] += [*nodes["nics"], *dict.fromkeys(network)]
    return Topology.from_links(
        links,
        compute=nodes["compute"],
        switches=nodes["switches"],
        bidirectional=True,
        multicast=nodes["capable"],
        aggregation=nodes["capable"],
        limits=limits,
        name=name,
    )


def _has_two_ports(box: Box, switch: str) -> bool:
    """Whether a switch has links to two nodes of its box, as it needs to multicast or aggregate."""
    return len({end for link in box.links if switch in link[:2] for end in link[:2]}) > 2


def _nic_links(box: Box, prefix: str, fabric_switches: Sequence[str]) -> list[Link]:
    rows: list[tuple[str, str, Exact, Exact]] = []
    for number, nic in enumerate(box.nics):
        if nic.bandwidth is None:
            raise TopologyError(
                f"the bandwidth of nic{number} of box {box.name!r} is unknown; give nic_bandwidth in GB/s"
            )
        name = f"{prefix}nic{number}"
        rows += [(prefix + node, name, nic.near_bandwidth, nic.near_latency) for node in nic.near]
        rows.append((name, fabric_switches[number], nic.bandwidth, nic.latency))
    # Topology converts the numbers to exact fractions.
    return [Link(*row) for row in rows]  # type: ignore[arg-type]
