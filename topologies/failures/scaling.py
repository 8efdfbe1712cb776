"""Bandwidths of links times a factor, as people type them: ``gpu-nic x 2``, ``box0/nic3 x 1/2``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from ...errors import TopologyError
from ...support.quantities import as_factor
from ...support.validation import shown
from ..network.link_classes import link_classes, matching_classes
from ..network.links import Link
from ..network.topology import Topology
from .failure import TIMES, Failure, found_node

FEW = 2  # Changes that the name of a network lists


class Scaling(NamedTuple):
    """Links whose bandwidth is multiplied.

    Attributes
    ----------
    target : str
        A class of links, such as ``gpu-nic``; a node, for all its links; or ``A--B``, for those between two nodes.
    factor : Fraction
        Positive.

    Examples
    --------
    >>> print(Scaling.read("gpu-nic x 1.50"))
    gpu-nic x 3/2
    """

    target: str
    factor: Fraction

    @classmethod
    def read(cls, text: str) -> Scaling:
        """Read a scaling; `TopologyError` for text of another form."""
        target, times, factor = text.rpartition(TIMES)
        if not times or not target.strip():
            raise TopologyError(f"{shown(text)} scales no links; expected LINKS x FACTOR, such as 'gpu-nic x 2'")
        return cls(target.strip(), as_factor(factor.strip(), f"the factor of {target.strip()}"))

    def links(self, topology: Topology) -> tuple[Link, ...]:
        """Links of a network that it is about; `TopologyError` if there are none."""
        if (node := found_node(topology, self.target)) is not None:
            return (*topology.out_links(node), *topology.in_links(node))
        if "--" in self.target:
            ends = set(Failure.read(topology, self.target).faults[0].nodes)
            return tuple(
                link for link in topology.out_links(min(ends)) + topology.in_links(min(ends)) if {*link[:2]} == ends
            )
        return tuple(link for each in matching_classes(link_classes(topology), [self.target]) for link in each.links)

    def __str__(self) -> str:
        return f"{self.target}{TIMES}{self.factor}"


def scaled_links(topology: Topology, scalings: Iterable[Scaling | str]) -> Topology:
    """Multiply bandwidths; raises `TopologyError` for a scaling that names no links of the network.

    Parameters
    ----------
    topology : Topology
        The network; it stays as it is.
    scalings : iterable of Scaling or str
        Text as `Scaling.read` takes it.  Factors of a link that several of them name are multiplied.

    Examples
    --------
    >>> from collopt.topologies import dgx_a100
    >>> faster = scaled_links(dgx_a100(boxes=2), ["gpu-nic x 2", "box0/nic0 x 1/2"])
    >>> [str(faster.link(f"box0/gpu{rank}", f"box0/nic{rank}").bandwidth) for rank in range(2)]
    ['25', '50']
    """
    taken = tuple(Scaling.read(each) if isinstance(each, str) else each for each in scalings)
    bandwidths = dict[tuple[str, str], Fraction]()
    for scaling in taken:
        for link in scaling.links(topology):
            ends = link.tail, link.head
            bandwidths[ends] = bandwidths.get(ends, link.bandwidth) * scaling.factor
    if not taken:
        return topology
    how = ", ".join(map(str, taken)) if len(taken) <= FEW else f"{len(taken)} other bandwidths"
    return replace(topology.with_bandwidths(bandwidths), name=f"{topology.name} with {how}")
