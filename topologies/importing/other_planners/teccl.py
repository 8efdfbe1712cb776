"""Reader of TE-CCL's input, which names one of TE-CCL's topology classes; their links are defined here.

Bandwidths and latencies are those of microsoft/TE-CCL, ``teccl/topologies``: NDv2, DGX1, DGX2, AMD and Mesh.  ``alpha``
is in seconds, and ``chunk_size`` does not change the network, as TE-CCL divides all bandwidths by it.
"""

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

from ...network.topology import Link, Topology
from ..sources.document import Document, Imported
from ..sources.json_text import Fields, decode, looks_like
from ..sources.options import BoxOptions
from .taccl import NDV2_FAST, NDV2_SLOW

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


def matches_teccl(document: Document) -> bool:
    """Return whether the content looks like an input."""
    return looks_like(document, "TopologyParams")


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
    made = TECCL_NETWORKS[name](fields)
    return Imported(made, (f"links of {name} are those of TE-CCL's program; the file has only its name",))


def _ndv2(fields: Fields) -> Topology:
    """Build cube meshes whose GPU 0 sends to other boxes, and whose GPU 1 receives, over one 100 Gb/s NIC."""
    chassis, mesh = fields.count("chassis", most=MAX_CHASSIS), Fraction(7, 10)
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
    chassis = fields.count("chassis", most=MAX_CHASSIS)
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
    side, alpha = fields.count("side_length", least=2, most=64), _alphas(fields, 1)[0]
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


def _alphas(fields: Fields, least: int) -> list[Fraction]:
    """Read the latencies of links and of the switch, in seconds, and return them in µs."""
    values = [Fraction(alpha) * MICROSECONDS for alpha in fields.numbers("alpha")]
    if len(values) < least:
        fields.numbers(f"alpha[{len(values)}]")
    return values
