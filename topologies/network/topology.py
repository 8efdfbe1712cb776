"""`Topology`: a validated, immutable network of ranks, switches and directed links."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...errors import ColloptError, TopologyError, UnsupportedError
from ...support.arrays import IntArray
from ...support.packages import Viewed
from ...support.quantities import Exact, as_bandwidth, as_latency
from ...support.validation import as_flag, as_kind, as_list, as_name, as_names, as_title, check_links, shown
from .devices import Device, as_devices
from .direct_graph import DirectGraph
from .links import (
    Link,
    LinkArrays,
    LinkColumns,
    LinkLookup,
    as_link,
    checked_columns,
    link_arrays,
    link_columns,
    merged_links,
    sorted_rows,
)
from .runtime_costs import RuntimeCosts
from .switch_limits import SwitchLimits, as_switch_limits, check_ports
from .what_if import WhatIf

if TYPE_CHECKING:
    import networkx as nx


__all__ = ["Device", "Link", "LinkArrays", "SwitchLimits", "Topology"]


@dataclass(frozen=True)
class Topology(WhatIf, Viewed):
    """A network of compute nodes (ranks) and switches joined by directed links.

    Build one with `Topology.from_links`, `Topology.from_networkx`, `read_topology` or a function of
    `collopt.topologies`; the constructor validates everything.

    Attributes
    ----------
    compute_nodes : tuple of str
        In rank order: ``compute_nodes[r]`` is rank ``r``.
    switch_nodes : tuple of str
        Nodes that forward data but neither produce nor consume it (switches, NICs, fabrics).
    links : tuple of Link
        At most one per ordered pair of nodes; parallel links are merged on entry.
    multicast, aggregation : frozenset of str
        Switches with in-network multicast, or in-network reduction (ForestColl section 5.6).
    limits : tuple of SwitchLimits
        Limits of these switches, sorted by switch; switches without limits are left out.
    name : str
        For display; it does not count in comparisons.
    costs : RuntimeCosts or None
        Costs of the software, if they are known; they do not count in comparisons.
    devices : tuple of Device
        GPUs and NICs as their machines name them, where that is known; they do not count in comparisons.
    graph : DirectGraph or None
        The multigraph of a direct-connect family or expansion, with the self-loops and parallel arcs that `links` does
        not have.  Files and changed topologies do not keep it; see `direct_graph`.
    """

    compute_nodes: tuple[str, ...]
    switch_nodes: tuple[str, ...]
    links: tuple[Link, ...]
    multicast: frozenset[str] = frozenset()
    aggregation: frozenset[str] = frozenset()
    name: str = field(default="topology", compare=False)
    limits: tuple[SwitchLimits, ...] = ()
    costs: RuntimeCosts | None = field(default=None, compare=False)
    devices: tuple[Device, ...] = field(default=(), compare=False)
    graph: DirectGraph | None = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Check the whole description once."""
        as_title(self.name, "the topology's name")
        compute = as_names(self.compute_nodes, "compute")
        switches = as_names(self.switch_nodes, "switch")
        object.__setattr__(self, "compute_nodes", compute)
        object.__setattr__(self, "switch_nodes", switches)
        if twice := set(compute).intersection(switches):
            raise TopologyError(f"node {min(twice)!r} is listed as compute and as switch; choose one kind")
        if len(compute) < 2:
            raise TopologyError(f"a collective needs at least 2 compute nodes; the topology has {len(compute)}")
        if isinstance(self.links, LinkColumns):
            object.__setattr__(self, "columns", checked_columns(self.links, self.nodes))
            object.__delattr__(self, "links")
        else:
            object.__setattr__(self, "links", merged_links(self.links, self.node_index))
        for ability in ("multicast", "aggregation"):
            capable = frozenset(as_name(node) for node in as_list(getattr(self, ability), f"{ability} switches"))
            if unknown := sorted(capable - set(switches)):
                raise TopologyError(f"{ability} is claimed for {unknown[0]!r}, which is not a switch of this topology")
            object.__setattr__(self, ability, capable)
        object.__setattr__(self, "limits", as_switch_limits(self.limits, set(switches)))
        if not isinstance(self.costs, RuntimeCosts | None):
            raise TopologyError(f"the topology's costs are {shown(self.costs)}; expected RuntimeCosts(alpha=2, ...)")
        object.__setattr__(self, "devices", as_devices(self.devices, self.nodes))

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
        limits: Iterable[SwitchLimits] = (),
        name: str = "topology",
    ) -> Topology:
        """Build a topology from ``(tail, head, bandwidth[, latency])`` tuples.

        Raises `TopologyError` for unknown or repeated nodes, self-loops, bandwidths that are not positive finite
        numbers, fewer than two compute nodes, or a switch that multicasts or reduces with fewer than two neighbors.

        Parameters
        ----------
        links : iterable of tuple
            Bandwidth in GB/s, latency in µs (default 0).  Parallel links add up; the larger latency stays.
        compute, switches : iterable of str or int
            The nodes; the order of `compute` is the rank order.
        bidirectional : bool
            Add the opposite of every link, with the same figures.
        multicast, aggregation : iterable of str
            Switch abilities.
        limits : iterable of SwitchLimits
            Limits of these switches.
        name : str
            For display.

        Examples
        --------
        >>> ring = Topology.from_links([("a", "b", 25), ("b", "c", 25), ("c", "a", 25)], compute=["a", "b", "c"])
        >>> ring.link("a", "b").bandwidth
        Fraction(25, 1)
        """
        one_way: Iterable[Link] = map(as_link, as_list(links, "the links"))
        if as_flag(bidirectional, "bidirectional"):
            one_way = (way for link in one_way for way in (link, link._replace(tail=link.head, head=link.tail)))
        return cls._checked(tuple(one_way), compute, switches, multicast, aggregation, limits, name)

    @classmethod
    def from_arrays(
        cls,
        tails: npt.ArrayLike,
        heads: npt.ArrayLike,
        kinds: npt.ArrayLike,
        rates: Sequence[tuple[Exact, Exact]],
        *,
        compute: Iterable[object],
        switches: Iterable[object] = (),
        multicast: Iterable[str] = (),
        aggregation: Iterable[str] = (),
        limits: Iterable[SwitchLimits] = (),
        name: str = "topology",
    ) -> Topology:
        """Build a topology of up to millions of links from arrays; `links` is made when it is first read.

        Raises `TopologyError` as `from_links` does, and for parallel links.

        Parameters
        ----------
        tails, heads : array_like of int, shape (links,)
            The nodes that each directed link leaves and enters, numbered as in `nodes`: compute nodes, then switches.
        kinds : array_like of int, shape (links,)
            Which of `rates` each link has.
        rates : sequence of (bandwidth, latency)
            GB/s and µs of each kind of link.
        compute, switches, multicast, aggregation, limits, name
            As for `from_links`.
        """
        columns: Any = LinkColumns(tails, heads, kinds, rates)  # type: ignore[arg-type]
        return cls._checked(columns, compute, switches, multicast, aggregation, limits, name)

    @classmethod
    def _checked(
        cls, links: Any, compute: Any, switches: Any, multicast: Any, aggregation: Any, limits: Any, name: str
    ) -> Topology:
        nodes = as_list(compute, "compute nodes"), as_list(switches, "switch nodes")
        topology = cls(*nodes, links, multicast, aggregation, name, limits)
        topology.check_ports()
        return topology

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
        """Convert a networkx graph, whose nodes are the ranks in their order.

        Raises `TopologyError` as `from_links` does, and for unknown kinds, or kinds of some nodes only.

        Parameters
        ----------
        graph : networkx.Graph, DiGraph, MultiGraph or MultiDiGraph
            Edges of an undirected graph count in both directions; parallel edges are merged.  Nodes that are neither
            text nor integers are named by their ``str``.
        bandwidth : str
            Edge attribute with GB/s in each direction; every edge needs it.
        latency : str
            Edge attribute with microseconds, 0 where absent.
        kind : str
            Node attribute, ``"compute"`` or ``"switch"``: every node has it, or none, and then all are compute nodes.
            A switch may have the attributes ``multicast`` and ``aggregation``, and those of `SwitchLimits`.
        name : str, optional
            For display; by default the graph's own name.

        Examples
        --------
        >>> import networkx as nx
        >>> graph = nx.cycle_graph(3)
        >>> nx.set_edge_attributes(graph, 25, "capacity")
        >>> Topology.from_networkx(graph, bandwidth="capacity", name="triangle")
        <Topology 'triangle': 3 ranks, 6 links>
        """
        from .networkx_graphs import from_links_arguments

        return cls.from_links(**from_links_arguments(graph, bandwidth=bandwidth, latency=latency, kind=kind, name=name))

    def to_networkx(self) -> nx.DiGraph:
        """Convert to a directed graph that `from_networkx` converts back to the same network.

        Nodes and edges have the attributes of `from_networkx`, bandwidths and latencies as fractions.  Converting back
        may reorder the links; the digest stays the same.
        """
        import networkx as nx

        graph = nx.DiGraph(name=self.name)
        graph.add_nodes_from(self.compute_nodes, kind="compute")
        for switch in self.switch_nodes:
            capable = {ability: True for ability in ("multicast", "aggregation") if switch in getattr(self, ability)}
            graph.add_node(switch, kind="switch", **capable, **self.limits_of.get(switch, {}))
        for link in self.links:
            graph.add_edge(link.tail, link.head, bandwidth=link.bandwidth, latency=link.latency)
        return graph

    @classmethod
    def from_graph(
        cls,
        graph: DirectGraph,
        *,
        bandwidth: Exact = 1,
        latency: Exact = 0,
        names: Sequence[str] | None = None,
        name: str | None = None,
    ) -> Topology:
        """Convert a direct-connect graph: parallel arcs are merged into one link, and self-loops are dropped.

        Parameters
        ----------
        graph : DirectGraph
            Kept as the topology's `graph`.
        bandwidth, latency : int, float, str or Fraction
            GB/s and µs of each arc.
        names : sequence of str, optional
            Of the ranks; ``gpu0``, ``gpu1``, ... by default.
        name : str, optional
            Of the topology; the graph's by default.

        Examples
        --------
        >>> from collopt.topologies import DirectGraph
        >>> graph = DirectGraph.from_arcs(2, [(0, 0), (0, 1), (0, 1), (1, 0), (1, 0), (1, 1)], "pair")
        >>> Topology.from_graph(graph, bandwidth=25).link("gpu0", "gpu1").bandwidth
        Fraction(50, 1)
        """
        as_kind(graph, DirectGraph, "the graph", error=TopologyError)
        speed, delay = as_bandwidth(bandwidth, graph.name), as_latency(latency, graph.name)
        ranks = (
            [f"gpu{node}" for node in range(graph.num_nodes)] if names is None else list(as_list(names, "the names"))
        )
        if len(ranks) != graph.num_nodes:
            raise TopologyError(
                f"the names are {shown(ranks)}; expected one for each of the {graph.num_nodes} nodes of {graph.name}"
            )
        tails, heads, counts = graph.adjacency
        times, kinds = np.unique(counts, return_inverse=True)
        rates = [(speed * count, delay) for count in times.tolist()]
        title = graph.name if name is None else name
        topology = cls.from_arrays(tails, heads, kinds, rates, compute=ranks, name=title)
        object.__setattr__(topology, "graph", graph)
        return topology

    def direct_graph(self) -> DirectGraph:
        """Return a network without switches as a multigraph; k units of bandwidth become k parallel arcs.

        A topology of a family or an expansion returns its `graph`, self-loops included.  Switches, or bandwidths so
        different that there would be too many arcs, raise `UnsupportedError`.
        """
        if self.graph is not None:
            return self.graph
        if self.switch_nodes:
            raise UnsupportedError(
                f"{self} has switches, such as {self.switch_nodes[0]!r}; expected direct links between ranks"
            )
        arrays = self.arrays
        try:
            check_links(sum(arrays.capacities.tolist()), f"{self.name} as links of {arrays.unit} GB/s each")
        except TopologyError as error:
            raise UnsupportedError(f"{error} or round its bandwidths to fewer digits") from None
        tails, heads = (np.repeat(end, arrays.capacities) for end in (arrays.tails, arrays.heads))
        return DirectGraph(self.num_ranks, tails, heads, self.name)

    @property
    def num_ranks(self) -> int:
        """Number of compute nodes."""
        return len(self.compute_nodes)

    @property
    def num_links(self) -> int:
        """Number of directed links."""
        return len(self.columns.tails)

    @cached_property
    def columns(self) -> LinkColumns:
        """The links as arrays of their ends and kinds."""
        return link_columns(self.links, self.node_index)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> tuple[Link, ...]:
            """Make `links` of columns when it is first read."""
            if name != "links" or "columns" not in self.__dict__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            object.__setattr__(self, name, self.columns.links(self.nodes))
            return self.links

    def __eq__(self, other: object) -> bool:
        """Compare nodes, abilities and links, without making `links` of columns."""
        if not isinstance(other, Topology):
            return NotImplemented
        mine, theirs = (
            (topology.compute_nodes, topology.switch_nodes, topology.multicast, topology.aggregation, topology.limits)
            for topology in (self, other)
        )
        return mine == theirs and self.columns.equal(other.columns)

    def __hash__(self) -> int:
        """Equal for equal networks."""
        return hash(self.digest)

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Compute nodes in rank order, then switches."""
        return self.compute_nodes + self.switch_nodes

    @cached_property
    def node_index(self) -> Mapping[str, int]:
        """Position of each node in `nodes`."""
        return {node: index for index, node in enumerate(self.nodes)}

    @cached_property
    def _lookup(self) -> LinkLookup:
        return LinkLookup(self.columns.tails, self.columns.heads, len(self.nodes))

    def link_places(self, tails: IntArray, heads: IntArray) -> IntArray:
        """Return the places in `links` of the links between nodes, given by number; -1 where there is none."""
        return self._lookup.places(tails, heads)

    def crossing_links(self, nodes: Iterable[str], *, entering: bool) -> IntArray:
        """Return the places in `links` of the links that leave, or enter, a set of nodes."""
        return self._lookup.crossing(
            np.array([self.node_index[node] for node in nodes], dtype=np.int64), entering=entering
        )

    def link_at(self, place: int) -> Link:
        """Return the link at a place of `links`."""
        tail, head, kind = (int(column[place]) for column in self.columns[:3])
        return Link(self.nodes[tail], self.nodes[head], *self.columns.rates[kind])

    def link(self, tail: str, head: str) -> Link:
        """Return the link from `tail` to `head`, or raise `TopologyError` if there is none."""
        self._check_nodes((tail, head))
        place = self._lookup.place(self.node_index[tail], self.node_index[head])
        if place is None:
            raise TopologyError(f"there is no link ({tail!r}, {head!r}) in {self}")
        return self.link_at(place)

    def out_links(self, node: str) -> tuple[Link, ...]:
        """Links that leave `node`."""
        self._check_nodes((node,))
        return tuple(map(self.link_at, self._lookup.at(self.node_index[node], entering=False)))

    def in_links(self, node: str) -> tuple[Link, ...]:
        """Links that enter `node`."""
        self._check_nodes((node,))
        return tuple(map(self.link_at, self._lookup.at(self.node_index[node], entering=True)))

    def egress(self, node: str) -> Fraction:
        """Total bandwidth leaving `node`, GB/s: B+(v)."""
        return sum((link.bandwidth for link in self.out_links(node)), Fraction(0))

    def ingress(self, node: str) -> Fraction:
        """Total bandwidth entering `node`, GB/s: B-(v)."""
        return sum((link.bandwidth for link in self.in_links(node)), Fraction(0))

    @cached_property
    def arrays(self) -> LinkArrays:
        """The links as int64 arrays with one exact unit; `CapacityOverflowError` if bandwidths and sum have none."""
        return link_arrays(self.columns)

    def check_ports(self) -> None:
        """Raise `TopologyError` if a switch that multicasts or aggregates has fewer than two neighbors."""
        if abilities := self.multicast | self.aggregation:
            check_ports(abilities, self.node_index, self.columns.tails, self.columns.heads)

    @cached_property
    def loopback(self) -> frozenset[str]:
        """Switches that also send a copy back to the sender; see `SwitchLimits`."""
        return frozenset(limits.switch for limits in self.limits if limits.loopback)

    @property
    def relays(self) -> frozenset[str]:
        """Compute nodes outside the group that only forward data; see `restrict`."""
        return frozenset(limits.switch for limits in self.limits if limits.relay)

    @cached_property
    def limits_of(self) -> Mapping[str, dict[str, object]]:
        """Limits of each switch by their names."""
        return {limits.switch: limits.stated for limits in self.limits}

    @cached_property
    def _devices_by_node(self) -> Mapping[str, Device]:
        return {device.node: device for device in self.devices}

    def device(self, node: str) -> Device:
        """Return the device of a node; nothing is stated of it if it is not known."""
        names = self._devices_by_node
        return names.get(node) or names.get(node.rpartition("/")[2]) or Device(node)

    def without_abilities(self) -> Topology:
        """Return the network whose switches only forward data."""
        relays = tuple(SwitchLimits(relay, relay=True) for relay in self.relays)
        return self.changed(multicast=frozenset(), aggregation=frozenset(), limits=relays)

    def changed(self, **fields: object) -> Topology:
        """Replace fields other than nodes, as `dataclasses.replace` does, without making links of columns."""
        changes: Any = {"links": self.columns, **fields}
        return replace(self, **changes)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the network itself (not of its name): equal digests mean equal networks."""
        nodes = [self.compute_nodes, self.switch_nodes]
        abilities = [sorted(self.multicast), sorted(self.aggregation), *([self.limits] if self.limits else [])]
        before, after = (json.dumps(part, separators=(",", ":")) for part in (nodes, abilities))
        digest = hashlib.sha256()
        for text in chain((before[:-1], ",["), sorted_rows(self.columns, self.nodes), ("],", after[1:])):
            digest.update(text.encode())
        return digest.hexdigest()

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        """Name and size in angle brackets."""
        number = len(self.switch_nodes)
        switches = f", {number} switch{'es' if number > 1 else ''}" if number else ""
        return f"<Topology {self.name!r}: {self.num_ranks} ranks{switches}, {self.num_links} links>"

    def _check_nodes(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            if not isinstance(node, str) or node not in self.node_index:
                raise TopologyError(f"node {shown(node)} is not in {self}")


def as_topology(value: object, error: type[ColloptError] = UnsupportedError) -> Topology:
    """Return `value` if it is a topology; raise the error for anything else."""
    return as_kind(value, Topology, "the topology", hint=", such as collopt.topologies.ring(4)", error=error)
