"""Machines of NCCL and RCCL topology files: bounded XML elements with line numbers, GPUs and NICs in rank order.

Elements of unknown names are skipped with their content, as NCCL does.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple
from xml.parsers import expat

from ...errors import FileFormatError
from ...support.formatting import count_text
from ...support.validation import shown
from ..network.devices import Device
from .documents import Document
from .options import BoxOptions

MAX_XML_DEPTH = 64  # nesting depth; PCIe switches are some three deep
MAX_XML = 4 * 2**20
MAX_ELEMENTS = 50_000  # a rack of 72 GPUs has some two thousand, in some hundred thousand characters
MAX_TAG = 40  # characters of a tag in a note
MAX_VALUE = 255  # characters of an attribute; NCCL keeps no more (``src/graph/xml.h``)

PARENTS = {
    "cpu": ("system",),
    "pci": ("cpu", "pci"),
    "gpu": ("pci",),
    "nvlink": ("gpu",),
    "xgmi": ("gpu",),
    "c2c": ("gpu",),
    "nic": ("cpu", "pci"),
    "net": ("nic",),
}
"""The elements that are kept, and their allowed parents."""

FOREIGN_ROOTS = {
    "topology": "hwloc's description of a machine, which has no NVLinks; expected a file of NCCL_TOPO_DUMP_FILE",
    "graphs": "a result of NCCL's search (NCCL_GRAPH_DUMP_FILE), not a network; expected one of NCCL_TOPO_DUMP_FILE",
    "algo": "an MSCCL schedule, not a network; see `collopt lint`",
    "html": "a web page; save the file itself, not the page that shows it",
}
"""Descriptions of XML files with other root elements."""

_INTEGER = re.compile(r"-?[0-9]{1,12}")


@dataclass(eq=False, repr=False, slots=True)
class Element:
    """One element."""

    document: Document  # the file
    tag: str  # one of ``system`` and the keys of `PARENTS`
    line: int  # its first line, from 1
    attributes: dict[str, str]  # as written
    parent: Element | None  # None for ``system``
    children: list[Element] = field(default_factory=list)  # in file order

    def error(self, message: str) -> FileFormatError:
        """Return an error at the line of this element."""
        return self.document.error(message, self.line)

    def get(self, name: str) -> str:
        """Return an attribute, or an empty text if there is none."""
        return self.attributes.get(name, "")

    def required(self, name: str) -> str:
        """Return a required attribute."""
        if not (value := self.get(name).strip()):
            raise self.error(f"<{self.tag}> has no {name}; dump the file again")
        return value

    def integer(self, name: str, minimum: int, maximum: int, *, default: int | None = None) -> int:
        """Return an attribute as an integer; `default`, if any, where it is missing or empty."""
        value = self.get(name).strip()
        if not value and default is not None:
            return default
        if not _INTEGER.fullmatch(value) or not minimum <= int(value) <= maximum:
            expected = f"a whole number from {minimum} to {maximum}"
            raise self.error(f"{name} of <{self.tag}> is {shown(self.get(name))}; expected {expected}")
        return int(value)

    def descendants(self, *tags: str) -> Iterator[Element]:
        """Yield the elements of these tags at any depth, in file order."""
        for child in self.children:
            if child.tag in tags:
                yield child
            yield from child.descendants(*tags)

    def ancestor(self, tag: str) -> Element:
        """Return the nearest ancestor of this tag."""
        element = self.parent
        while element is not None and element.tag != tag:
            element = element.parent
        assert element is not None  # PARENTS puts everything inside a cpu, and gpu inside pci
        return element


def read_tree(document: Document) -> tuple[Element, list[str]]:
    """Parse a topology file and return its ``system`` element, and a note on elements that are not read."""
    if len(document.text) > MAX_XML:
        raise document.error(f"the file has more than {MAX_XML} characters; expected the dump of one machine")
    builder = _TreeBuilder(document)
    try:
        builder.parser.Parse(document.text.encode(errors="replace"), True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise document.error(f"the file is not well-formed XML ({reason}); is it cut short?", error.lineno) from None
    assert builder.root is not None  # expat refuses a document without a root
    unknown = [f"{count} <{tag[:MAX_TAG]}>" for tag, count in builder.unknown.most_common(3) if count]
    notes = [f"elements of unknown kinds were not read: {', '.join(unknown)}"] if unknown else []
    return builder.root, notes


class _TreeBuilder:
    """Builds the tree from the events of a parser."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.root: Element | None = None
        self.open: list[Element] = []
        self.skipped = self.count = 0  # open elements that are not kept, and all elements so far
        self.unknown: Counter[str] = Counter()  # the outermost of those that are not kept
        # The text is decoded already, whatever encoding the file declares.
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartDoctypeDeclHandler = self.doctype
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end

    def error(self, message: str) -> FileFormatError:
        return self.document.error(message, self.parser.CurrentLineNumber)

    def doctype(self, name: str, *_: object) -> None:
        foreign = FOREIGN_ROOTS.get(name.lower())
        reason = "the file has a document type (<!DOCTYPE), which no topology file needs; remove it"
        raise self.error(f"this is {foreign}" if foreign else reason)

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.count += 1
        if self.count > MAX_ELEMENTS:
            raise self.error(f"the file has more than {MAX_ELEMENTS} elements; expected the dump of one machine")
        if len(self.open) + self.skipped >= MAX_XML_DEPTH:
            raise self.error(f"more than {MAX_XML_DEPTH} elements stand inside each other; expected PCIe switches")
        for name, value in attributes.items():
            if len(name) > MAX_VALUE or len(value) > MAX_VALUE:
                raise self.error(f"attribute {shown(name)} is too long; expected at most {MAX_VALUE} characters")
        parent = self.open[-1] if self.open else None
        if self.skipped or (parent and tag not in PARENTS):
            self.unknown[tag] += not self.skipped
            self.skipped += 1
            return
        if parent is None:
            self._check_root(tag, attributes)
        elif parent.tag not in PARENTS[tag]:
            places = " or ".join(f"<{place}>" for place in PARENTS[tag])
            raise self.error(f"<{tag}> stands in <{parent.tag}>; expected it in {places}")
        element = Element(self.document, tag, self.parser.CurrentLineNumber, attributes, parent)
        (self.open[-1].children if self.open else []).append(element)
        self.root = self.root or element
        self.open.append(element)

    def _check_root(self, tag: str, attributes: dict[str, str]) -> None:
        if tag in FOREIGN_ROOTS:
            raise self.error(f"this is {FOREIGN_ROOTS[tag]}")
        if tag != "system":
            raise self.error(f"the file starts with {shown(f'<{tag}>')}; expected <system>, as NCCL_TOPO_DUMP_FILE has")
        if (version := attributes.get("version", "")) not in ("1", "2"):
            raise self.error(f"version of <system> is {shown(version)}; expected 1 (NCCL) or 2 (RCCL)")

    def end(self, _: str) -> None:
        if self.skipped:
            self.skipped -= 1
        else:
            self.open.pop()


