"""Registry of imported formats, which are detected by content, and the reader of one box from a file of these.

The readers of formats are imported on demand.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from typing import Any, NamedTuple

from ...support.json_files import parse_json
from ...support.quantities import Exact, nic_unit_warning
from ..network.link_costs import link_classes
from ..network.links import node_kind
from ..network.topology import Topology
from ..switched.box_files import BOX_FORMAT, BOX_VERSION, box_from_json
from ..switched.scale_out import Box, with_port_bandwidth
from .documents import Document, Imported, looks_like, read_document
from .options import FIGURES, OPTIONS, BoxOptions


class Format(NamedTuple):
    """A file format and its reader, functions of a module of this package.

    ``read_<reader>(document, options)`` returns an `Imported` network or a `Box`.  JSON is recognized by `quoted`,
    other text by ``matches_<reader>(document) -> bool``, which never raises.
    """

    name: str  # for messages and documentation
    module: str
    reader: str
    options: tuple[str, ...] = OPTIONS  # the fields of `BoxOptions` that it uses
    is_network: bool = False  # whether it describes whole networks, not one box
    states_latencies: bool = False  # whether those of a box are read from the file, not assumed
    quoted: tuple[str, ...] = ()  # keys or values by which JSON of this format is recognized

    def matches(self, document: Document) -> bool:
        """Return whether the content looks like this format; never raises."""
        return looks_like(document, *self.quoted) if self.quoted else bool(self._function("matches")(document))

    def read(self, document: Document, options: BoxOptions) -> Box | Imported:
        """Read a document."""
        content: Box | Imported = self._function("read")(document, options)
        return content

    def _function(self, verb: str) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(import_module(f".{self.module}", __package__), f"{verb}_{self.reader}")
        return function


FORMATS = (
    Format("collopt box", "formats", "own_box", ("nic_bandwidth",), states_latencies=True, quoted=(BOX_FORMAT,)),
    Format("NCCL or RCCL topology XML", "nccl_xml", "nccl"),
    Format("nvidia-smi topo -m", "nvidia_smi", "nvidia_smi"),
    Format("rocm-smi --shownodesbw", "rocm_smi", "bandwidths"),
    Format("rocm-smi --showtopo", "rocm_smi", "topology_tables"),
    Format("amd-smi topology", "amd_smi", "amd_smi"),
    Format("xgmi_num_links of AMD's driver", "rocm_smi", "link_counts"),
    Format(
        "TACCL topology",
        "planner_inputs",
        "taccl",
        ("nic_bandwidth",),
        states_latencies=True,
        quoted=("gpus_per_node", "alpha"),
    ),
    Format("TE-CCL input", "planner_inputs", "teccl", (), is_network=True, quoted=("TopologyParams",)),
    Format(
        "MSCCL topology JSON",
        "planner_inputs",
        "msccl",
        ("figures", "gpu"),
        is_network=True,
        quoted=("msccl_type", "links"),
    ),
    Format("ASTRA-sim network YAML", "simulators", "astra_sim", (), is_network=True),
    Format("physical topology of ns-3", "simulators", "ns3", (), is_network=True),
)
"""In the order in which they are tried."""


def find_format(document: Document) -> Format | None:
    """Return the first of `FORMATS` that matches, or None for JSON, which has to be collopt's own."""
    for candidate in FORMATS:
        if candidate.matches(document):
            return candidate
    if what := unsupported_format(document):
        raise document.error(f"it is {what}")
    if document.text.lstrip().startswith(("{", "[")):
        return None
    names = ", ".join(candidate.name for candidate in FORMATS)
    raise document.error(f"it is not in a known network format; expected collopt's own JSON or {names}")


def read_own_box(document: Document, options: BoxOptions) -> Box:
    """Read a box of collopt's own format."""
    data = parse_json(document.text, document.where, BOX_FORMAT, BOX_VERSION)
    box = box_from_json(data, document.where)
    speed = options.nic_bandwidth
    return box if speed is None else replace(box, nics=with_port_bandwidth(box, speed))


UNSUPPORTED_FORMATS = (
    (r'"internode_sketch"|"intranode_sketch"', "a TACCL sketch, which restricts routes and has no bandwidths"),
    (r'"logical-dims"', "a logical topology of ASTRA-sim for ns-3, whose links are in another file"),
    (r'"scheduling-policy"', "a system description of ASTRA-sim; its network is in another file"),
    (r'"1-Epoch_Duration"', "a schedule of TE-CCL; the network that it is for is in another file"),
    (r'"collective"[\s\S]*"gpus"', "an MSCCL++ execution plan, not a network; collopt lint checks it"),
    (
        r"\A\s*\d+\s+\d+\s+\d+\s+\d+\s+\d+\s+[A-Za-z]\w*[^\n]*\n\s*\d",
        "a topology of SimAI, whose first line has more than nodes, switches and links; describe it as JSON",
    ),
    (r"\A\s*Nodes \d+\s+Tiers \d+", "a topology of htsim, which is not read; describe it as JSON or in Python"),
    (r"(?m)^[ \t]*(allreduce|allgather|broadcast|reduce\w*),\d+,", "a tuner table of NCCL, not a network"),
    (
        r"\A\d+( \d+)*\s*(\n\d+( \d+)*\s*)*\Z",
        "a table of numbers without a description; write a collopt topology file instead",
    ),
)
"""Pattern and description of files that are often mistaken for networks."""

