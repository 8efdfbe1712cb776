"""Readers of the inputs of other planners: TACCL's profiles, TE-CCL's input, topology JSON of msccl-tools.

TACCL measures a profile for a buffer of some size.  The file states, in µs for that size, the latency of a link
(``alpha``) and the time of its bytes (``betas``): inside the box in ``node_betas_list``, or pair by pair in ``links``
and ``betas``, whose rows are receivers; and between boxes (``remote_alpha``, ``remote_beta``).  TACCL takes the kind of
network from its command line (microsoft/taccl, ``taccl/topologies/generic.py``); here it follows from the file: one
beta is a switch, two are the hybrid cube mesh of Azure NDv2.

TE-CCL's input names one of TE-CCL's topology classes, whose links are defined here.  Bandwidths and latencies are those
of microsoft/TE-CCL, ``teccl/topologies``: NDv2, DGX1, DGX2, AMD and Mesh.  ``alpha`` is in seconds, and ``chunk_size``
does not change the network, as TE-CCL divides all bandwidths by it.

JSON of msccl-tools stands alone or inside an algorithm.  ``links[receiver][sender]`` is the bandwidth of a link in
units. A "switch" there is no node, but a bound on the total from some senders to some receivers (microsoft/msccl-tools,
``msccl/topologies/topology.py``).  Bounds that are the ports of every node on one hub are read as a switch; other
bounds have no counterpart here.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from ...support.validation import is_int, shown
from ..network.topology import Link, Topology
from ..switched.scale_out import OWN_LINK, SCALE_UP_LATENCY, UNLIMITED, Box, Nic, SharedLink
from .documents import Document, Fields, Imported, decode
from .options import BoxOptions

NDV2_FAST = ((0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7))
"""Pairs of GPUs of an NDv2 that are joined by two NVLinks, as TACCL numbers them."""
NDV2_SLOW = ((0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6))  # pairs that are joined by one

Rate = Callable[[Decimal], Fraction]  # from a beta to GB/s
UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}
MAX_TACCL_GPUS = 256


def read_taccl(document: Document, options: BoxOptions) -> Box:
    """Read the box of a profile, whose name ends in its buffer size, such as ``NDv2_1MB``."""
    fields = Fields(document, decode(document))
    gpus = fields.count("gpus_per_node", minimum=2, maximum=MAX_TACCL_GPUS)
    size, alpha = _buffer_size(fields, document), Fraction(fields.number("alpha"))

    def rate(beta: Decimal) -> Fraction:
        if beta == 0:
            raise document.error("a beta is 0, which no link can be; expected µs for the bytes that the name states")
        return size / Fraction(beta) / 1000

    switches: tuple[str, ...] = ()
    if "links" in fields:
        links = tuple(_links_of_matrices(fields, gpus, alpha, rate, document))
    else:
        betas = fields.numbers("node_betas_list")
        if len(betas) == 1:
            switches = ("nvswitch",)
            links = tuple(Link(f"gpu{gpu}", "nvswitch", rate(betas[0]), alpha / 2) for gpu in range(gpus))
        elif len(betas) == 2 and gpus == 8:
            pairs = [(pair, betas[0]) for pair in NDV2_FAST] + [(pair, betas[1]) for pair in NDV2_SLOW]
            links = tuple(Link(f"gpu{a}", f"gpu{b}", rate(beta), alpha) for (a, b), beta in pairs)
        else:
            raise document.error(
                f"node_betas_list has {len(betas)} entries for {gpus} GPUs; expected one for a switch, two for the 8 "
                "GPUs of an NDv2, or links and betas for every pair"
            )
    notes = (
        f"bandwidths are TACCL's measurements for {int(size)} bytes (K, M, G as powers of 1000), latencies its alpha",
    )
    nics = () if "nics_per_node" not in fields else _taccl_nics(fields, gpus, rate, options)
    # A profile has no PCIe figures, so a given NIC bandwidth applies to the NIC's links to GPUs as well.
    shared = tuple(SharedLink(OWN_LINK, UNLIMITED, ((n, len(nic.near)),)) for n, nic in enumerate(nics))
    return Box(fields.text("name"), gpus, links, nics, switches, notes=notes, shared=shared)


def _taccl_nics(fields: Fields, gpus: int, rate: Rate, options: BoxOptions) -> tuple[Nic, ...]:
    """Assign GPUs to NICs evenly, as the profile does not state their distances."""
    count = fields.count("nics_per_node", maximum=gpus)
    speed = options.nic_bandwidth or rate(fields.number("remote_beta"))
    # The path from GPU to GPU has two NICs and one switch.
    hop = Fraction(fields.number("remote_alpha")) / 2
    near = [tuple(f"gpu{gpu}" for gpu in range(gpus) if gpu * count // gpus == nic) for nic in range(count)]
    return tuple(Nic(gpus_near, speed, speed, Fraction(0), hop) for gpus_near in near)


def _links_of_matrices(fields: Fields, gpus: int, alpha: Fraction, rate: Rate, document: Document) -> Iterator[Link]:
    """Yield the links of the matrices, whose rows are receivers; both directions of a link have to be equal."""
    links, betas = fields.square("links", gpus), fields.square("betas", gpus)
    for head in range(gpus):
        for tail in range(head):
            there, back = (links[head][tail], betas[head][tail]), (links[tail][head], betas[tail][head])
            if there != back:
                raise document.error(
                    f"GPUs {tail} and {head} are joined by {there[0]} links with beta {there[1]} one way and {back[0]} "
                    f"with {back[1]} the other; expected both alike"
                )
            if there[0]:
                yield Link(f"gpu{tail}", f"gpu{head}", rate(there[1]), alpha)


def _buffer_size(fields: Fields, document: Document) -> Fraction:
    """Parse the buffer size, in bytes, which is only in the name."""
    name = fields.text("name")
    match = re.search(r"(?:^|[_-])([0-9]{1,6})([KMG])B?$", name, re.IGNORECASE)
    if match is None or int(match[1]) == 0:
        raise document.error(
            f"its times are for a buffer of some size, and the name {name!r} does not end in it; write it there, such "
            "as 'lab_1MB'"
        )
    return Fraction(int(match[1]) * UNITS[match[2].upper()])


AMD_LINKS = {
    0: {1: 4, 4: 2, 8: 1},
    1: {5: 1, 9: 1, 10: 1},
    2: {3: 4, 6: 1, 9: 1, 10: 1},
    3: {7: 2, 11: 1},
    4: {5: 4, 6: 1},
    5: {6: 1, 7: 1},
    6: {7: 4},
    8: {9: 4, 12: 2},
    9: {13: 1},
    10: {11: 4, 14: 1},
    11: {15: 2},
    12: {13: 4, 14: 1},
    13: {14: 1, 15: 1},
    14: {15: 4},
}
"""Infinity Fabric links between GCDs, as TE-CCL numbers them; each pair once."""

MAX_CHASSIS = 512
MICROSECONDS = 10**6


def read_teccl(document: Document, options: BoxOptions) -> Imported:
    """Build the network that the input names."""
    del options  # the classes know their bandwidths
    fields = Fields(document, decode(document)).part("TopologyParams")
    name = fields.text("name")
    if name not in TECCL_NETWORKS:
        raise document.error(
            f"it names the network {name!r}, whose links are in TE-CCL's program and not in the file; known are "
            f"{', '.join(TECCL_NETWORKS)}"
        )
    topology = TECCL_NETWORKS[name](fields)
    return Imported(topology, (f"links of {name} are those of TE-CCL's program; the file has only its name",))


def _ndv2(fields: Fields) -> Topology:
    """Build cube meshes whose GPU 0 sends to other boxes, and whose GPU 1 receives, over one 100 Gb/s NIC."""
    chassis, mesh = fields.count("chassis", maximum=MAX_CHASSIS), Fraction(7, 10)
    nic = (Fraction(25, 2), Fraction(13, 10))
    links = list(_both_ways(_mesh_of_cubes(chassis, mesh)))
    if chassis == 2:
        links += [Link("box0/gpu0", "box1/gpu1", *nic), Link("box1/gpu0", "box0/gpu1", *nic)]
    elif chassis > 2:
        links += [Link(f"box{box}/gpu0", "switch", *nic) for box in range(chassis)]
        links += [Link("switch", f"box{box}/gpu1", *nic) for box in range(chassis)]
    return _teccl_network(f"teccl-ndv2-{chassis}", links, chassis, 8, ["switch"] if chassis > 2 else [])


def _mesh_of_cubes(chassis: int, latency: Fraction) -> Iterator[Link]:
    for box in range(chassis):
        for pairs, bandwidth in ((NDV2_FAST, 50), (NDV2_SLOW, 25)):
            for a, b in pairs:
                yield Link(f"box{box}/gpu{a}", f"box{box}/gpu{b}", Fraction(bandwidth), latency)


def _dgx2(fields: Fields) -> Topology:
    """Build two boxes; GPUs of odd numbers send to the even ones before them in the other box."""
    del fields
    ports = [(f"box{b}/gpu{g}", f"box{b}/nvswitch") for b in (0, 1) for g in range(16)]
    links = list(_both_ways(Link(*port, Fraction(125), Fraction(7, 20)) for port in ports))
    links += [
        Link(f"box{b}/gpu{g + 1}", f"box{1 - b}/gpu{g}", Fraction(25, 2), Fraction(13, 5))
        for b in (0, 1)
        for g in range(0, 16, 2)
    ]
    return _teccl_network("teccl-dgx2-2", links, 2, 16, ["box0/nvswitch", "box1/nvswitch"])


def _amd(fields: Fields) -> Topology:
    chassis = fields.count("chassis", maximum=MAX_CHASSIS)
    alphas = _alphas(fields, 1 if chassis == 1 else 2)
    pairs = [
        Link(f"box{box}/gpu{a}", f"box{box}/gpu{b}", Fraction(50 * count), alphas[0])
        for box in range(chassis)
        for a, peers in AMD_LINKS.items()
        for b, count in peers.items()
    ]
    switches = []
    if chassis > 1:
        nics = [(box, nic) for box in range(chassis) for nic in range(8)]
        pairs += [
            Link(f"box{box}/gpu{2 * nic + gcd}", f"box{box}/nic{nic}", Fraction(25), alphas[1])
            for box, nic in nics
            for gcd in (0, 1)
        ]
        pairs += [Link(f"box{box}/nic{nic}", "switch", Fraction(25), alphas[1]) for box, nic in nics]
        switches = [f"box{box}/nic{nic}" for box, nic in nics] + ["switch"]
    return _teccl_network(f"teccl-amd-{chassis}", list(_both_ways(pairs)), chassis, 16, switches)


def _mesh(fields: Fields) -> Topology:
    """Build a 2D mesh; like TE-CCL, also link the end of each row to the beginning of the next."""
    side, alpha = fields.count("side_length", minimum=2, maximum=64), _alphas(fields, 1)[0]
    nodes = side * side
    pairs = [
        Link(f"gpu{node}", f"gpu{node + step}", Fraction(100), alpha)
        for step in sorted({1, side})
        for node in range(nodes - step)
    ]
    names = [f"gpu{node}" for node in range(nodes)]
    return Topology.from_links(_both_ways(pairs), compute=names, name=f"teccl-mesh-{side}")


TECCL_NETWORKS: dict[str, Callable[[Fields], Topology]] = {
    "NDv2": _ndv2,
    "DGX1": lambda fields: _teccl_network(
        "teccl-dgx1", list(_both_ways(_mesh_of_cubes(1, _alphas(fields, 1)[0]))), 1, 8, []
    ),
    "DGX2": _dgx2,
    "AMD": _amd,
    "Mesh": _mesh,
}
"""TE-CCL's networks by name."""


