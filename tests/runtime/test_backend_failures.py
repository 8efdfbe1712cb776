"""The torch backend switches plans after failures, at the same call on four Gloo processes, with right data."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import failure_tasks
import pytest

from collopt import plan
from collopt.planners import survive
from collopt.runtime.execution.local_ranks import run_ranks
from collopt.topologies import ring

PRELOAD = ("torch", "torch.distributed", "backend_tasks", "failure_tasks")
NETWORK = ring(4, bandwidth=25)


@pytest.fixture(params=["survive", pytest.param("plans", marks=pytest.mark.slow)])
def plans(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A folder with plans for every lost link, or one with plans for the intact network only."""
    folder = tmp_path / request.param
    if request.param == "survive":
        survive(NETWORK, ["allgather", "allreduce"], folder=folder, failures=["link"], baselines=[], jobs=1)
    else:
        folder.mkdir()
        for collective in ("allgather", "allreduce"):
            plan(NETWORK, collective).save(folder / f"{collective}.json")
    return str(folder)


def test_plans_are_switched_between_two_calls(plans: str) -> None:
    """Plans change once all ranks name a failure; failures of some ranks, and impossible ones, change nothing."""
    answers = run_ranks(partial(failure_tasks.lose_a_link, plans=plans), 4, timeout_s=250, preload=PRELOAD)
    lost, half = "gpu0--gpu1", "gpu0--gpu1 + gpu2--gpu3 x 1/2"
    for seen, _, unplanned in answers:
        assert all(each.right for each in seen)
        assert not unplanned
        assert [each.failure for each in seen] == ["intact", "intact", lost, *[half] * 4, "intact"]
        assert [each.network == NETWORK.name for each in seen] == [each.failure == "intact" for each in seen]
        assert seen[2].network == f"{NETWORK.name} without gpu0-gpu1"
    said = "\n".join(answers[0][1])
    for part in ("told of different failures", "'nonsense'", "there is no path from rank", "gpu3 leaves 3 of 4 ranks"):
        assert part in said


def test_failures_may_be_told_from_the_start(tmp_path: Path) -> None:
    """An environment variable names a failure; if only some ranks have it, every rank refuses the group."""
    plan(NETWORK, "allgather").save(tmp_path / "allgather.json")
    plan(NETWORK, "allreduce").save(tmp_path / "allreduce.json")
    task = partial(failure_tasks.told_by_the_environment, plans=str(tmp_path))
    wanted = failure_tasks.Seen(True, "gpu0--gpu1", f"{NETWORK.name} without gpu0-gpu1")
    assert run_ranks(partial(task, some=False), 4, timeout_s=100, preload=PRELOAD) == [wanted] * 4
    for text, soon in run_ranks(partial(task, some=True), 4, timeout_s=100, preload=PRELOAD):
        assert "have different plans or settings" in text
        assert soon
