"""Conversion of networkx graphs to the arguments of `Topology.from_links`."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import TopologyError
from ...support.validation import shown
from .switch_limits import SwitchLimits

if TYPE_CHECKING:
    import networkx as nx


def from_links_arguments(
    graph: nx.Graph, *, bandwidth: str, latency: str, kind: str, name: str | None
) -> dict[str, Any]:
    """Return the arguments of `Topology.from_links` for a networkx graph."""
    import networkx as nx

    if not isinstance(graph, nx.Graph):
        raise TopologyError(f"the graph is a {type(graph).__name__}; expected a networkx graph")
    for option, attribute in (("bandwidth", bandwidth), ("latency", latency), ("kind", kind)):
        if not isinstance(attribute, str):
            raise TopologyError(f"{option} is {shown(attribute)}; expected the name of an attribute")
    names = _node_names(graph)
    kinds = _kinds(graph, names, kind)
    return {
        "links": _links(graph, names, bandwidth, latency),
        "compute": [names[node] for node, kind_of_node in kinds.items() if kind_of_node == "compute"],
        "switches": [names[node] for node, kind_of_node in kinds.items() if kind_of_node == "switch"],
        "bidirectional": not isinstance(graph, nx.DiGraph),
        "multicast": _capable(graph, names, "multicast"),
        "aggregation": _capable(graph, names, "aggregation"),
        "limits": [
            SwitchLimits(names[node], **{name: data[name] for name in SwitchLimits._fields[1:] if name in data})
            for node, data in graph.nodes(data=True)
            if not data.keys().isdisjoint(SwitchLimits._fields[1:])
        ],
        "name": name if name is not None else str(graph.name or "topology"),
    }


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
        # Taken as compute nodes, forgotten switches would become ranks.
        raise TopologyError(
            f"node {shown(names[without[0]])} of the graph has no attribute {attribute!r}, while others have; give "
            "every node 'compute' or 'switch', or none if all are compute nodes"
        )
    kinds = dict(graph.nodes(data=attribute))
    for node, kind in kinds.items():
        if not isinstance(kind, str) or kind not in ("compute", "switch"):
            raise TopologyError(
                f"attribute {attribute!r} of node {shown(names[node])} is {shown(kind)}; expected 'compute' or 'switch'"
            )
    return kinds


def _links(
    graph: nx.Graph, names: Mapping[Hashable, str], bandwidth: str, latency: str
) -> Iterator[tuple[str, str, Any, Any]]:
    for tail, head, data in graph.edges(data=True):
        if data.get(bandwidth) is None:
            raise TopologyError(
                f"edge ({shown(names[tail])}, {shown(names[head])}) has no attribute {bandwidth!r}; "
                "expected a positive number of GB/s, or its name: Topology.from_networkx(graph, bandwidth=...)"
            )
        yield names[tail], names[head], data[bandwidth], data.get(latency, 0)


def _capable(graph: nx.Graph, names: Mapping[Hashable, str], ability: str) -> list[str]:
    capable = []
    for node, value in graph.nodes(data=ability, default=False):
        if not isinstance(value, bool):
            raise TopologyError(
                f"attribute {ability!r} of node {shown(names[node])} is {shown(value)}; expected True or False"
            )
        if value:
            capable.append(names[node])
    return capable
