"""Boxes of GPUs and NICs, the shares of NICs in PCIe links, and their connection by a scale-out network."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, groupby
from typing import NamedTuple

import numpy as np

from ...errors import TopologyError
from ...support.arrays import IntArray
from ...support.quantities import Exact
from ...support.validation import MAX_SWITCHED_LINKS, as_size, check_links
from ..network.devices import Device, devices_of
from ..network.links import merged_links
from ..network.topology import Link, SwitchLimits, Topology

MAX_BOXES = 2**17

SCALE_UP_LATENCY = Fraction(7, 10)
"""µs from GPU to GPU over NVLink, and here over xGMI as well, direct or through a switch.

TACCL (Shah et al., NSDI 23, arXiv:2111.04867) profiles 0.7 µs for NVLink and 1.7 µs for InfiniBand on NDv2; both
figures are repeated in https://github.com/NVIDIA/nccl/issues/1640.
"""
PCIE_LATENCY = Fraction(7, 20)
"""µs between a GPU and its NIC: a share of TACCL's 1.7 µs, as much as one hop to an NVSwitch."""
FABRIC_LATENCY = Fraction(1, 2)
"""µs between a NIC and its network switch, so that GPU, NIC, switch, NIC, GPU is 1.7 µs in total."""
UNLIMITED = Fraction(5000)  # GB/s without a known limit, as in NCCL
MAX_NAMES = 4  # NICs that a note lists
OWN_LINK = "a card's own PCIe link"
GPU_LINK = "a GPU's own PCIe link"  # names of shared links


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
        Links that `nic_shares.with_port_bandwidth` divides among `nics` once the speed of their ports is known.
    limits : tuple of SwitchLimits
        Limits of the switches in `abilities`.
    rack : str
        The network of the catalogue whose switches join several such boxes, such as ``"gb200-nvl72"``; empty if NICs
        alone do.
    devices : tuple of Device
        GPUs and NICs as the machine names them, where that is known.
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
    rack: str = ""
    devices: tuple[Device, ...] = ()


def repeat_box(box: Box, boxes: int, *, fabrics: Sequence[str] = ("ib",), backbone: Sequence[Link] = ()) -> Topology:
    """Repeat `box` and join the copies through their NICs."""
    boxes = as_size(boxes, "boxes", high=MAX_BOXES)
    name = box.name if boxes == 1 else f"{box.name}-{boxes}boxes"
    return join_boxes([box] * boxes, name, fabric_switch=lambda _, nic: fabrics[nic % len(fabrics)], backbone=backbone)


def join_boxes(
    boxes: Sequence[Box], name: str, *, fabric_switch: Callable[[int, int], str], backbone: Sequence[Link] = ()
) -> Topology:
    """Join boxes through their NICs; one box alone gets neither NICs nor fabric, which would lead nowhere."""
    joined = len(boxes) > 1
    count = sum(len(box.links) + joined * sum(len(nic.near) + 1 for nic in box.nics) for box in boxes)
    check_links(2 * (count + joined * len(backbone)), f"{boxes[0].name} with {len(boxes)} boxes", MAX_SWITCHED_LINKS)
    ports = [
        tuple(fabric_switch(box, nic) for nic in range(joined * len(content.nics))) for box, content in enumerate(boxes)
    ]
    # Names and numbers of all nodes: GPUs, switches and NICs of each box, then the fabric.
    parts = {key: _parts(box, joined=joined) for key, box in {id(box): box for box in boxes}.items()}
    compute, inside, nics, capable = (
        [f"box{number}/{node}" for number, box in enumerate(boxes) for node in parts[id(box)][part]]
        for part in range(4)
    )
    network = chain(*dict.fromkeys(ports), *(link[:2] for link in backbone if joined))
    outside = {node: (3, number) for number, node in enumerate(dict.fromkeys(network))}
    counts = {key: tuple(map(len, part[:3])) for key, part in parts.items()}
    # Boxes of one kind in a row share their links: made once, repeated as arrays.
    sizes = np.array([counts[id(box)] for box in boxes]).T
    first = np.cumsum([0, *sizes.sum(axis=1)])
    tiles = _Tiles(np.vstack([np.cumsum(sizes, axis=1) - sizes, np.zeros(len(boxes), dtype=np.int64)]) + first[:, None])
    runs = [list(run) for _, run in groupby(range(len(boxes)), lambda box: (id(boxes[box]), ports[box]))]
    for inner in (True, False)[: 1 + joined]:
        for run in runs:
            box, prefix = boxes[run[0]], f"box{run[0]}/"
            links = [link._replace(tail=prefix + link.tail, head=prefix + link.head) for link in box.links]
            place = {
                prefix + node: (part, number)
                for part, names in enumerate(parts[id(box)][:3])
                for number, node in enumerate(names)
            }
            tiles.add(links if inner else _nic_links(box, prefix, ports[run[0]]), place | outside, run)
    tiles.add(backbone if joined else (), outside, range(1))
    tails, heads = np.concatenate(tiles.ends).T
    topology = Topology.from_arrays(
        tails,
        heads,
        np.concatenate(tiles.kinds),
        list(tiles.rates),
        compute=compute,
        switches=[*inside, *nics, *outside],
        multicast=capable,
        aggregation=capable,
        limits=[
            limit._replace(switch=f"box{number}/{limit.switch}")
            for number, box in enumerate(boxes)
            for limit in box.limits
        ],
        name=name,
    )
    devices = boxes[0].devices
    if any(box.devices != devices for box in boxes):
        devices = tuple(
            device._replace(node=f"box{number}/{device.node}")
            for number, box in enumerate(boxes)
            for device in box.devices
        )
    return topology.changed(devices=devices_of(devices, topology.nodes)) if devices else topology


