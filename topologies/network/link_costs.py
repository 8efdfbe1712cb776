"""Link classes, which are links of one bandwidth between two kinds of nodes, and costs of runtimes by class."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from ...errors import TopologyError, UnsupportedError
from ...support.validation import hint, shown
from .links import Link, grouped_links
from .runtime_costs import LINKS_ONLY, RuntimeCosts
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

    The kind of a node is the end of its name, after the last slash and without its number: ``box1/gpu3`` is a ``gpu``.
    Nodes that have nothing but a number are of kind ``rank`` or ``switch``.

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
    matches: dict[str, LinkClass] = {}
    for name in names:
        classes_of_name = [link_class for link_class in classes if name in (link_class.name, link_class.kinds)]
        if not classes_of_name:
            class_names = [link_class.name for link_class in classes]
            raise TopologyError(
                f"there is no link class {shown(name)}{hint(name, class_names)}; "
                f"expected one of {', '.join(class_names)}"
            )
        matches |= {link_class.name: link_class for link_class in classes_of_name}
    return tuple(link_class for link_class in classes if link_class.name in matches)


CostsName = Literal["links", "generic", "fused"]

GUESSES: dict[str, tuple[Fraction, Fraction]] = {
    "generic": (Fraction(10), Fraction(1, 2)),
    "fused": (Fraction(2), Fraction(1, 5)),
}
"""µs of `RuntimeCosts.alpha` and `send`.

For interpreters of schedules (fits to tables 2 and 3 of ForestColl, arXiv 2402.06787, give an alpha of 11 to 12 µs),
and for kernels that are compiled for one schedule (assumed).
"""

SHARES = {"nvswitch": Fraction(7, 10), "nic": Fraction(9, 10), "gpu-gpu": Fraction(11, 20)}
"""Shares of line rates by a part of a link class's kinds, fitted to the same tables; others: `OTHER_SHARE`."""
OTHER_SHARE = Fraction(17, 20)

CACHED = 8  # networks: schedules are timed one after the other on one


def guessed_costs(name: CostsName, topology: Topology) -> RuntimeCosts:
    """Return costs that are not calibrated; `UnsupportedError` if there is no such name.

    Parameters
    ----------
    name : {"links", "generic", "fused"}
        ``"generic"`` for runtimes that interpret schedules, such as MSCCL; ``"fused"`` for one kernel for a schedule,
        as with MSCCL++; ``"links"`` for none.
    topology : Topology
        The shares are for its link classes.

    Examples
    --------
    >>> from collopt.topologies import dgx_a100
    >>> guessed_costs("generic", dgx_a100(boxes=2))
    RuntimeCosts(alpha=10, send=1/2, efficiency={'gpu-nic': 9/10, 'gpu-nvswitch': 7/10, 'nic-ib': 9/10})
    """
    if name == "links":
        return LINKS_ONLY
    if not isinstance(name, str) or name not in GUESSES:
        expected = "one of" if isinstance(name, str) else "RuntimeCosts, or one of"
        raise UnsupportedError(f"there are no costs {shown(name)}; expected {expected} links, {', '.join(GUESSES)}")
    kinds = dict.fromkeys(link_class.kinds for link_class in link_classes(topology))
    shares = {kind: next((SHARES[part] for part in SHARES if part in kind), OTHER_SHARE) for kind in kinds}
    return RuntimeCosts(*GUESSES[name], efficiency=shares)


def as_costs(value: RuntimeCosts | CostsName | None, topology: Topology) -> RuntimeCosts:
    """Return the costs given, guessed by name, or None: the topology's own, by default `LINKS_ONLY`.

    A share of a link class that the network does not have raises `TopologyError`.
    """
    if value is not None and not isinstance(value, RuntimeCosts):
        return guessed_costs(value, topology)
    costs = value or topology.costs or LINKS_ONLY
    if costs.efficiency:
        reached_network(topology, costs)
    return costs


def reached_network(topology: Topology, costs: RuntimeCosts) -> Topology:
    """Return the network with the bandwidths that data reaches; nodes and the order of links stay.

    Its own costs stay, without their efficiency.  A share of a link class that the network does not have raises
    `TopologyError`.

    Parameters
    ----------
    topology : Topology
        The network at line rate; it is returned itself where no share is below 1.
    costs : RuntimeCosts
        Only `RuntimeCosts.efficiency` matters.
    """
    return _reached(topology, costs, topology.name, topology.costs) if costs.efficiency else topology


@lru_cache(maxsize=CACHED)
def _reached(topology: Topology, costs: RuntimeCosts, name: str, stated: RuntimeCosts | None) -> Topology:
    """Compute `reached_network`; topologies that differ in name or costs alone are equal, but not for the cache."""
    shares, classes = dict(costs.efficiency), link_classes(topology)
    matching_classes(classes, shares)  # a misspelt name would make times too short
    reached = {
        link[:2]: shares.get(link_class.name, shares.get(link_class.kinds, Fraction(1)))
        for link_class in classes
        for link in link_class.links
    }
    if all(share == 1 for share in reached.values()):
        return topology
    links = tuple(link._replace(bandwidth=link.bandwidth * reached[link[:2]]) for link in topology.links)
    return replace(topology, links=links, name=name, costs=stated and replace(stated, efficiency=()))


@lru_cache(maxsize=CACHED)
def timed_network(topology: Topology, costs: RuntimeCosts) -> Topology:
    """Return links of `reached_network`, those that leave ranks with the times of alpha and of starting a message."""
    network, delay = reached_network(topology, costs), costs.alpha + costs.send
    if not delay:
        return network
    ranks = set(topology.compute_nodes)
    links = (link._replace(latency=link.latency + delay) if link.tail in ranks else link for link in network.links)
    return replace(network, links=tuple(links))
