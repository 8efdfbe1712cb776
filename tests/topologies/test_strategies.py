"""The shared hypothesis strategies keep their promises."""

from __future__ import annotations

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.topologies import Topology, ring
from strategies import bandwidths, eulerian_topologies, rank_orders, switch_free_topologies


@settings(max_examples=100)
@given(eulerian_topologies(max_ranks=5, max_switches=2, max_bandwidth=4))
def test_eulerian_topologies_are_balanced_and_connected(topology: Topology) -> None:
    """Every node takes in what it gives out and reaches every other; the limits hold."""
    assert all(topology.ingress(node) == topology.egress(node) for node in topology.nodes)
    assert nx.is_strongly_connected(topology.to_networkx())
    assert 2 <= topology.num_ranks <= 5
    assert len(topology.switch_nodes) <= 2


@settings(max_examples=100)
@given(switch_free_topologies(max_ranks=5))
def test_switch_free_topologies_are_strongly_connected(topology: Topology) -> None:
    """They have no switches."""
    assert topology.switch_nodes == ()
    assert nx.is_strongly_connected(topology.to_networkx())


@settings(max_examples=50)
@given(bandwidths(3), rank_orders(ring(4)))
def test_bandwidths_and_orders_stay_within_limits(bandwidth: object, order: list[int]) -> None:
    """Bandwidths are small whole numbers, orders permutations."""
    assert bandwidth in (1, 2, 3)
    assert sorted(order) == [0, 1, 2, 3]


def test_the_strategies_reach_what_they_are_meant_to_reach() -> None:
    """Switches, links between switches, one-way links, unequal and unbalanced bandwidths do occur."""
    seen: set[str] = set()

    @settings(max_examples=200, database=None, derandomize=True)
    @given(st.one_of(eulerian_topologies(), switch_free_topologies()))
    def collect(topology: Topology) -> None:
        pairs = {link[:2] for link in topology.links}
        switches = set(topology.switch_nodes)
        features = {
            "switch": bool(switches),
            "switch to switch": any(tail in switches and head in switches for tail, head in pairs),
            "one way": any((head, tail) not in pairs for tail, head in pairs),
            "unequal": len({link.bandwidth for link in topology.links}) > 1,
            "unbalanced": any(topology.ingress(node) != topology.egress(node) for node in topology.nodes),
        }
        seen.update(feature for feature, present in features.items() if present)

    collect()
    assert seen == {"switch", "switch to switch", "one way", "unequal", "unbalanced"}