def _parts(box: Box, *, joined: bool) -> tuple[Sequence[str], ...]:
    """Return the names of GPUs, switches, NICs and switches that reduce of a box."""
    # A switch needs links to two nodes of its box to multicast or aggregate.
    ends = {switch: {end for link in box.links if switch in link[:2] for end in link[:2]} for switch in box.abilities}
    capable = [switch for switch in box.abilities if len(ends[switch]) > 2]
    nics = [f"nic{nic}" for nic in range(joined * len(box.nics))]
    return [f"gpu{gpu}" for gpu in range(box.gpus)], box.switches, nics, capable


class _Tiles:
    """Links of equal boxes, made once and repeated as arrays."""

    def __init__(self, starts: IntArray) -> None:
        self._starts = starts  # (parts, boxes): the first node of each part of each box
        self.ends: list[IntArray] = []
        self.kinds: list[IntArray] = []
        self.rates: dict[tuple[Fraction, Fraction], int] = {}

    def add(self, links: Iterable[Link], place: Mapping[str, tuple[int, int]], boxes: Sequence[int]) -> None:
        """Add links in both directions, for each of some boxes in a row; `place` has the part and number of a node."""
        both = (directed for link in links for directed in (link, link._replace(tail=link.head, head=link.tail)))
        merged = merged_links(both, place)
        codes = np.array([place[node] for link in merged for node in link[:2]], dtype=np.int64).reshape(-1, 2, 2)
        starts = self._starts[:, boxes[0] : boxes[-1] + 1]
        self.ends.append(np.moveaxis(starts[codes[..., 0]] + codes[..., 1, None], -1, 0).reshape(-1, 2))
        kinds = [self.rates.setdefault(link[2:], len(self.rates)) for link in merged]
        self.kinds.append(np.tile(np.array(kinds, dtype=np.int64), len(boxes)))


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


class Share(NamedTuple):
    """Bandwidth of one NIC."""

    bandwidth: Fraction  # GB/s in each direction
    near_bandwidth: Fraction  # GB/s of its link to each node near it
    limit: SharedLink | None  # the link that limits it below its ports, if any


class AttachedNics(NamedTuple):
    """The NICs of a box, in the order of the file, with the links that limit them and notes on them."""

    nics: tuple[Nic, ...]
    shared: tuple[SharedLink, ...]
    notes: tuple[str, ...]
    numbers: tuple[int, ...] = ()  # of each in the file that describes the machine