MAX_GPUS = 1024
MAX_NICS = 1024
MAX_NUMA = 255
MAX_RANK = 2**31 - 1
MAX_SPEED = 10**9  # Mb/s

GPU_CLASSES = ("0x03", "0x12")  # prefixes of PCI classes: displays, and accelerators (AMD)
VGA_CLASS = "0x0300"  # VGA controllers, such as those of server boards
NIC_CLASS = "0x02"

VIRTUAL_PREFIXES = ("veth", "docker", "virbr")  # name prefixes of virtual network interfaces

ARCHITECTURES = {"910": "gfx90a", "940": "gfx942", "941": "gfx942", "gfx940": "gfx942", "gfx941": "gfx942"}
"""Architecture names that RCCL wrote, or of early samples, and those of `GpuProduct`."""


class Gpu(NamedTuple):
    """One GPU."""

    pci: Element  # its ``pci`` element
    element: Element | None  # its ``gpu`` element; None in a file without

    @property
    def kind(self) -> tuple[str, str] | None:
        """Vendor and code, as in `GpuProduct`; None where the file does not state them."""
        if self.element is None:
            return None
        if architecture := self.element.get("gcn").split(":")[0]:
            architecture = ARCHITECTURES.get(architecture, architecture)
            return "amd", architecture if architecture.startswith("gfx") else f"gfx{architecture}"
        # In RCCL's files, sm is the number of compute units.
        if any(child.tag == "xgmi" for child in self.element.children) or not self.element.get("sm"):
            return None
        return "nvidia", str(self.element.integer("sm", 10, 999))


class NcclNic(NamedTuple):
    """One NIC: all ports of one ``guid`` in one slot."""

    device: Element  # its ``pci`` element, or the ``cpu`` where the file has no slot
    stated: Fraction | None  # GB/s of all its ports in each direction; None where the file does not state it
    bandwidth: Fraction | None  # the same, or the given option
    ports: tuple[Element, ...] = ()  # its ``net`` elements

    def named(self, node: str) -> Device:
        """Return what is stated of it: the names of its ports, and the number of the first."""
        names = dict.fromkeys(net.get("name").strip() for net in self.ports if net.get("name").isprintable())
        number = self.ports[0].integer("dev", 0, MAX_RANK) if self.ports else None
        return Device(node, "+".join(names), number, self.device.get("busid").strip().lower())


