"""The named algorithms in steps: verified, executed, as costly as their papers say, and why they refuse a network."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import product
from math import log2

import numpy as np
import pytest

import collopt
from collopt import Plan
from collopt.errors import UnsupportedError
from collopt.planners import PLANNERS
from collopt.planners.step_patterns.torus_shapes import find_torus
from collopt.runtime import lower, run_program
from collopt.schedules import StepAllreduce, StepSchedule
from collopt.topologies import Topology, complete, dgx_a100, hypercube, ring, torus
from oracles.slow_steps import step_loads_of, steps_hold

IN_STEPS = ("swing", "bine")
EVERY_ROOT = ("allgather", "reduce_scatter", "allreduce")
TOPOLOGIES = [
    torus(4, 4),
    torus(4, 4, routers=True),
    torus(6, 2),
    torus(4, 2, 2, routers=True),
    ring(10),
    hypercube(3),
    dgx_a100(boxes=2).restrict([0, 1, 2, 3, 8, 9, 10, 11]),
    collopt.topologies.build("leaf-spine", leaves=3, spines=2, hosts_per_leaf=2),
]


@cache
def attempt(topology: Topology, collective: str, planner: str) -> Plan | None:
    """The plan, or None if the planner says why there is none."""
    try:
        options = {"root": topology.num_ranks - 1} if collective in ("broadcast", "reduce") else {}
        return collopt.plan(topology, collective, planner=planner, **options)
    except UnsupportedError:
        return None


@pytest.mark.parametrize("planner", IN_STEPS)
@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda topology: topology.name)
def test_plans_are_verified_and_move_the_right_data(topology: Topology, planner: str) -> None:
    """By the verifier, by plain loops with sets, and by the interpreter, which counts every contribution once."""
    for collective in PLANNERS[planner].options:
        if plan := attempt(topology, collective, planner):
            plan.verify()
            assert (plan.planner, str(plan.collective)) == (planner, collective)
            run_program(lower(plan.schedule, collective), interleavings=1)
            schedule, loads = plan.schedule, plan.link_loads.tolist()
            if isinstance(schedule, StepSchedule | StepAllreduce):
                assert all(steps_hold(part, topology) for part in schedule.schedules)
                assert [row for part in schedule.schedules for row in step_loads_of(part, topology)] == loads


@pytest.mark.parametrize("planner", IN_STEPS)
def test_every_planner_suits_some_of_these_networks_for_each_of_its_collectives(planner: str) -> None:
    """Otherwise the test above would say nothing about it."""
    for collective in PLANNERS[planner].options:
        assert any(attempt(topology, collective, planner) for topology in TOPOLOGIES), (planner, collective)


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


@pytest.mark.parametrize("routers", [False, True])
@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 4), (12,), (4, 4), (5, 2), (3, 3)])
def test_tori_are_recognized_whatever_their_ranks_are_called(shape: tuple[int, ...], routers: bool) -> None:
    """Their neighbors are one apart in one coordinate; also where ranks are in another order."""
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


@pytest.mark.parametrize("network", [ring(5, bidirectional=False), dgx_a100(), complete(5)], ids=str)
def test_other_networks_are_no_tori(network: Topology) -> None:
    """Neither one-way rings, nor boxes, nor meshes."""
    assert find_torus(network) is None


@pytest.mark.parametrize(
    ("planner", "network", "reason"),
    [
        ("swing", torus(4, 3), "expected an even size of each dimension, not 4x3"),
        ("swing", complete(6), "swing needs a torus, with links both ways"),
        ("bine", ring(5), "expected an even size"),
    ],
    ids=str,
)
def test_refusals_say_what_is_needed(planner: str, network: Topology, reason: str) -> None:
    """In one sentence."""
    with pytest.raises(UnsupportedError, match=reason):
        collopt.plan(network, "allgather", planner=planner)