PREFIX_CHARACTERS = 2**16  # characters at the beginning of a file that are searched


def unsupported_format(document: Document) -> str | None:
    """Describe a file of a known format that is not a network, or return None for an unknown one."""
    beginning = document.text[:PREFIX_CHARACTERS]
    return next((what for pattern, what in UNSUPPORTED_FORMATS if re.search(pattern, beginning)), None)


Latencies = Iterable[tuple[str, Fraction]]  # kinds of nodes, such as ``gpu-nic``, and µs of the links between them


def latencies_note(latencies: Latencies) -> str | None:
    """Return the note on assumed latencies, which are those of `scale_out`; None if there are none."""
    kinds: dict[Fraction, dict[str, None]] = {}
    for kind, latency in latencies:
        kinds.setdefault(latency, {})[kind] = None
    if not kinds:
        return None
    groups = ", ".join(f"{float(latency):g} µs for {', '.join(names)}" for latency, names in kinds.items())
    return (
        f"latencies are assumed, after TACCL's measurements of NVLink and InfiniBand: {groups}; collopt calibrate "
        "fits them to measured times"
    )


def box_latencies(box: Box) -> Iterator[tuple[str, Fraction]]:
    """Yield the kind and latency, in µs, of the links of a box and of its NICs."""
    for link in box.links:
        yield f"{node_kind(link.tail)}-{node_kind(link.head)}", link.latency
    for nic in box.nics:
        yield from ((f"{node_kind(node)}-nic", Fraction(nic.near_latency)) for node in nic.near)
        yield "nic-network", Fraction(nic.latency)


def network_latencies(network: Topology, box: Box, *, stated: bool) -> Iterator[tuple[str, Fraction]]:
    """Yield the link classes of a network of boxes without stated latencies, and the assumed latency in µs."""
    for link_class in link_classes(network):
        ends = link_class.kinds.split("-")
        if not stated or "spine" in ends or ("nic" in ends and not box.nics):
            yield link_class.kinds, link_class.latency


MAX_CHARACTERS = 16 * 2**20
"""Of imported formats: a dump of one host has some thousand, of a rack some hundred thousand."""


def read_box(
    path: str | os.PathLike[str],
    *,
    figures: str = FIGURES[0],
    gpu: str | None = None,
    nic_bandwidth: Exact | None = None,
    pcie_bandwidth: Exact | None = None,
) -> Box:
    """Read a box from the output of a tool; ``docs/reference/imported-files.md`` lists the tools.

    `Box.notes` say what was assumed, left out or overruled; `compose` makes a network of boxes.  Raises
    `FileFormatError` if the file cannot be read, does not describe a box, or is inconsistent or incomplete.

    Parameters
    ----------
    path : str or path
        A dump of NCCL or RCCL, or what ``nvidia-smi``, ``rocm-smi`` or ``amd-smi`` printed.  The content decides, not
        the name.
    figures : {"line", "nccl"}
        Whether NVLink, xGMI and PCIe count with their line rates or with what NCCL and RCCL plan with.
    gpu : str, optional
        The GPU model, such as ``"h100"``, for files that do not state it.
    nic_bandwidth, pcie_bandwidth : int, float, str or Fraction, optional
        GB/s of every NIC, of every PCIe link, in each direction; overrule the file.  Text may have a unit,
        such as ``"400Gb/s"`` for 50.
    """
    options = BoxOptions.of(figures=figures, gpu=gpu, nic_bandwidth=nic_bandwidth, pcie_bandwidth=pcie_bandwidth)
    document = read_document(path)
    format_ = find_format(document)
    if format_ is None or format_.is_network:
        raise document.error(
            "it describes a whole network, not a box that could be joined to others; read_topology reads it"
        )
    box = read_format(document, format_, options)
    assert isinstance(box, Box), "that is what its reader makes"
    assumed = None if format_.states_latencies else latencies_note(box_latencies(box))
    notes = (assumed, nic_unit_warning(nic_bandwidth, options.nic_bandwidth))
    return replace(box, notes=(*box.notes, *(note for note in notes if note is not None)))


def read_format(document: Document, format_: Format, options: BoxOptions) -> Box | Imported:
    """Read a document with the reader of its format, after checking size and options."""
    if len(document.text) > MAX_CHARACTERS:
        raise document.error(f"it has more than {MAX_CHARACTERS} characters; expected the description of one network")
    if unused := [name for name in options.changed() if name not in format_.options]:
        usage = f"takes {', '.join(format_.options)} only" if format_.options else "describes its network completely"
        raise document.error(
            f"{unused[0]} does not go with a file of the format {format_.name}, which {usage}; leave it out"
        )
    return format_.read(document, options)
