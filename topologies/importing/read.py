"""Import of networks: formats, which are told by content, boxes from files, and boxes joined by a fabric.

The readers of formats are imported on demand.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from typing import Any, NamedTuple, TypedDict

from ...errors import FileFormatError, TopologyError
from ...support.files import parse_json
from ...support.quantities import Exact, as_bandwidth, as_factor, nic_unit_warning
from ...support.validation import as_list, as_size, as_title, shown
from ..network.link_costs import link_classes
from ..network.links import node_kind
from ..network.topology import Link, Topology
from ..network.topology_json import TOPOLOGY_FORMAT, TOPOLOGY_VERSION, topology_from_json
from ..switched.box_files import BOX_FORMAT, BOX_VERSION, box_from_json
from ..switched.scale_out import FABRIC_LATENCY, MAX_BOXES, Box, Nic, join_boxes, with_port_bandwidth
from .documents import Document, Imported, looks_like, read_document
from .options import FIGURES, OPTIONS, PRODUCTS, BoxOptions


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
        """Read a document, after checking its size and that the format has the options."""
        if len(document.text) > MAX_CHARACTERS:
            raise document.error(
                f"it has more than {MAX_CHARACTERS} characters; expected the description of one network"
            )
        if unused := [name for name in options.changed if name not in self.options]:
            usage = f"takes {', '.join(self.options)} only" if self.options else "describes its network completely"
            raise document.error(
                f"{unused[0]} does not go with a file of the format {self.name}, which {usage}; leave it out"
            )
        content: Box | Imported = self._function("read")(document, options)
        return content

    def _function(self, verb: str) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(import_module(f".{self.module}", __package__), f"{verb}_{self.reader}")
        return function


MAX_CHARACTERS = 16 * 2**20
"""Of imported formats: a dump of one host has some thousand, of a rack some hundred thousand."""

FORMATS = (
    Format("collopt box", "read", "own_box", ("nic_bandwidth",), False, True, (BOX_FORMAT,)),
    Format("NCCL or RCCL topology XML", "nccl_xml", "nccl"),
    Format("nvidia-smi topo -m", "nvidia_smi", "nvidia_smi"),
    Format("rocm-smi --shownodesbw", "amd_tools", "bandwidths"),
    Format("rocm-smi --showtopo", "amd_tools", "topology_tables"),
    Format("amd-smi topology", "amd_tools", "amd_smi"),
    Format("xgmi_num_links of AMD's driver", "amd_tools", "link_counts"),
    Format("TACCL topology", "planner_inputs", "taccl", ("nic_bandwidth",), False, True, ("gpus_per_node", "alpha")),
    Format("TE-CCL input", "planner_inputs", "teccl", (), True, quoted=("TopologyParams",)),
    Format("MSCCL topology JSON", "planner_inputs", "msccl", ("figures", "gpu"), True, quoted=("msccl_type", "links")),
    Format("ASTRA-sim network YAML", "simulators", "astra_sim", (), True),
    Format("physical topology of ns-3", "simulators", "ns3", (), True),
)
"""In the order in which they are tried."""

UNSUPPORTED_FORMATS = (
    (r'"internode_sketch"|"intranode_sketch"', "a TACCL sketch, which restricts routes and has no bandwidths"),
    (
        r'"topologies-per-dim"|"dimensions-count"',
        "a network of ASTRA-sim 1.0; describe it in the YAML of 2.0, with topology, npus_count, bandwidth, latency",
    ),
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


def unsupported_format(document: Document) -> str | None:
    """Describe a file of a known format that is not a network, or return None for an unknown one."""
    beginning = document.text[:PREFIX_CHARACTERS]
    return next((what for pattern, what in UNSUPPORTED_FORMATS if re.search(pattern, beginning)), None)


def read_own_box(document: Document, options: BoxOptions) -> Box:
    """Read a box of collopt's own format."""
    box = box_from_json(parse_json(document.text, document.where, BOX_FORMAT, BOX_VERSION), document.where)
    return box if options.nic_bandwidth is None else with_port_bandwidth(box, options.nic_bandwidth)


