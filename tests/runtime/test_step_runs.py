"""Schedules in steps on real tensors, one process per rank: the networks of the direct-connect paper's testbed."""

from __future__ import annotations

import pytest
from runtime_steps import TESTBED, random_steps, schedule_for

from collopt.planners.bfb.bfb import plan_bfb
from collopt.runtime import lower, run_local
from collopt.runtime.distributed.execution.execute import program_of
from collopt.schedules import AnyStepSchedule

COLLECTIVES = ("allgather", "reduce_scatter", "allreduce")


class Planned:
    """What `run_local` needs of a plan."""

    def __init__(self, collective: str, schedule: AnyStepSchedule) -> None:
        self.collective = collective
        self.schedule = schedule


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_random_steps_agree_with_torch(collective: str) -> None:
    """Floats in uneven chunks and slices."""
    schedule = schedule_for(collective, random_steps(4, 3, seed=2))
    report = run_local(Planned(collective, schedule), elements=1001, repeats=1, slices=2, timeout_s=100)
    assert report.correct == (True,) * 4
    assert report.collective == collective


@pytest.mark.slow
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("name", TESTBED)
def test_networks_of_the_testbed_agree_with_torch(name: str, collective: str) -> None:
    """Degree 4, 5 to 12 ranks, shards that do not divide by their chunks."""
    plan = plan_bfb(TESTBED[name], collective)
    report = run_local(plan, elements=10007, repeats=1, timeout_s=100)
    assert report.correct == (True,) * plan.topology.num_ranks


def test_a_schedule_is_lowered_once() -> None:
    """For as long as it is there; as a program it is what `lower` makes of it."""
    plan = Planned("allgather", random_steps(3, 2, seed=0))
    assert program_of(plan) is program_of(plan)
    assert program_of(plan) == lower(plan.schedule, "allgather", max_steps=10**6, max_count=10**6)
