"""What a network's description says that a collective takes: a wait, and a time per byte."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from ....errors import UnsupportedError
from ....planners import plan
from ....planners.registry import as_planner
from ....schedules import Collective, schedule_time
from ....topologies import Link, Topology

NS_PER_US = 1000
PARTS = {"sendrecv": Fraction(1), "gather": Fraction(1, 2), "scatter": Fraction(1, 2), "hypercube": Fraction(1, 2)}
"""Of what nccl-tests measures between two ranks and nobody plans: the part of the size that each direction carries."""


class Reference(NamedTuple):
    """The time of a collective on a network as described: ``latency + size * per_byte``.

    `latency`: Microseconds.
    `per_byte`: Microseconds per byte, as nccl-tests counts them.
    `links`: Tail and head of links that it depends on; empty means all.
    `text`: What it assumes.
    """

    latency: Fraction
    per_byte: Fraction
    links: frozenset[tuple[str, str]]
    text: str


def over_one_path(topology: Topology, collective: Collective | str, links: Iterable[Link]) -> Reference:
    """Assume that two ranks exchange messages over a path of some links only."""
    if isinstance(collective, Collective) and not collective.takes_traffic:
        messages, part = max(1, len(collective.phases)), collective.bus_factor(2)
    elif collective in PARTS:
        messages, part = 1, PARTS[collective]
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
    """Assume that all ranks run the schedule of a planner."""
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
    """Find a path with the fewest of the links between any two ranks, through switches only; empty if there is none."""
    leaving: dict[str, list[Link]] = {}
    for link in links:
        leaving.setdefault(link.tail, []).append(link)
    best: list[Link] = []
    ranks = set(topology.compute_nodes)
    for start in topology.compute_nodes:
        found = _nearest(start, leaving, ranks)
        if found and (not best or len(found) < len(best)):
            best = found
        if len(best) == 1:
            break
    return best


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
