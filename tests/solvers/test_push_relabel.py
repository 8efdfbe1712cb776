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