def _latencies_note(latencies: Iterable[tuple[str, Fraction]]) -> str | None:
    """Return the note on assumed latencies, given by kinds of nodes, such as ``gpu-nic``; None if there are none."""
    kinds: defaultdict[Fraction, dict[str, None]] = defaultdict(dict)
    for kind, latency in latencies:
        kinds[latency][kind] = None
    groups = ", ".join(f"{float(latency):g} µs for {', '.join(names)}" for latency, names in kinds.items())
    return groups and (
        f"latencies are assumed, after TACCL's measurements of NVLink and InfiniBand: {groups}; collopt calibrate "
        "fits them to measured times"
    )


def _box_latencies(box: Box) -> Iterator[tuple[str, Fraction]]:
    """Yield the kind and latency, in µs, of the links of a box and of its NICs."""
    for link in box.links:
        yield f"{node_kind(link.tail)}-{node_kind(link.head)}", link.latency
    for nic in box.nics:
        yield from ((f"{node_kind(node)}-nic", Fraction(nic.near_latency)) for node in nic.near)
        yield "nic-network", Fraction(nic.latency)


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
        A dump of NCCL or RCCL, or what ``nvidia-smi``, ``rocm-smi`` or ``amd-smi`` printed, told by content.
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
    file_format = find_format(document)
    if file_format is None or file_format.is_network:
        raise document.error(
            "it describes a whole network, not a box that could be joined to others; read_topology reads it"
        )
    box = file_format.read(document, options)
    assert isinstance(box, Box), "that is what its reader makes"
    assumed = None if file_format.states_latencies else _latencies_note(_box_latencies(box))
    return replace(
        box, notes=(*box.notes, *filter(None, (assumed, nic_unit_warning(nic_bandwidth, options.nic_bandwidth))))
    )


FABRICS = {"full": "fabric", "rail": "rail{nic}", "leaf_spine": "leaf{leaf}"}
"""Name of the switch of a NIC, by its position in its box and the leaf of that box."""
BOXES_PER_LEAF = 4


