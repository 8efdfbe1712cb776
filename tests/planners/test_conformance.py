"""Every planner: verified plans that no bound forbids, that files keep, and that move the right data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.errors import BoundError, UnsupportedError
from collopt.planners import PLANNERS, Plan
from collopt.planners.plans.files import plan_from_json
from collopt.runtime import lower, run_program, simulate
from collopt.schedules import Demands, StepAllreduce, StepSchedule
from collopt.schedules.collective import DEMANDS
from collopt.topologies import Topology, build, complete, dgx1_v100, dgx_a100, dgx_h100, hypercube, mi250, ring, torus
from oracles.slow_check import plan_holds
from oracles.slow_steps import step_loads_of, steps_hold
from sample_sizes import examples
from slow_cases import slow_where
from strategies import eulerian_topologies, switch_free_topologies

NETWORKS = [
    dgx_a100(boxes=2).restrict([0, 1, 2, 3, 8, 9, 10, 11]),
    dgx_h100(),
    dgx_h100(boxes=2),
    dgx1_v100(boxes=2),
    mi250(boxes=2).restrict([*range(8), *range(16, 24)]),
    build("leaf-spine", leaves=3, spines=2, hosts_per_leaf=2, oversubscription=2),
    build("rail", boxes=3, gpus_per_box=2, sharp=True),
    build("fat-tree", k=4),
    build("dragonfly", routers_per_group=2, hosts_per_router=2, global_links_per_router=1),
    torus(3, 3),
    torus(4, 2, 2, routers=True),
    torus(4, 4),
    hypercube(3),
    complete(4),
    ring(5, bidirectional=False),
    ring(10),
    dgx_a100(boxes=2).without_node("box1/gpu3"),
]
SEARCHED_RANKS = 9
"""Ranks up to which `milp` searches."""
RUN_HOPS = 5000
"""Trees times ranks up to which the interpreter takes a second."""


def problem_of(topology: Topology, collective: str) -> dict[str, Any]:
    """The root or the traffic of a collective that has one."""
    ranks = topology.num_ranks
    if collective in ("broadcast", "reduce"):
        return {"root": ranks - 1}
    return {"traffic": np.arange(ranks * ranks).reshape(ranks, ranks) % 5} if collective == "all_to_allv" else {}


def operation_of(topology: Topology, collective: str) -> str | Demands:
    """The collective, or items for all ranks, for one from either of two, and for those of its second half."""
    if collective != DEMANDS.name:
        return collective
    names = topology.compute_nodes
    items = [
        ("all", 2, names[-1:], names),
        ("either", 3, names[:2], names[-1:]),
        ("half", 1, names[:1], names[len(names) // 2 :]),
    ]
    return Demands(item for item in items if set(item[3]) - set(item[2]))


@cache
def attempt(topology: Topology, collective: str, planner: str) -> Plan | None:
    """The plan, or None if the planner says why there is none."""
    if planner == "milp" and topology.num_ranks > SEARCHED_RANKS:
        return None
    try:
        operation = operation_of(topology, collective)
        return collopt.plan(topology, operation, planner=planner, **problem_of(topology, collective))
    except UnsupportedError:
        return None


@cache
def least_time(topology: Topology, collective: str) -> Fraction:
    """The least time for 64K that any schedule takes."""
    operation = operation_of(topology, collective)
    return collopt.bound(topology, operation, size="64K", **problem_of(topology, collective)).time


def items_arrive(trees: Any, demands: Demands, topology: Topology) -> Iterator[bool]:
    """Whether the hops of every tree, one after the other, bring what their sender has to all destinations."""
    ends = demands.ends(topology)
    for tree, group in enumerate(trees.groups.tolist()):
        having = set(ends[group].sources)
        for hop in trees.edges(tree):
            yield hop.tail in having
            having.add(hop.head)
        yield having.issuperset(ends[group].destinations)


def plans_of(topology: Topology, planner: str) -> Iterator[Plan]:
    """The plans of a planner for all its collectives."""
    for collective in map(str, PLANNERS[planner].collectives):
        if plan := attempt(topology, collective, planner):
            yield plan


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize(
    "topology",
    slow_where(NETWORKS, lambda network: network.num_ranks > SEARCHED_RANKS and network.name != "torus-4x4"),
    ids=lambda topology: topology.name,
)
def test_plans_are_right(topology: Topology, planner: str) -> None:
    """They verify, also by plain loops, keep every bound, survive a file, and one of them is run on data."""
    plans = list(plans_of(topology, planner))
    for plan in plans:
        plan.verify()
        assert plan.planner == planner or planner in ("auto", "nccl")
        assert plan.gap >= 0
        assert simulate(plan, "64K").time >= least_time(topology, str(plan.collective))
        again = plan_from_json(json.loads(json.dumps(plan.to_json())), "here")
        again.verify()
        assert (again.algbw, again.bound, again.to_json()) == (plan.algbw, plan.bound, plan.to_json())
        schedule = plan.schedule
        if isinstance(schedule, StepSchedule | StepAllreduce):
            assert all(steps_hold(part, topology) for part in schedule.schedules)
            loads = [row for part in schedule.schedules for row in step_loads_of(part, topology)]
            assert loads == schedule.link_loads(topology).tolist()
    short = [plan for plan in plans if plan.schedule.num_trees * topology.num_ranks < RUN_HOPS]
    for plan in plans:
        if isinstance(plan.collective, Demands):
            assert all(items_arrive(plan.schedule, plan.collective, topology))
    if short and not plans[0].collective.has_items:
        plan = short[(NETWORKS.index(topology) + len(planner)) % len(short)]
        run_program(lower(plan.schedule, plan.collective), interleavings=1)


@pytest.mark.parametrize("planner", PLANNERS)
def test_every_planner_suits_some_of_these_networks_for_each_of_its_collectives(planner: str) -> None:
    """So the test above says something about it."""
    for collective in map(str, PLANNERS[planner].collectives):
        assert any(attempt(topology, collective, planner) for topology in NETWORKS), collective


@settings(max_examples=examples(200), deadline=None)
@given(
    st.one_of(eulerian_topologies(max_ranks=6, max_switches=3), switch_free_topologies(max_ranks=8)),
    st.sampled_from([name for name in PLANNERS if name != "milp"]),
    st.data(),
)
def test_plans_of_random_networks_are_verified(topology: Topology, planner: str, data: st.DataObject) -> None:
    """Or a planner says why there is none, also where links are one-way; an allgather also holds by plain loops."""
    collective = data.draw(st.sampled_from([*map(str, PLANNERS[planner].collectives)]))
    try:
        plan = attempt(topology, collective, planner)
    except BoundError:
        return
    if plan:
        plan.verify()
        assert plan.gap >= 0
        assert collective != "allgather" or not plan.schedule.num_trees or plan_holds(plan)


@pytest.mark.parametrize(
    "planner", [name for name in PLANNERS if "weights" in PLANNERS[name].keywords and name != "steiner"]
)
@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter"])
def test_shards_can_differ(planner: str, collective: str) -> None:
    """And some can be empty."""
    weights = [1, 0, 2, 1, 1, 1, 1, 1] * 2
    plan = collopt.plan(dgx_a100(boxes=2), collective, planner=planner, weights=weights)
    plan.verify()
    assert plan.schedule.root_weights.tolist() == weights
    assert plan.gap == 1 - plan.algbw / collopt.bound(dgx_a100(boxes=2), collective, weights=weights).algbw


@pytest.mark.parametrize("planner", ["hierarchical-ring", "recursive-halving-doubling"])
def test_hops_between_boxes_spread_over_spines(planner: str) -> None:
    """Each of two spines carries half of what leaves a leaf, in a pattern that knows nothing of spines."""
    topology = build("leaf-spine", leaves=4, spines=2, hosts_per_leaf=4)
    plan = collopt.plan(topology, "allgather", planner=planner)
    loads = dict(zip(topology.links, plan.link_loads.tolist(), strict=True))
    up = [load for link, load in loads.items() if link.tail.startswith("leaf") and link.head.startswith("spine")]
    assert all(one == other for one, other in pairwise(up))
