"""Failures, which are nodes and links that fail together, and scalings of links, as people type them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...errors import TopologyError
from ...support.quantities import Exact, as_factor
from ...support.validation import as_several, shown
from .link_costs import link_classes, matching_classes
from .links import Link
from .topology import Topology, as_topology

JOINT = " + "  # between the parts of a failure
INTACT = "intact"  # where nothing has failed
TIMES = " x "  # between a link and its remaining share


class Fault(NamedTuple):
    """A GPU, NIC or switch that fails, or a link, by its `nodes`; of a link a `factor` is left, in both directions."""

    nodes: tuple[str, ...]
    factor: Fraction = Fraction(0)

    def __str__(self) -> str:
        return "--".join(self.nodes) + (f"{TIMES}{self.factor}" if self.factor else "")


@dataclass(frozen=True)
class Failure:
    """The `faults` that happen together, in the order of their nodes in the topology; none for the intact network.

    Examples
    --------
    >>> from collopt.topologies import dgx_a100
    >>> box = dgx_a100(boxes=2)
    >>> failure = Failure.read(box, "box1/nic3 + ib--box0/nic0 x 1/2")
    >>> print(failure)
    box0/nic0--ib x 1/2 + box1/nic3
    >>> failure.applied(box).link("box0/nic0", "ib").bandwidth
    Fraction(25, 2)
    """

    faults: tuple[Fault, ...] = ()

    @classmethod
    def read(cls, topology: Topology, failures: str | Failure | Iterable[str | Failure]) -> Failure:
        """Read a failure from its text, or join several; `TopologyError` for parts that the network lacks.

        A part is a node, ``A--B`` for the links between two nodes, or ``A--B x 1/2`` for half of their bandwidth; the
        last part of a node's name is enough where it is unique.  Parts are joined by ``+`` between spaces; ``intact``
        has none.
        """
        as_topology(topology, TopologyError)
        listed = [failures] if isinstance(failures, str | Failure) else as_several(failures, "the failures")
        faults = [fault for failure in listed for fault in _faults(topology, failure)]
        if twice := [nodes for nodes, times in Counter(fault.nodes for fault in faults).items() if times > 1]:
            raise TopologyError(f"the failure names {'--'.join(twice[0])!r} twice; name every part once")
        return cls.of(topology, faults)

    @classmethod
    def of(cls, topology: Topology, faults: Iterable[Fault]) -> Failure:
        """Join faults in the order of their nodes, by which equal failures are equal."""
        index = topology.node_index
        return cls(tuple(sorted(faults, key=lambda fault: [index[node] for node in fault.nodes])))

    def applied(self, topology: Topology) -> Topology:
        """Return the rest of a network; `TopologyError` if fewer than two ranks remain."""
        intact_nodes = topology.node_index
        # Links first: a node that fails takes its links along, and switches that lose their last link.
        for nodes, factor in sorted(self.faults, key=lambda fault: -len(fault.nodes)):
            if len(nodes) == 1:
                gone = nodes[0] in intact_nodes and nodes[0] not in topology.node_index
                topology = topology if gone else topology.without_node(nodes[0])
                continue
            tail, head = nodes if _has_link(topology, nodes) else nodes[::-1]
            topology = topology.derate(tail, head, factor) if factor else topology.without_link(tail, head)
        return topology

    def __str__(self) -> str:
        return JOINT.join(map(str, self.faults)) or INTACT


def _faults(topology: Topology, failure: object) -> tuple[Fault, ...]:
    """Read the parts of a failure, or check that they are of this network."""
    if isinstance(failure, Failure):
        return tuple(_checked_fault(topology, *fault) for fault in failure.faults)
    if not isinstance(failure, str):
        raise TopologyError(f"the failure is {shown(failure)}; expected text such as 'nic0', 'gpu0--nic0 x 1/2'")
    if failure in ("", INTACT) and failure not in topology.node_index:
        return ()
    link = failure.rpartition(TIMES)[0]
    is_one = failure in topology.node_index or _ends(topology, failure) or _ends(topology, link)
    return tuple(_fault(topology, part.strip()) for part in ([failure] if is_one else failure.split(JOINT)))


def _fault(topology: Topology, text: str) -> Fault:
    if text in topology.node_index or "--" not in text:
        return _checked_fault(topology, (text,))
    ends, (link, _, left) = _ends(topology, text), text.rpartition(TIMES)
    if ends is None and "--" in link:
        return _checked_fault(topology, _ends(topology, link) or tuple(link.split("--", 1)), as_left(left))
    return _checked_fault(topology, ends or tuple(text.split("--", 1)))


def _ends(topology: Topology, text: str) -> tuple[str, ...] | None:
    """Read ``A--B`` of two nodes, whose names may have dashes, factors and signs, too; None if it is none."""
    if len(text) > 2 * max(map(len, topology.nodes)) + 2:  # Each of many dashes would be tried.
        return None
    words = text.split("--")
    splits = (("--".join(words[:at]), "--".join(words[at:])) for at in range(1, len(words)))
    return next((ends for ends in splits if topology.node_index.keys() >= {*ends}), None)


def _checked_fault(topology: Topology, nodes: tuple[str, ...], factor: Fraction = Fraction(0)) -> Fault:
    """Return the fault of a node or link of this network, which another network or a file may have named."""
    ends = tuple(sorted((_node(topology, node) for node in nodes), key=topology.node_index.__getitem__))
    linked = len(ends) == 2 and (_has_link(topology, ends) or _has_link(topology, ends[::-1]))
    if not linked and (len(ends) != 1 or factor):
        raise TopologyError(f"there is no link between {' and '.join(map(repr, ends))} in {topology}")
    return Fault(ends, as_left(factor) if factor else Fraction(0))


def as_left(value: Exact) -> Fraction:
    """Read the remaining share of the bandwidth of a link: a number between 0 and 1."""
    factor = as_factor(value, "the remaining share of a link")
    if factor >= 1:
        raise TopologyError(f"the remaining share of a link is {shown(value)}; expected less than 1")
    return factor


def _node(topology: Topology, text: str) -> str:
    """Find a node by its name, or a unique suffix of it."""
    if (node := found_node(topology, text)) is not None:
        return node
    raise TopologyError(
        f"{shown(text)} is not a node of this network; write the name of one node, such as {topology.nodes[0]}"
    )


def found_node(topology: Topology, text: str) -> str | None:
    """Find a node by its name, or a unique suffix of it; `TopologyError` if several have that suffix."""
    matches = [text] if text in topology.node_index else [node for node in topology.nodes if node.endswith(f"/{text}")]
    if len(matches) > 1:
        raise TopologyError(
            f"{shown(text)} is ambiguous: {', '.join(matches[:4])}; write the name of one node, such as {matches[0]}"
        )
    return matches[0] if matches else None


def _has_link(topology: Topology, ends: tuple[str, ...]) -> bool:
    tail, head = (np.array([topology.node_index.get(node, -1)]) for node in ends)
    return bool(topology.link_places(tail, head)[0] >= 0)


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
        """Links of a network whose bandwidth it multiplies; `TopologyError` if there are none."""
        if (node := found_node(topology, self.target)) is not None:
            return (*topology.out_links(node), *topology.in_links(node))
        if "--" in self.target:
            ends = set(Failure.read(topology, self.target).faults[0].nodes)
            return tuple(
                link for link in topology.out_links(min(ends)) + topology.in_links(min(ends)) if {*link[:2]} == ends
            )
        return tuple(
            link for link_class in matching_classes(link_classes(topology), [self.target]) for link in link_class.links
        )

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
    >>> scaled_links(dgx_a100(boxes=2), ["gpu-nic x 2", "box0/nic0 x 1/2"]).link("box0/gpu0", "box0/nic0").bandwidth
    Fraction(25, 1)
    """
    listed = tuple(Scaling.read(entry) if isinstance(entry, str) else entry for entry in scalings)
    bandwidths = dict[tuple[str, str], Fraction]()
    for scaling in listed:
        for link in scaling.links(topology):
            ends = link.tail, link.head
            bandwidths[ends] = bandwidths.get(ends, link.bandwidth) * scaling.factor
    if not listed:
        return topology
    how = ", ".join(map(str, listed)) if len(listed) <= FEW else f"{len(listed)} other bandwidths"
    return replace(topology.with_bandwidths(bandwidths), name=f"{topology.name} with {how}")
