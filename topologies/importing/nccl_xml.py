"""Reader of NCCL and RCCL topology files (``NCCL_TOPO_DUMP_FILE``, ``NCCL_TOPO_FILE``).

The format has no specification; what elements and numbers mean is in NCCL's ``src/graph/xml.cc`` and
``src/graph/topo.cc``, and in the same files of RCCL.  NVLinks and xGMI links are listed, or assumed from the GPU model.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from fractions import Fraction
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from ...support.validation import shown
from ..network.topology import Link, SwitchLimits
from ..switched.box_files import stored_fields
from ..switched.scale_out import SCALE_UP_LATENCY, Box
from .documents import Document
from .nccl_machine import GPU_CLASSES, Element, Gpu, Machine, host_of, read_machine, read_tree
from .options import BoxOptions, GpuProduct, is_always_linked, product_of
from .pcie import nics_of_nearest_gpus, pcie_network, read_pcie

NVSWITCH = "nvswitch"
MAX_COUNT = 64  # parallel links on one line of a file
MAX_BANDWIDTH = 10**7  # MB/s of one link between a GPU and its CPU

HIDDEN_NVSWITCH = "fffffff:ffff:ff"  # address of NVSwitches that are not visible in a virtual machine
CPU_CLASS = "0x068001"

NVSWITCH_GPUS = ("a100", "a800", "h100", "h800", "b200", "b300")
"""GPUs that are sold by eight with NVSwitches; the V100 by eight has a hybrid cube mesh."""


class GpuLinks(NamedTuple):
    """Links between GPUs other than PCIe."""

    product: GpuProduct | None  # the GPU, if the table has it
    links: tuple[Link, ...] = ()  # between GPUs, and between them and the NVSwitch, each for both directions
    switches: tuple[str, ...] = ()  # as in `Box`
    abilities: tuple[str, ...] = ()  # as in `Box`
    # GB/s between a GPU and its CPU besides PCIe, by number of the GPU
    to_cpu: Mapping[int, Fraction] = MappingProxyType({})
    notes: tuple[str, ...] = ()  # as in `Box`
    limits: tuple[SwitchLimits, ...] = ()  # as in `Box`


class _Listing:
    """The links listed in a file, by number of the GPU."""

    def __init__(self, machine: Machine) -> None:
        self.gpus = machine.gpus
        self.numbers = {(host_of(gpu.pci), gpu.pci.get("busid").lower()): n for n, gpu in enumerate(machine.gpus)}
        self.between: dict[tuple[int, int], tuple[int, Element]] = {}
        self.to_switch: defaultdict[int, int] = defaultdict(int)
        self.nvswitches: set[str] = set()
        self.to_cpu: defaultdict[int, int] = defaultdict(int)
        self.coherent: defaultdict[int, Fraction] = defaultdict(Fraction)
        self.self_links = 0
        self.unlisted_links = 0
        for number, gpu in enumerate(machine.gpus):
            for row in gpu.element.children if gpu.element else ():
                self._read(number, gpu, row)
        self._check_both_directions()

    def _read(self, number: int, gpu: Gpu, row: Element) -> None:
        count = row.integer("count", 1, MAX_COUNT)
        if row.tag == "c2c":
            self.coherent[number] += Fraction(count * row.integer("bw", 1, MAX_BANDWIDTH), 1000)
            return
        target, kind = row.required("target").lower(), row.get("tclass").lower()
        peer = self.numbers.get((host_of(gpu.pci), target))
        if peer == number:
            self.self_links += count
        elif peer is not None:
            if (number, peer) in self.between:
                line = self.between[number, peer][1].line
                raise row.error(f"gpu{number} lists its links to {shown(target)} here and on line {line}")
            self.between[number, peer] = count, row
        elif kind.startswith(GPU_CLASSES):
            self.unlisted_links += count
        elif row.tag == "xgmi" or not (kind or target == HIDDEN_NVSWITCH):
            raise row.error(f"target {shown(target)} is no GPU of this file, and no tclass says what it is")
        elif kind.startswith(CPU_CLASS):
            self.to_cpu[number] += count
        else:
            self.to_switch[number] += count
            self.nvswitches.add(target)

    def _check_both_directions(self) -> None:
        for (tail, head), (count, row) in self.between.items():
            back, other = self.between.get((head, tail), (0, None))
            if back != count:
                shown_back = "does not list" if other is None else f"on line {other.line} lists count {back} to"
                raise row.error(
                    f"gpu{tail} lists count {count} to gpu{head}, but gpu{head} {shown_back} gpu{tail}; every link "
                    "goes both ways, so dump the file again"
                )

    def totals(self) -> list[int]:
        """Return the number of links of each GPU."""
        totals = [self.to_switch.get(gpu, 0) + self.to_cpu.get(gpu, 0) for gpu in range(len(self.gpus))]
        for (tail, _), (count, _) in self.between.items():
            totals[tail] += count
        return totals


def listed_links(machine: Machine, options: BoxOptions) -> GpuLinks:
    """Return the links that a file lists; all NVSwitches are merged into one, as in NCCL."""
    listing = _Listing(machine)
    totals = listing.totals()
    product, notes = _product(machine, options, linked=any(totals))
    rate = product.link(options.figures) if product else Fraction(0)
    links = [
        Link(f"gpu{tail}", f"gpu{head}", count * rate, SCALE_UP_LATENCY)
        for (tail, head), (count, _) in sorted(listing.between.items(), key=lambda item: item[0])
        if tail < head
    ]
    switched = sorted(listing.to_switch.items())
    links += [Link(f"gpu{gpu}", NVSWITCH, count * rate, SCALE_UP_LATENCY / 2) for gpu, count in switched]
    if product and any(totals):
        notes += _notes(listing, product, options, totals)
    if listing.self_links:
        notes.append("NVLinks that lead from a GPU to itself, as some virtual machines show them, were left out")
    if listing.unlisted_links:
        notes.append("links to GPUs that are not in this file were left out; a dump has only the GPUs of its job")
    to_cpu = {gpu: count * rate for gpu, count in listing.to_cpu.items()}
    for gpu, bandwidth in listing.coherent.items():
        to_cpu[gpu] = to_cpu.get(gpu, Fraction(0)) + bandwidth
    limits = product.switch_limits if switched and product else ()
    reducing = tuple(limit.switch for limit in limits)
    return GpuLinks(product, tuple(links), (NVSWITCH,) if switched else (), reducing, to_cpu, tuple(notes), limits)


def assumed_links(machine: Machine, options: BoxOptions) -> GpuLinks:
    """Return the known links of the given GPU model, for a file that lists PCIe only."""
    system, count, product = machine.system, len(machine.gpus), options.gpu
    if product is None:
        raise system.error(
            "the file lists PCIe only, as files of cloud providers do: NCCL detects NVLinks when it starts; dump "
            'them with NCCL_TOPO_DUMP_FILE on the machine, or say which GPU it is (gpu="h100")'
        )
    if not product.links:
        return GpuLinks(product)
    rate = product.link(options.figures)
    if product.name in NVSWITCH_GPUS and count == 8:
        star = [Link(f"gpu{gpu}", NVSWITCH, product.links * rate, SCALE_UP_LATENCY / 2) for gpu in range(count)]
        note = (
            f"assumed: {product.links} NVLinks from every {product.name} to NVSwitches, which the file does not mention"
        )
        limits = product.switch_limits
        reducing = tuple(limit.switch for limit in limits)
        notes = (note, product.rate_note(options.figures))
        return GpuLinks(product, tuple(star), (NVSWITCH,), reducing, notes=notes, limits=limits)
    if product.name == "v100" and count == 8:
        pairs = stored_fields("dgx1-v100")["links"]["pairs"]
        mesh = [Link(f"gpu{a}", f"gpu{b}", links * rate, SCALE_UP_LATENCY) for a, b, links in pairs]
        note = "assumed: the hybrid cube mesh of a DGX-1, its GPUs in the order of this file, which says nothing of it"
        return GpuLinks(product, tuple(mesh), notes=(note, product.rate_note(options.figures)))
    raise system.error(
        f"the file lists PCIe only, and the wiring of {count} {product.name} is unknown (known are 8 of "
        f"{', '.join(NVSWITCH_GPUS)} or v100); dump them with NCCL_TOPO_DUMP_FILE on the machine"
    )


def _product(machine: Machine, options: BoxOptions, *, linked: bool) -> tuple[GpuProduct | None, list[str]]:
    """Determine the GPU model, which is required only if there are links whose bandwidth depends on it."""
    for gpu, other in pairwise(machine.gpus):
        if linked and gpu.kind != other.kind:
            raise other.pci.error("the GPUs are of different kinds, so their links are as well; expected one kind")
    kinds = {gpu.kind for gpu in machine.gpus}
    kind = kinds.pop() if len(kinds) == 1 else None
    listed_product = product_of(*kind) if kind else None
    option, vendor = options.gpu, _vendor(machine, kind)
    if option and vendor and option.vendor != vendor:
        maker = "NVIDIA" if vendor == "nvidia" else "AMD"
        raise machine.system.error(f"gpu is {option.name!r}, but the GPUs of this file are {maker}'s; leave out gpu")
    if listed_product and option and listed_product.code == option.code:
        listed_product = option  # the file states the generation, and the caller the product
    if listed_product and option and listed_product != option:
        return listed_product, [f"ignored: gpu={option.name!r}, as the file itself says {listed_product.name}"]
    if not linked and option is None:
        return (listed_product if kind and is_always_linked(*kind) else None), []
    if listed_product or not linked:
        return listed_product or (option if kind is None else None), []
    if option:
        return option, [f"the file names the GPU in an unknown way; taken as the given {option.name}"]
    what = (
        "does not say which GPU it is" if kind is None else f"has GPUs that are not in the table of links ({kind[1]})"
    )
    raise machine.system.error(f"the file {what}, so the speed of its links is unknown; name a similar GPU (gpu=...)")


def _vendor(machine: Machine, kind: tuple[str, str] | None) -> str | None:
    """Determine the vendor from the GPUs, or from their links where the file does not state the model."""
    tags = {row.tag for gpu in machine.gpus if gpu.element for row in gpu.element.children}
    linked = {vendor for tag, vendor in (("nvlink", "nvidia"), ("xgmi", "amd")) if tag in tags}
    return kind[0] if kind else linked.pop() if len(linked) == 1 else None


def _notes(listing: _Listing, product: GpuProduct, options: BoxOptions, totals: list[int]) -> list[str]:
    notes = [product.rate_note(options.figures)]
    if len(listing.nvswitches) > 1:
        notes.append(f"{len(listing.nvswitches)} NVSwitches became one, as in NCCL")
    gpu = max(range(len(totals)), key=totals.__getitem__)
    if totals[gpu] > product.links:
        notes.append(f"gpu{gpu} has {totals[gpu]} links in this file; a known {product.name} has {product.links}")
    return notes


_XML = re.compile(r"\s*<[?!A-Za-z]")


def matches_nccl(document: Document) -> bool:
    """Return whether the text looks like XML of any kind; `read_nccl` refuses XML that is not a network."""
    return _XML.match(document.text) is not None


def read_nccl(document: Document, options: BoxOptions) -> Box:
    """Read the box that a topology file of NCCL or RCCL describes."""
    machine = read_machine(read_tree(document), options)
    gpu_links = assumed_links(machine, options) if machine.partial else listed_links(machine, options)
    pcie = read_pcie(machine, options)
    inside: list[Link] = []
    if _joined(len(machine.gpus), gpu_links.links):
        attached = nics_of_nearest_gpus(machine, pcie, gpu_links.to_cpu)
    else:
        inside, attached = pcie_network(machine, pcie, gpu_links.to_cpu, options)
        if not _joined(len(machine.gpus), [*gpu_links.links, *inside]):
            hosts = len({host_of(gpu.pci) for gpu in machine.gpus})
            raise machine.system.error(
                f"the file has GPUs of {hosts} hosts, and no links that join all of them; dump each host by itself "
                "(NCCL_MNNVL_ENABLE=0) and join the boxes with a fabric"
            )
    names = dict.fromkeys(node for link in inside for node in link[:2] if not node.startswith("gpu"))
    return Box(
        _name(machine, gpu_links),
        len(machine.gpus),
        (*gpu_links.links, *inside),
        attached.nics,
        (*gpu_links.switches, *names),
        gpu_links.abilities,
        (*gpu_links.notes, *machine.notes, *pcie.notes, *attached.notes),
        attached.shared,
        gpu_links.limits,
    )


def _joined(gpus: int, links: Collection[Link]) -> bool:
    """Return whether the links, in both directions, connect all GPUs."""
    reached, before = {"gpu0"}, 0
    while len(reached) > before:
        before = len(reached)
        reached.update(end for link in links if not reached.isdisjoint(link[:2]) for end in link[:2])
    return all(f"gpu{gpu}" in reached for gpu in range(gpus))


def _name(machine: Machine, gpu_links: GpuLinks) -> str:
    kinds = {gpu.kind for gpu in machine.gpus}
    kind = kinds.pop() if len(kinds) == 1 else None
    if gpu_links.product:
        word = gpu_links.product.name
    elif kind is None:
        word = "mixed" if kinds else "unknown"
    else:
        word = f"sm{kind[1]}" if kind[0] == "nvidia" else kind[1]
    return f"{word}-{len(machine.gpus)}gpu"
