"""Topologies from networkx graphs and back."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import TopologyError
from ...support.validation import shown
from .topology import Topology

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["from_networkx", "to_networkx"]

ABILITIES = ("multicast", "aggregation")


def from_networkx(
    graph: nx.Graph,
    *,
    bandwidth: str = "bandwidth",
    latency: str = "latency",
    kind: str = "kind",
    name: str | None = None,
) -> Topology:
    """Read a networkx graph; the graph itself is left alone.

    Parameters
    ----------
    graph : networkx.Graph, DiGraph, MultiGraph or MultiDiGraph
        Edges of an undirected graph count in both directions; parallel edges add their bandwidths and keep the larger
        latency.  Nodes that are neither text nor integers are named by their ``str``.
    bandwidth : str
        Edge attribute with GB/s in each direction; every edge needs it.
    latency : str
        Edge attribute with microseconds, 0 where absent.
    kind : str
        Node attribute, ``"compute"`` or ``"switch"``: every node has it, or none, and then all are compute nodes.  A
        switch may further have the attributes ``multicast`` and ``aggregation``, True or False.
    name : str, optional
        For people; by default the graph's own name.

    Returns
    -------
    Topology
        Ranks in the order of the graph's nodes.

    Raises
    ------
    TopologyError
        For something that is not a networkx graph, an unknown kind or one that only some nodes have, a missing or
        unusable bandwidth, two nodes of one name, self-loops, or fewer than two compute nodes.

    Examples
    --------
    >>> import networkx as nx
    >>> graph = nx.cycle_graph(3)
    >>> nx.set_edge_attributes(graph, 25, "capacity")
    >>> from_networkx(graph, bandwidth="capacity", name="triangle")
    <Topology 'triangle': 3 ranks, 6 links>
    """
    import networkx as nx

    if not isinstance(graph, nx.Graph):
        raise TopologyError(f"the graph is a {type(graph).__name__}; expected a networkx graph")
    for option, attribute in (("bandwidth", bandwidth), ("latency", latency), ("kind", kind)):
        if not isinstance(attribute, str):
            raise TopologyError(f"{option} is {shown(attribute)}; expected the name of an attribute")
    names = _node_names(graph)
    kinds = _kinds(graph, names, kind)
    return Topology.from_links(
        _links(graph, names, bandwidth, latency),
        compute=[names[node] for node, kind_of_node in kinds.items() if kind_of_node == "compute"],
        switches=[names[node] for node, kind_of_node in kinds.items() if kind_of_node == "switch"],
        bidirectional=not isinstance(graph, nx.DiGraph),
        multicast=_able(graph, names, "multicast"),
        aggregation=_able(graph, names, "aggregation"),
        name=name if name is not None else str(graph.name or "topology"),
    )


def to_networkx(topology: Topology) -> nx.DiGraph:
    """Write a topology as a directed graph that `from_networkx` reads back as the same network.

    Parameters
    ----------
    topology : Topology
        Left alone.

    Returns
    -------
    networkx.DiGraph
        Compute nodes in rank order, then switches, with the attribute ``kind`` and, on switches that have them,
        ``multicast`` and ``aggregation``; edges with ``bandwidth`` and ``latency`` as fractions.

    Raises
    ------
    TopologyError
        If it is not a topology.

    Notes
    -----
    networkx groups edges by node, so the way back may list the links in another order; the digest stays the same.

    Examples
    --------
    >>> ring = Topology.from_links([("a", "b", 25), ("b", "a", 25)], compute=["a", "b"])
    >>> to_networkx(ring).edges["a", "b"]["bandwidth"]
    Fraction(25, 1)
    """
    import networkx as nx

    if not isinstance(topology, Topology):
        raise TopologyError(f"the topology is a {type(topology).__name__}; expected a Topology")
    graph = nx.DiGraph(name=topology.name)
    graph.add_nodes_from(topology.compute_nodes, kind="compute")
    for switch in topology.switch_nodes:
        able = {ability: True for ability in ABILITIES if switch in getattr(topology, ability)}
        graph.add_node(switch, kind="switch", **able)
    for link in topology.links:
        graph.add_edge(link.tail, link.head, bandwidth=link.bandwidth, latency=link.latency)
    return graph


def _node_names(graph: nx.Graph) -> dict[Hashable, str]:
    names: dict[Hashable, str] = {}
    owners: dict[str, Hashable] = {}
    for node in graph.nodes:
        name = node if isinstance(node, str) else str(node)
        if name in owners:
            raise TopologyError(
                f"nodes {shown(owners[name])} and {shown(node)} of the graph would both be called {shown(name)}; "
                "rename one, for example with networkx.relabel_nodes"
            )
        names[node], owners[name] = name, node
    return names


def _kinds(graph: nx.Graph, names: Mapping[Hashable, str], attribute: str) -> dict[Hashable, str]:
    without = [node for node, data in graph.nodes(data=True) if attribute not in data]
    if without and len(without) == len(graph):
        return dict.fromkeys(graph.nodes, "compute")
    if without:
        # Taking them for compute nodes would make ranks of forgotten switches.
        raise TopologyError(
            f"node {shown(names[without[0]])} of the graph has no attribute {attribute!r}, while others have; give "
            "every node 'compute' or 'switch', or none if all are compute nodes"
        )
    return {node: _kind_of(names[node], value, attribute) for node, value in graph.nodes(data=attribute)}


def _kind_of(name: str, kind: object, attribute: str) -> str:
    if not isinstance(kind, str) or kind not in ("compute", "switch"):
        raise TopologyError(
            f"attribute {attribute!r} of node {shown(name)} is {shown(kind)}; expected 'compute' or 'switch'"
        )
    return kind


def _links(
    graph: nx.Graph, names: Mapping[Hashable, str], bandwidth: str, latency: str
) -> Iterator[tuple[str, str, Any, Any]]:
    for tail, head, data in graph.edges(data=True):
        if data.get(bandwidth) is None:
            raise TopologyError(
                f"edge ({shown(names[tail])}, {shown(names[head])}) has no attribute {bandwidth!r}; "
                "expected a positive number of GB/s, or name the attribute that holds it"
            )
        yield names[tail], names[head], data[bandwidth], data.get(latency, 0)


def _able(graph: nx.Graph, names: Mapping[Hashable, str], ability: str) -> list[str]:
    able = []
    for node, value in graph.nodes(data=ability, default=False):
        if not isinstance(value, bool):
            raise TopologyError(
                f"attribute {ability!r} of node {shown(names[node])} is {shown(value)}; expected True or False"
            )
        if value:
            able.append(names[node])
    return able
