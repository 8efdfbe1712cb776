"""Logical topologies: ranks and links in place of switches (ForestColl, sections 5.3 and E.2)."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from typing import Any

from hypothesis import given, settings

from collopt import bound
from collopt.planners import LogicalTopology, logical_topology
from collopt.schedules import Bound
from collopt.topologies import Topology, dgx_a100, mi250, ring
from sample_sizes import examples
from strategies import eulerian_topologies


def check(found: Bound, logical: LogicalTopology, **shards: Any) -> None:
    """Check that the bound is kept, and that the routes are ways through the network that fit its links."""
    network = found.topology
    assert logical.topology.compute_nodes == network.compute_nodes
    assert not logical.topology.switch_nodes
    assert bound(logical.topology, found.collective, **shards).inverse_rate == found.inverse_rate
    used: Counter[tuple[str, str]] = Counter()
    for pair, routes in logical.routes.items():
        assert logical.topology.link(*pair).bandwidth == logical.multiplicities[pair] * logical.unit
        for path, units in routes:
            assert (path[0], path[-1]) == pair
            assert set(path[1:-1]) <= set(network.switch_nodes)
            for hop in pairwise(path):
                used[hop] += units
    for (tail, head), units in used.items():
        assert units * logical.unit <= network.link(tail, head).bandwidth


@settings(max_examples=examples(60), deadline=None)
@given(eulerian_topologies())
def test_the_bound_is_kept_on_random_networks(topology: Topology) -> None:
    """Theorem 6: edge splitting leaves the bottleneck as it is, of both directions."""
    for collective in ("allgather", "reduce_scatter"):
        found = bound(topology, collective)
        check(found, logical_topology(found))


def test_boxes_of_vendors_keep_their_bound() -> None:
    """Also with shards of different sizes, and with one root."""
    for network in (dgx_a100(boxes=2), mi250()):
        found = bound(network, "allgather")
        check(found, logical_topology(found))
    for collective, shards in (("broadcast", {"root": 3}), ("allgather", {"weights": range(1, 9)})):
        found = bound(dgx_a100(), collective, **shards)
        check(found, logical_topology(found), **shards)


def test_splits_are_of_the_links_that_are_left() -> None:
    """On a star each split makes a link; without switches there are none."""
    star = Topology.from_links(
        [(rank, "hub", 3) for rank in "abcd"], compute="abcd", switches=["hub"], bidirectional=True
    )
    logical = logical_topology(bound(star, "allgather"))
    made = Counter({(split.tail, split.head): 0 for split in logical.splits})
    for split in logical.splits:
        made[split.tail, split.head] += split.units
        assert split.switch == "hub"
    assert made == logical.multiplicities
    alone = logical_topology(bound(ring(4), "allgather"))
    assert alone.splits == ()
    assert alone.unit * alone.multiplicities["gpu0", "gpu1"] <= Fraction(1)
