"""Readers of the inputs of other planners: TACCL's profiles, TE-CCL's input, topology JSON of msccl-tools."""

import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field, PlainValidator, ValidationError

from ...support.validation import shown
from ..network.schema import first_error
from ..network.topology import Link, Topology
from ..switched.scale_out import OWN_LINK, SCALE_UP_LATENCY, UNLIMITED, Box, Nic, SharedLink
from .documents import Document, Imported, decode
from .options import BoxOptions

MAX_NUMBER = 10**9
MAX_TACCL_GPUS = 256
MAX_CHASSIS = 512
MAX_SIDE = 64
MAX_MSCCL_NODES = 512
MAX_UNITS = 10**6
MAX_BOUNDS = 2**16
UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}


def _as_number(value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not 0 <= value <= MAX_NUMBER:
        raise ValueError(f"is {shown(value)}; expected a number from 0 to {MAX_NUMBER}")
    return Fraction(value)


Number = Annotated[Fraction, PlainValidator(_as_number)]
Numbers = Annotated[list[Number], FailFast()]
Matrix = Annotated[list[Numbers], FailFast()]


class _Input(BaseModel):
    """Fields of an input, of which others are not used."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow")

    @property
    def unused(self) -> tuple[str, ...]:
        """A note on the others, if there are any."""
        names = sorted(self.model_extra or ())
        return (f"fields that are not used: {', '.join(map(shown, names[:5]))}{' ...' * (len(names) > 5)}",) * bool(
            names
        )


Input = TypeVar("Input", bound=_Input)


def _validated(document: Document, model: type[Input], data: object, within: str = "") -> Input:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise document.error(first_error(error).replace("field ", f"field {within}", 1)) from None


NDV2_FAST = ((0, 1), (0, 4), (1, 3), (2, 3), (2, 6), (4, 5), (5, 7), (6, 7))
"""Pairs of GPUs of an NDv2 that are joined by two NVLinks, as TACCL numbers them."""
NDV2_SLOW = ((0, 2), (0, 3), (1, 2), (1, 5), (3, 7), (4, 6), (4, 7), (5, 6))  # pairs that are joined by one


class TacclProfile(_Input):
    """A profile of TACCL, measured for a buffer of some size.

    Times are µs for that size: the latency of a link, and the times of its bytes, inside the box in `node_betas_list`,
    or pair by pair in `links` and `betas`, whose rows are receivers; and between boxes.
    """

    name: Annotated[str, Field(min_length=1)]
    gpus_per_node: Annotated[int, Field(ge=2, le=MAX_TACCL_GPUS)]
    alpha: Number
    node_betas_list: Numbers = []
    links: Matrix = []
    betas: Matrix = []
    nics_per_node: Annotated[int, Field(ge=1)] | None = None
    remote_alpha: Number | None = None
    remote_beta: Number | None = None


def read_taccl(document: Document, options: BoxOptions) -> Box:
    """Read the box of a profile, whose name ends in its buffer size, such as ``NDv2_1MB``.

    TACCL takes the kind of network from its command line (microsoft/taccl, ``taccl/topologies/generic.py``); here it
    follows from the file: one beta is a switch, two are the hybrid cube mesh of Azure NDv2.
    """
    profile = _validated(document, TacclProfile, decode(document))
    gpus, size = profile.gpus_per_node, _buffer_size(profile.name, document)

    def rate(beta: Fraction | None) -> Fraction:
        if not beta:
            raise document.error(f"a beta is {beta}; expected µs for the bytes that the name states")
        return size / beta / 1000

    switches: tuple[str, ...] = ()
    if "links" in profile.model_fields_set:
        links = tuple(_links_of_matrices(profile, rate, document))
    else:
        betas = profile.node_betas_list
        if len(betas) == 1:
            switches = ("nvswitch",)
            links = tuple(Link(f"gpu{gpu}", "nvswitch", rate(betas[0]), profile.alpha / 2) for gpu in range(gpus))
        elif len(betas) == 2 and gpus == 8:
            pairs = [(pair, betas[0]) for pair in NDV2_FAST] + [(pair, betas[1]) for pair in NDV2_SLOW]
            links = tuple(Link(f"gpu{a}", f"gpu{b}", rate(beta), profile.alpha) for (a, b), beta in pairs)
        else:
            raise document.error(
                f"node_betas_list has {len(betas)} entries for {gpus} GPUs; expected one for a switch, two for the 8 "
                "GPUs of an NDv2, or links and betas for every pair"
            )
    notes = (
        f"bandwidths are TACCL's measurements for {int(size)} bytes (K, M, G as powers of 1000), latencies its alpha",
    )
    nics: list[Nic] = []
    if (count := profile.nics_per_node) is not None:
        if count > gpus or profile.remote_alpha is None:
            raise document.error(f"{count} NICs need remote_alpha, and at most one NIC for each of {gpus} GPUs")
        # GPUs are assigned evenly; the path from GPU to GPU has two NICs and one switch.
        speed = options.nic_bandwidth or rate(profile.remote_beta)
        near = [tuple(f"gpu{gpu}" for gpu in range(gpus) if gpu * count // gpus == nic) for nic in range(count)]
        nics = [Nic(gpus_near, speed, speed, Fraction(0), profile.remote_alpha / 2) for gpus_near in near]
    # A profile has no PCIe figures, so a given NIC bandwidth applies to the NIC's links to GPUs as well.
    shared = tuple(SharedLink(OWN_LINK, UNLIMITED, ((n, len(nic.near)),)) for n, nic in enumerate(nics))
    return Box(profile.name, gpus, links, tuple(nics), switches, notes=(*notes, *profile.unused), shared=shared)


def _links_of_matrices(
    profile: TacclProfile, rate: Callable[[Fraction], Fraction], document: Document
) -> Iterator[Link]:
    """Yield the links of the matrices, whose rows are receivers; both directions of a link have to be equal."""
    gpus, links, betas = profile.gpus_per_node, profile.links, profile.betas
    for name, rows in (("links", links), ("betas", betas)):
        if len(rows) != gpus or any(len(row) != gpus for row in rows):
            raise document.error(f"field {name} is {shown(rows)}; expected {gpus} lists of {gpus} numbers")
    for head in range(gpus):
        for tail in range(head):
            there, back = (links[head][tail], betas[head][tail]), (links[tail][head], betas[tail][head])
            if there != back:
                raise document.error(
                    f"GPUs {tail} and {head} are joined by {there[0]} links with beta {there[1]} one way and {back[0]} "
                    f"with {back[1]} the other; expected both alike"
                )
            if there[0]:
                yield Link(f"gpu{tail}", f"gpu{head}", rate(there[1]), profile.alpha)


def _buffer_size(name: str, document: Document) -> Fraction:
    """Parse the buffer size, in bytes, which is only in the name."""
    match = re.search(r"(?:^|[_-])([0-9]{1,6})([KMG])B?$", name, re.IGNORECASE) if name.isprintable() else None
    if match is None or int(match[1]) == 0:
        raise document.error(
            f"its times are for a buffer of some size, and the name {shown(name)} does not end in it; write it there, "
            "such as 'lab_1MB'"
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


class TecclParams(_Input):
    """The parameters of TE-CCL's input, with the defaults of its ``input_data.py``."""

    name: str
    chassis: Annotated[int, Field(ge=1, le=MAX_CHASSIS)] = 1
    side_length: Annotated[int, Field(ge=2, le=MAX_SIDE)] = 4
    alpha: Annotated[Numbers, Field(min_length=1)] = [Fraction(0), Fraction(0)]

    @property
    def latencies(self) -> list[Fraction]:
        """Latencies of links inside a chassis and between them, in µs; `alpha` is in seconds."""
        return [alpha * 10**6 for alpha in (self.alpha[0], self.alpha[-1])]


def read_teccl(document: Document, options: BoxOptions) -> Imported:
    """Build the network that the input names.

    Bandwidths and latencies are those of microsoft/TE-CCL, ``teccl/topologies``.  ``chunk_size`` does not change the
    network, as TE-CCL divides all bandwidths by it.
    """
    del options  # the classes know their bandwidths
    params = _validated(document, TecclParams, decode(document).get("TopologyParams"), "TopologyParams.")
    if params.name not in TECCL_NETWORKS:
        raise document.error(
            f"it names the network {params.name!r}, whose links are in TE-CCL's program and not in the file; known are "
            f"{', '.join(TECCL_NETWORKS)}"
        )
    if params.name == "AMD" and params.chassis > 1 and len(params.alpha) < 2:
        raise document.error("field TopologyParams.alpha has one latency; expected a second one between chassis")
    topology = TECCL_NETWORKS[params.name](params)
    source = f"links of {params.name} are those of TE-CCL's program; the file has only its name"
    return Imported(topology, (source, *params.unused))


def _ndv2(params: TecclParams) -> Topology:
    """Build cube meshes whose GPU 0 sends to other boxes, and whose GPU 1 receives, over one 100 Gb/s NIC."""
    chassis, nic = params.chassis, (Fraction(25, 2), Fraction(13, 10))
    links = list(_both_ways(_mesh_of_cubes(chassis, Fraction(7, 10))))
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


def _dgx1(params: TecclParams) -> Topology:
    return _teccl_network("teccl-dgx1", list(_both_ways(_mesh_of_cubes(1, params.latencies[0]))), 1, 8, [])


def _dgx2(_: TecclParams) -> Topology:
    """Build two boxes; GPUs of odd numbers send to the even ones before them in the other box."""
    ports = [(f"box{b}/gpu{g}", f"box{b}/nvswitch") for b in (0, 1) for g in range(16)]
    links = list(_both_ways(Link(*port, Fraction(125), Fraction(7, 20)) for port in ports))
    links += [
        Link(f"box{b}/gpu{g + 1}", f"box{1 - b}/gpu{g}", Fraction(25, 2), Fraction(13, 5))
        for b in (0, 1)
        for g in range(0, 16, 2)
    ]
    return _teccl_network("teccl-dgx2-2", links, 2, 16, ["box0/nvswitch", "box1/nvswitch"])


def _amd(params: TecclParams) -> Topology:
    chassis, (inside, outside) = params.chassis, params.latencies
    pairs = [
        Link(f"box{box}/gpu{a}", f"box{box}/gpu{b}", Fraction(50 * count), inside)
        for box in range(chassis)
        for a, peers in AMD_LINKS.items()
        for b, count in peers.items()
    ]
    nics = [(box, nic) for box in range(chassis) for nic in range(8)] if chassis > 1 else []
    pairs += [
        Link(f"box{box}/gpu{2 * nic + gcd}", f"box{box}/nic{nic}", Fraction(25), outside)
        for box, nic in nics
        for gcd in (0, 1)
    ]
    pairs += [Link(f"box{box}/nic{nic}", "switch", Fraction(25), outside) for box, nic in nics]
    switches = [f"box{box}/nic{nic}" for box, nic in nics] + ["switch"] * bool(nics)
    return _teccl_network(f"teccl-amd-{chassis}", list(_both_ways(pairs)), chassis, 16, switches)


def _mesh(params: TecclParams) -> Topology:
    """Build a 2D mesh; like TE-CCL, also link the end of each row to the beginning of the next."""
    side, names = params.side_length, [f"gpu{node}" for node in range(params.side_length**2)]
    pairs = [
        Link(names[node], names[node + step], Fraction(100), params.latencies[0])
        for step in sorted({1, side})
        for node in range(len(names) - step)
    ]
    return Topology.from_links(_both_ways(pairs), compute=names, name=f"teccl-mesh-{side}")


TECCL_NETWORKS = {"NDv2": _ndv2, "DGX1": _dgx1, "DGX2": _dgx2, "AMD": _amd, "Mesh": _mesh}
"""TE-CCL's networks by name."""


def _teccl_network(name: str, links: list[Link], chassis: int, gpus: int, switches: list[str]) -> Topology:
    ranks = [f"box{box}/gpu{gpu}" for box in range(chassis) for gpu in range(gpus)]
    return Topology.from_links(links, compute=ranks, switches=switches, name=name)


def _both_ways(links: Iterable[Link]) -> Iterator[Link]:
    for link in links:
        yield link
        yield link._replace(tail=link.head, head=link.tail)


Units = Annotated[int, Field(ge=0, le=MAX_UNITS)]
Row = Annotated[list[Units], FailFast()]
Nodes = Annotated[list[Units], FailFast()]
Bound = Annotated[tuple[Nodes, Nodes, Annotated[int, Field(ge=1, le=MAX_UNITS)], str], Field(strict=False)]


class MscclTopology(_Input):
    """Topology JSON of msccl-tools: ``links[receiver][sender]`` is the bandwidth of a link in units.

    A switch is no node, but a bound on the units from some senders to some receivers (microsoft/msccl-tools,
    ``msccl/topologies/topology.py``), with a name.
    """

    msccl_type: Literal["topology"]
    name: Any = None
    links: Annotated[list[Row], Field(min_length=2, max_length=MAX_MSCCL_NODES), FailFast()]
    switches: Annotated[list[Bound], Field(max_length=MAX_BOUNDS), FailFast()] = []


def read_msccl(document: Document, options: BoxOptions) -> Imported:
    """Read a topology that stands alone or inside an algorithm; bounds have to be the ports of nodes on one hub."""
    data = decode(document)
    if data.get("msccl_type") == "algorithm" and isinstance(data.get("topology"), dict):
        data = data["topology"]
    topology = _validated(document, MscclTopology, data)
    units, bounds = topology.links, topology.switches
    for receiver, row in enumerate(units):
        if len(row) != len(units) or row[receiver]:
            raise document.error(
                f"links[{receiver}] is {shown(row)}; expected {len(units)} numbers, one for each sender, 0 for itself"
            )
    rate, latency, note = _unit_of_bandwidth(document, options)
    names = [f"gpu{node}" for node in range(len(units))]
    name = topology.name
    title = name if isinstance(name, str) and name.isprintable() and 0 < len(name) <= 100 else "msccl"
    if not bounds:
        links = [
            Link(names[sender], names[receiver], rate * count, latency)
            for receiver, row in enumerate(units)
            for sender, count in enumerate(row)
            if count
        ]
        return Imported(Topology.from_links(links, compute=names, name=title), (note, *topology.unused))
    leaving, entering = _ports(document, units, bounds)
    links = [Link(node, "hub", rate * leaving[number], latency / 2) for number, node in enumerate(names)]
    links += [Link("hub", node, rate * entering[number], latency / 2) for number, node in enumerate(names)]
    return Imported(
        Topology.from_links(links, compute=names, switches=["hub"], name=title),
        (
            note,
            *topology.unused,
            "its bound for each sender and receiver is modeled as the port of that node on one switch",
        ),
    )


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
    document: Document, units: list[list[int]], bounds: list[tuple[list[int], list[int], int, str]]
) -> tuple[dict[int, int], dict[int, int]]:
    """Return the units that each node may send and receive; `FileFormatError` if there are other bounds."""
    leaving: dict[int, int] = {}
    entering: dict[int, int] = {}
    nodes = frozenset(range(len(units)))
    for number, (tails, heads, bound, name) in enumerate(bounds):
        senders, receivers = frozenset(tails), frozenset(heads)
        if not senders | receivers <= nodes:
            raise document.error(f"switches[{number}] has node {max(senders | receivers)}; expected 0 to {max(nodes)}")
        if len(senders) == 1 and receivers >= nodes - senders:
            ports, (node,) = leaving, senders
        elif len(receivers) == 1 and senders >= nodes - receivers:
            ports, (node,) = entering, receivers
        else:
            raise document.error(
                f"switch {shown(name)} bounds the total from {len(senders)} nodes to {len(receivers)}; expected one "
                "node and all others, as on a hub: other bounds have no counterpart in a network"
            )
        ports[node] = min(bound, ports.get(node, bound))
    for receiver, row in enumerate(units):
        for sender, count in enumerate(row):
            if sender != receiver and not (
                sender in leaving and receiver in entering and count >= min(leaving[sender], entering[receiver])
            ):
                raise document.error(
                    f"links[{receiver}][{sender}] is {count}, but other pairs are bounded by switches; expected a hub, "
                    "on which every node has a bound for sending and for receiving, and no link has less"
                )
    return leaving, entering