def attach_nics(
    near: Sequence[tuple[str, ...]], ports: Sequence[Fraction | None], shared: Sequence[SharedLink]
) -> AttachedNics:
    """Make NICs with their max-min fair bandwidths. Units: `ports` in GB/s."""
    shares = max_min_shares([len(nodes) for nodes in near], ports, shared)
    notes = share_notes(shares, ports)
    if any(port and share.near_bandwidth < share.bandwidth for share, port in zip(shares, ports, strict=True)):
        notes.append("network cards that share a GPU's PCIe link divide their bandwidth among the GPUs near to them")
    nics = []
    for nodes, port, share in zip(near, ports, shares, strict=True):
        bandwidth = None if port is None else share.bandwidth
        nics.append(Nic(nodes, share.near_bandwidth, bandwidth, port=None if bandwidth == port else port))
    return AttachedNics(tuple(nics), tuple(shared), tuple(notes))


def max_min_shares(near: Sequence[int], ports: Sequence[Fraction | None], shared: Sequence[SharedLink]) -> list[Share]:
    """Compute max-min fair bandwidths of NICs by progressive filling. Units: `ports` in GB/s."""
    rates = [UNLIMITED if port is None else port for port in ports]
    limits: list[SharedLink | None] = [None] * len(rates)
    parts = [{nic: Fraction(count, near[nic]) for nic, count in link.paths} for link in shared]
    # Links that suffice for all ports together are no limit; of the others, what is left, and what rising NICs weigh.
    loads = [sum(rates[nic] * part for nic, part in of_link.items()) for of_link in parts]
    left = {place: link.bandwidth for place, link in enumerate(shared) if loads[place] > link.bandwidth}
    weights = {place: sum(parts[place].values(), Fraction(0)) for place in left}
    rising = {nic for place in left for nic in parts[place]}
    # Raise all NICs until a port or a contended link is full, and stop the NICs that it holds.
    while rising:
        levels = {place: left[place] / weight for place, weight in weights.items() if weight}
        full, level = min(levels, key=levels.__getitem__, default=-1), min(rates[nic] for nic in rising)
        if full >= 0 and levels[full] < level:
            stopped, level = rising & parts[full].keys(), levels[full]
            for nic in stopped:
                rates[nic], limits[nic] = level, shared[full]
        else:
            stopped = {nic for nic in rising if rates[nic] == level}
        for place in left:
            for nic in stopped & parts[place].keys():
                left[place] -= level * parts[place][nic]
                weights[place] -= parts[place][nic]
        rising -= stopped
    # NICs on links that they could overload together divide their bandwidth among the nodes near to them.
    overloaded: set[int] = set()
    for link in shared:
        if sum(rates[nic] * min(1, count) for nic, count in link.paths) > link.bandwidth:
            overloaded.update(nic for nic, count in link.paths if count < near[nic])
    return [Share(rate, rate / near[nic] if nic in overloaded else rate, limits[nic]) for nic, rate in enumerate(rates)]


def with_port_bandwidth(box: Box, port: Fraction) -> Box:
    """Replace the port bandwidth of all NICs of a box. Units: `port` in GB/s."""
    limited = {number for link in box.shared for number, _ in link.paths}
    shares = max_min_shares([len(nic.near) for nic in box.nics], [port] * len(box.nics), box.shared)
    nics = (
        nic._replace(
            near_bandwidth=share.near_bandwidth if number in limited else nic.near_bandwidth,
            bandwidth=share.bandwidth,
            port=None if share.bandwidth == port else port,
        )
        for number, (nic, share) in enumerate(zip(box.nics, shares, strict=True))
    )
    return replace(box, nics=tuple(nics))


def share_notes(shares: Sequence[Share], ports: Sequence[Fraction | None]) -> list[str]:
    """Note which NICs count with less than their ports, and why."""
    groups: defaultdict[tuple[str, Fraction, int, Fraction, Fraction], list[str]] = defaultdict(list)
    for nic, (share, port) in enumerate(zip(shares, ports, strict=True)):
        if share.limit is not None and port is not None:
            name, bandwidth, paths = share.limit
            groups[name, bandwidth, len(paths), share.bandwidth, port].append(f"nic{nic}")
    notes = []
    for (name, bandwidth, sharing, lowered, port), nics in groups.items():
        unnamed = f" and {len(nics) - MAX_NAMES} more" if len(nics) > MAX_NAMES else ""
        notes.append(
            f"{', '.join(nics[:MAX_NAMES])}{unnamed} {'is' if len(nics) == 1 else 'are'} modeled with "
            f"{float(lowered):.4g} of {float(port):.4g} GB/s, because {name} has {float(bandwidth):.4g} GB/s"
            + (f" for {sharing} of them" if sharing > 1 else "")
        )
    return notes
