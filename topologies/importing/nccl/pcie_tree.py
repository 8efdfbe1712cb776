"""PCIe between the GPUs and network cards of a machine: a tree below every CPU, and the CPUs joined.

Bridges with one branch are left out: the slowest link of the chain counts.  The two levels as which a switch of
Broadcom shows itself are one: it sustains the full bandwidth between all its ports, so there are no links between them;
NCCL does the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from ..sources.options import BoxOptions
from .elements import Element
from .machine import Machine
from .pcie_speeds import LANES, SPEED, pcie_bandwidth, states_its_speed

FALSE_BRIDGE = 16
"""A bridge this many times slower than what is plugged in below it is one that a virtual machine made up."""
FALSE_CARD = 4
"""Likewise a network card on a link this many times slower than its ports, as controllers on the board show it; one
whose ports are not known is compared with the fastest GPU, as a bridge is."""

BROADCOM = {
    (0x1000, 0xC010, 0x1000, 0xA): (0x1000, 0xC010, 0x1000, 0xA),
    (0x1000, 0xC030, 0x1000, 0x0): (0x1000, 0xC030, 0x1000, 0x1),
}
"""Upper level of a switch and the lower one: vendor, device, and both of the subsystem, the last less 12 bits."""

_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]{1,4}")


@dataclass(eq=False, repr=False, slots=True)
class Node:
    """A CPU, a PCIe switch, a GPU or a network card.

    `element`: A ``cpu`` or ``pci``; of a card without a slot the ``cpu``.
    `up`: GB/s towards `parent` in each direction; None where nothing limits it.
    `parent`: None for a CPU.
    `gpu`, `card`: Which one it is.
    `children`: What is plugged into it.
    """

    element: Element
    up: Fraction | None = None
    parent: Node | None = None
    gpu: int | None = None
    card: int | None = None
    children: list[Node] = field(default_factory=list)

    def leaves(self) -> Iterator[Node]:
        """Go through the GPUs and cards below, or return the node itself if it is one."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def inner(self) -> Iterator[Node]:
        """Go through the node, if it is no GPU or card, and those below."""
        if self.gpu is None and self.card is None:
            yield self
        for child in self.children:
            yield from child.inner()


class Pcie(NamedTuple):
    """The trees of all CPUs.

    `cpus`: Those that have a GPU or a card, in file order.
    `cards`: Node of every card.
    `gpus`: Node of every GPU.
    `notes`: Where the file states no speed, or one that cannot be.
    """

    cpus: tuple[Node, ...]
    cards: dict[int, Node]
    gpus: dict[int, Node]
    notes: tuple[str, ...]


def read_pcie(machine: Machine, options: BoxOptions) -> Pcie:
    """Read the PCIe trees of a machine."""
    reader = _Reader(machine, options)
    cpus = [reader.cpu(element) for element in machine.system.children]
    leaves = [leaf for cpu in cpus for leaf in cpu.leaves() if leaf is not cpu]
    return Pcie(
        tuple(cpu for cpu in cpus if cpu.children),
        dict(sorted((leaf.card, leaf) for leaf in leaves if leaf.card is not None)),
        dict(sorted((leaf.gpu, leaf) for leaf in leaves if leaf.gpu is not None)),
        tuple(reader.notes()),
    )


def _least(speeds: Iterable[Fraction | None]) -> Fraction | None:
    """Return the smallest of several speeds, None if nothing limits any."""
    return min((speed for speed in speeds if speed is not None), default=None)


