"""Schedules in steps on real tensors, one process per rank: the networks of the direct-connect paper's testbed."""

from __future__ import annotations

from functools import partial

import pytest
from runtime_steps import TESTBED, random_steps, schedule_for
from sixteen_tasks import Case, compared

from collopt.planners.bfb.bfb import plan_bfb
from collopt.runtime import lower, run_local
from collopt.runtime.execution.execute import program_of
from collopt.runtime.execution.local_ranks import run_ranks
from collopt.schedules import AnyStepSchedule
from slow_cases import slow_where

COLLECTIVES = ("allgather", "reduce_scatter", "allreduce")


class Planned:
    """What `run_local` needs of a plan."""

    def __init__(self, collective: str, schedule: AnyStepSchedule) -> None:
        self.collective = collective
        self.schedule = schedule


@pytest.mark.parametrize("collective", slow_where(COLLECTIVES, lambda collective: collective != "allreduce"))
def test_random_steps_agree_with_torch(collective: str) -> None:
    """Floats in uneven chunks and slices."""
    schedule = schedule_for(collective, random_steps(4, 3, seed=2))
    report = run_local(Planned(collective, schedule), elements=1001, repeats=1, slices=2, timeout_s=100)
    assert report.correct == (True,) * 4
    assert str(report.collective) == collective


@pytest.mark.slow
@pytest.mark.parametrize("name", TESTBED)
def test_networks_of_the_testbed_agree_with_torch(name: str) -> None:
    """Degree 4, 4 to 12 ranks, shards that do not divide by their chunks; all collectives on one set of processes."""
    plans = [plan_bfb(TESTBED[name], collective) for collective in COLLECTIVES]
    cases = [Case(name, program_of(plan), 10007, "float32") for plan in plans]
    results = run_ranks(
        partial(compared, cases=cases),
        plans[0].topology.num_ranks,
        timeout_s=300,
        preload=("torch", "torch.distributed"),
    )
    assert results == [{case.name: True for case in cases}] * plans[0].topology.num_ranks


def test_a_schedule_is_lowered_once() -> None:
    """For as long as it is there; as a program it is what `lower` makes of it."""
    plan = Planned("allgather", random_steps(3, 2, seed=0))
    assert program_of(plan) is program_of(plan)
    assert program_of(plan) == lower(plan.schedule, "allgather", max_steps=10**6, max_count=10**6)
