"""Hypothesis strategies that the tests of every room share: ``from strategies import eulerian_topologies``."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import strategies as st

from collopt.topologies import SwitchLimits, Topology

__all__ = ["able_topologies", "bandwidths", "eulerian_topologies", "rank_orders", "switch_free_topologies"]

Row = tuple[str, str, Fraction]


def bandwidths(max_bandwidth: int = 10) -> st.SearchStrategy[Fraction]:
    """Bandwidths of 1 to `max_bandwidth` GB/s, whole numbers."""
    return st.integers(1, max_bandwidth).map(Fraction)


@st.composite
def eulerian_topologies(
    draw: st.DrawFn, max_ranks: int = 6, max_switches: int = 3, max_bandwidth: int = 10
) -> Topology:
    """Connected topologies in which every node takes in as much as it gives out.

    They are unions of circulations, and so Eulerian: first one that reaches every node (a directed cycle through all,
    or a tree of bidirectional links), then up to four more directed cycles (those of two nodes are bidirectional
    links).  Connected and Eulerian make strongly connected.

    Parameters
    ----------
    draw : callable
        Given by hypothesis.
    max_ranks, max_switches : int
        2 to `max_ranks` compute nodes and 0 to `max_switches` switches.
    max_bandwidth : int
        Bandwidth of one cycle or tree link; links that lie on several carry the sum.
    """
    ranks = draw(st.integers(2, max_ranks))
    switches = draw(st.integers(0, max_switches))
    nodes = [f"gpu{number}" for number in range(ranks)] + [f"sw{number}" for number in range(switches)]
    order = draw(st.permutations(nodes))
    rows = draw(st.sampled_from([_cycle, _tree]))(draw, order, max_bandwidth)
    for _ in range(draw(st.integers(0, 4))):
        size = draw(st.integers(2, len(nodes)))
        rows += _cycle(draw, draw(st.permutations(nodes))[:size], max_bandwidth)
    return Topology.from_links(rows, compute=nodes[:ranks], switches=nodes[ranks:], name="random eulerian")


@st.composite
def able_topologies(draw: st.DrawFn, max_ranks: int = 6, max_switches: int = 3) -> Topology:
    """Eulerian topologies in which any switches with two neighbors or more multicast, aggregate, or loop back."""
    network = draw(eulerian_topologies(max_ranks, max_switches))
    near = {switch: {link.head for link in network.out_links(switch)} for switch in network.switch_nodes}
    for switch, others in near.items():
        others |= {link.tail for link in network.in_links(switch)}
    wide = st.sampled_from([None, *(switch for switch, others in near.items() if len(others) > 1)])
    multicast, aggregation, looped = (draw(st.frozensets(wide)) - {None} for _ in range(3))
    limits = tuple(SwitchLimits(switch, loopback=True) for switch in sorted(looped))
    return replace(network, multicast=multicast, aggregation=aggregation, limits=limits, name="random able")


@st.composite
def switch_free_topologies(draw: st.DrawFn, max_ranks: int = 6, max_bandwidth: int = 10) -> Topology:
    """Strongly connected topologies without switches; a node may take in more or less than it gives out.

    A directed cycle through all ranks, every link with its own bandwidth, and up to ten further links.
    """
    ranks = draw(st.integers(2, max_ranks))
    nodes = [f"gpu{number}" for number in range(ranks)]
    order = draw(st.permutations(nodes))
    pairs = list(zip(order, order[1:] + order[:1], strict=True))
    for _ in range(draw(st.integers(0, 10))):
        tail, step = draw(st.integers(0, ranks - 1)), draw(st.integers(1, ranks - 1))
        pairs.append((nodes[tail], nodes[(tail + step) % ranks]))
    rows = [(tail, head, draw(bandwidths(max_bandwidth))) for tail, head in pairs]
    return Topology.from_links(rows, compute=nodes, name="random switch-free")


def rank_orders(topology: Topology) -> st.SearchStrategy[list[int]]:
    """All ranks of `topology` in some order."""
    return st.permutations(range(topology.num_ranks))


def _cycle(draw: st.DrawFn, nodes: list[str], max_bandwidth: int) -> list[Row]:
    bandwidth = draw(bandwidths(max_bandwidth))
    return [(tail, head, bandwidth) for tail, head in zip(nodes, nodes[1:] + nodes[:1], strict=True)]


def _tree(draw: st.DrawFn, nodes: list[str], max_bandwidth: int) -> list[Row]:
    rows = []
    for number, node in enumerate(nodes[1:], start=1):
        parent = nodes[draw(st.integers(0, number - 1))]
        bandwidth = draw(bandwidths(max_bandwidth))
        rows += [(node, parent, bandwidth), (parent, node, bandwidth)]
    return rows
