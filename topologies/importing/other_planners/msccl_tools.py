"""Reader of msccl-tools' topology JSON, alone or inside an algorithm.

``links[receiver][sender]`` is the bandwidth of a link in units.  A "switch" there is no node, but a bound on the total
from several senders to several receivers (microsoft/msccl-tools, ``msccl/topologies/topology.py``).  Bounds that are
the ports of every node on one hub are read as a switch; others have no counterpart here.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from ....support.validation import is_int, shown
from ...network.topology import Link, Topology
from ...switched.scale_out import SCALE_UP_LATENCY
from ..sources.document import Document, Imported
from ..sources.json_text import decode, looks_like
from ..sources.options import BoxOptions

MAX_MSCCL_NODES = 512
MAX_UNITS = 10**6
MAX_BOUNDS = 2**16


class SharedBound(NamedTuple):
    """A switch of msccl-tools: senders, receivers, and the units of bandwidth that they share."""

    senders: frozenset[int]
    receivers: frozenset[int]
    units: int
    name: str


def matches_msccl(document: Document) -> bool:
    """Return whether the content looks like JSON of msccl-tools with links; never raises."""
    return looks_like(document, "msccl_type", "links")


def read_msccl(document: Document, options: BoxOptions) -> Imported:
    """Read the topology."""
    data = _msccl_topology(document)
    units = _units(document, data.get("links"))
    bounds = _shared_bounds(document, data.get("switches", []), len(units))
    rate, latency, note = _unit_of_bandwidth(document, options)
    names = [f"gpu{node}" for node in range(len(units))]
    name = data.get("name")
    title = name if isinstance(name, str) and name.isprintable() and 0 < len(name) <= 100 else "msccl"
    if not bounds:
        links = [
            Link(names[sender], names[receiver], rate * count, latency)
            for receiver, row in enumerate(units)
            for sender, count in enumerate(row)
            if count
        ]
        return Imported(Topology.from_links(links, compute=names, name=title), (note,))
    leaving, entering = _ports(document, units, bounds)
    links = [Link(node, "hub", rate * leaving[number], latency / 2) for number, node in enumerate(names)]
    links += [Link("hub", node, rate * entering[number], latency / 2) for number, node in enumerate(names)]
    return Imported(
        Topology.from_links(links, compute=names, switches=["hub"], name=title),
        (note, "its bound for each sender and receiver is modeled as the port of that node on one switch"),
    )


def _msccl_topology(document: Document) -> dict[str, Any]:
    data = decode(document)
    if data.get("msccl_type") == "algorithm" and isinstance(data.get("topology"), dict):
        data = data["topology"]
    if data.get("msccl_type") != "topology":
        raise document.error(f"its msccl_type is {shown(data.get('msccl_type'))}; expected topology or algorithm")
    return data


def _units(document: Document, rows: object) -> list[list[int]]:
    size = len(rows) if isinstance(rows, list) else 0
    if not isinstance(rows, list) or not 2 <= size <= MAX_MSCCL_NODES:
        raise document.error(
            f"field links is {shown(rows)}; expected 2 to {MAX_MSCCL_NODES} rows, one for each receiver"
        )
    for receiver, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != size:
            raise document.error(f"links[{receiver}] is {shown(row)}; expected {size} numbers, one for each sender")
        for sender, count in enumerate(row):
            if not _is_whole(count, 0, 0 if sender == receiver else MAX_UNITS):
                expected = "0, as no node sends to itself" if sender == receiver else f"0 to {MAX_UNITS}"
                raise document.error(f"links[{receiver}][{sender}] is {shown(count)}; expected {expected}")
    return rows


def _shared_bounds(document: Document, entries: object, nodes: int) -> list[SharedBound]:
    if not isinstance(entries, list) or len(entries) > MAX_BOUNDS:
        raise document.error(f"field switches is {shown(entries)}; expected a list")
    bounds = []
    for number, entry in enumerate(entries):
        if (
            not isinstance(entry, list)
            or len(entry) != 4
            or not all(
                isinstance(side, list) and all(_is_whole(node, 0, nodes - 1) for node in side) for side in entry[:2]
            )
            or not _is_whole(entry[2], 1, MAX_UNITS)
            or not isinstance(entry[3], str)
        ):
            raise document.error(
                f"switches[{number}] is {shown(entry)}; expected [senders, receivers, bandwidth from 1, name]"
            )
        bounds.append(SharedBound(frozenset(entry[0]), frozenset(entry[1]), entry[2], entry[3]))
    return bounds


def _is_whole(value: object, least: int, most: int) -> bool:
    return is_int(value) and least <= value <= most


def _unit_of_bandwidth(document: Document, options: BoxOptions) -> tuple[Fraction, Fraction, str]:
    """Return GB/s of a unit, µs of a link, and a note on them."""
    if options.gpu is None:
        return Fraction(1), Fraction(0), "a unit of bandwidth is modeled as 1 GB/s, and latencies as 0"
    if not options.gpu.links:
        raise document.error(
            f"{options.gpu.name} has no links to other GPUs of which a unit could be one; leave out gpu"
        )
    rate = options.gpu.link(options.figures)
    note = f"a unit of bandwidth is modeled with {float(rate):g} GB/s, a link of {options.gpu.name}"
    return rate, SCALE_UP_LATENCY, note


def _ports(
    document: Document, units: list[list[int]], bounds: Sequence[SharedBound]
) -> tuple[dict[int, int], dict[int, int]]:
    """Return the units that each node may send and receive; `FileFormatError` if there are other bounds."""
    leaving: dict[int, int] = {}
    entering: dict[int, int] = {}
    nodes = frozenset(range(len(units)))
    for bound in bounds:
        if len(bound.senders) == 1 and bound.receivers >= nodes - bound.senders:
            ports, (node,) = leaving, bound.senders
        elif len(bound.receivers) == 1 and bound.senders >= nodes - bound.receivers:
            ports, (node,) = entering, bound.receivers
        else:
            raise document.error(
                f"switch {shown(bound.name)} bounds what {len(bound.senders)} nodes send to {len(bound.receivers)} "
                "together; expected one node and all others, as on a hub: other bounds have no counterpart in a network"
            )
        ports[node] = min(bound.units, ports.get(node, bound.units))
    for receiver, row in enumerate(units):
        for sender, count in enumerate(row):
            wide = sender == receiver or (
                sender in leaving and receiver in entering and count >= min(leaving[sender], entering[receiver])
            )
            if not wide:
                raise document.error(
                    f"links[{receiver}][{sender}] is {count}, but other pairs are bounded by switches; expected a hub, "
                    "on which every node has a bound for sending and for receiving, and no link has less"
                )
    return leaving, entering
