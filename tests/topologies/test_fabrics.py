"""Switched fabrics."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import pytest

from collopt.topologies import Topology, dragonfly, fat_tree, leaf_spine, rail

SAMPLES = [
    leaf_spine(2, 1, 1),
    leaf_spine(4, 3, 2, "12.5", oversubscription="3/2"),
    rail(1),
    rail(3, 4),
    rail(2, 4, oversubscription=None),
    rail(3, 2, oversubscription=4),
    fat_tree(2),
    fat_tree(4),
    fat_tree(6, oversubscription=3),
    dragonfly(1, 1, 1),
    dragonfly(4, 2, 2),
    dragonfly(2, 1, 3, groups=3),
    dragonfly(3, 1, 2, groups=2, oversubscription=2),
]


@pytest.mark.parametrize("topology", SAMPLES, ids=lambda topology: topology.name)
def test_fabrics_are_balanced_and_connected(topology: Topology) -> None:
    """Every node takes in what it gives out and reaches every other."""
    assert all(topology.ingress(node) == topology.egress(node) for node in topology.nodes)
    assert nx.is_strongly_connected(topology.to_networkx())


def test_a_rail_joins_the_same_nic_of_every_box() -> None:
    """NIC i of every box is on rail i, and each rail has its uplink to the spine."""
    topology = rail(4, 2, nvswitch_bandwidth=300, nic_bandwidth=25, oversubscription=2)
    assert {link.head for link in topology.out_links("rail1")} == {f"box{box}/nic1" for box in range(4)} | {"spine"}
    assert topology.link("rail1", "spine").bandwidth == 50
    assert topology.egress("box2/gpu1") == 325


def test_rails_without_a_spine_meet_in_the_boxes_only() -> None:
    """Other rails are reached through an NVSwitch."""
    topology = rail(3, 2, oversubscription=None)
    assert "spine" not in topology.nodes
    assert {link.head for link in topology.out_links("rail0")} == {f"box{box}/nic0" for box in range(3)}


@pytest.mark.parametrize("k", [2, 4, 8])
def test_a_fat_tree_has_the_textbook_numbers(k: int) -> None:
    """k**3 / 4 hosts, 5 k**2 / 4 switches of k ports, full bisection."""
    topology = fat_tree(k, bandwidth=10)
    assert topology.num_ranks == k**3 // 4
    roles = Counter(switch.split("/")[-1].rstrip("0123456789") for switch in topology.switch_nodes)
    assert roles == {"edge": k * k // 2, "aggregate": k * k // 2, "core": k * k // 4}
    assert {topology.egress(switch) for switch in topology.switch_nodes} == {10 * k}
    assert {len(topology.out_links(switch)) for switch in topology.switch_nodes} == {k}


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 1, 1), (4, 2, 2), (3, 2, 5)])
def test_a_full_dragonfly_links_every_two_groups_once(sizes: tuple[int, int, int]) -> None:
    """a h + 1 groups, one link between any two, h global links on every router."""
    routers, hosts, links = sizes
    topology = dragonfly(routers, hosts, links)
    groups = routers * links + 1
    assert topology.num_ranks == groups * routers * hosts
    between = Counter(
        (link.tail.split("/")[0], link.head.split("/")[0])
        for link in topology.links
        if "router" in link.tail and "router" in link.head and link.tail.split("/")[0] != link.head.split("/")[0]
    )
    assert len(between) == groups * (groups - 1)
    assert set(between.values()) == {1}
    ports = routers - 1 + hosts + links
    assert {topology.egress(switch) for switch in topology.switch_nodes} == {25 * ports}


@pytest.mark.parametrize(("groups", "per_pair"), [(2, 6), (3, 3), (4, 2), (5, 1), (7, 1)])
def test_a_partial_dragonfly_shares_its_ports_evenly(groups: int, per_pair: int) -> None:
    """Every two groups get equal bandwidth; no router uses more ports than it has."""
    topology = dragonfly(3, 1, 2, groups=groups, bandwidth=1)
    between: Counter[tuple[str, str]] = Counter()
    for link in topology.links:
        tail, head = link.tail.split("/")[0], link.head.split("/")[0]
        if tail != head and "host" not in tail + head:
            between[tail, head] += int(link.bandwidth)
    assert between == {(f"group{a}", f"group{b}"): per_pair for a in range(groups) for b in range(groups) if a != b}
    assert all(topology.egress(switch) <= 2 + 1 + 2 for switch in topology.switch_nodes)


def test_rails_can_multicast_and_aggregate() -> None:
    """NVSwitches with loopback and rails without; the spine only passes data on."""
    network = rail(3, sharp=True)
    rails = {f"rail{number}" for number in range(8)}
    assert network.loopback == {f"box{box}/nvswitch" for box in range(3)}
    assert network.multicast == network.aggregation == network.loopback | rails
    assert network.without_abilities() == rail(3)
    assert rail(1, sharp=True).multicast == {"box0/nvswitch"}
