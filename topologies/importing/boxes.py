"""Reading of one box from a file."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction

from ...support.quantities import Exact, nic_unit_warning
from ..network.link_classes import link_classes
from ..network.links import node_kind
from ..network.topology import Topology
from ..switched.scale_out import Box
from .formats import Format, find_format
from .sources.document import Document, Imported, read_document
from .sources.options import FIGURES, BoxOptions

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
    for each in link_classes(network):
        ends = each.kinds.split("-")
        if not stated or "spine" in ends or ("nic" in ends and not box.nics):
            yield each.kinds, each.latency


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
    made = read_format(document, format_, options)
    assert isinstance(made, Box), "that is what its reader makes"
    assumed = None if format_.states_latencies else latencies_note(box_latencies(made))
    more = (assumed, nic_unit_warning(nic_bandwidth, options.nic_bandwidth))
    return replace(made, notes=(*made.notes, *(note for note in more if note is not None)))


def read_format(document: Document, format_: Format, options: BoxOptions) -> Box | Imported:
    """Read a document with the reader of its format, after checking size and options."""
    if len(document.text) > MAX_CHARACTERS:
        raise document.error(f"it has more than {MAX_CHARACTERS} characters; expected the description of one network")
    if unused := [name for name in options.given() if name not in format_.options]:
        taken = f"takes {', '.join(format_.options)} only" if format_.options else "describes its network completely"
        raise document.error(
            f"{unused[0]} does not go with a file of the format {format_.name}, which {taken}; leave it out"
        )
    return format_.read(document, options)
