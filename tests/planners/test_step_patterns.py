"""The named algorithms in steps: verified, executed, as costly as their papers say, and why they refuse a network."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import log2

import numpy as np
import pytest

import collopt
from collopt.planners.literature.tori import find_torus
from collopt.runtime import lower, run_program
from collopt.schedules import StepExchange, StepSchedule
from collopt.topologies import Topology, circulant, complete, dgx_a100, generalized_kautz, hypercube, ring, torus
from oracles.slow_steps import steps_hold

EVERY_ROOT = ("allgather", "reduce_scatter", "allreduce")


def congestion_deficiency(dimensions: int, size: int) -> Fraction:
    """Swing's bandwidth time over the bound on a torus of equal sizes; the proof is in the planner's module."""
    ranks = size**dimensions
    distances = [(2 ** (step + 1) + (-1) ** step) // 3 for step in range(int(log2(size)))]
    series = sum(Fraction(distance, 2 ** (dimensions * step)) for step, distance in enumerate(distances))
    return Fraction(ranks, ranks - 1) * (1 - Fraction(1, 2**dimensions)) * series


SQUARE = [
    pytest.param(2, 8, "1.095", 10),
    pytest.param(2, 16, "1.141", 20),
    pytest.param(2, 32, "1.170", 42, marks=pytest.mark.slow),
    pytest.param(3, 4, "1.000", 6),
    pytest.param(1, 16, "1.533", 10),
]


@pytest.mark.parametrize("planner", ["swing", "bine"])
@pytest.mark.parametrize(("dimensions", "size", "factor", "hops"), SQUARE)
def test_exchanges_on_tori_reproduce_the_figures_of_the_paper(
    planner: str, dimensions: int, size: int, factor: str, hops: int
) -> None:
    """Swing's latency deficiency 1, and congestion deficiency of at most 6/5 in 2D and 28/27 in 3D (NSDI 2024)."""
    network = torus(*[size] * dimensions, bandwidth=25, latency=1, routers=True)
    plan = collopt.plan(network, "allgather", planner=planner)
    found = plan.bound.algbw / plan.algbw
    assert found == congestion_deficiency(dimensions, size)
    assert f"{float(found):.3f}" == factor
    assert plan.num_steps == dimensions * log2(size)
    assert found < {1: Fraction(2**dimensions * size), 2: Fraction(6, 5), 3: Fraction(28, 27)}[dimensions]
    data_time = 2**20 / plan.algbw / 1000
    assert plan.estimate(2**20) == pytest.approx(float(data_time + hops))  # of one microsecond each


@pytest.mark.parametrize(("dimensions", "size", "factor", "hops"), SQUARE)
def test_ranks_that_pass_messages_on_and_keep_them_need_no_more_than_the_bound(
    dimensions: int, size: int, factor: str, hops: int
) -> None:
    """A step for each link that messages pass; what ranks keep on the way is not sent to them again."""
    plan = collopt.plan(torus(*[size] * dimensions), "reduce_scatter", planner="swing")
    assert (plan.gap, plan.num_steps) == (0, hops)


