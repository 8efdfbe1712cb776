"""Flows over time in whole microseconds: a copy of the network for each, and a maximum flow through all of them."""

from __future__ import annotations

from collections.abc import Iterable

import networkx as nx

from collopt.topologies import Topology

__all__ = ["most_by"]


def most_by(topology: Topology, sources: Iterable[str], sink: str, time: int, alpha: int = 0) -> int:
    """Most kB that get from sources to a sink within a time, with whole bandwidths and latencies.

    What enters a link in one microsecond leaves it in one, later by the latency and, from ranks, by alpha.
    """
    graph = nx.DiGraph()
    graph.add_nodes_from(["start", "end"])
    for name in sources:
        graph.add_edge("start", (name, 0))
    for moment in range(time):
        for node in topology.nodes:
            graph.add_edge((node, moment), "end" if node == sink else (node, moment + 1))
        for tail, head, bandwidth, latency in topology.links:
            arrival = moment + int(latency) + (alpha if tail in topology.compute_nodes else 0)
            if arrival < time and tail != sink:
                graph.add_edge((tail, moment), (head, arrival), capacity=int(bandwidth))
    return int(nx.maximum_flow_value(graph, "start", "end"))
