"""Which run is assumed of a measurement, as what NCCL did is not in its output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from ....errors import UnsupportedError
from ....schedules import Collective
from ....topologies import Topology
from ....topologies.network.link_classes import LinkClass
from .measured_times import MeasuredTimes
from .model_times import Reference, over_one_path, over_the_network

LATENCY_IF_NONE = Fraction(1)
"""Microseconds per link that are scaled where the network states none."""


def with_latencies(topology: Topology, group: Sequence[LinkClass]) -> Topology:
    """Give the links of some classes a latency that can be scaled, if none of them has one."""
    if any(each.latency for each in group):
        return topology
    meant = {link[:2] for each in group for link in each.links}
    links = tuple(link._replace(latency=LATENCY_IF_NONE) if link[:2] in meant else link for link in topology.links)
    return replace(topology, links=links)


def assumed_run(
    topology: Topology, times: MeasuredTimes, group: Sequence[LinkClass], planner: str | None, *, named: bool
) -> Reference:
    """Say what the run of a measurement takes on the network as described."""
    source, collective, ranks = times.source, times.collective, times.num_ranks
    if collective is None:
        raise UnsupportedError(f"{source} does not say which collective was measured; say it, such as allreduce")
    if ranks is None:
        ranks = 2 if named else topology.num_ranks
    if ranks == 2 and (named or topology.num_ranks == 2):
        found = _between_two(topology, source, collective, group)
        unused = [each.name for each in group if found.links.isdisjoint(link[:2] for link in each.links)]
        if named and unused:
            raise UnsupportedError(
                f"{source} is about {unused[0]}, but the shortest path over its classes has no such link; leave it out"
            )
        return found
    if named:
        raise UnsupportedError(
            f"{source} was measured on {ranks} ranks, and link classes go with times between two; leave them out"
        )
    if ranks != topology.num_ranks:
        how = "name the link classes between them" if ranks == 2 else "give the network of just those"
        raise UnsupportedError(
            f"{source} was measured on {ranks} ranks, and the network has {topology.num_ranks}; {how}"
        )
    if not isinstance(collective, Collective):
        raise UnsupportedError(
            f"{source} measured {collective} on {ranks} ranks, which no plan models; measure it between two, and "
            "name the link classes between them: --class NAMES=FILE"
        )
    chosen = planner or ("shortest-paths" if collective.in_pairs else "ring")
    try:
        return over_the_network(topology, collective, chosen)
    except UnsupportedError as error:
        raise UnsupportedError(f"{source}: {error}") from None


def _between_two(
    topology: Topology, source: str, collective: Collective | str, group: Sequence[LinkClass]
) -> Reference:
    links = [topology.link(link.tail, link.head) for each in group for link in each.links]
    try:
        return over_one_path(topology, collective, links)
    except UnsupportedError as error:
        raise UnsupportedError(f"{source}: {error}") from None