def test_bine_trees_have_two_thirds_of_the_distances_of_binomial_trees() -> None:
    """Bine trees, section 2: distances (2 + (-1/2)^j) / 3 of 2^j, which is the saving of up to 33 %."""
    network = ring(64).to_networkx()
    plan = collopt.plan(dgx_a100(boxes=8), "allgather", planner="bine")
    assert network.number_of_nodes() == plan.schedule.num_ranks == 64
    starts, nodes = plan.schedule.path_starts, plan.schedule.path_nodes
    for step in range(6):
        paths = plan.schedule.routes[plan.schedule.steps == step]
        apart = np.unique(np.abs(nodes[starts[paths]] - nodes[starts[paths + 1] - 1]))
        power = 5 - step
        assert set(np.minimum(apart, 64 - apart)) == {(2 ** (power + 1) + (-1) ** power) // 3}


def test_bine_trees_broadcast_and_reduce() -> None:
    """As many trees as ports; on a network of switches one of log2 height, in which no rank sends to itself."""
    plan = collopt.plan(torus(8, 8), "broadcast", planner="bine", root=5)
    assert (plan.trees.num_trees, plan.trees.root) == (4, 5)
    plan = collopt.plan(dgx_a100(boxes=2), "reduce", planner="bine", root="box0/gpu3")
    assert (plan.trees.num_trees, plan.heights.highest) == (1, 4)


@pytest.mark.parametrize(
    ("dimensions", "steps", "factor", "hops"),
    [
        (1, 3, "2.077", 13),
        (2, 1, "1.000", 2),
        (2, 2, "1.200", 8),
        pytest.param(2, 3, "1.286", 26, marks=pytest.mark.slow),
        (3, 1, "1.000", 3),
    ],
)
def test_trivance_reaches_its_closed_form(dimensions: int, steps: int, factor: str, hops: int) -> None:
    """Steps log3 of the ranks, messages over 1 + 3 + 9 + ... links of each dimension; 1 where ranks keep messages."""
    size, ranks = 3**steps, 3 ** (steps * dimensions)
    expected = Fraction(ranks, ranks - 1) * (1 - Fraction(1, 3**dimensions))
    expected *= sum(Fraction(1, 3 ** (step * (dimensions - 1))) for step in range(steps))
    routed = collopt.plan(torus(*[size] * dimensions, routers=True), "allgather", planner="trivance")
    relayed = collopt.plan(torus(*[size] * dimensions), "allgather", planner="trivance")
    assert (routed.bound.algbw / routed.algbw, routed.num_steps) == (expected, dimensions * steps)
    assert f"{float(expected):.3f}" == factor
    assert (relayed.gap, relayed.num_steps) == (0, hops)


@pytest.mark.parametrize("size", [2, 4, 5, 6, 7, 10, 26, 28])
def test_trivance_takes_any_size(size: int) -> None:
    """In as many steps as the next power of three; both sides bring half of what both could bring."""
    plan = collopt.plan(torus(size, routers=True), "reduce_scatter", planner="trivance")
    assert plan.num_steps == min(steps for steps in range(5) if 3**steps >= size)
    assert np.array_equal(plan.link_loads[:, : 2 * size].min(axis=1), plan.link_loads[:, : 2 * size].max(axis=1))


@pytest.mark.parametrize("network", [torus(4, 4), torus(8, 8), torus(4, 4, 4), torus(3, 3, routers=True), ring(7)])
def test_rings_along_all_dimensions_at_once_reach_the_bound_on_tori_of_equal_sizes(network: Topology) -> None:
    """In as many steps as a ring has other ranks, once for each dimension: 14 on 8 x 8."""
    plan = collopt.plan(network, "allreduce", planner="torus-2-phase")
    torus_of = find_torus(network)
    assert torus_of
    assert (plan.gap, plan.num_steps) == (0, 2 * sum(size - 1 for size in torus_of.shape))


def test_patterns_that_share_links_take_what_the_documentation_says() -> None:
    """47/31 of the bound by rings on 4 x 8; on two DGX A100 half of all shards cross last with the near bit first."""
    plan = collopt.plan(torus(4, 8), "allgather", planner="torus-2-phase")
    assert plan.link_loads.max(axis=1).tolist() == [1] * 3 + [5] * 4 + [8] * 3
    assert plan.bound.algbw / plan.algbw == Fraction(47, 31)
    factors = {}
    for planner in ("recursive-doubling", "recursive-halving-doubling-steps", "bruck", "pat"):
        plan = collopt.plan(dgx_a100(boxes=2), "allgather", planner=planner)
        factors[planner] = f"{float(plan.bound.algbw / plan.algbw):.2f}"
    assert list(factors.values()) == ["7.44", "1.88", "13.00", "13.00"]


@pytest.mark.parametrize(
    ("planner", "options", "steps"),
    [
        ("recursive-doubling", {}, 5),
        ("recursive-halving-doubling-steps", {}, 5),
        ("bruck", {}, 5),
        ("bruck", {"radix": 3}, 4),
        ("bruck", {"radix": 32}, 1),
        ("pat", {}, 5),
        ("pat", {"aggregation": 4}, 2 + 7),
        ("pat", {"aggregation": 1}, 31),
        ("swing", {}, 5),
        ("trivance", {}, 4),
    ],
)
def test_steps_on_one_switch_take_the_least_bytes(planner: str, options: dict[str, int], steps: int) -> None:
    """(N - 1) / N of the data at each port, in the number of steps that the papers say."""
    links = [(f"gpu{rank}", "switch", 25) for rank in range(32)]
    network = Topology.from_links(
        links, compute=[link[0] for link in links], switches=["switch"], bidirectional=True, name="switch-32"
    )
    for collective, times in (("allgather", 1), ("reduce_scatter", 1), ("allreduce", 2)):
        plan = collopt.plan(network, collective, planner=planner, **options)
        if isinstance(plan.schedule, StepExchange):  # of whole vectors, in half as many steps
            assert (plan.num_steps, plan.inverse_rate) == (steps, Fraction(steps, 25))
            continue
        assert (plan.num_steps, plan.options) == (steps * times, options)
        assert plan.inverse_rate == Fraction(31, 25) * times


@pytest.mark.parametrize(("ranks", "aggregation", "steps"), [(5, 1, 4), (12, 1, 11), (9, 2, 8), (12, 4, 5), (19, 8, 6)])
def test_pat_takes_the_documented_steps_on_any_number_of_ranks(ranks: int, aggregation: int, steps: int) -> None:
    """N - 1 without aggregation, else log2 A + 2^⌈log2 N⌉ / A - 1, as docs/reference/planners.md says."""
    plan = collopt.plan(complete(ranks), "allgather", planner="pat", aggregation=aggregation)
    assert plan.num_steps == steps


@pytest.mark.parametrize("planner", ["bruck", "pat"])
@pytest.mark.parametrize("ranks", [3, 5, 6, 7, 9, 12, 13])
def test_any_number_of_ranks_takes_as_many_steps_as_the_next_power_of_two(planner: str, ranks: int) -> None:
    """With all options, all data come to all, once."""
    network = complete(ranks)
    most = (1 << (ranks - 1).bit_length()) // 2
    options: list[dict[str, int]] = [{}, {"radix": 3}, {"radix": 20}]
    if planner == "pat":
        options = [{}, *({"aggregation": 1 << bit} for bit in range(most.bit_length()))]
    for chosen in options:
        plan = collopt.plan(network, "reduce_scatter", planner=planner, **chosen)  # type: ignore[arg-type]
        assert isinstance(plan.schedule, StepSchedule)
        assert steps_hold(plan.schedule, network)
        assert chosen or plan.num_steps == (ranks - 1).bit_length()


@pytest.mark.parametrize(
    ("network", "planner", "steps"),
    [
        (hypercube(4), "recursive-halving-doubling-steps", 4),
        (torus(4, 4), "recursive-doubling", 6),
        (torus(4, 4), "recursive-halving-doubling-steps", 6),
        (ring(6), "pat", 2 + 2 + 1),
        (ring(5, bidirectional=False), "bruck", 4),
        (circulant(12, [1, 4]), "pat", None),
        (generalized_kautz(3, 20), "bruck", None),
    ],
    ids=str,
)
def test_ranks_that_are_not_linked_send_by_way_of_others(network: Topology, planner: str, steps: int | None) -> None:
    """A step for each link of the longest path, and every part to every rank once."""
    for collective in EVERY_ROOT:
        plan = collopt.plan(network, collective, planner=planner)
        parts = plan.schedule.schedules
        for part in parts:
            assert isinstance(part, StepSchedule)
            assert steps_hold(part, network)
            assert part.num_sends == network.num_ranks * (network.num_ranks - 1)
            assert np.diff(part.path_starts).tolist() == [2] * (len(part.path_starts) - 1)
        assert steps is None or plan.num_steps == steps * len(parts)
        run_program(lower(plan.schedule, collective), interleavings=1)


@pytest.mark.parametrize("routers", [False, True])
@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 4), (12,), (4, 4), (5, 2), (3, 3)])
def test_tori_are_recognized_whatever_their_ranks_are_called(shape: tuple[int, ...], routers: bool) -> None:
    """Their neighbors are one apart in one coordinate, also where ranks are in another order; others are no tori."""
    assert not any(map(find_torus, (ring(5, bidirectional=False), dgx_a100(), complete(5))))
    network = torus(*shape, routers=routers)
    mixed = list(np.random.default_rng(1).permutation(network.num_ranks))
    names = {node: f"n{number}" for number, node in enumerate(network.nodes)}
    links = [(names[link.tail], names[link.head], link.bandwidth) for link in network.links]
    other = Topology.from_links(
        links,
        compute=[names[network.compute_nodes[rank]] for rank in mixed],
        switches=[names[node] for node in network.switch_nodes],
    )
    for each in (network, other):
        found = find_torus(each)
        assert found
        assert sorted(found.shape) == sorted(shape)
        assert sorted(map(tuple, found.places.tolist())) == list(product(*map(range, found.shape)))
        assert found.places[found.ranks].tolist() == [list(place) for place in product(*map(range, found.shape))]
        assert routers == (found.routers is not None)
        for axis in range(len(found.shape)):
            for rank, neighbor in enumerate(found.moved(axis, np.ones(each.num_ranks, dtype=np.int64))):
                ends = [each.nodes[node if not routers else found.routers[node]] for node in (rank, neighbor)]
                assert each.link(*ends).bandwidth
