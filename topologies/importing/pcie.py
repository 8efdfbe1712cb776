"""PCIe trees between the GPUs and NICs of a machine, one below every CPU, and the part of a box that they make.

Bridges with one child are contracted, and the slowest link of the chain counts.  As in NCCL, the two levels of a
Broadcom switch are merged; figures are those of its ``src/graph/topo.h`` and ``src/graph/topo.cc``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from typing import NamedTuple

from ...support.formatting import count_text
from ..network.topology import Link
from ..switched.scale_out import GPU_LINK, OWN_LINK, PCIE_LATENCY, UNLIMITED, AttachedNics, SharedLink, attach_nics
from .nccl_machine import Element, Machine, host_of
from .options import DEFAULT_LANES, DEFAULT_SPEED, LANE_RATES, BoxOptions

IMPLAUSIBLE_BRIDGE = 16  # a bridge this many times slower than the devices below it is an artifact of a virtual machine
IMPLAUSIBLE_NIC = 4
"""Likewise a NIC on a link this many times slower than its ports, as on-board controllers report; a NIC of unknown
ports is compared with the fastest GPU, as a bridge is."""

BROADCOM = {
    (0x1000, 0xC010, 0x1000, 0xA): (0x1000, 0xC010, 0x1000, 0xA),
    (0x1000, 0xC030, 0x1000, 0x0): (0x1000, 0xC030, 0x1000, 0x1),
}
"""Upper and lower level of a switch: vendor, device, subsystem vendor, and subsystem device without its low 12 bits."""

_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]{1,4}")


@dataclass(eq=False, repr=False, slots=True)
class Node:
    """A CPU, a PCIe switch, a GPU or a NIC."""

    element: Element  # a ``cpu`` or ``pci``; for a NIC without a slot the ``cpu``
    up: Fraction | None = None  # GB/s to `parent` in each direction; None if unlimited
    parent: Node | None = None  # None for a CPU
    gpu: int | None = None  # number of the GPU
    nic: int | None = None  # number of the NIC
    children: list[Node] = field(default_factory=list)

    def leaves(self) -> Iterator[Node]:
        """Yield the leaves of the subtree."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def inner(self) -> Iterator[Node]:
        """Yield the nodes of the subtree that are not a GPU or NIC."""
        if self.gpu is None and self.nic is None:
            yield self
        for child in self.children:
            yield from child.inner()


class Pcie(NamedTuple):
    """The trees of all CPUs."""

    cpus: tuple[Node, ...]  # those with a GPU or a NIC, in file order
    nics: dict[int, Node]  # by number
    gpus: dict[int, Node]  # by number
    notes: tuple[str, ...]  # on missing and implausible speeds


def read_pcie(machine: Machine, options: BoxOptions) -> Pcie:
    """Read the PCIe trees of a machine."""
    reader = _PcieReader(machine, options)
    cpus = [Node(element, children=reader.branches(element)) for element in machine.system.children]
    for cpu in cpus:
        _set_parents(cpu)
    leaves = [leaf for cpu in cpus for leaf in cpu.leaves() if leaf is not cpu]
    return Pcie(
        tuple(cpu for cpu in cpus if cpu.children),
        dict(sorted((leaf.nic, leaf) for leaf in leaves if leaf.nic is not None)),
        dict(sorted((leaf.gpu, leaf) for leaf in leaves if leaf.gpu is not None)),
        tuple(reader.notes()),
    )