class Machine(NamedTuple):
    """The machine that a file describes."""

    system: Element  # the root element
    gpus: tuple[Gpu, ...]  # ``gpu0``, ``gpu1``, ...
    nics: tuple[NcclNic, ...]  # ``nic0``, ``nic1``, ...
    notes: tuple[str, ...]  # on parts that were left out or overruled

    @property
    def partial(self) -> bool:
        """Whether the file lists PCIe devices only, as files for ``NCCL_TOPO_FILE`` in clouds do."""
        return self.gpus[0].element is None

    def devices(self, nics: Iterable[int]) -> tuple[Device, ...]:
        """Return the devices of its GPUs and of some NICs, in the order of the box; NVML counts GPUs by address."""
        slots = [gpu.pci.get("busid").strip().lower() for gpu in self.gpus]
        numbers = [
            sorted(slots).index(slot) if gpu.element is None else gpu.element.integer("dev", 0, MAX_RANK)
            for gpu, slot in zip(self.gpus, slots, strict=True)
        ]
        gpus = [
            Device(f"gpu{gpu}", "", number, slot) for gpu, (number, slot) in enumerate(zip(numbers, slots, strict=True))
        ]
        return (*gpus, *(self.nics[number].named(f"nic{nic}") for nic, number in enumerate(nics)))

    @property
    def kind(self) -> tuple[str, str] | None:
        """Vendor and code of its GPUs; None where they differ, or the file does not state them."""
        kinds = {gpu.kind for gpu in self.gpus}
        return kinds.pop() if len(kinds) == 1 else None

    @property
    def device(self) -> str:
        """PCI device of its GPUs; empty where they differ, or the file does not state it."""
        devices = {gpu.pci.get("device").lower() for gpu in self.gpus}
        return devices.pop() if len(devices) == 1 else ""


def host_of(element: Element) -> str:
    """Return the hash of an element's host; empty in files of one host."""
    return (element if element.tag == "cpu" else element.ancestor("cpu")).get("host_hash").lower()


def read_machine(system: Element, options: BoxOptions, notes: Sequence[str] = ()) -> Machine:
    """Find the GPUs, by ``dev``, or by ``rank`` in files of several hosts, and NICs.

    Without ``gpu`` elements, they are the leaf ``pci`` elements of a display or accelerator class, in file order.
    """
    notes = [*notes]
    _check_addresses(system, notes)
    gpus = _gpus(system, notes)
    if len(gpus) > MAX_GPUS:
        raise gpus[MAX_GPUS].pci.error(f"there are more than {MAX_GPUS} GPUs; expected those of one machine or rack")
    nics = _nics(system, notes)
    if len(nics) > MAX_NICS:
        raise nics[MAX_NICS].device.error(f"there are more than {MAX_NICS} network cards; expected those of one rack")
    if options.nic_bandwidth is not None and nics:
        notes.append(f"every network card is modeled with the given {float(options.nic_bandwidth):g} GB/s")
        nics = [nic._replace(bandwidth=options.nic_bandwidth) for nic in nics]
    else:
        # Stated bandwidths may be a negotiated speed or a driver's placeholder.
        stated = Counter(nic.bandwidth for nic in nics if nic.bandwidth is not None)
        notes += [
            f"{count_text(number, 'network card')} {'is' if number == 1 else 'are'} modeled with {float(bandwidth):g} "
            f"GB/s, {float(8 * bandwidth):g} Gb/s, as the file says; if that is not their speed, give nic_bandwidth"
            for bandwidth, number in stated.items()
        ]
    return Machine(system, tuple(gpus), tuple(nics), tuple(notes))


def _check_addresses(system: Element, notes: list[str]) -> None:
    """Refuse CPUs, GPUs and NICs of one address; bridges are told apart by their place, as in NCCL."""
    owners: dict[tuple[str, str, str], Element] = {}
    repeated: list[str] = []
    for element in system.descendants("cpu", "pci"):
        name = "numaid" if element.tag == "cpu" else "busid"
        number = element.required(name)
        if element.tag == "cpu":
            number = str(element.integer(name, -1, MAX_NUMA))
        other = owners.setdefault((name, host_of(element), number.lower()), element)
        if other is not element:
            is_bridge = any(child.tag == "pci" for device in (element, other) for child in device.children)
            if element.tag == "cpu" or not is_bridge:
                raise element.error(
                    f"{name} {shown(number)} is also that of line {other.line}; expected one of its own"
                )
            repeated.append(f"{number} on line {element.line}")
    if repeated:
        notes.append(
            f"{count_text(len(repeated), 'repeated busid')} of PCIe switches ({repeated[0]}): taken for other devices, "
            "as in NCCL"
        )


