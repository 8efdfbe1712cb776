"""Reader of NCCL and RCCL topology files (``NCCL_TOPO_DUMP_FILE``, ``NCCL_TOPO_FILE``).

The format has no specification; what elements and numbers mean is in NCCL's ``src/graph/xml.cc`` and
``src/graph/topo.cc``, and in the same files of RCCL.
"""

import re
from collections.abc import Collection

from ...network.topology import Link
from ...switched.scale_out import Box
from ..sources.document import Document
from ..sources.options import BoxOptions
from .elements import read_tree
from .gpu_links import GpuLinks, assumed_links, listed_links
from .machine import Machine, host_of, read_machine
from .pcie_network import nics_of_nearest_gpus, pcie_network
from .pcie_tree import read_pcie

_XML = re.compile(r"\s*<[?!A-Za-z]")


def matches(document: Document) -> bool:
    """Return whether the text looks like XML of any kind; `read_box` refuses XML that is not a network."""
    return _XML.match(document.text) is not None


def read_box(document: Document, options: BoxOptions) -> Box:
    """Read the box that a topology file of NCCL or RCCL describes."""
    machine = read_machine(read_tree(document), options)
    found = assumed_links(machine, options) if machine.partial else listed_links(machine, options)
    pcie = read_pcie(machine, options)
    inside: list[Link] = []
    if _joined(len(machine.gpus), found.links):
        attached = nics_of_nearest_gpus(machine, pcie, found.to_cpu)
    else:
        inside, attached = pcie_network(machine, pcie, found.to_cpu, options)
        if not _joined(len(machine.gpus), [*found.links, *inside]):
            hosts = len({host_of(gpu.pci) for gpu in machine.gpus})
            raise machine.system.error(
                f"the file has GPUs of {hosts} hosts, and no links that join all of them; dump each host by itself "
                "(NCCL_MNNVL_ENABLE=0) and join the boxes with a fabric"
            )
    names = dict.fromkeys(node for link in inside for node in link[:2] if not node.startswith("gpu"))
    return Box(
        _name(machine, found),
        len(machine.gpus),
        (*found.links, *inside),
        attached.nics,
        (*found.switches, *names),
        found.abilities,
        (*found.notes, *machine.notes, *pcie.notes, *attached.notes),
        attached.shared,
        found.limits,
    )


def _joined(gpus: int, links: Collection[Link]) -> bool:
    """Return whether the links, in both directions, connect all GPUs."""
    reached, before = {"gpu0"}, 0
    while len(reached) > before:
        before = len(reached)
        reached.update(end for link in links if not reached.isdisjoint(link[:2]) for end in link[:2])
    return all(f"gpu{gpu}" in reached for gpu in range(gpus))


def _name(machine: Machine, found: GpuLinks) -> str:
    kinds = {gpu.kind for gpu in machine.gpus}
    kind = kinds.pop() if len(kinds) == 1 else None
    if found.product:
        word = found.product.name
    elif kind is None:
        word = "mixed" if kinds else "unknown"
    else:
        word = f"sm{kind[1]}" if kind[0] == "nvidia" else kind[1]
    return f"{word}-{len(machine.gpus)}gpu"
