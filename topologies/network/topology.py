"""The one description of a network that everything else in collopt works on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from ...errors import TopologyError
from ...support.quantities import Exact
from ...support.validation import as_flag, as_list, as_name, as_names, as_title, shown
from . import what_if
from .links import Link, LinkArrays, as_link, grouped, link_arrays, merged_links

if TYPE_CHECKING:
    import networkx as nx

    from .direct_graph import DirectGraph

__all__ = ["Link", "LinkArrays", "Topology"]


@dataclass(frozen=True)
class Topology:
    """A network of compute nodes (ranks) and switches joined by directed links.

    Build one with `Topology.from_links`, `Topology.from_networkx`, `read_topology` or a function of
    `collopt.topologies`; the constructor checks everything once, so every other part of collopt may rely on it.

    Attributes
    ----------
    compute_nodes : tuple of str
        In rank order: ``compute_nodes[r]`` is rank ``r``.
    switch_nodes : tuple of str
        Nodes that forward data but neither produce nor consume it (switches, NICs, fabrics).
    links : tuple of Link
        At most one per ordered pair of nodes; parallel links are merged on entry.
    multicast, aggregation : frozenset of str
        Switches that can copy, or add up, data on its way (ForestColl section 5.6).
    name : str
        For people; two topologies that differ only here are the same network.
    graph : DirectGraph or None
        Of a direct-connect family or expansion, its arcs with self-loops and parallel links, of which `links` knows
        nothing.  Files and changed topologies do not keep it; see `DirectGraph.of`.

    Examples
    --------
    >>> ring = Topology.from_links([("a", "b", 25), ("b", "c", 25), ("c", "a", 25)], compute=["a", "b", "c"])
    >>> ring.link("a", "b").bandwidth
    Fraction(25, 1)
    """

    compute_nodes: tuple[str, ...]
    switch_nodes: tuple[str, ...]
    links: tuple[Link, ...]
    multicast: frozenset[str] = frozenset()
    aggregation: frozenset[str] = frozenset()
    name: str = field(default="topology", compare=False)
    graph: DirectGraph | None = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Check the whole description once."""
        as_title(self.name, "the topology's name")
        compute = as_names(self.compute_nodes, "compute")
        switches = as_names(self.switch_nodes, "switch")
        known = {**dict.fromkeys(compute, "compute"), **dict.fromkeys(switches, "switch")}
        if len(known) < len(compute) + len(switches):
            twice = min(set(compute) & set(switches))
            raise TopologyError(f"node {twice!r} is listed as compute and as switch; choose one kind")
        if len(compute) < 2:
            raise TopologyError(f"the topology has {len(compute)} compute nodes; a collective needs at least 2")
        object.__setattr__(self, "compute_nodes", compute)
        object.__setattr__(self, "switch_nodes", switches)
        object.__setattr__(self, "links", merged_links(self.links, known))
        for ability in ("multicast", "aggregation"):
            able = frozenset(as_name(node) for node in as_list(getattr(self, ability), f"{ability} switches"))
            if stranger := sorted(able - set(switches)):
                raise TopologyError(f"{ability} is claimed for {stranger[0]!r}, which is not a switch of this topology")
            object.__setattr__(self, ability, able)

    @classmethod
    def from_links(
        cls,
        links: Iterable[Link | tuple[object, object, Exact] | tuple[object, object, Exact, Exact]],
        *,
        compute: Iterable[object],
        switches: Iterable[object] = (),
        bidirectional: bool = False,
        multicast: Iterable[str] = (),
        aggregation: Iterable[str] = (),
        name: str = "topology",
    ) -> Topology:
        """Build a topology from ``(tail, head, bandwidth[, latency])`` tuples.

        Parameters
        ----------
        links : iterable of tuple
            Bandwidth in GB/s, latency in µs (default 0).  Parallel links add their bandwidths and keep the larger
            latency.
        compute, switches : iterable of str or int
            The nodes; the order of `compute` is the rank order.
        bidirectional : bool
            Add the opposite of every link, with the same figures.
        multicast, aggregation : iterable of str
            Switch abilities.
        name : str
            For people.

        Returns
        -------
        Topology

        Raises
        ------
        TopologyError
            Unknown or repeated nodes, self-loops, bandwidths that are not positive finite numbers, fewer than two
            compute nodes.
        """
        exact = []
        both = as_flag(bidirectional, "bidirectional")
        for entry in as_list(links, "the links"):
            link = as_link(entry)
            exact.append(link)
            if both:
                exact.append(link._replace(tail=link.head, head=link.tail))
        return cls(
            as_list(compute, "compute nodes"),
            as_list(switches, "switch nodes"),
            tuple(exact),
            as_list(multicast, "multicast switches"),  # type: ignore[arg-type]
            as_list(aggregation, "aggregation switches"),  # type: ignore[arg-type]
            name,
        )

    @classmethod
    def from_networkx(
        cls,
        graph: nx.Graph,
        *,
        bandwidth: str = "bandwidth",
        latency: str = "latency",
        kind: str = "kind",
        name: str | None = None,
    ) -> Topology:
        """Read a networkx graph; see `collopt.topologies.network.networkx_graphs.from_networkx`."""
        from .networkx_graphs import from_networkx

        return from_networkx(graph, bandwidth=bandwidth, latency=latency, kind=kind, name=name)

    def to_networkx(self) -> nx.DiGraph:
        """Return the topology as a `networkx.DiGraph`; see `collopt.topologies.network.networkx_graphs.to_networkx`."""
        from .networkx_graphs import to_networkx

        return to_networkx(self)

    @property
    def num_ranks(self) -> int:
        """How many compute nodes there are."""
        return len(self.compute_nodes)

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Compute nodes in rank order, then switches."""
        return self.compute_nodes + self.switch_nodes

    @cached_property
    def node_index(self) -> Mapping[str, int]:
        """Position of each node in `nodes`."""
        return {node: index for index, node in enumerate(self.nodes)}

    @cached_property
    def _link_index(self) -> Mapping[tuple[str, str], int]:
        return {(link.tail, link.head): index for index, link in enumerate(self.links)}

    def link(self, tail: str, head: str) -> Link:
        """Return the link from `tail` to `head`, or raise `TopologyError` if there is none."""
        self._check_nodes((tail, head))
        number = self._link_index.get((tail, head))
        if number is None:
            raise TopologyError(f"there is no link ({tail!r}, {head!r}) in {self!r}")
        return self.links[number]

    @cached_property
    def _out_links(self) -> Mapping[str, tuple[Link, ...]]:
        return grouped(self.nodes, ((link.tail, link) for link in self.links))

    @cached_property
    def _in_links(self) -> Mapping[str, tuple[Link, ...]]:
        return grouped(self.nodes, ((link.head, link) for link in self.links))

    def out_links(self, node: str) -> tuple[Link, ...]:
        """Links that leave `node`."""
        self._check_nodes((node,))
        return self._out_links[node]

    def in_links(self, node: str) -> tuple[Link, ...]:
        """Links that enter `node`."""
        self._check_nodes((node,))
        return self._in_links[node]

    def egress(self, node: str) -> Fraction:
        """Total bandwidth leaving `node`, GB/s: B+(v)."""
        return sum((link.bandwidth for link in self.out_links(node)), Fraction(0))

    def ingress(self, node: str) -> Fraction:
        """Total bandwidth entering `node`, GB/s: B-(v)."""
        return sum((link.bandwidth for link in self.in_links(node)), Fraction(0))

    @cached_property
    def arrays(self) -> LinkArrays:
        """The links as int64 arrays with one exact unit.

        Raises
        ------
        CapacityOverflowError
            If no common unit brings every bandwidth, and their sum, into int64.
        """
        return link_arrays(self.links, self.node_index)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the network itself (not of its name): equal digests mean equal networks."""
        content = [
            self.compute_nodes,
            self.switch_nodes,
            [(link.tail, link.head, str(link.bandwidth), str(link.latency)) for link in sorted(self.links)],
            sorted(self.multicast),
            sorted(self.aggregation),
        ]
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()

    def restrict(self, ranks: Iterable[int | str]) -> Topology:
        """Keep only the given ranks (indices or names, in the new rank order) and drop the other compute nodes.

        Links of dropped compute nodes disappear, as in the paper's MI250 8+8 setting; switches left without a link
        disappear too.

        Raises
        ------
        TopologyError
            For an unknown or repeated rank, or if fewer than two remain.
        """
        return what_if.restrict(self, ranks)

    def without_link(self, tail: str, head: str, *, bidirectional: bool = True) -> Topology:
        """Remove the link from `tail` to `head`, and its opposite if `bidirectional` and present."""
        return what_if.without_link(self, tail, head, bidirectional=bidirectional)

    def without_node(self, node: str) -> Topology:
        """Remove a failed GPU, NIC or switch with all its links.

        Ranks after a removed one move up; switches left without a link disappear too.

        Raises
        ------
        TopologyError
            For an unknown node, or if fewer than two ranks remain.
        """
        self._check_nodes((node,))
        return what_if.without_node(self, node)

    def derate(self, tail: str, head: str, factor: Exact, *, bidirectional: bool = True) -> Topology:
        """Multiply the bandwidth of one link (and of its opposite if `bidirectional`) by `factor`."""
        return what_if.derate(self, tail, head, factor, bidirectional=bidirectional)

    def with_bandwidths(self, bandwidths: Mapping[tuple[str, str], Exact]) -> Topology:
        """Give links other bandwidths, such as what a model leaves to a collective; a link of 0 GB/s disappears.

        Parameters
        ----------
        bandwidths : mapping of (str, str) to number
            GB/s by ``(tail, head)``; links that are not named keep theirs.

        Returns
        -------
        Topology

        Raises
        ------
        TopologyError
            If there is no such link, or a bandwidth is negative or no number.

        Examples
        --------
        >>> triangle = Topology.from_links([("a", "b", 2), ("b", "c", 2), ("c", "a", 2)], compute="abc")
        >>> triangle.with_bandwidths({("a", "b"): "1/3"}).links[0].bandwidth
        Fraction(1, 3)
        """
        return what_if.with_bandwidths(self, bandwidths)

    def scaled(self, factor: Exact) -> Topology:
        """Multiply every bandwidth by `factor`."""
        return what_if.scaled(self, factor)

    def __repr__(self) -> str:
        """Name and size; `str` and `repr` are the same on purpose."""
        switches = f", {len(self.switch_nodes)} switches" if self.switch_nodes else ""
        return f"<Topology {self.name!r}: {self.num_ranks} ranks{switches}, {len(self.links)} links>"

    def _check_nodes(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            if not isinstance(node, str) or node not in self.node_index:
                raise TopologyError(f"node {shown(node)} is not in {self!r}")
