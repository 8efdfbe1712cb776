"""Room for trees on two-way links, against all cuts of small networks."""

from __future__ import annotations

from math import gcd

import numpy as np
from hypothesis import given, settings

from collopt.solvers.trees.strength import Orientation, orient, strength
from collopt.topologies import Topology
from oracles.brute_force_cuts import supplies_fit
from sample_sizes import examples
from two_way_networks import TwoWay, two_way, two_way_topologies


def oriented(network: TwoWay) -> Orientation:
    """Orient for as many trees as the strength allows."""
    return orient(*network, strength(*network))


def fits(network: TwoWay, room: Orientation) -> bool:
    """Whether every rank can receive all trees, by all cuts; those that enter it, seen from outside."""
    nodes, _, tails, heads, _ = network
    both_tails, both_heads = np.concatenate([tails, heads]), np.concatenate([heads, tails])
    return supplies_fit(nodes, both_tails, both_heads, np.concatenate([room.forward, room.backward]), room.supplies)


@given(two_way_topologies(max_ranks=6, max_switches=3))
@settings(max_examples=examples(150))
def test_every_rank_can_receive_as_many_trees_as_the_strength_allows(topology: Topology) -> None:
    """No link is used beyond its capacity, switches are balanced, and all cuts let the trees through."""
    network = two_way(topology)
    best = strength(*network)
    room = orient(*network, best)
    assert room.supplies.sum() == best.value * room.scale
    assert min(room.supplies.min(), room.forward.min(), room.backward.min()) >= 0
    for forward, backward, capacity in zip(
        room.forward.tolist(), room.backward.tolist(), network.capacities.tolist(), strict=True
    ):
        assert forward + backward == capacity * room.scale
    surplus = np.zeros(network.num_nodes, dtype=np.int64)
    np.add.at(surplus, network.heads, room.forward - room.backward)
    np.subtract.at(surplus, network.tails, room.forward - room.backward)
    assert not surplus[network.num_ranks :].any()
    assert fits(network, room)
    assert gcd(*room.supplies.tolist(), *room.forward.tolist(), *room.backward.tolist()) == 1


@given(two_way_topologies(max_ranks=5, max_switches=2))
@settings(max_examples=examples(40))
def test_one_tree_more_does_not_fit(topology: Topology) -> None:
    """With the same room an additional tree is too much for some cut."""
    network = two_way(topology)
    room = oriented(network)
    more = room.supplies.copy()
    more[0] += 1
    assert not fits(network, room._replace(supplies=more))
