"""What-if changes of a topology link by link, without arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

from collopt.topologies import Link, SwitchLimits, Topology


def restrict(topology: Topology, kept: tuple[str, ...], *, relay: bool = False) -> Topology:
    """Keep these ranks; others relay or go, with their links and the switches left without one."""
    relays = tuple(rank for rank in topology.compute_nodes if relay and rank not in kept)
    alive = {*kept, *relays, *topology.switch_nodes}
    name = f"{topology.name} [{len(kept)} of {topology.num_ranks} ranks{', others relay' if relay else ''}]"
    return _left(topology, kept, lambda link: {*link[:2]} <= alive, name, relays)


def without_node(topology: Topology, node: str) -> Topology:
    """Remove a node with its links."""
    kept = tuple(rank for rank in topology.compute_nodes if rank != node)
    return _left(topology, kept, lambda link: node not in link[:2], f"{topology.name} without {node}")


def with_bandwidths(topology: Topology, chosen: Mapping[tuple[str, str], Fraction], name: str) -> Topology:
    """Give links, by their ends, other bandwidths; those of 0 go."""
    links = [link._replace(bandwidth=chosen.get(link[:2], link.bandwidth)) for link in topology.links]
    return replace(topology, links=tuple(link for link in links if link.bandwidth), name=name)


def _left(
    topology: Topology, ranks: tuple[str, ...], stays: Callable[[Link], bool], name: str, relays: Iterable[str] = ()
) -> Topology:
    links = tuple(filter(stays, topology.links))
    linked = {end for link in links for end in link[:2]}
    switches = tuple(switch for switch in (*topology.switch_nodes, *relays) if switch in linked)
    costs = topology.costs
    if costs is not None and set(ranks) != set(topology.compute_nodes):
        costs = replace(costs, calibrated=False)
    return replace(
        topology,
        compute_nodes=ranks,
        switch_nodes=switches,
        links=links,
        multicast=topology.multicast & {*switches},
        aggregation=topology.aggregation & {*switches},
        limits=(
            *(limits for limits in topology.limits if limits.switch in switches),
            *(SwitchLimits(relay, relay=True) for relay in relays),
        ),
        name=name,
        costs=costs,
    )
