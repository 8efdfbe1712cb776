"""Topology files that NCCL reads (NCCL_TOPO_FILE), as virtual machines have them: lint, repair, and writing.

What NCCL does with a file is in its ``src/graph/xml.cc`` and ``src/graph/topo.cc``, here of 2.30.7.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import chain

from ...errors import FileFormatError, TopologyError
from ...topologies import Box, read_box
from ...topologies.builders import BUILDERS
from ...topologies.importing.documents import Document, read_document
from ...topologies.importing.nccl_machine import Element, Machine, read_machine, read_tree
from ...topologies.importing.nccl_xml import read_nccl
from ...topologies.importing.options import BoxOptions, GpuProduct, find_product
from ...topologies.importing.pcie import IMPLAUSIBLE_BRIDGE, IMPLAUSIBLE_NIC, pcie_bandwidth
from ...topologies.switched.box_files import stored_box
from ..programs.findings import SEVERITIES, Finding, LintReport, Severity

RUNTIME, VERSION = "nccl", "2.30.7"
SPEEDS = ("2.5 GT/s", "5 GT/s", "8 GT/s", "16 GT/s", "32 GT/s", "5.0 GT/s PCIe", "8.0 GT/s PCIe", "16.0 GT/s PCIe",
          "32.0 GT/s PCIe", "64.0 GT/s PCIe")  # fmt: skip
"""What the link_speed of a ``pci`` has to begin with (topo.cc, ``kvDictPciGen``); others count as 8 GT/s."""
MAX_ATTRIBUTES = 16
BRIDGE_CLASS, GPU_CLASS, NIC_CLASS = "0x060400", "0x030200", "0x020000"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_TAG = re.compile(r"""<(?:!--.*?-->|/[^\s/>]+>|[\w.:-]+(?: +[\w.:-]+=(?:"[^"]*"|'[^']*'))* */?>)""", re.DOTALL)
_GAP = re.compile(r"[ \n\r]*")

Lines = Iterator[tuple[Severity, str, int | None]]  # findings without their place in words


def lint_topology_file(path: str | os.PathLike[str], gpu: str | None = None) -> LintReport:
    """Check what NCCL refuses, ignores or believes of a topology file; notes say how collopt reads it.

    Parameters
    ----------
    path : str or path
        The file, as ``NCCL_TOPO_FILE`` names it.
    gpu : str, optional
        The GPU model, such as ``"h100"``, for files without ``gpu`` elements, whose NVLinks are then compared.

    Returns
    -------
    LintReport
        Links that are implausible or missing, and NICs that no GPU is near, are notes.
    """
    document = read_document(path)
    options = BoxOptions.of(gpu=gpu)
    findings = [*_syntax(document)]
    if not findings:
        try:
            root, _ = read_tree(document)
            findings += _attributes(root)
            machine = read_machine(root, options)
        except FileFormatError as error:
            findings.append(("not checked", _without(document, error), None))
        else:
            findings += [*_links(machine), *_places(machine), *_reading(document, options, machine)]
    rows = [Finding(effect, message, f"line {line}" if line else "") for effect, message, line in findings]
    rows.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    return LintReport(os.fspath(path), RUNTIME, VERSION, tuple(rows), environment={"NCCL_TOPO_FILE": os.fspath(path)})


def _without(document: Document, error: Exception) -> str:
    return str(error).removeprefix(document.where).lstrip(":, ")


def _syntax(document: Document) -> Lines:
    """Find what NCCL's parser stops at, which knows no declarations, tabs, or tags of several lines."""
    text, place = document.text, _GAP.match(document.text).end()  # type: ignore[union-attr]
    while place < len(text):
        tag = _TAG.match(text, place)
        if tag is None:
            excerpt = " ".join(text[place : place + 30].replace("\t", "<tab>").split())
            yield (
                "rejected",
                (
                    f"NCCL's parser stops at {excerpt!r}: tags have to be on one line, a space between attributes, "
                    "without tabs, a declaration or text"
                ),
                text.count("\n", 0, place) + 1,
            )
            return
        place = _GAP.match(text, tag.end()).end()  # type: ignore[union-attr]


def _attributes(root: Element) -> Lines:
    """Find values that NCCL takes for others."""
    if root.get("version") != "1":
        yield "rejected", f"version is {root.get('version')!r}; NCCL reads 1 (2 is of RCCL)", root.line
    for element in root.descendants("cpu", "pci", "gpu", "nic", "net", "nvlink"):
        if len(element.attributes) > MAX_ATTRIBUTES:
            yield "ignored", f"<{element.tag}> has {len(element.attributes)} attributes; NCCL keeps 16", element.line
        if element.tag != "pci":
            continue
        address, speed = element.get("busid"), element.get("link_speed")
        if not _ADDRESS.fullmatch(address):
            yield (
                "ignored",
                f"busid {address!r} is not recognized; NCCL writes addresses as 0000:0a:00.0, in lower case",
                element.line,
            )
        if speed and not speed.startswith(SPEEDS):
            yield "ignored", f"link_speed {speed!r} counts as 8 GT/s; write it as '32.0 GT/s PCIe'", element.line


def _links(machine: Machine) -> Lines:
    """Find PCIe links far slower than what is behind them, which NCCL believes."""
    ports = {nic.device: nic.stated for nic in machine.nics}
    fast = max(pcie_bandwidth(gpu.pci, "nccl") for gpu in machine.gpus)
    for pci in machine.system.descendants("pci"):
        speed = pcie_bandwidth(pci, "nccl")
        behind = ports.get(pci)
        slow = speed * (IMPLAUSIBLE_NIC if behind else IMPLAUSIBLE_BRIDGE) <= (behind or fast)
        if slow if all(child.tag != "pci" for child in pci.children) else _plausible(pci) is not pci:
            yield (
                "note",
                f"NCCL plans with the {float(speed):.3g} GB/s of {pci.get('busid')}: far less than what is behind it",
                pci.line,
            )


def _plausible(pci: Element) -> Element:
    """Return what states the speed of a link: the fastest device below a bridge that is far slower than it."""
    fastest = max([*pci.descendants("pci")] or [pci], key=lambda device: pcie_bandwidth(device, "nccl"))
    is_slow = pcie_bandwidth(pci, "nccl") * IMPLAUSIBLE_BRIDGE <= pcie_bandwidth(fastest, "nccl")
    return fastest if is_slow else pci


def _places(machine: Machine) -> Lines:
    """Find NICs without a GPU on their CPU, and GPUs that differ in what they list."""
    for number, nic in enumerate(machine.nics):
        cpu = nic.device if nic.device.tag == "cpu" else nic.device.ancestor("cpu")
        below = {*cpu.descendants("pci")}
        if not any(gpu.pci in below for gpu in machine.gpus):
            message = f"nic{number} is on a CPU without GPUs: NCCL reaches it over the link between CPUs"
            yield "note", message, nic.device.line
    listing = [gpu for gpu in machine.gpus if gpu.element is not None]
    if listing and all(gpu.element and gpu.element.children for gpu in listing):
        message = "NCCL takes dev, sm and NVLinks of <gpu> from the file; leave them out for another machine"
        yield "note", message, listing[0].pci.line
    for gpu in listing:
        if (
            gpu.element
            and not gpu.element.children
            and any(other.element and other.element.children for other in listing)
        ):
            yield "note", f"{gpu.pci.get('busid')} lists no NVLinks, as others do; NCCL looks for its own", gpu.pci.line
    if any(net.get("speed") for net in machine.system.descendants("net")):
        yield "note", "NCCL takes the speed of <net> from the file, not from the card", None


def _reading(document: Document, options: BoxOptions, machine: Machine) -> Lines:
    """Add what collopt notes when it imports the file, of which faults of links are a part."""
    if machine.partial and options.gpu is None:
        return
    try:
        notes = read_nccl(document, options).notes
    except (FileFormatError, TopologyError) as error:
        notes = (_without(document, error),)
    yield from (("note", note, None) for note in notes)


def topology_file(
    path: str | os.PathLike[str] | None = None,
    *,
    host: str | os.PathLike[str] | None = None,
    box: str | None = None,
    gpu: str | None = None,
) -> str:
    """Return the text of a topology file: PCIe of a host or a box, with the addresses of a virtual machine.

    NCCL adds GPUs, NVLinks and ports of NICs by itself.  Raises `FileFormatError` for files that are no machines, and
    `TopologyError` if the numbers of GPUs or NICs differ.

    Parameters
    ----------
    path : str or path, optional
        The virtual machine's file, whose GPUs and NICs in their order get the places of the others; without, addresses
        are made up.
    host : str or path, optional
        A dump (``NCCL_TOPO_DUMP_FILE``) of a host of the machine, or a repaired file.
    box : str, optional
        Instead of it, a box of the catalogue, such as ``"dgx-h100"``, or a file that `read_box` reads.
    gpu : str, optional
        GPU of the box, whose slots then count, where its name does not end in it.
    """
    if (host is None) == (box is None):
        raise TopologyError("a topology file is made from a host or a box; give one of them")
    machine = None if path is None else _machine(path)
    if host is not None:
        return _like_host(_machine(host), machine, os.fspath(host))
    assert box is not None
    name = box.replace("_", "-")
    try:
        described = stored_box(name) if name in BUILDERS else read_box(box, gpu=gpu)
    except (FileNotFoundError, KeyError):
        raise TopologyError(f"{box} is no box with NICs; expected one such as dgx-h100, or a file of a box") from None
    return _like_box(described, find_product(gpu or described.name.rpartition("-")[2]), machine)


def _machine(path: str | os.PathLike[str]) -> Machine:
    return read_machine(read_tree(read_document(path))[0], BoxOptions())


def _addresses(machine: Machine | None, gpus: int, nics: int, source: str) -> tuple[list[str], list[str]]:
    """Return addresses of GPUs and NICs, made up without a machine."""
    if machine is None:
        return [f"{n + 1:04x}:00:00.0" for n in range(gpus)], [f"{n + 257:04x}:00:00.0" for n in range(nics)]
    slots = [nic.device.get("busid") for nic in machine.nics if nic.device.tag == "pci"]
    if (len(machine.gpus), len(slots)) != (gpus, nics):
        raise TopologyError(
            f"the file has {len(machine.gpus)} GPUs and {len(slots)} NICs, but {source} has {gpus} and {nics}; "
            "expected as many"
        )
    return [gpu.pci.get("busid") for gpu in machine.gpus], slots


def _like_host(host: Machine, machine: Machine | None, source: str) -> str:
    """Copy the PCIe tree of a host; bridges have addresses that no machine has, as in Azure's files."""
    slots = [nic.device for nic in host.nics if nic.device.tag == "pci"]
    gpus, nics = _addresses(machine, len(host.gpus), len(slots), source)
    places = dict(zip([*(gpu.pci for gpu in host.gpus), *slots], [*gpus, *nics], strict=True))
    numbers = iter(range(1, 2**16))

    def subtree(element: Element) -> Iterator[str]:
        inside = [child for child in element.children if child.tag == "pci" and _has_any(child, places)]
        if element.tag == "cpu":
            names = ("numaid", "arch", "vendor", "familyid", "modelid")
            attributes = {name: element.get(name) for name in names}
        elif element in places:
            kind = element.get("class") or (NIC_CLASS if element in slots else GPU_CLASS)
            attributes = {"busid": places[element], "class": kind} | _speed(element)
        else:
            attributes = {"busid": _bridge(next(numbers)), "class": BRIDGE_CLASS} | _speed(_plausible(element))
        yield from _element(element.tag, attributes, (line for child in inside for line in subtree(child)))

    cpus = [cpu for cpu in host.system.children if _has_any(cpu, places)]
    return _system(line for cpu in cpus for line in subtree(cpu))


def _has_any(element: Element, places: Mapping[Element, str]) -> bool:
    return element in places or any(pci in places for pci in element.descendants("pci"))


def _speed(pci: Element) -> dict[str, str]:
    """Return the speed of a link in NCCL's words, and its width; empty where the host does not say."""
    speed = pci.get("link_speed").strip()
    number = re.match(r"\d+(?:\.\d+)?", speed)
    wording = f"{float(number[0]):.1f} GT/s PCIe" if number else ""
    width = pci.get("link_width").strip()
    return {"link_speed": wording if wording.startswith(SPEEDS) else speed, "link_width": "" if width == "0" else width}


def _like_box(box: Box, product: GpuProduct, machine: Machine | None) -> str:
    """Put GPUs below a bridge with the NICs that are near to them, half of the bridges on each of two CPUs."""
    gpus, nics = _addresses(machine, box.gpus, len(box.nics), box.name)
    groups: dict[tuple[int, ...], list[int]] = {}
    for number, nic in enumerate(box.nics):
        near = tuple(sorted(int(node[3:]) for node in nic.near if node.startswith("gpu")))
        groups.setdefault(near, []).append(number)
    placed = {gpu for group in groups for gpu in group}
    if len(placed) < sum(map(len, groups)) or placed != {*range(box.gpus)}:
        raise TopologyError(f"NICs of {box.name} are not near to GPUs of their own; give a dump of a host instead")
    link = {"link_speed": f"{float(Fraction(product.lane_speed)):.1f} GT/s PCIe", "link_width": "16"}
    bridges = []
    for number, (near, cards) in enumerate(sorted(groups.items()), 1):
        devices = [(gpus[gpu], GPU_CLASS) for gpu in near] + [(nics[card], NIC_CLASS) for card in cards]
        inside = [
            line for busid, kind in devices for line in _element("pci", {"busid": busid, "class": kind} | link, ())
        ]
        bridges.append([*_element("pci", {"busid": _bridge(number), "class": BRIDGE_CLASS} | link, inside)])
    half = (len(bridges) + 1) // 2
    cpus = [below for below in (bridges[:half], bridges[half:]) if below]
    return _system(
        line for numa, below in enumerate(cpus) for line in _element("cpu", {"numaid": str(numa)}, chain(*below))
    )


_bridge: Callable[[int], str] = "ffff:{0:02x}:00.0".format


def _element(tag: str, attributes: Mapping[str, str], inside: Iterable[str]) -> Iterator[str]:
    """Write an element in lines; attributes that are empty or have quotes are left out, so NCCL looks for them."""
    words = "".join(f' {name}="{value}"' for name, value in attributes.items() if value and '"' not in value)
    lines = [f"  {line}" for line in inside]
    yield f"<{tag}{words}{'' if lines else '/'}>"
    yield from lines
    if lines:
        yield f"</{tag}>"


def _system(lines: Iterable[str]) -> str:
    return "\n".join(_element("system", {"version": "1"}, lines)) + "\n"
