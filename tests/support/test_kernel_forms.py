"""Kernels in Python and compiled by numba return the same plans, programs, sweeps and schedules, to the last byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from collopt.planners import bound, count_dispatch, find_topologies, plan, schedule_all_to_allv, schedule_dispatch
from collopt.runtime import run_program
from collopt.runtime.lowering.lower import lower
from collopt.schedules import ALL_TO_ALL, ALLGATHER, ALLREDUCE, BROADCAST, Collective
from collopt.schedules.stages.schedule import AllToAllvSchedule
from collopt.support.kernels import kernels_in
from collopt.topologies import Topology, dgx_a100, torus
from sample_sizes import examples
from strategies import eulerian_topologies

pytestmark = pytest.mark.slow  # compiles nearly all kernels where no cache holds them


def in_both_forms(results: Callable[[], Iterator[object]]) -> tuple[list[object], list[object]]:
    """Return what a function yields in each form."""
    with kernels_in("python"):
        by_python = list(results())
    with kernels_in("compiled"):
        return by_python, list(results())


def columns(schedule: AllToAllvSchedule) -> list[object]:
    """Return all that a schedule holds."""
    return [np.asarray(value).tolist() for value in vars(schedule).values()]


@given(eulerian_topologies(4, 2))
@settings(max_examples=examples(20), deadline=None)
def test_random_networks_have_the_same_plans(network: Topology) -> None:
    """With and without switches, for collectives of trees and between pairs."""

    def results() -> Iterator[object]:
        for collective in (ALLGATHER, ALLREDUCE, ALL_TO_ALL):
            yield bound(network, collective).inverse_rate
            yield plan(network, collective).to_json()

    by_python, compiled = in_both_forms(results)
    assert by_python == compiled


@pytest.mark.parametrize("network", [dgx_a100(boxes=2), torus(3, 3)], ids=str)
@pytest.mark.parametrize("collective", [ALLGATHER, ALLREDUCE, ALL_TO_ALL, BROADCAST], ids=str)
def test_plans_programs_and_estimates_agree(network: Topology, collective: Collective, tmp_path: Path) -> None:
    """From the plan over its time to what a run of its program finds."""

    def results() -> Iterator[object]:
        root = 0 if collective is BROADCAST else None
        for options in ({}, {"size": "1M"}):
            answer = plan(network, collective, root=root, **options)
            answer.save(tmp_path / "plan.json")
            yield (tmp_path / "plan.json").read_text()
            yield answer.estimate("1M")
            yield str(run_program(lower(answer.schedule, collective)))

    by_python, compiled = in_both_forms(results)
    assert by_python == compiled


def test_direct_connect_and_run_time_planning_agree() -> None:
    """Breadth-first broadcasts, the finder, all-to-allv and dispatch."""
    traffic = [[1 + one * other % 7 for other in range(16)] for one in range(16)]

    def results() -> Iterator[object]:
        yield plan(torus(3, 3), ALLGATHER, planner="bfb").to_json()
        yield str(find_topologies(8, 2))
        for stages in ("plain", "fewest", "rotations"):
            yield columns(schedule_all_to_allv(traffic, servers=2, gpus_per_server=8, stages=stages))
        yield columns(schedule_all_to_allv(traffic, servers=3, gpus_per_server=[8, 4, 4]))
        routed = count_dispatch([[[0, 1]], [[1, 0]]], [0, 1], servers=2, gpus_per_server=1)
        yield str(schedule_dispatch(routed, relay_rounds=1))

    by_python, compiled = in_both_forms(results)
    assert by_python == compiled
