"""Note on the assumed latencies of an imported network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

from ..network.link_classes import link_classes, node_kind
from ..network.topology import Topology
from ..switched.scale_out import Box

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
