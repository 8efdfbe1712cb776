"""The GPUs and network cards of a topology file of NCCL or RCCL, in the order in which collopt counts them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

from ....support.validation import shown
from ..sources.options import BoxOptions
from .elements import Element

MAX_GPUS = 1024
MAX_CARDS = 1024
MAX_NUMA = 255
MAX_RANK = 2**31 - 1
MAX_SPEED = 10**9
"""Mb/s."""

GPU_CLASSES = ("0x03", "0x12")
"""Beginnings of PCI classes: displays, and accelerators as AMD's are."""
VGA_CLASS = "0x0300"
"""Of displays, those with an output, as chips on server boards have one."""
NIC_CLASS = "0x02"

VIRTUAL = ("veth", "docker", "virbr")
"""Beginnings of names of network interfaces that lead through another one of the same machine."""

ARCHITECTURES = {"910": "gfx90a", "940": "gfx942", "941": "gfx942", "gfx940": "gfx942", "gfx941": "gfx942"}
"""Names that RCCL wrote, or that belong to early samples of a GPU, and the name that our table has."""


class Gpu(NamedTuple):
    """One GPU.

    `pci`: Where it is plugged in.
    `element`: Its ``gpu`` element; None in a file that has none.
    """

    pci: Element
    element: Element | None

    @property
    def kind(self) -> tuple[str, str] | None:
        """Vendor and code, as `GpuProduct` has them; None where the file does not say."""
        if self.element is None:
            return None
        if architecture := self.element.get("gcn").split(":")[0]:
            architecture = ARCHITECTURES.get(architecture, architecture)
            return "amd", architecture if architecture.startswith("gfx") else f"gfx{architecture}"
        # RCCL's sm counts compute units.
        if any(child.tag == "xgmi" for child in self.element.children) or not self.element.get("sm"):
            return None
        return "nvidia", str(self.element.integer("sm", 10, 999))


class Card(NamedTuple):
    """One network card: all ports of one ``guid`` in one slot.

    `place`: The ``pci`` element that it is, or the ``cpu`` where the file knows no slot.
    `stated`: GB/s of all its ports in each direction; None where the file does not say.
    `bandwidth`: The same, or what a person gave instead.
    """

    place: Element
    stated: Fraction | None
    bandwidth: Fraction | None


class Machine(NamedTuple):
    """What a file describes.

    `system`: The whole.
    `gpus`: ``gpu0``, ``gpu1``, ...
    `cards`: ``nic0``, ``nic1``, ...
    `notes`: What was left out or overruled.
    """

    system: Element
    gpus: tuple[Gpu, ...]
    cards: tuple[Card, ...]
    notes: tuple[str, ...]

    @property
    def partial(self) -> bool:
        """Whether the file lists PCIe devices only, as those do that clouds hand to NCCL."""
        return self.gpus[0].element is None


def host_of(element: Element) -> str:
    """Return the hash of the host that an element belongs to; empty where there is only one."""
    return (element if element.tag == "cpu" else element.above("cpu")).get("host_hash").lower()


def read_machine(system: Element, options: BoxOptions) -> Machine:
    """Find the GPUs and network cards.

    GPUs are counted by ``dev``, or by ``rank`` where several hosts are in one file.  A file without ``gpu`` elements
    has them where a ``pci`` element without others in it is of a display's or accelerator's class, in file order, and
    likewise network cards.
    """
    _check_addresses(system)
    notes: list[str] = []
    gpus = _gpus(system, notes)
    if len(gpus) > MAX_GPUS:
        raise gpus[MAX_GPUS].pci.error(f"there are more than {MAX_GPUS} GPUs; expected those of one machine or rack")
    cards = _cards(system, notes)
    if len(cards) > MAX_CARDS:
        raise cards[MAX_CARDS].place.error(f"there are more than {MAX_CARDS} network cards; expected those of one rack")
    if options.nic_bandwidth is not None and cards:
        notes.append(f"every network card is modeled with the given {float(options.nic_bandwidth):g} GB/s")
        cards = [card._replace(bandwidth=options.nic_bandwidth) for card in cards]
    else:
        notes.extend(_speeds(cards))
    return Machine(system, tuple(gpus), tuple(cards), tuple(notes))


def _speeds(cards: list[Card]) -> Iterator[str]:
    """Say how fast cards are by the file, which states what they ran at, or what a driver made up."""
    for bandwidth, number in Counter(card.bandwidth for card in cards if card.bandwidth is not None).items():
        cards_count = "1 network card is modeled" if number == 1 else f"{number} network cards are modeled"
        yield (
            f"{cards_count} with {float(bandwidth):g} GB/s, {float(8 * bandwidth):g} Gb/s, as the file says; if that "
            "is not their speed, give nic_bandwidth"
        )


def _check_addresses(system: Element) -> None:
    found: dict[tuple[str, str, str], Element] = {}
    for element in system.inside("cpu", "pci"):
        name = "numaid" if element.tag == "cpu" else "busid"
        number = element.required(name)
        if element.tag == "cpu":
            number = str(element.integer(name, -1, MAX_NUMA))
        other = found.setdefault((name, host_of(element), number.lower()), element)
        if other is not element:
            raise element.error(f"{name} {shown(number)} is also that of line {other.line}; expected one of its own")


