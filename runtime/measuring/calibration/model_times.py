"""Modelled time of a measured collective: a latency, and a time per byte.

The output of nccl-tests does not say which algorithm NCCL ran, so a run is assumed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from ....errors import UnsupportedError
from ....planners import plan
from ....planners.registry import as_planner
from ....schedules import Collective, schedule_time
from ....topologies import Link, Topology
from ....topologies.network.link_classes import LinkClass
from .measured_times import MeasuredTimes

NS_PER_US = 1000
SIZE_SHARES = {
    "sendrecv": Fraction(1),
    "gather": Fraction(1, 2),
    "scatter": Fraction(1, 2),
    "hypercube": Fraction(1, 2),
}
"""Share of the size that each direction carries, in benchmarks between two ranks without a plan."""


class Reference(NamedTuple):
    """The time of a collective on a network as described: ``latency + size * per_byte``."""

    latency: Fraction  # Microseconds
    per_byte: Fraction  # Microseconds per byte, as nccl-tests counts them
    links: frozenset[tuple[str, str]]  # Tail and head of links that it depends on; empty means all
    text: str  # What it assumes


def over_one_path(topology: Topology, collective: Collective | str, links: Iterable[Link]) -> Reference:
    """Model of two ranks that exchange messages over a path of the given links."""
    if isinstance(collective, Collective) and not collective.parts_differ:
        messages, part = max(1, len(collective.phases)), collective.bus_factor(2)
    elif collective in SIZE_SHARES:
        messages, part = 1, SIZE_SHARES[collective]
    else:
        raise UnsupportedError(f"there is no model of {collective} between two ranks; measure sendrecv or broadcast")
    path = _shortest_path(topology, list(links))
    if not path:
        raise UnsupportedError(
            "no two ranks are connected by these links alone; also name the other classes on the path"
        )
    slowest = min(link.bandwidth for link in path)
    waits = "one message" if messages == 1 else f"{messages} sequential messages"
    return Reference(
        messages * sum((link.latency for link in path), Fraction(0)),
        part / slowest / NS_PER_US,
        frozenset((link.tail, link.head) for link in path),
        f"{waits} over {' - '.join([path[0].tail, *(link.head for link in path)])}",
    )


def over_the_network(topology: Topology, collective: Collective, planner: str) -> Reference:
    """Model of all ranks that run the schedule of a planner."""
    # nccl-tests' own root, unless it is told another.
    root = 0 if collective.has_one_root else None
    made = plan(topology, collective, planner=as_planner(planner), root=root)
    if not made.schedule.pipelined:
        raise UnsupportedError(
            f"{planner} plans in steps here, whose time is not linear in the size; choose another, such as ring"
        )
    small, large = (schedule_time(made.schedule, topology, 2**power) for power in (20, 21))
    per_byte = (large - small) / 2**20
    return Reference(small - per_byte * 2**20, per_byte, frozenset(), f"the plan of {planner}, fully pipelined")


def _shortest_path(topology: Topology, links: list[Link]) -> list[Link]:
    """Find a shortest path of the given links between any two ranks, through switches only; empty if there is none."""
    leaving: dict[str, list[Link]] = {}
    for link in links:
        leaving.setdefault(link.tail, []).append(link)
    ranks = set(topology.compute_nodes)
    paths = filter(None, (_nearest(start, leaving, ranks) for start in topology.compute_nodes))
    return min(paths, key=len, default=[])


def _nearest(start: str, leaving: dict[str, list[Link]], ranks: set[str]) -> list[Link]:
    entered: dict[str, Link] = {}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        for link in leaving.get(node, ()):
            if link.head in entered or link.head == start:
                continue
            entered[link.head] = link
            if link.head in ranks:
                path = [link]
                while path[0].tail != start:
                    path.insert(0, entered[path[0].tail])
                return path
            waiting.append(link.head)
    return []


DEFAULT_LATENCY = Fraction(1)  # Microseconds per link that are scaled where the network states none


def with_latencies(topology: Topology, group: Sequence[LinkClass]) -> Topology:
    """Set a default latency, to be scaled, on links of classes without latencies."""
    if any(each.latency for each in group):
        return topology
    meant = {link[:2] for each in group for link in each.links}
    links = tuple(link._replace(latency=DEFAULT_LATENCY) if link[:2] in meant else link for link in topology.links)
    return replace(topology, links=links)


def assumed_run(
    topology: Topology, times: MeasuredTimes, group: Sequence[LinkClass], planner: str | None, *, named: bool
) -> Reference:
    """Model the run of a measurement on the network as described."""
    source, collective, ranks = times.source, times.collective, times.num_ranks
    if collective is None:
        raise UnsupportedError(f"{source} does not say which collective was measured; say it, such as allreduce")
    if ranks is None:
        ranks = 2 if named else topology.num_ranks
    if ranks == 2 and (named or topology.num_ranks == 2):
        links = [topology.link(link.tail, link.head) for each in group for link in each.links]
        with _about(source):
            found = over_one_path(topology, collective, links)
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
    with _about(source):
        return over_the_network(topology, collective, chosen)


@contextmanager
def _about(source: str) -> Iterator[None]:
    try:
        yield
    except UnsupportedError as error:
        raise UnsupportedError(f"{source}: {error}") from None
