"""GPUs and NICs of an NCCL or RCCL topology file, in rank order."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from ....support.validation import shown
from ..sources.options import BoxOptions
from .elements import Element

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


class Machine(NamedTuple):
    """The machine that a file describes."""

    system: Element  # the root element
    gpus: tuple[Gpu, ...]  # ``gpu0``, ``gpu1``, ...
    nics: tuple[NcclNic, ...]  # ``nic0``, ``nic1``, ...
    notes: tuple[str, ...]  # what was left out or overruled

    @property
    def partial(self) -> bool:
        """Whether the file lists PCIe devices only, as files for ``NCCL_TOPO_FILE`` in clouds do."""
        return self.gpus[0].element is None


def host_of(element: Element) -> str:
    """Return the hash of an element's host; empty in files of one host."""
    return (element if element.tag == "cpu" else element.ancestor("cpu")).get("host_hash").lower()


def read_machine(system: Element, options: BoxOptions) -> Machine:
    """Find the GPUs, by ``dev``, or by ``rank`` in files of several hosts, and NICs.

    Without ``gpu`` elements, they are the leaf ``pci`` elements of a display or accelerator class, in file order.
    """
    _check_addresses(system)
    notes: list[str] = []
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
        notes.extend(_bandwidth_notes(nics))
    return Machine(system, tuple(gpus), tuple(nics), tuple(notes))


def _bandwidth_notes(nics: list[NcclNic]) -> Iterator[str]:
    """Note the stated bandwidths of NICs, which may be a negotiated speed or a driver's placeholder."""
    for bandwidth, number in Counter(nic.bandwidth for nic in nics if nic.bandwidth is not None).items():
        counted = "1 network card is modeled" if number == 1 else f"{number} network cards are modeled"
        yield (
            f"{counted} with {float(bandwidth):g} GB/s, {float(8 * bandwidth):g} Gb/s, as the file says; if that "
            "is not their speed, give nic_bandwidth"
        )


def _check_addresses(system: Element) -> None:
    found: dict[tuple[str, str, str], Element] = {}
    for element in system.descendants("cpu", "pci"):
        name = "numaid" if element.tag == "cpu" else "busid"
        number = element.required(name)
        if element.tag == "cpu":
            number = str(element.integer(name, -1, MAX_NUMA))
        other = found.setdefault((name, host_of(element), number.lower()), element)
        if other is not element:
            raise element.error(f"{name} {shown(number)} is also that of line {other.line}; expected one of its own")


def _gpus(system: Element, notes: list[str]) -> list[Gpu]:
    listed = [Gpu(element.ancestor("pci"), element) for element in system.descendants("gpu")]
    if not listed:
        leaves = _gpus_by_class(system, notes)
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


def _gpus_by_class(system: Element, notes: list[str]) -> list[Element]:
    """Find possible GPUs by PCI class, for files without ``gpu`` elements."""
    leaves = [pci for pci in _leaves(system) if _class(pci).startswith(GPU_CLASSES)]
    computing = [pci for pci in leaves if not _class(pci).startswith(VGA_CLASS)]
    if computing and len(computing) < len(leaves):
        vga = len(leaves) - len(computing)
        left_out = "1 VGA controller was" if vga == 1 else f"{vga} VGA controllers were"
        notes.append(f"{left_out} not taken for a GPU, as the file has 3D controllers or accelerators as well")
    return computing or leaves


def _class(pci: Element) -> str:
    return pci.get("class").lower()


def _in_order(listed: list[Gpu]) -> list[Gpu]:
    """Sort by ``dev`` or ``rank``; see `read_machine`."""
    hosts = {host_of(gpu.pci) for gpu in listed}
    by = "dev" if len(hosts) == 1 else "rank"
    numbered: dict[int, Gpu] = {}
    for gpu in listed:
        assert gpu.element is not None  # as it is listed
        number = gpu.element.integer(by, 0, MAX_RANK)
        other = numbered.setdefault(number, gpu)
        if other is not gpu and other.element is not None:
            raise gpu.element.error(f"{by} {number} is also that of the GPU on line {other.element.line}")
    return [numbered[number] for number in sorted(numbered)]


def _leaves(system: Element) -> list[Element]:
    return [pci for pci in system.descendants("pci") if all(child.tag != "pci" for child in pci.children)]


def _nics(system: Element, notes: list[str]) -> list[NcclNic]:
    # Like NCCL, skip ports without a number, and those that it merged into one interface.
    ports = [net for net in system.descendants("net") if net.get("dev") and net.integer("net", 0, 1, default=1)]
    if not ports:
        leaves = [pci for pci in _leaves(system) if _class(pci).startswith(NIC_CLASS)]
        return [NcclNic(pci, None, None) for pci in leaves]
    virtual = [net.get("name") for net in ports if net.get("name").startswith(VIRTUAL_PREFIXES)]
    if virtual:
        notes.append(f"left out {shown(virtual[0])}: a virtual interface sends through another card")
    groups: defaultdict[object, list[Element]] = defaultdict(list)
    ports = [net for net in ports if not net.get("name").startswith(VIRTUAL_PREFIXES)]
    hosts = {host: index for index, host in enumerate(dict.fromkeys(map(host_of, system.children)))}
    order = {net: (hosts[host_of(net)], net.integer("dev", 0, MAX_RANK), index) for index, net in enumerate(ports)}
    for net in sorted(ports, key=order.__getitem__):
        groups[_nic_key(net)].append(net)
    if len(groups) < len(ports):
        notes.append("ports of one guid in one slot are one network card with the sum of their speeds")
    return [_nic(nets) for nets in groups.values()]


def _nic(nets: list[Element]) -> NcclNic:
    """Sum the speeds of the ports of one NIC, each once, though several network plugins may list it."""
    ports = {(net.get("name"), net.get("port")): net for net in reversed(nets)}
    speeds = [net.integer("speed", -MAX_SPEED, MAX_SPEED, default=0) for net in ports.values()]
    stated = Fraction(sum(speeds), 8000) if min(speeds) > 0 else None
    return NcclNic(_device_of(nets[0]), stated, stated)


def _device_of(net: Element) -> Element:
    nic = net.parent
    assert nic is not None  # PARENTS puts a net inside a nic, and that inside a pci or cpu
    assert nic.parent is not None
    return nic.parent


def _nic_key(net: Element) -> object:
    """Return the identity of a port's NIC: functions of one PCI device with one ``guid`` are one NIC."""
    device = _device_of(net)
    if not net.get("guid"):
        return net
    slot: object = device.get("busid").lower().rpartition(".")[0] if device.tag == "pci" else device
    return host_of(device), slot, net.get("guid").lower()
