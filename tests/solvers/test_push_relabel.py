"""What reaches a sink, against maximum flows from a source that is there in so many words."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collopt.solvers.flows.bottleneck import bottleneck_cut
from collopt.solvers.flows.max_flow import max_flow, paired_network, unmet_demand, workspace
from collopt.topologies import Topology, dgx_a100, fat_tree, hypercube, mi250, ring, torus
from strategies import eulerian_topologies, switch_free_topologies

Integers = npt.NDArray[np.int64]
Links = tuple[int, Integers, Integers, Integers]
TOPOLOGIES = st.one_of(eulerian_topologies(max_ranks=8, max_switches=4), switch_free_topologies(max_ranks=8))


def links_of(topology: Topology) -> Links:
    """Number of nodes and the links."""
    return (len(topology.nodes), *topology.arrays[:3])


def check(links: Links, supplies: Integers, sinks: range) -> int:
    """Compare every sink with a maximum flow; return how many of them fall short."""
    nodes, tails, heads, capacities = links
    network = paired_network(*links)
    before = [array.copy() for array in network]
    space, short = workspace(nodes), 0
    more_tails = np.concatenate([tails, np.full(len(supplies), nodes)])
    more_heads = np.concatenate([heads, np.arange(len(supplies))])
    for sink in sinks:
        residual = network.capacities.copy()
        deficit = unmet_demand(network, residual, supplies, sink, space)
        flow = max_flow(nodes + 1, more_tails, more_heads, np.concatenate([capacities, supplies]), nodes, sink)
        assert deficit == supplies.sum() - flow.value
        assert residual.min(initial=0) >= 0
        assert np.array_equal(residual[0::2] + residual[1::2], network.capacities[0::2] + network.capacities[1::2])
        if deficit > 0:
            short += 1
            assert np.array_equal(space.labels < 0, flow.source_side[:nodes])
    assert all(np.array_equal(one, other) for one, other in zip(network, before, strict=True))
    return short


@given(TOPOLOGIES, st.data())
def test_what_lacks_and_the_cut_are_those_of_a_maximum_flow(topology: Topology, data: st.DataObject) -> None:
    """Whatever the supplies, of which some may be zero, and of some or all nodes, and for switches as sinks too."""
    links = links_of(topology)
    supplies = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=links[0]))
    check(links, np.array(supplies, dtype=np.int64), range(links[0]))


@pytest.mark.parametrize(
    "topology",
    [
        ring(40),
        ring(25, bidirectional=False),
        torus(6, 5),
        hypercube(5),
        dgx_a100(boxes=6),
        mi250(boxes=3),
        fat_tree(6),
    ],
    ids=lambda topology: topology.name,
)
def test_a_little_more_than_just_fits_is_stuck(topology: Topology) -> None:
    """Ways are long, and labels rise until all that cannot arrive is given up."""
    nodes, tails, heads, capacities = links_of(topology)
    ones = np.ones(topology.num_ranks, dtype=np.int64)
    best = bottleneck_cut(nodes, tails, heads, capacities, ones)
    room = (nodes, tails, heads, capacities * best.supply * 4)
    sinks = range(topology.num_ranks)
    assert check(room, ones * best.capacity * 4, sinks) == 0
    assert check(room, ones * best.capacity * 4 + 1, sinks) > 0
    assert check(room, ones * best.capacity * 6, sinks) > 0


@pytest.mark.parametrize("seed", range(6))
def test_dense_networks_of_uneven_links(seed: int) -> None:
    """Much goes straight to the sink, and the rest finds its way around full links."""
    rng = np.random.default_rng(seed)
    dense = rng.integers(0, 5, (30, 30)) * (rng.random((30, 30)) < rng.uniform(0.2, 1))
    np.fill_diagonal(dense, 0)
    tails, heads = np.nonzero(dense)
    check((30, tails, heads, dense[tails, heads]), rng.integers(0, 5, 30), range(30))


def test_nothing_lacks_without_supplies() -> None:
    """Nor do supplies of the sink itself have to go anywhere."""
    network, space = paired_network(*links_of(ring(4))), workspace(4)
    for supplies in ([0, 0, 0, 0], [0, 0, 7], []):
        amounts = np.array(supplies, dtype=np.int64)
        assert unmet_demand(network, network.capacities.copy(), amounts, 2, space) == 0


def test_supplies_near_the_limit_of_64_bits_are_added_up_exactly() -> None:
    """One unit too much for the link from node 0."""
    big = 2**60
    tails, heads = np.array([0, 1, 1, 2]), np.array([1, 0, 2, 1])
    network = paired_network(3, tails, heads, np.array([big, 1, 2 * big - 1, 1]))
    space = workspace(3)
    assert unmet_demand(network, network.capacities.copy(), np.array([big, big - 1, 5]), 2, space) == 0
    assert unmet_demand(network, network.capacities.copy(), np.array([big, big, 5]), 2, space) == 1
    assert (space.labels >= 0).tolist() == [False, False, True]