def _teccl_network(name: str, links: list[Link], chassis: int, gpus: int, switches: list[str]) -> Topology:
    ranks = [f"box{box}/gpu{gpu}" for box in range(chassis) for gpu in range(gpus)]
    return Topology.from_links(links, compute=ranks, switches=switches, name=name)


def _both_ways(links: Iterable[Link]) -> Iterator[Link]:
    for link in links:
        yield link
        yield link._replace(tail=link.head, head=link.tail)


def _alphas(fields: Fields, count: int) -> list[Fraction]:
    """Read the latencies of links and of the switch, in seconds, and return them in µs."""
    values = [Fraction(alpha) * MICROSECONDS for alpha in fields.numbers("alpha")]
    if len(values) < count:
        fields.numbers(f"alpha[{len(values)}]")
    return values


MAX_MSCCL_NODES = 512
MAX_UNITS = 10**6
MAX_BOUNDS = 2**16


class SharedBound(NamedTuple):
    """A switch of msccl-tools: senders, receivers, and the units of bandwidth that they share."""

    senders: frozenset[int]
    receivers: frozenset[int]
    units: int
    name: str


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


def _is_whole(value: object, minimum: int, maximum: int) -> bool:
    return is_int(value) and minimum <= value <= maximum


def _unit_of_bandwidth(document: Document, options: BoxOptions) -> tuple[Fraction, Fraction, str]:
    """Return GB/s of a unit, µs of a link, and a note on them."""
    if options.gpu is None:
        return Fraction(1), Fraction(0), "a unit of bandwidth is modeled as 1 GB/s, and latencies as 0"
    if not options.gpu.links:
        raise document.error(f"{options.gpu.name} has no links to other GPUs to serve as a unit; leave out gpu")
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
                f"switch {shown(bound.name)} bounds the total from {len(bound.senders)} nodes to {len(bound.receivers)}"
                "; expected one node and all others, as on a hub: other bounds have no counterpart in a network"
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
