"""Rings: what they reach where that is known, and how they are asked for."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.errors import UnsupportedError
from collopt.planners.literature.ring import find_rings, plan_ring, sharing_time
from collopt.planners.literature.ring_walk import RingContext
from collopt.planners.literature.routes import Hops, LinkLoads, find_boxes
from collopt.planners.trees.problem import tree_problem
from collopt.topologies import (
    Topology,
    build,
    complete,
    dgx1_v100,
    dgx_a100,
    dgx_h100,
    gb200_nvl72,
    hypercube,
    mi250,
    mi300x,
    ring,
    torus,
)
from sample_sizes import examples
from two_way_networks import two_way_topologies


@pytest.mark.parametrize(
    ("topology", "collective", "algbw"),
    [
        # N / (N - 1) times what a rank can send.
        (ring(5, bandwidth=10), "allgather", Fraction(25)),
        (ring(5, bandwidth=10), "allreduce", Fraction(25, 2)),
        (ring(6, bandwidth=10, bidirectional=False), "reduce_scatter", Fraction(12)),
        (dgx_a100(), "allgather", Fraction(2400, 7)),
        # Three cycles in each direction fill the hybrid cube mesh, as NCCL finds.
        (dgx1_v100(), "allgather", Fraction(1200, 7)),
        # Every ring takes 15 of 16 shards out of each box, through eight NICs of 25 GB/s.
        (dgx_a100(boxes=2), "allgather", Fraction(16, 15) * 200),
        (dgx_a100(boxes=2), "allreduce", Fraction(8, 15) * 200),
        (dgx_a100(boxes=4), "allgather", Fraction(32, 31) * 200),
        pytest.param(mi250(boxes=2), "allgather", Fraction(32, 31) * 256, marks=pytest.mark.slow),
        (mi250(boxes=2).restrict([*range(8), *range(16, 24)]), "allgather", Fraction(16, 15) * 128),
        # Eight zigzag paths use each of the 56 links of a box once.
        (mi300x(boxes=2), "allgather", Fraction(16, 15) * 400),
        # Eighteen rings use the NVLinks of all GPUs fully, but for those that leave a rack.
        (gb200_nvl72(2), "allreduce", Fraction(144, 286) * 900),
        (complete(8), "allgather", Fraction(8)),
        (torus(4, 4), "allgather", Fraction(64, 15)),
        (hypercube(4), "allgather", Fraction(64, 15)),
        # Rails without a spine: a ring leaves a box by the rail on which it enters the next one.
        (build("rail", boxes=3, oversubscription=None), "allgather", Fraction(24, 23) * 400),
    ],
    ids=str,
)
def test_rings_are_as_fast_as_any_can_be(topology: Topology, collective: str, algbw: Fraction) -> None:
    """What leaves a rank, or a box, sets the speed."""
    plan = plan_ring(topology, collective)
    assert (plan.planner, plan.algbw) == ("ring", algbw)
    assert plan.gap == 1 - algbw / collopt.bound(topology, collective).algbw


@pytest.mark.parametrize("box", [0, 1])
@pytest.mark.parametrize("nic", range(8))
def test_rings_use_all_other_nics_when_one_is_lost(box: int, nic: int) -> None:
    """A GPU without a NIC is passed inside its box, also where a ring would have begun there."""
    plan = plan_ring(dgx_h100(2).without_node(f"box{box}/nic{nic}"), "allgather")
    assert plan.algbw == Fraction(16, 15) * 350


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_a_number_of_rings_is_as_fast_as_so_many_can_be(channels: int) -> None:
    """Each has NICs of its own, and more rings would be faster; more than there are different ones repeat."""
    plan = plan_ring(dgx_a100(boxes=2), "allgather", channels=channels)
    assert (plan.options, plan.schedule.trees_per_root) == ({"channels": channels}, channels)
    assert plan.algbw == Fraction(16, 15) * 25 * channels
    assert plan_ring(ring(3, bidirectional=False), "allgather", channels=channels).schedule.trees_per_root == channels


@settings(max_examples=examples(40))
@given(two_way_topologies(max_ranks=6, max_switches=3))
def test_no_ring_is_faster_than_counting_allows(topology: Topology) -> None:
    """The bound by which the search stops early."""
    hops = Hops(tree_problem(topology, "broadcast", ()))
    boxes = find_boxes(hops)
    try:
        rings = find_rings(hops, boxes)
    except UnsupportedError:
        return
    everyone = [[rank for box in boxes for rank in box]]
    loads = LinkLoads(hops.problem.capacities)
    ideals = [RingContext(hops, each, nearest=False).ideal([len(rings)], loads) for each in (boxes, everyone)]
    assert sharing_time(hops, rings) >= min(ideals)


@settings(max_examples=examples(40))
@given(st.integers(3, 8), st.data())
def test_found_rings_visit_every_rank_once(ranks: int, data: st.DataObject) -> None:
    """On graphs that hide a ring among other links; the time is that of the busiest link."""
    order = data.draw(st.permutations(range(ranks)))
    extra = data.draw(st.lists(st.tuples(st.integers(0, ranks - 1), st.integers(0, ranks - 1)), max_size=8))
    pairs = {*zip(order, order[1:] + order[:1], strict=True), *(pair for pair in extra if pair[0] != pair[1])}
    links = [(f"gpu{tail}", f"gpu{head}", 1 + (tail + head) % 3) for tail, head in sorted(pairs)]
    topology = Topology.from_links(links, compute=[f"gpu{rank}" for rank in range(ranks)])
    hops = Hops(tree_problem(topology, "broadcast", ()))
    rings = find_rings(hops, find_boxes(hops))
    loads = dict.fromkeys(pairs, 0)
    for found in rings:
        assert sorted(found.ranks) == list(range(ranks))
        for pair, route in zip(pairwise([*found.ranks, found.ranks[0]]), found.routes, strict=True):
            assert route.nodes == pair
            loads[pair] += 1
    busiest = max(Fraction(load, 1 + sum(pair) % 3) for pair, load in loads.items())
    assert sharing_time(hops, rings) == busiest / len(rings) * topology.arrays.unit


def test_an_order_is_followed() -> None:
    """By number or name, in a text, list or array; the other way round too where that helps."""
    plan = plan_ring(ring(4), "allgather", order="0, gpu1,2,3")
    assert (plan.options, plan.gap, plan.schedule.trees_per_root) == ({"order": "0,1,2,3"}, 0, 2)
    one_way = plan_ring(ring(4, bidirectional=False), "reduce_scatter", order=[1, 2, 3, "gpu0"])
    assert (one_way.gap, one_way.schedule.trees_per_root) == (0, 1)
    # In rank order, one GPU of each box sends all that leaves it.
    assert plan_ring(dgx_a100(boxes=2), "allgather", order=np.arange(16)).algbw == Fraction(16, 15) * 50


STAR = Topology.from_links([("a", "b", 1), ("a", "c", 1), ("a", "d", 1)], compute="abcd", bidirectional=True)


@pytest.mark.parametrize(
    ("network", "options", "message"),
    [
        (ring(4), {"order": [0, 1, 3, 2]}, "rank 'gpu1' would have to send to 'gpu3', but every path there"),
        (ring(4), {"order": [0, 1, 2]}, "order has 3 ranks; expected all 4, each once"),
        (ring(4), {"order": "0,1,2,7"}, "order does not name ranks: "),
        (ring(4), {"order": np.zeros((2, 2))}, "order is "),
        (ring(4), {"order": [0, 1, 2, 3], "channels": 2}, "order describes one ring; leave channels out"),
        (ring(4), {"channels": 0}, "channels is 0; expected a whole number from 1 to 32"),
        (STAR, {}, "no ring through 4 ranks of .* was found whose neighbors are"),
    ],
)
def test_what_makes_no_ring_is_refused(network: Topology, options: dict[str, Any], message: str) -> None:
    """In one line that says what was expected."""
    with pytest.raises(UnsupportedError, match=rf"^{message}"):
        plan_ring(network, "allgather", **options)


def test_many_different_bandwidths_have_a_common_multiple_beyond_64_bits() -> None:
    """Costs are exact whole numbers over that multiple, so positions in them are too."""
    count, primes = 12, [number for number in range(2, 320) if all(number % other for other in range(2, number))]
    pairs = [(tail, (tail + step) % count) for tail in range(count) for step in (1, 3, 5, 7, 9)]
    links = [(f"g{tail}", f"g{head}", rate) for (tail, head), rate in zip(pairs, primes, strict=False)]
    plan = collopt.plan(
        Topology.from_links(links, compute=[f"g{rank}" for rank in range(count)]), "allgather", planner="ring"
    )
    plan.verify()
    assert 0 < plan.algbw <= plan.bound.algbw