class _PcieReader:
    """Builds the trees, and counts missing and implausible speeds."""

    def __init__(self, machine: Machine, options: BoxOptions) -> None:
        self.options = options
        self.gpus = {gpu.pci: number for number, gpu in enumerate(machine.gpus)}
        self.nics: dict[Element, list[int]] = {}
        for number, nic in enumerate(machine.nics):
            self.nics.setdefault(nic.device, []).append(number)
        self.speeds = [nic.stated for nic in machine.nics]
        """Whether a slot's speed is plausible is judged by the stated port speed, also where an option overrides it."""
        speeds = [pcie_bandwidth(gpu, options.figures) for gpu in self.gpus]
        self.plausible_nic_bandwidth = max(speeds) / IMPLAUSIBLE_BRIDGE
        self.unstated = self.implausible = 0

    def branches(self, element: Element) -> list[Node]:
        """Build the subtrees of an element that contain a GPU or NIC."""
        nodes = [Node(element, nic=nic) for nic in self.nics.get(element, ())]
        for pci in element.children:
            if pci.tag != "pci":
                continue
            if pci in self.gpus:
                nodes.append(Node(pci, self._speed(pci), gpu=self.gpus[pci]))
            elif branches := self.branches(pci):
                is_lower_level = pci not in self.nics and BROADCOM.get(_identity(element)) == _identity(pci)
                nodes += branches if is_lower_level else [self._bridge(pci, branches)]
        return nodes

    def _bridge(self, pci: Element, branches: list[Node]) -> Node:
        """Make the node of a bridge or of a NIC's slot, or contract it if it has one child."""
        up = self._plausible_bandwidth(pci, branches)
        if len(branches) == 1:
            branches[0].up = min((speed for speed in (up, branches[0].up) if speed is not None), default=None)
            return branches[0]
        return Node(pci, up, children=branches)

    def _plausible_bandwidth(self, pci: Element, branches: list[Node]) -> Fraction | None:
        """Return GB/s of the link above a bridge or NIC, or a substitute if that is implausible."""
        speed = self._speed(pci)
        if self.options.pcie_bandwidth is not None:
            return speed
        if pci in self.nics:
            ports = [self.speeds[nic] for nic in self.nics[pci]]
            port_bandwidth = sum((port for port in ports if port is not None), Fraction(0))
            if speed * IMPLAUSIBLE_NIC > port_bandwidth and (None not in ports or speed > self.plausible_nic_bandwidth):
                return speed
            self.implausible += 1
            return None
        fastest = max(
            (leaf.up for branch in branches for leaf in branch.leaves() if leaf.up is not None), default=speed
        )
        if speed * IMPLAUSIBLE_BRIDGE > fastest:
            return speed
        self.implausible += 1
        return fastest

    def _speed(self, pci: Element) -> Fraction:
        if self.options.pcie_bandwidth is not None:
            return self.options.pcie_bandwidth
        self.unstated += not (_transfers(pci) in LANE_RATES and pci.integer("link_width", 0, 64, default=0))
        return pcie_bandwidth(pci, self.options.figures)

    def notes(self) -> Iterator[str]:
        """Yield notes on overridden, missing and implausible speeds."""
        if self.options.pcie_bandwidth is not None:
            yield f"every PCIe link is modeled with the given {float(self.options.pcie_bandwidth):g} GB/s"
        if self.unstated:
            yield (
                f"{count_text(self.unstated, 'PCIe link')} without a speed or a width: a missing speed is modeled "
                f"as {DEFAULT_SPEED} GT/s, a missing width as {DEFAULT_LANES} lanes, as in NCCL"
            )
        if self.implausible:
            yield (
                f"{count_text(self.implausible, 'PCIe link')} ignored: stated speed is implausible, far below "
                "that of the devices behind them, as virtual machines report; pcie_bandwidth overrides all of them"
            )


def _identity(element: Element) -> tuple[int, int, int, int]:
    names = ("vendor", "device", "subsystem_vendor", "subsystem_device")
    numbers = [int(text, 16) if _HEXADECIMAL.fullmatch(text := element.get(name)) else 0 for name in names]
    return numbers[0], numbers[1], numbers[2], numbers[3] >> 12


def _set_parents(node: Node) -> None:
    for child in node.children:
        child.parent = node
        _set_parents(child)


_TRANSFERS = re.compile(r"([0-9]+(?:\.[0-9]+)?) *GT/s(?: PCIe)?")


def pcie_bandwidth(pci: Element, figures: str) -> Fraction:
    """Return GB/s of the link above a ``pci``, one way, by one of ``FIGURES``; unknown values count as in NCCL."""
    lane = LANE_RATES.get(_transfers(pci), LANE_RATES[DEFAULT_SPEED])
    width = pci.integer("link_width", 0, 64, default=0) or DEFAULT_LANES
    return width * lane[figures]


def _transfers(pci: Element) -> str:
    match = _TRANSFERS.fullmatch(pci.get("link_speed").strip())
    return match[1].removesuffix(".0") if match else ""


AMD_CPUS = {0x8F: 16, 0xAF: 24, 0xBF: 32, 25: 24, 26: 32}
"""GB/s by family: as the processor states it, or as older releases of NCCL wrote it.  Zen 1 and 2 have 16."""
INTEL_CPUS = ((0xCF, 40), (0x8F, 22), (0x55, 10))
"""GB/s of family 6, from this model on: Emerald Rapids, Sapphire Rapids, Skylake.  Before them 6."""
GRANITE_RAPIDS = (0xAD, 0xAE, 0xAF)
OTHER_CPUS = {"ppc64": 32, "arm64": 6}
DEFAULT_CPU_LINK = 6


def inter_cpu_bandwidth(cpu: Element) -> Fraction:
    """Return NCCL's figure for the GB/s between a ``cpu`` element and another one of its machine."""
    if cpu.get("arch") in OTHER_CPUS:
        return Fraction(OTHER_CPUS[cpu.get("arch")])
    family = cpu.integer("familyid", 0, 2**31, default=0)
    model = cpu.integer("modelid", 0, 2**31, default=0)
    if cpu.get("vendor") == "AuthenticAMD":
        return Fraction(AMD_CPUS.get(family, 16))
    if cpu.get("vendor") == "GenuineIntel" and family == 6:
        if model in GRANITE_RAPIDS:
            return Fraction(INTEL_CPUS[0][1])
        return Fraction(next((speed for first, speed in INTEL_CPUS if model >= first), DEFAULT_CPU_LINK))
    return Fraction(DEFAULT_CPU_LINK)


