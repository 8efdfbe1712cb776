"""Boxes of GPUs joined by a scale-out network: what the vendor boxes and the rail fabric share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import NamedTuple

from ...errors import TopologyError
from ...support.quantities import Exact
from ...support.validation import as_size, check_links
from ..network.topology import Link, Topology

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
    near : tuple of str
        The GPUs, or the switches inside the box, that it is plugged into.
    near_bandwidth : int, float, str or Fraction
        GB/s between each of them and the card, in each direction.
    bandwidth : int, float, str, Fraction or None
        GB/s between the card and the network, in each direction; None where the source of the box does not say.
    near_latency, latency : int, float, str or Fraction
        µs of the same links.
    port : int, float, str, Fraction or None
        GB/s of its ports, where `bandwidth` is less because the box brings the card no more.
    """

    near: tuple[str, ...]
    near_bandwidth: Exact
    bandwidth: Exact | None
    near_latency: Exact = PCIE_LATENCY
    latency: Exact = FABRIC_LATENCY
    port: Exact | None = None


class SharedLink(NamedTuple):
    """A link between network cards and GPUs that is no link of the box, but limits what the cards bring together.

    `name`: As it ends a sentence about a card: ``"a card's own PCIe link"``.
    `bandwidth`: GB/s in each direction.
    `ways`: Each card that sends over it, by its position, and to how many of the nodes near to it that is the way.
    """

    name: str
    bandwidth: Fraction
    ways: tuple[tuple[int, int], ...]


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
    notes : tuple of str
        What the numbers rest on where it is not plain: one sentence each, for people.
    shared : tuple of SharedLink
        What `nic_shares.with_ports` divides among `nics` once the speed of their ports is known.
    """

    name: str
    gpus: int
    links: tuple[Link, ...]
    nics: tuple[Nic, ...]
    switches: tuple[str, ...] = ()
    abilities: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    shared: tuple[SharedLink, ...] = ()


def repeat_box(
    box: Box,
    boxes: int,
    *,
    fabrics: Sequence[str] = ("ib",),
    backbone: Sequence[Link] = (),
) -> Topology:
    """Repeat `box` and join the copies through their NICs."""
    boxes = as_size(boxes, "boxes", most=MAX_BOXES)
    name = box.name if boxes == 1 else f"{box.name}-{boxes}boxes"
    return join_boxes([box] * boxes, name, plug=lambda _, nic: fabrics[nic % len(fabrics)], backbone=backbone)


def join_boxes(
    boxes: Sequence[Box],
    name: str,
    *,
    plug: Callable[[int, int], str],
    backbone: Sequence[Link] = (),
) -> Topology:
    """Join boxes through their NICs.

    One box alone gets neither NICs nor fabric: without a second box they lead nowhere.
    """
    joined = len(boxes) > 1
    count = sum(len(box.links) + joined * sum(len(nic.near) + 1 for nic in box.nics) for box in boxes)
    check_links(2 * (count + len(backbone)), f"{boxes[0].name} with {len(boxes)} boxes")
    links: list[Link] = []
    nodes: dict[str, list[str]] = {"compute": [], "switches": [], "able": [], "cards": []}
    for number, box in enumerate(boxes):
        prefix = f"box{number}/"
        links += [link._replace(tail=prefix + link.tail, head=prefix + link.head) for link in box.links]
        nodes["compute"] += [f"{prefix}gpu{gpu}" for gpu in range(box.gpus)]
        nodes["switches"] += [prefix + switch for switch in box.switches]
        nodes["able"] += [prefix + switch for switch in box.abilities]
        nodes["cards"] += [f"{prefix}nic{nic}" for nic in range(len(box.nics))]
    if joined:
        sockets = [[plug(number, nic) for nic in range(len(box.nics))] for number, box in enumerate(boxes)]
        for number, box in enumerate(boxes):
            links += _uplinks(box, f"box{number}/", sockets[number])
        links += backbone
        network = [*chain.from_iterable(sockets), *(node for link in backbone for node in link[:2])]
        nodes["switches"] += [*nodes["cards"], *dict.fromkeys(network)]
    return Topology.from_links(
        links,
        compute=nodes["compute"],
        switches=nodes["switches"],
        bidirectional=True,
        multicast=nodes["able"],
        aggregation=nodes["able"],
        name=name,
    )


def _uplinks(box: Box, prefix: str, sockets: Sequence[str]) -> list[Link]:
    rows: list[tuple[str, str, Exact, Exact]] = []
    for number, nic in enumerate(box.nics):
        if nic.bandwidth is None:
            raise TopologyError(
                f"the bandwidth of nic{number} of box {box.name!r} is unknown; give nic_bandwidth in GB/s"
            )
        card = f"{prefix}nic{number}"
        rows += [(prefix + node, card, nic.near_bandwidth, nic.near_latency) for node in nic.near]
        rows.append((card, sockets[number], nic.bandwidth, nic.latency))
    # Numbers are still as the caller wrote them; Topology makes them exact.
    return [Link(*row) for row in rows]  # type: ignore[arg-type]
