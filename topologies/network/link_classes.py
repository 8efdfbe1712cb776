"""Link classes: links of one bandwidth between two kinds of nodes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ...errors import TopologyError
from ...support.validation import hint, shown
from .links import Link, grouped_links
from .topology import Topology, as_topology


@dataclass(frozen=True)
class LinkClass:
    """The `links`, in either direction, between nodes of two `kinds`, that have the same bandwidth; with a `name`.

    Names are such as ``gpu-nvswitch``, with the bandwidth where kinds alone are ambiguous, as in ``gpu-gpu:50``.
    """

    name: str
    kinds: str
    links: tuple[Link, ...]

    @property
    def bandwidth(self) -> Fraction:
        """GB/s of each link."""
        return self.links[0].bandwidth

    @property
    def latency(self) -> Fraction:
        """Microseconds of the slowest link."""
        return max(link.latency for link in self.links)


def link_classes(topology: Topology) -> tuple[LinkClass, ...]:
    """Group the links of a network into classes, in the order of their first links; every link is in exactly one.

    Parameters
    ----------
    topology : Topology
        The kind of a node is the end of its name, after the last slash and without its number: ``box1/gpu3`` is a
        ``gpu``.  Nodes that have nothing but a number are of kind ``rank`` or ``switch``.

    Examples
    --------
    >>> from collopt.topologies import dgx1_v100, dgx_a100
    >>> [each.name for each in link_classes(dgx_a100(boxes=2))]
    ['gpu-nvswitch', 'gpu-nic', 'nic-ib']
    >>> [(each.name, len(each.links)) for each in link_classes(dgx1_v100())]
    [('gpu-gpu:25', 16), ('gpu-gpu:50', 16)]
    """
    as_topology(topology, TopologyError)
    groups = grouped_links(topology.compute_nodes, topology.switch_nodes, topology.links)
    return tuple(LinkClass(name, kinds, links) for name, (kinds, links) in groups.items())


def matching_classes(classes: Sequence[LinkClass], names: Iterable[str]) -> tuple[LinkClass, ...]:
    """Look up classes by name; kinds without a bandwidth, such as ``gpu-gpu``, select all classes between them."""
    found: dict[str, LinkClass] = {}
    for name in names:
        meant = [each for each in classes if name in (each.name, each.kinds)]
        if not meant:
            known = [each.name for each in classes]
            raise TopologyError(
                f"there is no link class {shown(name)}{hint(name, known)}; expected one of {', '.join(known)}"
            )
        found |= {each.name: each for each in meant}
    return tuple(each for each in classes if each.name in found)