PCIE_LINK = "a PCIe link on the way to GPUs"


class _NearestGpus(NamedTuple):
    """A node and the GPUs at the least distance below it; `by_cpu` if they have other links to that CPU than PCIe."""

    node: Node
    hops: int
    gpus: tuple[int, ...]
    by_cpu: bool = False


def _nearest_gpus(pcie: Pcie, to_cpu: Mapping[int, Fraction]) -> dict[int, list[_NearestGpus]]:
    """Find the nearest GPUs of NICs, below their lowest ancestor with GPUs or other CPUs; `to_cpu` in GB/s."""
    below: dict[Node, _NearestGpus] = {}
    for cpu in pcie.cpus:
        _find_below(cpu, to_cpu, below)
    nearest = {}
    for number, nic in pcie.nics.items():
        node = nic
        while node.parent is not None and node not in below:
            node = node.parent
        if node in below:
            nearest[number] = [below[node]]
            continue
        host = host_of(node.element)
        candidates = [below[cpu] for cpu in pcie.cpus if cpu in below and host_of(cpu.element) == host]
        if candidates:
            hops = min(near.hops for near in candidates)
            nearest[number] = [near for near in candidates if near.hops == hops]
    return nearest


def _find_below(node: Node, to_cpu: Mapping[int, Fraction], below: dict[Node, _NearestGpus]) -> None:
    """Find the nearest GPUs below a node and all nodes below it, where there are any."""
    for child in node.children:
        _find_below(child, to_cpu, below)
    joined = [leaf.gpu for leaf in node.leaves() if leaf.gpu in to_cpu] if node.parent is None else []
    if node.gpu is not None:
        below[node] = _NearestGpus(node, 0, (node.gpu,))
    elif joined:
        below[node] = _NearestGpus(node, 1, tuple(gpu for gpu in joined if gpu is not None), by_cpu=True)
    elif near_children := [below[child] for child in node.children if child in below]:
        hops = min(near.hops for near in near_children)
        gpus = [gpu for near in near_children if near.hops == hops for gpu in near.gpus]
        below[node] = _NearestGpus(node, hops + 1, tuple(gpus))


def _shared_links(
    pcie: Pcie, nearest: Mapping[int, list[_NearestGpus]], to_cpu: Mapping[int, Fraction]
) -> list[SharedLink]:
    """List the links on the paths between NICs and their nearest GPUs."""
    links: dict[object, tuple[str, Fraction]] = {}
    paths: defaultdict[object, Counter[int]] = defaultdict(Counter)
    for position, (nic, places) in enumerate(nearest.items()):
        for near in places:
            for key, name, bandwidth, gpus in _path(pcie.nics[nic], near, pcie, to_cpu):
                links[key] = name, bandwidth
                paths[key][position] += gpus
    return [SharedLink(*links[key], tuple(counts.items())) for key, counts in paths.items()]


def _path(
    nic: Node, near: _NearestGpus, pcie: Pcie, to_cpu: Mapping[int, Fraction]
) -> Iterator[tuple[object, str, Fraction, int]]:
    """Yield key, name, GB/s and number of GPUs served of each link between a NIC and the nearest GPUs below a node."""
    gpus = len(near.gpus)
    yield nic, OWN_LINK, nic.up or UNLIMITED, gpus
    node = nic.parent
    while node is not None and node is not near.node:
        if node.parent is not None:
            yield node, PCIE_LINK, node.up or UNLIMITED, gpus
        else:
            speed = min(inter_cpu_bandwidth(node.element), inter_cpu_bandwidth(near.node.element))
            yield (node, near.node), "the link between CPUs", speed, gpus
        node = node.parent
    for gpu in near.gpus:
        if near.by_cpu:
            yield (gpu,), "a GPU's link to its CPU", to_cpu[gpu], 1
            continue
        step = pcie.gpus[gpu]
        yield step, GPU_LINK, step.up or UNLIMITED, 1
        while step.parent is not None and (step := step.parent) is not near.node:
            yield step, PCIE_LINK, step.up or UNLIMITED, 1


MAX_PAIRS = 2**16  # pairs of a NIC and a nearest GPU

DROPPED_NICS = "network cards of hosts without GPUs were left out"


def _slow_gpus(near: _NearestGpus, pcie: Pcie) -> list[int]:
    """GPUs whose own link has less than half of the fastest one's; they would limit NICs that need not use it."""
    speeds = {gpu: UNLIMITED if near.by_cpu else pcie.gpus[gpu].up or UNLIMITED for gpu in near.gpus}
    fastest = max(speeds.values())
    return [gpu for gpu, speed in speeds.items() if 2 * speed < fastest]