def compose(
    nodes: Sequence[Box | str | os.PathLike[str]],
    *,
    fabric: str = "full",
    nic_bandwidth: Exact | None = None,
    nics: int | None = None,
    oversubscription: Exact | None = 1,
    boxes_per_leaf: int | None = None,
    name: str | None = None,
) -> Topology:
    """Join boxes through their NICs.

    Nodes are ``box0/gpu0`` ...; a single box has neither NICs nor fabric.  Raises `TopologyError` for trays of racks,
    which switches of the rack join that no tray's file shows.

    Parameters
    ----------
    nodes : sequence of Box or path
        Boxes in rank order, or the files that `read_box` reads; the same one may be there several times.
    fabric : {"full", "rail", "leaf_spine"}
        The network between the boxes.  ``"full"``: one non-blocking switch.  ``"rail"``: NIC i of every box on switch
        ``rail{i}``.  ``"leaf_spine"``: all NICs of `boxes_per_leaf` boxes on one leaf.  Rails and leaves are joined by
        ``spine``, which represents a non-blocking layer.
    nic_bandwidth : int, float, str or Fraction, optional
        GB/s of the ports of every NIC, in each direction; overrules what the boxes say.  Where a box says that PCIe
        brings a NIC less, that counts.  Text may have a unit, such as ``"400Gb/s"`` for 50.
    nics : int, optional
        NICs of each box whose source does not describe them: its GPUs share them evenly, neighbors on the same one.
    oversubscription : int, float, str, Fraction or None
        Bandwidth of the ports of the NICs of a rail or leaf over that of its uplink to the spine; None leaves out the
        spine of rails.
    boxes_per_leaf : int, optional
        Of a leaf-spine fabric; 4 by default.
    name : str, optional
        Name of the network; by default after the boxes.

    Examples
    --------
    >>> from collopt.topologies.switched.scale_out import Box, Nic
    >>> server = Box("server", 2, (Link("gpu0", "gpu1", 50),), (Nic(("gpu0", "gpu1"), 32, None),))
    >>> compose([server, server], nic_bandwidth=25)
    <Topology 'server-2boxes': 4 ranks, 3 switches, 16 links>
    """
    # A file that does not state the speed of its NICs may need it.
    boxes = [node if isinstance(node, Box) else read_box(node, nic_bandwidth=nic_bandwidth) for node in _listed(nodes)]
    taper, per_leaf = _checked(fabric, oversubscription, boxes_per_leaf)
    speed = None if nic_bandwidth is None else as_bandwidth(nic_bandwidth, "every NIC")
    if nics is not None:
        as_size(nics, "nics")
        if all(box.nics for box in boxes):
            raise TopologyError(f"box {boxes[0].name!r} has {len(boxes[0].nics)} NICs already; leave out nics")
    if len(boxes) > 1:
        boxes = [_with_nics(box, nics, speed) for box in boxes]
    names = list(dict.fromkeys(box.name for box in boxes))
    default_name = names[0] if len(boxes) == 1 else f"{'-and-'.join(names[:3])}-{len(boxes)}boxes"

    def fabric_switch(box: int, nic: int) -> str:
        return FABRICS[fabric].format(nic=nic, leaf=box // per_leaf)

    backbone = [] if taper is None or len(boxes) == 1 else _uplinks(boxes, fabric_switch, taper)
    return join_boxes(
        boxes, default_name if name is None else as_title(name, "name"), fabric_switch=fabric_switch, backbone=backbone
    )


def _listed(nodes: Sequence[Box | str | os.PathLike[str]]) -> tuple[Box | str | os.PathLike[str], ...]:
    if isinstance(nodes, (str, bytes, os.PathLike, Box)):
        raise TopologyError(f"boxes is {shown(nodes)}, a single box; expected a list, such as [box, box]")
    boxes = as_list(nodes, "the boxes", high=MAX_BOXES)
    if not boxes:
        raise TopologyError("there are no boxes to compose; give at least one")
    return boxes


def _checked(fabric: str, oversubscription: Exact | None, boxes_per_leaf: int | None) -> tuple[Fraction | None, int]:
    """Check the options of a fabric; return the oversubscription, None without a spine, and the boxes per leaf."""
    if not isinstance(fabric, str) or fabric not in FABRICS:
        raise TopologyError(f"fabric is {shown(fabric)}; expected one of {', '.join(FABRICS)}")
    per_leaf = BOXES_PER_LEAF if boxes_per_leaf is None else as_size(boxes_per_leaf, "boxes_per_leaf")
    if boxes_per_leaf is not None and fabric != "leaf_spine":
        raise TopologyError(f"boxes_per_leaf is {per_leaf}, but fabric {fabric!r} has no leaves; leave it out")
    if oversubscription is None:
        if fabric != "rail":
            raise TopologyError(f"oversubscription is None, but fabric {fabric!r} needs a spine; expected a number")
        return None, per_leaf
    taper = as_factor(oversubscription, "oversubscription")
    if fabric == "full" and taper != 1:
        raise TopologyError(
            f"oversubscription is {shown(oversubscription)}, but fabric 'full' is non-blocking; leave it out, or use "
            "rail or leaf_spine"
        )
    return None if fabric == "full" else taper, per_leaf


def _with_nics(box: Box, nics: int | None, speed: Fraction | None) -> Box:
    """Add the NICs, or the bandwidth of the NICs, that the source of one of several boxes does not state."""
    if box.rack:
        raise TopologyError(
            f"box {box.name!r} is part of a rack, whose NVLink switches join all trays; its source does not "
            f"show them: plan for ranks of {box.rack}, as collopt bound {box.rack} allgather --ranks "
            f"0-{2 * box.gpus - 1}"
        )
    if box.nics:
        return box if speed is None else with_port_bandwidth(box, speed)
    if nics is None or speed is None:
        raise TopologyError(
            f"the NICs of box {box.name!r} are unknown; give nics and nic_bandwidth, such as nics={box.gpus} "
            "and nic_bandwidth=50"
        )
    count = as_size(nics, "nics", high=box.gpus)
    near = [tuple(f"gpu{gpu}" for gpu in range(box.gpus) if gpu * count // box.gpus == nic) for nic in range(count)]
    return replace(box, nics=tuple(Nic(gpus, speed, speed) for gpus in near))


def _uplinks(boxes: Sequence[Box], fabric_switch: Callable[[int, int], str], taper: Fraction) -> list[Link]:
    """Link every rail or leaf to the spine, unless there is only one."""
    below: defaultdict[str, Fraction] = defaultdict(Fraction)
    for number, box in enumerate(boxes):
        for position, nic in enumerate(box.nics):
            # NICs of unknown bandwidth are refused where they are linked.
            port = nic.bandwidth if nic.port is None else nic.port
            below[fabric_switch(number, position)] += 0 if port is None else as_bandwidth(port, "every NIC")
    if len(below) == 1:
        return []
    return [Link(leaf, "spine", bandwidth / taper, FABRIC_LATENCY) for leaf, bandwidth in below.items()]


FABRIC_OPTIONS = ("fabric", "nics", "oversubscription", "boxes_per_leaf")  # options that do not apply to one box
COMPOSE_OPTIONS = (*FABRIC_OPTIONS, "nic_bandwidth", "name")

OWN_FORMAT_MARK = '"collopt-'  # prefix of the format names of collopt's own files


class ImportOptions(TypedDict, total=False):
    """Options for files that describe one box; see `read_box` and `compose`."""

    boxes: int
    fabric: str
    figures: str
    gpu: str
    nic_bandwidth: Exact
    pcie_bandwidth: Exact
    nics: int
    oversubscription: Exact | None
    boxes_per_leaf: int
    name: str


def import_network(path: str | os.PathLike[str], options: ImportOptions) -> Imported:
    """Import a network from collopt's JSON or a file of one of `FORMATS`."""
    values: dict[str, Any] = dict(options)
    document = read_document(path)
    own = OWN_FORMAT_MARK in document.text and not looks_like(document, BOX_FORMAT)
    file_format = None if own else find_format(document)
    if file_format is None:
        _refuse(values, document)
        data = parse_json(document.text, document.where, TOPOLOGY_FORMAT, TOPOLOGY_VERSION)
        return Imported(topology_from_json(data, document.where))
    _check_known(values)
    if file_format.is_network:
        _refuse(values.keys() - set(file_format.options), document)
    for_box = BoxOptions.of(**{name: values[name] for name in OPTIONS if name in values})
    try:
        content = file_format.read(document, for_box)
    except FileFormatError as error:
        if for_box.gpu is None and (lacks := _lacks_besides_the_gpu(document, file_format, for_box, values)):
            raise FileFormatError(f"{error}; {lacks}") from None
        raise
    if isinstance(content, Imported):
        return content
    network = _composed(content, values, document)
    cards = f"its network cards ({len(content.nics)}) are left out"
    # Latencies of all links that the file does not state.
    assumed = [
        (link_class.kinds, link_class.latency)
        for link_class in link_classes(network)
        if not file_format.states_latencies
        or "spine" in (ends := link_class.kinds.split("-"))
        or ("nic" in ends and not content.nics)
    ]
    notes = (
        content.nics and "boxes" not in values and f"a single box has no network, so {cards}; give boxes and fabric",
        _latencies_note(assumed),
        # Last, where it is seen.
        nic_unit_warning(values.get("nic_bandwidth"), for_box.nic_bandwidth),
    )
    return Imported(network, (*content.notes, *(note for note in notes if isinstance(note, str) and note)))


def import_boxes(paths: Sequence[str | os.PathLike[str]], options: ImportOptions) -> Imported:
    """Read files that describe one box each, possibly repeated, and join the boxes in this order."""
    values: dict[str, Any] = dict(options)
    _check_known(values)
    if "boxes" in values:
        raise TopologyError("boxes does not go with several files, which describe one box each; name a file repeatedly")
    if "fabric" not in values:
        raise TopologyError(
            f"the files say nothing about the network between boxes; give fabric, one of {', '.join(FABRICS)}"
        )
    for_box = {name: values[name] for name in OPTIONS if name in values}
    order = [os.fspath(path) for path in paths]
    boxes = {path: read_box(path, **for_box) for path in dict.fromkeys(order)}
    network = compose(
        [boxes[path] for path in order],
        **{name: value for name, value in values.items() if name in COMPOSE_OPTIONS},
    )
    # Notes that all files share once, all others with their files.
    paths_of: defaultdict[str, list[str]] = defaultdict(list)
    for path, box in boxes.items():
        for note in box.notes:
            paths_of[note].append(path)
    notes = [note if len(of) == len(boxes) else f"{', '.join(of)}: {note}" for note, of in paths_of.items()]
    counts = {path: len(box.nics) for path, box in boxes.items()}
    if values["fabric"] == "rail" and len({*counts.values()}) > 1:
        numbers = ", ".join(f"{path} has {count}" for path, count in counts.items())
        notes.append(
            f"card i of each box is on rail i, though the boxes have different numbers of network cards: {numbers}"
        )
    return Imported(network, tuple(notes))


def _check_known(options: Mapping[str, Any]) -> None:
    if unknown := options.keys() - ImportOptions.__annotations__.keys():
        names = ", ".join(ImportOptions.__annotations__)
        raise TopologyError(f"there is no option {min(unknown)!r} for a file of a network; expected one of {names}")


def _lacks_besides_the_gpu(
    document: Document, file_format: Format, options: BoxOptions, values: Mapping[str, Any]
) -> str:
    """List the options that a file lacks besides its GPU, by reading it with some GPU, to ask for all at once."""
    for product in PRODUCTS.values():
        with suppress(FileFormatError):
            box = file_format.read(document, options._replace(gpu=product))
            # The name of this product would mislead.
            named = replace(box, name=box.name.removeprefix(f"{product.name}-")) if isinstance(box, Box) else None
            return _lacks(named, values) if named else ""
    return ""


def _lacks(box: Box, options: Mapping[str, Any]) -> str:
    """List the options that the network of several boxes lacks, in one sentence."""
    if as_size(options.get("boxes", 1), "boxes", high=MAX_BOXES) == 1:
        return ""
    lacks = []
    if "fabric" not in options:
        lacks.append(f"nothing describes the network between boxes; give fabric, one of {', '.join(FABRICS)}")
    try:
        compose([box, box], **{name: options[name] for name in ("nic_bandwidth", "nics") if name in options})
    except TopologyError as error:
        lacks.append(str(error))
    return "; ".join(lacks)


def _composed(box: Box, options: Mapping[str, Any], document: Document) -> Topology:
    boxes = as_size(options.get("boxes", 1), "boxes", high=MAX_BOXES)
    if lacks := _lacks(box, options):
        raise TopologyError(f"{document.where}: {lacks}")
    if boxes == 1 and (idle := [name for name in FABRIC_OPTIONS if name in options]):
        raise TopologyError(
            f"{idle[0]} does not go with one box, which has no network to others; leave it out, or give boxes=2 or more"
        )
    return compose([box] * boxes, **{name: options[name] for name in COMPOSE_OPTIONS if name in options})


def _refuse(options: Iterable[str], document: Document) -> None:
    for option in sorted(options):
        raise TopologyError(
            f"{option} does not go with {document.where}, which describes its network completely; leave it out"
        )