def _gpus(system: Element, notes: list[str]) -> list[Gpu]:
    listed = [Gpu(element.above("pci"), element) for element in system.inside("gpu")]
    if not listed:
        leaves = _by_class(system, notes)
        if not leaves:
            raise system.error(
                "the file names no GPU: there is neither a <gpu> nor a <pci> whose class begins with 0x03; NCCL looks "
                "for them when it starts, so dump what it found with NCCL_TOPO_DUMP_FILE on the machine"
            )
        return [Gpu(pci, None) for pci in leaves]
    for gpu, other in zip(listed[1:], listed, strict=False):
        if gpu.pci is other.pci:
            raise gpu.pci.error("two <gpu> are in one <pci>, so ranks share a GPU; dump with one rank for each GPU")
    ordered = _in_order(listed)
    ranks = [gpu.element.integer("rank", -1, MAX_RANK, default=-1) for gpu in ordered if gpu.element is not None]
    if -1 not in ranks and ranks != sorted(ranks):
        first = next(number for number, rank in enumerate(ranks) if rank != sorted(ranks)[number])
        notes.append(
            f"GPUs are in the order of dev, which the ranks of the dumped job contradict: gpu{first} was its rank "
            f"{ranks[first]}"
        )
    return ordered


def _by_class(system: Element, notes: list[str]) -> list[Element]:
    """Find what may be a GPU where no ``gpu`` element says so."""
    leaves = [pci for pci in _leaves(system) if _class(pci).startswith(GPU_CLASSES)]
    computing = [pci for pci in leaves if not _class(pci).startswith(VGA_CLASS)]
    if computing and len(computing) < len(leaves):
        displays = len(leaves) - len(computing)
        told = "1 VGA controller was" if displays == 1 else f"{displays} VGA controllers were"
        notes.append(f"{told} not taken for a GPU, as the file has 3D controllers or accelerators as well")
    return computing or leaves


def _class(pci: Element) -> str:
    return pci.get("class").lower()


def _in_order(listed: list[Gpu]) -> list[Gpu]:
    """Sort by ``dev`` or ``rank``; see `read_machine`."""
    hosts = {host_of(gpu.pci) for gpu in listed}
    by = "dev" if len(hosts) == 1 else "rank"
    numbered: dict[int, Gpu] = {}
    for gpu in listed:
        assert gpu.element is not None  # listed are those that have one
        number = gpu.element.integer(by, 0, MAX_RANK)
        other = numbered.setdefault(number, gpu)
        if other is not gpu and other.element is not None:
            raise gpu.element.error(f"{by} {number} is also that of the GPU on line {other.element.line}")
    return [numbered[number] for number in sorted(numbered)]


def _leaves(system: Element) -> list[Element]:
    return [pci for pci in system.inside("pci") if all(child.tag != "pci" for child in pci.children)]


def _cards(system: Element, notes: list[str]) -> list[Card]:
    # NCCL as well passes over those without a number, and over the ports of which it made one interface.
    ports = [net for net in system.inside("net") if net.get("dev") and net.integer("net", 0, 1, default=1)]
    if not ports:
        leaves = [pci for pci in _leaves(system) if _class(pci).startswith(NIC_CLASS)]
        return [Card(pci, None, None) for pci in leaves]
    virtual = [net.get("name") for net in ports if net.get("name").startswith(VIRTUAL)]
    if virtual:
        notes.append(f"left out {shown(virtual[0])}: a virtual interface sends through another card")
    groups: defaultdict[object, list[Element]] = defaultdict(list)
    ports = [net for net in ports if not net.get("name").startswith(VIRTUAL)]
    hosts = {host: place for place, host in enumerate(dict.fromkeys(map(host_of, system.children)))}
    order = {net: (hosts[host_of(net)], net.integer("dev", 0, MAX_RANK), place) for place, net in enumerate(ports)}
    for net in sorted(ports, key=order.__getitem__):
        groups[_card_of(net)].append(net)
    if len(groups) < len(ports):
        notes.append("ports of one guid in one slot are one network card with the sum of their speeds")
    return [_card(nets) for nets in groups.values()]


def _card(nets: list[Element]) -> Card:
    speed = _sum(map(_speed, _different(nets)))
    return Card(_place(nets[0]), speed, speed)


def _place(net: Element) -> Element:
    nic = net.parent
    assert nic is not None  # PARENTS puts a net inside a nic, and that inside a pci or cpu
    assert nic.parent is not None
    return nic.parent


def _card_of(net: Element) -> object:
    """Name the card of a port: several functions of one PCI device are one card if they have one ``guid``."""
    place = _place(net)
    if not net.get("guid"):
        return net
    slot: object = place.get("busid").lower().rpartition(".")[0] if place.tag == "pci" else place
    return host_of(place), slot, net.get("guid").lower()


def _different(nets: list[Element]) -> list[Element]:
    """Leave out what is the same port again, as with several ways of sending through it."""
    ports = {(net.get("name"), net.get("port")): net for net in reversed(nets)}
    return list(ports.values())


def _speed(net: Element) -> Fraction | None:
    speed = net.integer("speed", -MAX_SPEED, MAX_SPEED, default=0)
    return Fraction(speed, 8000) if speed > 0 else None


def _sum(speeds: Iterable[Fraction | None]) -> Fraction | None:
    total = Fraction(0)
    for speed in speeds:
        if speed is None:
            return None
        total += speed
    return total
