"""What-if changes of a topology: without a link or a node, with other bandwidths, with fewer ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from ...errors import TopologyError
from ...support.quantities import Exact, as_amount, as_factor
from ...support.validation import as_flag, as_names, as_several, shown
from .ranks import rank_number

if TYPE_CHECKING:
    from .topology import Link, Topology

__all__ = ["derate", "restrict", "scaled", "with_bandwidths", "without_link", "without_node"]


def restrict(topology: Topology, ranks: Iterable[int | str]) -> Topology:
    """Keep only some ranks, as `Topology.restrict` says."""
    kept = as_names((_rank_name(topology, rank) for rank in as_several(ranks, "ranks")), "compute")
    alive = {*kept, *topology.switch_nodes}
    links = tuple(link for link in topology.links if link.tail in alive and link.head in alive)
    return _of(topology, kept, links, f"{topology.name} [{len(kept)} of {topology.num_ranks} ranks]")


def without_node(topology: Topology, node: str) -> Topology:
    """Remove a node that there is, as `Topology.without_node` says."""
    kept = tuple(rank for rank in topology.compute_nodes if rank != node)
    links = tuple(link for link in topology.links if node not in link[:2])
    return _of(topology, kept, links, f"{topology.name} without {node}")


def without_link(topology: Topology, tail: str, head: str, *, bidirectional: bool) -> Topology:
    """Remove a link, as `Topology.without_link` says."""
    gone = _ends(topology, tail, head, bidirectional=bidirectional)
    links = tuple(link for link in topology.links if link[:2] not in gone)
    return replace(topology, links=links, name=f"{topology.name} without {tail}-{head}")


def derate(topology: Topology, tail: str, head: str, factor: Exact, *, bidirectional: bool) -> Topology:
    """Multiply the bandwidth of a link, as `Topology.derate` says."""
    exact = as_factor(factor, "derating factor")
    changed = _ends(topology, tail, head, bidirectional=bidirectional)
    links = tuple(_times(link, exact) if link[:2] in changed else link for link in topology.links)
    return replace(topology, links=links, name=f"{topology.name} with {tail}-{head} x {exact}")


def scaled(topology: Topology, factor: Exact) -> Topology:
    """Multiply every bandwidth by `factor`."""
    exact = as_factor(factor, "scale factor")
    links = tuple(_times(link, exact) for link in topology.links)
    return replace(topology, links=links, name=f"{topology.name} x {exact}")


def with_bandwidths(topology: Topology, bandwidths: Mapping[tuple[str, str], Exact]) -> Topology:
    """Give links other bandwidths, as `Topology.with_bandwidths` says."""
    if not isinstance(bandwidths, Mapping):
        raise TopologyError(f"bandwidths are {shown(bandwidths)}; expected a mapping from (tail, head) to GB/s")
    chosen = {}
    for ends, bandwidth in bandwidths.items():
        if not isinstance(ends, tuple) or len(ends) != 2:
            raise TopologyError(f"bandwidths name {shown(ends)}; expected pairs (tail, head)")
        chosen[topology.link(*ends)[:2]] = as_amount(bandwidth)
    links = [link._replace(bandwidth=chosen.get(link[:2], link.bandwidth)) for link in topology.links]
    alive = tuple(link for link in links if link.bandwidth)
    return replace(topology, links=alive, name=f"{topology.name} with other bandwidths")


def _of(topology: Topology, ranks: tuple[str, ...], links: tuple[Link, ...], name: str) -> Topology:
    """Keep these ranks and links, and the switches that still have one."""
    linked = {end for link in links for end in link[:2]}
    switches = tuple(switch for switch in topology.switch_nodes if switch in linked)
    return replace(
        topology,
        compute_nodes=ranks,
        switch_nodes=switches,
        links=links,
        multicast=topology.multicast & set(switches),
        aggregation=topology.aggregation & set(switches),
        name=name,
    )


def _ends(topology: Topology, tail: str, head: str, *, bidirectional: bool) -> set[tuple[str, str]]:
    """Ends of the link, which must be there, and of its opposite, which need not be."""
    ends = topology.link(tail, head)[:2]
    return {ends, (head, tail)} if as_flag(bidirectional, "bidirectional") else {ends}


def _times(link: Link, factor: Fraction) -> Link:
    return link._replace(bandwidth=link.bandwidth * factor)


def _rank_name(topology: Topology, rank: object) -> str:
    number = rank_number(topology, rank)
    if number is None:
        raise TopologyError(
            f"rank {shown(rank)} is not in {topology!r}; expected 0..{topology.num_ranks - 1} or a compute node's name"
        )
    return topology.compute_nodes[number]
