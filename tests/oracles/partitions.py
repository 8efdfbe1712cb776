"""All cuts and all partitions of a small network, one by one: what no allreduce can beat."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from collopt.topologies import Topology

__all__ = ["allreduce_limit", "narrowest_alone", "narrowest_cut"]


def allreduce_limit(topology: Topology) -> Fraction:
    """Smallest bandwidth that enters parts with ranks from other parts, per part but one, of the data in both ways."""
    best = None
    for labels in _labels(len(topology.nodes)):
        part = dict(zip(topology.nodes, labels, strict=True))
        parties = {part[rank] for rank in topology.compute_nodes}
        if len(parties) > 1:
            entering = sum(
                link.bandwidth
                for link in topology.links
                if part[link.head] in parties and part[link.tail] != part[link.head]
            )
            limit = Fraction(entering, 2 * (len(parties) - 1))
            best = limit if best is None else min(best, limit)
    assert best is not None
    return best


def narrowest_cut(topology: Topology) -> Fraction:
    """Smallest bandwidth that leaves a set with some ranks inside and some outside."""
    ranks = set(topology.compute_nodes)
    return min(_leaving(topology, inside) for inside in _subsets(topology) if inside & ranks and ranks - inside)


def narrowest_alone(topology: Topology, rank: str) -> Fraction:
    """Smallest bandwidth that leaves a set with one rank inside."""
    ranks = set(topology.compute_nodes)
    return min(_leaving(topology, inside) for inside in _subsets(topology) if inside & ranks == {rank})


def _leaving(topology: Topology, inside: set[str]) -> Fraction:
    return Fraction(sum(link.bandwidth for link in topology.links if link.tail in inside and link.head not in inside))


def _subsets(topology: Topology) -> Iterator[set[str]]:
    nodes = topology.nodes
    for mask in range(2 ** len(nodes)):
        yield {node for number, node in enumerate(nodes) if mask >> number & 1}


def _labels(count: int) -> Iterator[list[int]]:
    """All partitions of `count` things: the part of each, numbered in the order of first members."""
    if count == 0:
        yield []
        return
    for labels in _labels(count - 1):
        for label in range(max(labels, default=-1) + 2):
            yield [*labels, label]