def _gpus(system: Element, notes: list[str]) -> list[Gpu]:
    elements = list(system.descendants("gpu"))
    if not elements:
        return [Gpu(pci, None) for pci in _gpus_by_class(system, notes)]
    slots = [element.ancestor("pci") for element in elements]
    for slot, other in zip(slots[1:], slots, strict=False):
        if slot is other:
            raise slot.error("two <gpu> are in one <pci>, so ranks share a GPU; dump with one rank for each GPU")
    by = "dev" if len({*map(host_of, slots)}) == 1 else "rank"
    numbered: dict[int, Element] = {}
    for element in elements:
        number = element.integer(by, 0, MAX_RANK)
        if (other := numbered.setdefault(number, element)) is not element:
            raise element.error(f"{by} {number} is also that of the GPU on line {other.line}")
    ordered = [numbered[number] for number in sorted(numbered)]
    ranks = [element.integer("rank", -1, MAX_RANK, default=-1) for element in ordered]
    if -1 not in ranks and ranks != sorted(ranks):
        first = next(number for number, rank in enumerate(ranks) if rank != sorted(ranks)[number])
        notes.append(
            f"GPUs are in the order of dev, which the ranks of the dumped job contradict: gpu{first} was its rank "
            f"{ranks[first]}"
        )
    return [Gpu(element.ancestor("pci"), element) for element in ordered]


def _gpus_by_class(system: Element, notes: list[str]) -> list[Element]:
    """Find possible GPUs by PCI class, for files without ``gpu`` elements."""
    leaves = _leaves(system, GPU_CLASSES)
    if not leaves:
        raise system.error(
            "the file names no GPU: there is neither a <gpu> nor a <pci> whose class begins with 0x03; NCCL looks "
            "for them when it starts, so dump what it found with NCCL_TOPO_DUMP_FILE on the machine"
        )
    computing = [pci for pci in leaves if not pci.get("class").lower().startswith(VGA_CLASS)]
    if computing and len(computing) < len(leaves):
        vga = len(leaves) - len(computing)
        left_out = "1 VGA controller was" if vga == 1 else f"{vga} VGA controllers were"
        notes.append(f"{left_out} not taken for a GPU, as the file has 3D controllers or accelerators as well")
    return computing or leaves


def _leaves(system: Element, classes: str | tuple[str, ...]) -> list[Element]:
    """List the ``pci`` elements of some classes that have none inside."""
    return [
        pci
        for pci in system.descendants("pci")
        if pci.get("class").lower().startswith(classes) and all(child.tag != "pci" for child in pci.children)
    ]


def _nics(system: Element, notes: list[str]) -> list[NcclNic]:
    # Like NCCL, skip ports without a number, and those that it merged into one interface.
    ports = [net for net in system.descendants("net") if net.get("dev") and net.integer("net", 0, 1, default=1)]
    if not ports:
        return [NcclNic(pci, None, None) for pci in _leaves(system, NIC_CLASS)]
    if any(net.get("gdr") == "0" for net in ports):
        notes.append("gdr is 0 for network cards: they copy through memory of CPUs, which is not modeled")
    virtual = [net.get("name") for net in ports if net.get("name").startswith(VIRTUAL_PREFIXES)]
    if virtual:
        notes.append(f"left out {shown(virtual[0])}: a virtual interface sends through another card")
    ports = [net for net in ports if not net.get("name").startswith(VIRTUAL_PREFIXES)]
    hosts = list(dict.fromkeys(map(host_of, system.children)))
    ports.sort(key=lambda net: (hosts.index(host_of(net)), net.integer("dev", 0, MAX_RANK)))
    groups: defaultdict[object, list[Element]] = defaultdict(list)
    for net in ports:
        groups[_nic_key(net)].append(net)
    if len(groups) < len(ports):
        notes.append("ports of one guid in one slot are one network card with the sum of their speeds")
    return [_nic(nets) for nets in groups.values()]


def _nic(nets: list[Element]) -> NcclNic:
    """Sum the speeds of the ports of one NIC, each once, though several network plugins may list it."""
    ports = {(net.get("name"), net.get("port")): net for net in reversed(nets)}
    speeds = [net.integer("speed", -MAX_SPEED, MAX_SPEED, default=0) for net in ports.values()]
    stated = Fraction(sum(speeds), 8000) if min(speeds) > 0 else None
    return NcclNic(_device_of(nets[0]), stated, stated, tuple(nets))


def _device_of(net: Element) -> Element:
    assert net.parent is not None  # PARENTS puts a net inside a nic, and that inside a pci or cpu
    assert net.parent.parent is not None
    return net.parent.parent


def _nic_key(net: Element) -> object:
    """Return the identity of a port's NIC: functions of one PCI device with one ``guid`` are one NIC."""
    device = _device_of(net)
    if not net.get("guid"):
        return net
    slot: object = device.get("busid").lower().rpartition(".")[0] if device.tag == "pci" else device
    return host_of(device), slot, net.get("guid").lower()
