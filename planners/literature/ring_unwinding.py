"""Ring unwinding: every switch is replaced by a ring of its ranks, and the rest is planned optimally.

TACCL and TACOS turn switches into point-to-point networks that they choose before they plan, such as rings.  ForestColl
(Zhao et al., NSDI 2026, on edge splitting, Figure 15d) compares its own removal of switches with that.  Here the ranks
at a switch, in their order, each send to the next one through the switch, at the lower of the bandwidths of the two
ports, and ForestColl's trees are optimal on what results; docs/explanation/algorithms.md has what that costs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from ...errors import TopologyError, UnsupportedError
from ...schedules import TREE_COLLECTIVES, Allreduce, Forest, TreeSchedule
from ...schedules.collective import AnyCollective
from ...support.arrays import joined_rows
from ...topologies import Link, Topology
from ..bounds.from_schedule import plan_of_schedule
from ..plans.plan import Plan
from ..plans.registry import register_planner
from ..trees.forestcoll import plan_trees
from ..trees.problem import check_request

PLANNER = "ring-unwinding"


class _Port(NamedTuple):
    """How a rank reaches a switch and is reached: nodes between them, such as a NIC, and the links both ways."""

    rank: str
    between: tuple[str, ...]
    out: tuple[Link, ...]
    back: tuple[Link, ...]


@register_planner("ring-unwinding", TREE_COLLECTIVES)
def plan_ring_unwinding(
    topology: Topology,
    collective: AnyCollective,
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
) -> Plan:
    """Plan optimal trees on a network whose switches are replaced by rings, as TACCL and TACOS do."""
    planned = check_request(topology, collective)
    network, ways = _unwound(topology)
    ring_plan = plan_trees(network, planned, root=root, weights=weights)
    forests = [_rewound(forest, topology, ways) for forest in ring_plan.trees.forests]
    schedule: TreeSchedule = Allreduce(*forests) if len(forests) > 1 else forests[0]
    return plan_of_schedule(topology, planned, schedule, planner=PLANNER)


def _unwound(topology: Topology) -> tuple[Topology, list[tuple[int, ...]]]:
    """Replace switches by rings whose hops have a node each; list the nodes that each of these stands for."""
    if not topology.switch_nodes:
        raise UnsupportedError(f"{topology} has no switches to unwind; use the planner 'forestcoll'")
    links = [link for link in topology.links if {link.tail, link.head} <= set(topology.compute_nodes)]
    names, ways = list[str](), list[tuple[int, ...]]()
    for switch, ports in _ports(topology):
        for port, following in pairwise([*ports, ports[0]]):
            name = f"{switch} from {port.rank}"
            passed = (*port.between, switch, *following.between[::-1])
            used = [*port.out, *following.back]
            bandwidth, latency = min(link.bandwidth for link in used), sum((link.latency for link in used), Fraction(0))
            links += [Link(port.rank, name, bandwidth, latency), Link(name, following.rank, bandwidth, Fraction(0))]
            names.append(name)
            ways.append(tuple(topology.node_index[node] for node in passed))
    network = Topology.from_links(
        links, compute=topology.compute_nodes, switches=names, name=f"{topology.name}, unwound"
    )
    return network, ways


def _ports(topology: Topology) -> Iterator[tuple[str, list[_Port]]]:
    """Yield the switches that join ranks, with a port for each rank."""
    ranks = set(topology.compute_nodes)
    neighbors: dict[str, dict[str, None]] = {node: {} for node in topology.nodes}
    for link in topology.links:
        neighbors[link.tail][link.head] = neighbors[link.head][link.tail] = None
    ends = {
        node
        for node in topology.switch_nodes
        if len(neighbors[node]) == 2 and len(ranks.intersection(neighbors[node])) == 1
    }
    wires = {node for node in ends if not ends.intersection(neighbors[node])}
    for switch in topology.switch_nodes:
        if switch in wires:
            continue
        ports: list[_Port] = []
        for node in neighbors[switch]:
            between = (node,) if node in wires else ()
            rank = next(iter(ranks.intersection(neighbors[node])), None) if between else node
            if rank not in ranks:
                raise UnsupportedError(
                    f"switches {switch!r} and {node!r} of {topology} are linked; {PLANNER} takes switches between "
                    "ranks only"
                )
            if any(port.rank == rank for port in ports):
                raise UnsupportedError(
                    f"rank {rank!r} of {topology} reaches switch {switch!r} in several ways; {PLANNER} takes one"
                )
            ports.append(_port(topology, str(rank), between, switch))
        if len(ports) > 1:
            yield switch, sorted(ports, key=lambda port: topology.node_index[port.rank])


def _port(topology: Topology, rank: str, between: tuple[str, ...], switch: str) -> _Port:
    way = (rank, *between, switch)
    try:
        out, back = (tuple(topology.link(*ends) for ends in pairwise(nodes)) for nodes in (way, way[::-1]))
    except TopologyError as error:
        raise UnsupportedError(f"{PLANNER} needs links both ways between ranks and switches, but {error}") from None
    return _Port(rank, between, out, back)


def _rewound(forest: Forest, topology: Topology, ways: Sequence[tuple[int, ...]]) -> Forest:
    """Let the paths of a forest on the unwound network pass the switches; reductions run from their ends."""
    ranks, turned = topology.num_ranks, forest.direction == "reduce"
    paths = list[list[int]]()
    for start, end in pairwise(forest.path_starts.tolist()):
        nodes = list[int]()
        for node in forest.path_nodes[start:end].tolist():
            nodes += [node] if node < ranks else ways[node - ranks][:: -1 if turned else 1]
        paths.append(nodes)
    starts, nodes_of_paths = joined_rows(paths)
    return replace(forest, path_starts=starts, path_nodes=nodes_of_paths)
