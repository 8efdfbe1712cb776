"""Modelled time of a measured collective: hops, waits and bytes, which costs of the runtime multiply.

The output of nccl-tests does not say which algorithm NCCL ran, so a run is assumed.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from ...errors import UnsupportedError
from ...planners import plan
from ...schedules import Collective, Schedule, verified_loads
from ...topologies import Link, Topology
from ...topologies.network.link_costs import LinkClass
from .measured_times import MeasuredTimes

NS_PER_US = 1000
PROBE = Fraction(1, 10**6)  # Microseconds: a change of costs that leaves the deepest path the deepest
DECIMALS = 12  # Of latencies, at most
SIZE_SHARES = {"sendrecv": Fraction(1)} | dict.fromkeys(("gather", "scatter", "hypercube"), Fraction(1, 2))
"""Share of the size that each direction carries, in benchmarks between two ranks without a plan."""

Group = tuple[str, ...]
"""Names of the link classes that share their costs."""


class LinkGroups:
    """Links by the classes that are fitted together, with their latencies in µs, or 1 where a group states none."""

    def __init__(self, topology: Topology, groups: Sequence[Sequence[LinkClass]]) -> None:
        self.topology = topology
        self.classes: dict[Group, Sequence[LinkClass]] = {
            tuple(link_class.name for link_class in group): group for group in groups
        }
        self.waits: dict[tuple[str, str], Fraction] = {}
        self.of: dict[tuple[str, str], Group] = {}
        for name, group in self.classes.items():
            stated = any(link.latency for link_class in group for link in link_class.links)
            for link in (link for link_class in group for link in link_class.links):
                self.waits[link[:2]] = link.latency if stated else Fraction(1)
                self.of[link[:2]] = name

    def delayed(self, alpha: Fraction, extra: Mapping[Group, Fraction]) -> Topology:
        """Add alpha to each message's first link, and to all links of a group multiples of their latencies."""
        ranks = set(self.topology.compute_nodes)
        links = []
        for link in self.topology.links:
            added = extra.get(self.of[link[:2]], Fraction(0)) * self.waits[link[:2]]
            software = alpha if link.tail in ranks else Fraction(0)
            links.append(link._replace(latency=round(link.latency + software + added, DECIMALS)))
        return replace(self.topology, links=tuple(links))


class Terms(NamedTuple):
    """What multiplies the costs of a runtime in the time of one run.

    ``t = launch + hops alpha + stated + sum(waits * extra) + size (sum(loads / efficiency) + added reduction)``
    """

    hops: int
    stated: Fraction  # Microseconds of the links' latencies
    waits: dict[Group, Fraction]  # Microseconds of latency that the last byte waits for, of each group that is used
    loads: dict[Group, Fraction]  # Microseconds per byte on the group's busiest link, at line rate, where it is busiest
    added: Fraction  # Bytes that a rank adds, per byte of the size


@dataclass(frozen=True)
class PathRun:
    """Messages one after another over a path between two ranks."""

    groups: LinkGroups
    path: tuple[Link, ...]
    messages: int
    part: Fraction
    added: Fraction

    @property
    def text(self) -> str:
        """The path."""
        waits = "one message" if self.messages == 1 else f"{self.messages} sequential messages"
        return f"{waits} over {' - '.join([self.path[0].tail, *(link.head for link in self.path)])}"

    def terms(self, alpha: Fraction, extra: Mapping[Group, Fraction], shares: Mapping[Group, Fraction]) -> Terms:
        """Return the terms near given costs, which decide which of its links is the slowest."""
        del alpha, extra
        waits: defaultdict[Group, Fraction] = defaultdict(Fraction)
        for link in self.path:
            waits[self.groups.of[link[:2]]] += self.messages * self.groups.waits[link[:2]]
        slowest = min(self.path, key=lambda link: link.bandwidth * shares[self.groups.of[link[:2]]])
        load = {self.groups.of[slowest[:2]]: self.part / slowest.bandwidth / NS_PER_US}
        stated = self.messages * sum((link.latency for link in self.path), Fraction(0))
        return Terms(self.messages, stated, waits, load, self.added)


