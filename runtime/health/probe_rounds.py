"""Rounds of pairwise runs by the circle method for tournaments, and the parts of a network on the routes of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import TopologyError, UnsupportedError
from ...support.formatting import count_text
from ...support.validation import shown
from ...topologies import Topology
from ..lowering.devices import boxes_of_nodes

if TYPE_CHECKING:
    import networkx as nx

Pair = tuple[str, str]
Route = tuple[str, ...]
MAX_ROUTES = 64


class Run(NamedTuple):
    """One run: its round, and the NICs that exchange data."""

    round: int
    ends: Pair

    def __str__(self) -> str:
        return f"{'--'.join(self.ends)} of round {self.round}"


def rails_of(topology: Topology) -> list[list[str]]:
    """List the first NICs of all boxes, the second ones, and so on: nodes of a box with links to the outside."""
    boxes = boxes_of_nodes(topology)
    linked = {link.tail for link in topology.links if boxes.get(link.tail) != boxes.get(link.head)}
    nics: dict[str, list[str]] = {}
    for node in topology.nodes:
        if node in boxes and node in linked:
            nics.setdefault(boxes[node], []).append(node)
    width = max(map(len, nics.values()), default=0)
    return [[own[rail] for own in nics.values() if rail < len(own)] for rail in range(width)]


def rounds_for(rails: Sequence[Sequence[str]], faults: int) -> tuple[tuple[Pair, ...], ...]:
    """Pair NICs of rails so that any `faults` slow ones are identified; docs/how-to/probe.md has the proof."""
    if not rails:
        raise UnsupportedError("the network has no links between boxes; expected at least 3 boxes to probe")
    size = min(map(len, rails))
    if size < faults + 2:
        limit = f"up to {size - 2} of them can be" if size > 2 else "a slow run says only that one of two is slow"
        raise UnsupportedError(
            f"{count_text(faults, 'slow NIC')} cannot be identified among {size} of a rail, as two healthy ones must "
            f"have a run; {limit}: assume fewer faults, or probe more boxes"
        )
    count = faults + 1 + max(len(rail) % 2 for rail in rails)  # in which one NIC of an odd number rests at most once
    return tuple(tuple(pair for rail in rails for pair in _circle(rail, number)) for number in range(count))


def _circle(nics: Sequence[str], number: int) -> list[Pair]:
    """Return a round of a tournament: with an odd number of players one rests, otherwise the last is its partner."""
    odd = len(nics) - 1 + len(nics) % 2
    if number >= odd:
        return []
    pairs = [((number + step) % odd, (number - step) % odd) for step in range(1, (odd + 1) // 2)]
    pairs += [(number, odd)] if odd < len(nics) else []
    return [(nics[min(pair)], nics[max(pair)]) for pair in pairs]


class Routes:
    """Routes of runs through the network outside boxes: all shortest ones, or stated ones."""

    def __init__(self, topology: Topology, stated: Mapping[Pair, Sequence[Route]] | None = None) -> None:
        self.topology, self.stated = topology, stated
        self._shortest: dict[Pair, list[Route]] = {}
        for pair, routes in (stated or {}).items():
            for route in routes:
                if (route[:1] + route[-1:]) != pair or not all(self._graph.has_edge(*ends) for ends in pairwise(route)):
                    raise TopologyError(f"the route {shown(route)} does not lead from {pair[0]} to {pair[1]} by links")

    @cached_property
    def _graph(self) -> nx.Graph:
        """NICs and the switches between boxes; of two directions the slower one counts."""
        import networkx as nx

        boxes, graph = boxes_of_nodes(self.topology), nx.Graph()
        for link in self.topology.links:
            if boxes.get(link.tail) != boxes.get(link.head) or link.tail not in boxes:
                slower = min(link.bandwidth, graph.get_edge_data(*link[:2], {"bandwidth": link.bandwidth})["bandwidth"])
                graph.add_edge(link.tail, link.head, bandwidth=slower)
        return graph

    @cached_property
    def _core(self) -> Any:
        """The network without NICs of one link, through which no route leads."""
        return self._graph.subgraph([node for node, degree in self._graph.degree if degree > 1])

    def nodes(self, pair: Pair) -> list[Route]:
        """Nodes on the routes of a run."""
        import networkx as nx

        if self.stated is not None:
            routes = [*self.stated.get(pair, ()), *(route[::-1] for route in self.stated.get(pair[::-1], ()))]
            if not routes:
                raise TopologyError(f"no route is stated from {pair[0]} to {pair[1]}; state one for every run")
            return routes
        graph = self._graph
        ends = tuple(node if graph.degree(node) > 1 else next(iter(graph[node])) for node in pair)
        if ends not in self._shortest:
            try:
                shortest = list(islice(nx.all_shortest_paths(self._core, *ends), MAX_ROUTES + 1))
            except nx.NetworkXException:
                raise TopologyError(f"no route outside boxes leads from {pair[0]} to {pair[1]}; join them") from None
            if len(shortest) > MAX_ROUTES:
                raise UnsupportedError(f"more than {MAX_ROUTES} routes lead from {pair[0]} to {pair[1]}; state routes")
            self._shortest[ends[0], ends[1]] = [tuple(route) for route in shortest]
        before, after = (pair[:1] if ends[0] != pair[0] else ()), (pair[1:] if ends[1] != pair[1] else ())
        return [before + route + after for route in self._shortest[ends[0], ends[1]]]

    def parts(self, pair: Pair) -> list[Route]:
        """Parts on the routes of a run that may be slow: its nodes, and links that are no NIC's only one."""
        return [route + tuple(self._cables(route)) for route in self.nodes(pair)]

    def _cables(self, route: Route) -> list[str]:
        joints = [ends for ends in pairwise(route) if min(self._graph.degree(node) for node in ends) > 1]
        return ["--".join(sorted(ends, key=self.topology.node_index.__getitem__)) for ends in joints]

    def bandwidth(self, pair: Pair) -> Fraction:
        """Return the bandwidth of the slowest link on the best route, in GB/s: no run is faster."""
        edges: Mapping[Pair, Mapping[str, Fraction]] = self._graph.edges
        return max(min(edges[ends]["bandwidth"] for ends in pairwise(route)) for route in self.nodes(pair))
