"""Reader of NCCL and RCCL topology files (``NCCL_TOPO_DUMP_FILE``, ``NCCL_TOPO_FILE``).

The format has no specification; what elements and numbers mean is in ``src/graph/xml.cc`` and ``src/graph/topo.cc`` of
NCCL and of RCCL.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from ...support.validation import shown
from ..network.topology import Link
from ..switched.box_files import stored_fields
from ..switched.scale_out import Box
from .box_from_links import GpuLinks, direct_links, switch_links, unlinked_note
from .documents import Document
from .nccl_machine import GPU_CLASSES, Element, Gpu, Machine, host_of, read_machine, read_tree
from .options import NVSWITCH_GPUS, PRODUCTS, BoxOptions, GpuProduct, products_of
from .pcie import nics_of_nearest_gpus, pcie_network, read_pcie

NVSWITCH = "nvswitch"
MAX_COUNT = 64  # parallel links on one line of a file
MAX_BANDWIDTH = 10**7  # MB/s of one link between a GPU and its CPU

HIDDEN_NVSWITCH = "fffffff:ffff:ff"  # address of NVSwitches that are not visible in a virtual machine
CPU_CLASS = "0x068001"


class _Listing:
    """The links listed in a file, by number of the GPU."""

    def __init__(self, machine: Machine) -> None:
        self.gpus = machine.gpus
        self.numbers = {(host_of(gpu.pci), gpu.pci.get("busid").lower()): n for n, gpu in enumerate(machine.gpus)}
        self.between: dict[tuple[int, int], tuple[int, Element]] = {}
        self.to_switch: Counter[int] = Counter()
        self.to_cpu: Counter[int] = Counter()
        self.coherent: defaultdict[int, Fraction] = defaultdict(Fraction)
        self.nvswitches: set[str] = set()
        self.self_links = self.unlisted_links = 0
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

    def totals(self) -> Counter[int]:
        """Count the links of each GPU."""
        totals = self.to_switch + self.to_cpu
        for (tail, _), (count, _) in self.between.items():
            totals[tail] += count
        return totals


class _Links(NamedTuple):
    """The GPU model, if the table has it, and links other than PCIe: between GPUs, and GB/s from a GPU to its CPU."""

    product: GpuProduct | None
    between: GpuLinks = GpuLinks()
    to_cpu: Mapping[int, Fraction] = MappingProxyType({})


def listed_links(machine: Machine, options: BoxOptions) -> _Links:
    """Return the links that a file lists; all NVSwitches are merged into one, as in NCCL."""
    listing = _Listing(machine)
    totals = listing.totals()
    product, notes = _product(machine, options, linked=bool(totals))
    rate = product.link(options.figures) if product else Fraction(0)
    per_pair = product.per_pair if product else 0
    counts = {(tail, head): count for (tail, head), (count, _) in listing.between.items() if tail < head}
    if product and any(count < per_pair for count in counts.values()):
        notes.append(
            f"{per_pair} xGMI links join each two {product.name}, as RCCL writes 1 where the driver counts none"
        )
    links = direct_links({pair: max(count, per_pair) * rate for pair, count in counts.items()})
    for gpu, count in sorted(listing.to_switch.items()):
        links += switch_links([gpu], NVSWITCH, count * rate)
    if product and totals:
        notes += _notes(listing, product, options, totals)
    if not listing.unlisted_links:
        kind = "xGMI link" if product and product.vendor == "amd" else "NVLink"
        notes += unlinked_note(len(machine.gpus), links, kind)
    if listing.self_links:
        notes.append("NVLinks that lead from a GPU to itself, as some virtual machines show them, were left out")
    if listing.unlisted_links:
        notes.append("links to GPUs that are not in this file were left out; a dump has only the GPUs of its job")
    to_cpu = {gpu: count * rate for gpu, count in listing.to_cpu.items()}
    for gpu, bandwidth in listing.coherent.items():
        to_cpu[gpu] = to_cpu.get(gpu, Fraction(0)) + bandwidth
    limits = product.switch_limits if listing.to_switch and product else ()
    return _Links(product, GpuLinks(links, (NVSWITCH,) * bool(listing.to_switch), limits, tuple(notes)), to_cpu)


def assumed_links(machine: Machine, options: BoxOptions) -> _Links:
    """Return the known links of the given GPU model, for a file that lists PCIe only."""
    system, count, product = machine.system, len(machine.gpus), options.gpu
    if product is None:
        raise system.error(
            "the file lists PCIe only, as files of cloud providers do: NCCL detects NVLinks when it starts; dump "
            'them with NCCL_TOPO_DUMP_FILE on the machine, or say which GPU it is (gpu="h100")'
        )
    if not product.links:
        return _Links(product)
    rate, rate_note = product.link(options.figures), product.rate_note(options.figures)
    if product.name in NVSWITCH_GPUS and count == 8:
        note = (
            f"assumed: {product.links} NVLinks from every {product.name} to NVSwitches, which the file does not mention"
        )
        star = switch_links(range(count), NVSWITCH, product.links * rate)
        return _Links(product, GpuLinks(star, (NVSWITCH,), product.switch_limits, (note, rate_note)))
    if product.name == "v100" and count == 8:
        pairs = stored_fields("dgx1-v100")["links"]["pairs"]
        mesh = direct_links({(one, other): links * rate for one, other, links in pairs})
        note = "assumed: the hybrid cube mesh of a DGX-1, its GPUs in the order of this file, which says nothing of it"
        return _Links(product, GpuLinks(mesh, notes=(note, rate_note)))
    raise system.error(
        f"the file lists PCIe only, and the wiring of {count} {product.name} is unknown (known are 8 of "
        f"{', '.join(NVSWITCH_GPUS)} or v100); dump them with NCCL_TOPO_DUMP_FILE on the machine"
    )


def _product(machine: Machine, options: BoxOptions, *, linked: bool) -> tuple[GpuProduct | None, list[str]]:
    """Determine the GPU model, which is required only if there are links whose bandwidth depends on it."""
    for gpu, other in pairwise(machine.gpus):
        if linked and gpu.kind != other.kind:
            raise other.pci.error("the GPUs are of different kinds, so their links are as well; expected one kind")
    kind = machine.kind
    same_code = products_of(*kind, machine.device) if kind else []
    listed_product = same_code[0] if same_code else None
    if listed_product and any(cpu.get("arch") == "arm64" for cpu in machine.system.children):
        listed_product = PRODUCTS.get(f"g{listed_product.name}", listed_product)  # On a board with Grace
    option, vendor = options.gpu, _vendor(machine, kind)
    if option and vendor and option.vendor != vendor:
        maker = "NVIDIA" if vendor == "nvidia" else "AMD"
        raise machine.system.error(f"gpu is {option.name!r}, but the GPUs of this file are {maker}'s; leave out gpu")
    if listed_product and option and listed_product.code == option.code:
        listed_product = option  # the file states the generation, and the caller the product
    if listed_product and option and listed_product != option:
        return listed_product, [f"ignored: gpu={option.name!r}, as the file itself says {listed_product.name}"]
    if not linked and option is None:
        return (listed_product if all(product.links for product in same_code) else None), []
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
    linked = [vendor for tag, vendor in (("nvlink", "nvidia"), ("xgmi", "amd")) if tag in tags]
    return kind[0] if kind else linked[0] if len(linked) == 1 else None


def _notes(listing: _Listing, product: GpuProduct, options: BoxOptions, totals: Counter[int]) -> list[str]:
    notes = [product.rate_note(options.figures)]
    if len(listing.nvswitches) > 1:
        notes.append(f"{len(listing.nvswitches)} NVSwitches became one, as in NCCL")
    ports = max(listing.to_switch.values(), default=0)
    notes += [
        f"gpu{gpu} has {count} of {ports} NVLinks to the NVSwitches; check it if that is a fault"
        for gpu, count in sorted(listing.to_switch.items())
        if count < ports
    ]
    gpu, links = min(totals.items(), key=lambda item: (-item[1], item[0]))
    if links > product.links:
        notes.append(f"gpu{gpu} has {links} links in this file; a known {product.name} has {product.links}")
    return notes


_XML = re.compile(r"\s*<[?!A-Za-z]")


def matches_nccl(document: Document) -> bool:
    """Return whether the text looks like XML of any kind; `read_nccl` refuses XML that is not a network."""
    return _XML.match(document.text) is not None


def read_nccl(document: Document, options: BoxOptions) -> Box:
    """Read the box that a topology file of NCCL or RCCL describes."""
    system, unread = read_tree(document)
    machine = read_machine(system, options, unread)
    product, between, to_cpu = (assumed_links if machine.partial else listed_links)(machine, options)
    pcie, gpus = read_pcie(machine, options), len(machine.gpus)
    inside: list[Link] = []
    if between.joins(gpus):
        attached = nics_of_nearest_gpus(machine, pcie, to_cpu)
    else:
        inside, attached = pcie_network(machine, pcie, to_cpu, options)
        if not between.joins(gpus, inside):
            hosts = len({host_of(gpu.pci) for gpu in machine.gpus})
            raise machine.system.error(
                f"the file has GPUs of {hosts} hosts, and no links that join all of them; dump each host by itself "
                "(NCCL_MNNVL_ENABLE=0) and join the boxes with a fabric"
            )
    kinds = {gpu.kind for gpu in machine.gpus}
    if product:
        word = product.name
    elif machine.kind is None:
        word = "mixed" if len(kinds) > 1 else "unknown"
    else:
        word = f"sm{machine.kind[1]}" if machine.kind[0] == "nvidia" else machine.kind[1]
    return Box(
        f"{word}-{gpus}gpu",
        gpus,
        (*between.links, *inside),
        attached.nics,
        (*between.switches, *dict.fromkeys(node for link in inside for node in link[:2] if not node.startswith("gpu"))),
        tuple(limit.switch for limit in between.limits),
        (*between.notes, *machine.notes, *pcie.notes, *attached.notes),
        attached.shared,
        between.limits,
        product.rack_of(gpus) if product and between.switches else "",
        machine.devices(attached.numbers),
    )
