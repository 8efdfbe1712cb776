"""Conversion of networkx graphs to the arguments of `Topology.from_links`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import TopologyError
from ...support.validation import as_flag, shown
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
    links = []
    for tail, head, data in graph.edges(data=True):
        if data.get(bandwidth) is None:
            raise TopologyError(
                f"edge ({shown(names[tail])}, {shown(names[head])}) has no attribute {bandwidth!r}; "
                "expected a positive number of GB/s, or its name: Topology.from_networkx(graph, bandwidth=...)"
            )
        links.append((names[tail], names[head], data[bandwidth], data.get(latency, 0)))
    capable = {
        ability: [
            names[node]
            for node, value in graph.nodes(data=ability, default=False)
            if as_flag(value, f"attribute {ability!r} of node {shown(names[node])}")
        ]
        for ability in ("multicast", "aggregation")
    }
    limits = [
        SwitchLimits(names[node], **{name: data[name] for name in SwitchLimits._fields[1:] if name in data})
        for node, data in graph.nodes(data=True)
        if not data.keys().isdisjoint(SwitchLimits._fields[1:])
    ]
    return {
        "links": links,
        "compute": [names[node] for node, kind_of_node in kinds.items() if kind_of_node == "compute"],
        "switches": [names[node] for node, kind_of_node in kinds.items() if kind_of_node == "switch"],
        "bidirectional": not isinstance(graph, nx.DiGraph),
        **capable,
        "limits": limits,
        "name": name if name is not None else str(graph.name or "topology"),
    }


def _node_names(graph: nx.Graph) -> dict[Hashable, str]:
    owners: dict[str, Hashable] = {}
    for node in graph.nodes:
        if (other := owners.setdefault(str(node), node)) is not node:
            raise TopologyError(
                f"nodes {shown(other)} and {shown(node)} of the graph would both be called {shown(str(node))}; "
                "rename one, for example with networkx.relabel_nodes"
            )
    return {node: name for name, node in owners.items()}


def _kinds(graph: nx.Graph, names: Mapping[Hashable, str], attribute: str) -> dict[Hashable, str]:
    """Return the kind of each node; without any, all are compute nodes."""
    kinds = {node: data[attribute] for node, data in graph.nodes(data=True) if attribute in data}
    for node in graph.nodes if kinds else ():
        # Taken as compute nodes, forgotten switches would become ranks.
        if node not in kinds or not isinstance(kinds[node], str) or kinds[node] not in ("compute", "switch"):
            value = shown(kinds[node]) if node in kinds else "missing, while others have it"
            raise TopologyError(
                f"attribute {attribute!r} of node {shown(names[node])} is {value}; expected 'compute' or 'switch', or "
                "no such attribute of any node if all are compute nodes"
            )
    return kinds or dict.fromkeys(graph.nodes, "compute")