def nics_of_nearest_gpus(machine: Machine, pcie: Pcie, to_cpu: Mapping[int, Fraction]) -> AttachedNics:
    """Attach every NIC to its nearest GPUs. Units: `to_cpu` in GB/s."""
    nearest = _nearest_gpus(pcie, to_cpu)
    slow = {near: _slow_gpus(near, pcie) for places in nearest.values() for near in places}
    nearest = {
        nic: [near._replace(gpus=tuple(gpu for gpu in near.gpus if gpu not in slow[near])) for near in places]
        for nic, places in nearest.items()
    }
    gpus = [tuple(f"gpu{gpu}" for near in places for gpu in near.gpus) for places in nearest.values()]
    if sum(map(len, gpus)) > MAX_PAIRS:
        raise machine.system.error(
            f"more than {MAX_PAIRS} pairs of a network card and a GPU are equally near; expected PCIe switches"
        )
    notes = [
        f"gpu{gpu}: its PCIe link has {float(pcie.gpus[gpu].up or 0):.4g} GB/s, less than half of the others near its "
        "network cards, which reach it through these; check it if that is a fault"
        for gpu in sorted({*chain(*slow.values())})
    ]
    if len(machine.gpus) > 1:
        notes.append("PCIe between GPUs was left out, as in NCCL: the links above join all of them")
    if len(nearest) < len(machine.nics):
        notes.append(DROPPED_NICS)
    attached = attach_nics(gpus, [machine.nics[nic].bandwidth for nic in nearest], _shared_links(pcie, nearest, to_cpu))
    return attached._replace(notes=(*notes, *attached.notes), numbers=tuple(nearest))


def pcie_network(
    machine: Machine, pcie: Pcie, to_cpu: Mapping[int, Fraction], options: BoxOptions
) -> tuple[list[Link], AttachedNics]:
    """Model CPUs and PCIe switches as switches ``cpu0``, ``pcie0``, .... Units: `to_cpu` in GB/s."""
    hosts = {host_of(gpu.pci) for gpu in machine.gpus}
    cpus = [cpu for cpu in pcie.cpus if host_of(cpu.element) in hosts]
    between = {
        (one, other): min(inter_cpu_bandwidth(one.element), inter_cpu_bandwidth(other.element))
        for place, other in enumerate(cpus)
        for one in cpus[:place]
        if host_of(one.element) == host_of(other.element)
    }
    # A CPU with one child and no other CPU connects nothing.
    roots = {leaf.gpu: cpu for cpu in cpus for leaf in cpu.leaves() if leaf.gpu is not None and leaf.gpu in to_cpu}
    joining = {cpu for cpu in cpus if len(cpu.children) > 1}.union(roots.values(), *between)
    names, counts = dict[Node, str](), Counter[str]()
    for node in (node for cpu in cpus for node in cpu.inner()):
        if node.parent is not None or node in joining:
            kind = "cpu" if node.parent is None else "pcie"
            names[node] = f"{kind}{counts[kind]}"
            counts[kind] += 1
    names |= {node: f"gpu{gpu}" for gpu, node in pcie.gpus.items()}
    paths = {
        (node, node.parent): node.up or UNLIMITED for node in names if node.parent is not None and node.parent in names
    }
    # A GPU that has both uses the faster of them.
    for gpu, cpu in sorted(roots.items()):
        path = pcie.gpus[gpu], cpu
        paths[path] = max(to_cpu[gpu], paths.get(path, Fraction(0)))
    paths |= between
    links = [Link(names[tail], names[head], bandwidth, PCIE_LATENCY) for (tail, head), bandwidth in paths.items()]
    inside = {nic: node for nic, node in pcie.nics.items() if node.parent in names}
    attached = attach_nics(
        [(names[node.parent],) for node in inside.values() if node.parent is not None],
        [machine.nics[nic].bandwidth for nic in inside],
        [SharedLink(OWN_LINK, node.up or UNLIMITED, ((place, 1),)) for place, node in enumerate(inside.values())],
    )
    notes = ["PCIe connects GPUs that have no other link: PCIe switches and CPUs are switches of the box"]
    if options.pcie_bandwidth is None:
        whose = "the line rate of their lanes" if options.figures == "line" else "the bandwidth that NCCL plans with"
        notes.append(f"PCIe links are modeled with {whose}")
    if between:
        notes.append(
            "links between CPUs are modeled with the bandwidth that NCCL plans with, as no file states their speed"
        )
    if len(inside) < len(machine.nics):
        notes.append(DROPPED_NICS)
    return links, attached._replace(notes=(*notes, *attached.notes), numbers=tuple(inside))