class _Reader:
    """Builds the trees, and counts what it did not believe."""

    def __init__(self, machine: Machine, options: BoxOptions) -> None:
        self.options = options
        self.gpus = {gpu.pci: number for number, gpu in enumerate(machine.gpus)}
        self.cards: dict[Element, list[int]] = {}
        for number, card in enumerate(machine.cards):
            self.cards.setdefault(card.place, []).append(number)
        self.speeds = [card.stated for card in machine.cards]
        """What the given bandwidth overrules is still what tells whether a slot can be as slow as the file has it."""
        speeds = [pcie_bandwidth(gpu, options.figures) for gpu in self.gpus]
        self.silent_card = max(speeds) / FALSE_BRIDGE
        self.silent = self.false = 0

    def cpu(self, element: Element) -> Node:
        """Make the tree below a CPU."""
        cpu = Node(element, children=self._branches(element))
        _set_parents(cpu)
        return cpu

    def _branches(self, element: Element) -> list[Node]:
        """Make a node of everything in an element that is, or has below it, a GPU or card."""
        nodes = [Node(element, card=card) for card in self.cards.get(element, ())]
        for pci in element.children:
            if pci.tag != "pci":
                continue
            if pci in self.gpus:
                nodes.append(Node(pci, self._speed(pci), gpu=self.gpus[pci]))
            elif branches := self._branches(pci):
                nodes += branches if self._one_switch(element, pci) else [self._joined(pci, branches)]
        return nodes

    def _one_switch(self, upper: Element, lower: Element) -> bool:
        """Tell whether these are the two levels of one of Broadcom's switches."""
        return lower not in self.cards and BROADCOM.get(_identity(upper)) == _identity(lower)

    def _joined(self, pci: Element, branches: list[Node]) -> Node:
        """Make a node of a bridge or of a card's slot; with one branch only, the branch is enough."""
        up = self._believed(pci, branches)
        if len(branches) == 1:
            branches[0].up = _least((up, branches[0].up))
            return branches[0]
        return Node(pci, up, children=branches)

    def _believed(self, pci: Element, branches: list[Node]) -> Fraction | None:
        """GB/s of the link above a bridge or card, unless that cannot be."""
        speed = self._speed(pci)
        if self.options.pcie_bandwidth is not None:
            return speed
        if pci in self.cards:
            ports = [self.speeds[card] for card in self.cards[pci]]
            told = sum((port for port in ports if port is not None), Fraction(0))
            if speed * FALSE_CARD > told and (None not in ports or speed > self.silent_card):
                return speed
            self.false += 1
            return None
        fastest = max(
            (leaf.up for branch in branches for leaf in branch.leaves() if leaf.up is not None), default=speed
        )
        if speed * FALSE_BRIDGE > fastest:
            return speed
        self.false += 1
        return fastest

    def _speed(self, pci: Element) -> Fraction:
        if self.options.pcie_bandwidth is not None:
            return self.options.pcie_bandwidth
        self.silent += not states_its_speed(pci)
        return pcie_bandwidth(pci, self.options.figures)

    def notes(self) -> Iterator[str]:
        """Say what was overruled, missing or doubtful."""
        if self.options.pcie_bandwidth is not None:
            yield f"every PCIe link is modeled with the given {float(self.options.pcie_bandwidth):g} GB/s"
        if self.silent:
            yield (
                f"{_counted(self.silent)} without a speed or a width: a missing speed is modeled as {SPEED} GT/s, "
                f"a missing width as {LANES} lanes, as in NCCL"
            )
        if self.false:
            yield (
                f"{_counted(self.false)} ignored: stated speed is implausible, far below that of the devices behind "
                "them, as "
                "virtual machines report; pcie_bandwidth overrides all of them"
            )


def _counted(links: int) -> str:
    return "1 PCIe link" if links == 1 else f"{links} PCIe links"


def _identity(element: Element) -> tuple[int, int, int, int]:
    names = ("vendor", "device", "subsystem_vendor", "subsystem_device")
    numbers = [int(text, 16) if _HEXADECIMAL.fullmatch(text := element.get(name)) else 0 for name in names]
    return numbers[0], numbers[1], numbers[2], numbers[3] >> 12


def _set_parents(node: Node) -> None:
    for child in node.children:
        child.parent = node
        _set_parents(child)