@dataclass(frozen=True)
class PlanRun:
    """The pipelined schedule of a planner, on all ranks."""

    groups: LinkGroups
    schedule: Schedule
    planner: str

    @property
    def text(self) -> str:
        """Whose plan it is."""
        return f"the plan of {self.planner}, fully pipelined"

    @property
    def added(self) -> Fraction:
        """Bytes that the rank adds which adds most, per byte of the size."""
        return self.schedule.most_added / Fraction(self.schedule.total_weight)

    @cached_property
    def _loads(self) -> list[dict[Group, Fraction]]:
        """Time per byte of each phase, in µs, on the busiest link of each group."""
        topology = self.groups.topology
        loads = verified_loads(self.schedule, topology)
        phases: list[dict[Group, Fraction]] = []
        for row, unit in zip(loads.reshape(-1, loads.shape[-1]), self.schedule.load_units, strict=True):
            busiest = dict.fromkeys(self.groups.classes, Fraction(0))
            for link, load in zip(topology.links, row.tolist(), strict=True):
                group = self.groups.of[link[:2]]
                busiest[group] = max(busiest[group], load / (unit * link.bandwidth))
            phases.append(busiest)
        scale = 1 / Fraction(self.schedule.total_weight) / NS_PER_US
        return [{group: load * scale for group, load in phase.items()} for phase in phases]

    def _wait(self, alpha: Fraction, extra: Mapping[Group, Fraction]) -> Fraction:
        return self.schedule.latency(self.groups.delayed(alpha, extra))

    def terms(self, alpha: Fraction, extra: Mapping[Group, Fraction], shares: Mapping[Group, Fraction]) -> Terms:
        """Return the terms near given costs, which decide which path is the deepest and which links are the busiest."""
        here = self._wait(alpha, extra)
        hops = (self._wait(alpha + PROBE, extra) - here) / PROBE
        waits = dict.fromkeys(self.groups.classes, Fraction(0))
        for group, amount in extra.items():
            waits[group] = (self._wait(alpha, {**extra, group: amount + PROBE}) - here) / PROBE
        loads: defaultdict[Group, Fraction] = defaultdict(Fraction)
        for phase in self._loads:
            busiest = max(phase, key=lambda group: phase[group] / shares[group])
            loads[busiest] += phase[busiest]
        stated = here - hops * alpha - sum(waits[group] * amount for group, amount in extra.items())
        return Terms(round(hops), stated, waits, loads, self.added)


AssumedRun = PathRun | PlanRun
"""What a measurement is assumed to have done."""


def over_one_path(groups: LinkGroups, collective: Collective | str, links: Iterable[Link]) -> PathRun:
    """Model of two ranks that exchange messages over a path of the given links."""
    if isinstance(collective, Collective) and not collective.parts_differ:
        messages, part = max(1, len(collective.phases)), collective.bus_factor(2)
    elif collective in SIZE_SHARES:
        messages, part = 1, SIZE_SHARES[collective]
    else:
        raise UnsupportedError(f"there is no model of {collective} between two ranks; measure sendrecv or broadcast")
    path = _shortest_path(groups.topology, links)
    if not path:
        raise UnsupportedError(
            "no two ranks are connected by these links alone; also name the other classes on the path"
        )
    adds = isinstance(collective, Collective) and collective.reduces
    return PathRun(groups, tuple(path), messages, part, part / messages if adds else Fraction(0))


def _shortest_path(topology: Topology, links: Iterable[Link]) -> list[Link]:
    """Find a shortest path of the given links between any two ranks, through switches only; empty if there is none."""
    leaving: dict[str, list[Link]] = {}
    for link in links:
        leaving.setdefault(link.tail, []).append(link)
    ranks = set(topology.compute_nodes)
    paths = filter(None, (_nearest(start, leaving, ranks) for start in topology.compute_nodes))
    return min(paths, key=len, default=[])


def _nearest(start: str, leaving: dict[str, list[Link]], ranks: set[str]) -> list[Link]:
    """Find a shortest path to another rank, by breadth-first search; empty if there is none."""
    paths: dict[str, list[Link]] = {start: []}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        for link in leaving.get(node, ()):
            if link.head in paths:
                continue
            paths[link.head] = [*paths[node], link]
            if link.head in ranks:
                return paths[link.head]
            waiting.append(link.head)
    return []


def assumed_run(
    groups: LinkGroups, times: MeasuredTimes, group: Sequence[LinkClass], planner: str | None
) -> AssumedRun:
    """Model the run of a measurement; `group`: the classes that it is about, or none for all ranks."""
    topology, source, collective = groups.topology, times.source, times.collective
    if collective is None:
        raise UnsupportedError(f"{source} does not say which collective was measured; say it, such as allreduce")
    ranks = times.num_ranks or (2 if group else topology.num_ranks)
    if ranks == 2 and (group or topology.num_ranks == 2):
        return _between_two(groups, source, collective, group)
    if group:
        raise UnsupportedError(f"{source} was measured on {ranks} ranks; link classes go with times between two")
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
    planner = planner or ("shortest-paths" if collective.in_pairs else "ring")
    with naming(source):
        # The root is nccl-tests' own, unless it is told another.
        run_plan = plan(topology, collective, planner=planner, root=0 if collective.has_one_root else None)
        if not run_plan.schedule.pipelined:
            raise UnsupportedError(
                f"{planner} plans in steps here, whose time is not linear in the size; choose another, such as ring"
            )
    return PlanRun(groups, run_plan.schedule, planner)


def _between_two(groups: LinkGroups, source: str, collective: Collective | str, group: Sequence[LinkClass]) -> PathRun:
    links = [link for link_class in group for link in link_class.links] or groups.topology.links
    with naming(source):
        run = over_one_path(groups, collective, links)
    used = {link[:2] for link in run.path}
    if unused := [link_class.name for link_class in group if used.isdisjoint(link[:2] for link in link_class.links)]:
        raise UnsupportedError(
            f"{source} is about {unused[0]}, but the shortest path over its classes has no such link; leave it out"
        )
    return run


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Begin messages of `UnsupportedError` with the source."""
    try:
        yield
    except UnsupportedError as error:
        raise UnsupportedError(f"{source}: {error}") from None
