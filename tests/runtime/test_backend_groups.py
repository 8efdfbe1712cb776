"""Groups of any ranks have plans on their part of the network of all ranks, with four Gloo processes."""

from __future__ import annotations

import group_tasks
import pytest

from collopt.runtime.execution.local_ranks import run_ranks

PRELOAD = ("torch", "torch.distributed", "backend_tasks", "group_tasks")


@pytest.fixture(scope="module")
def answers() -> list[group_tasks.Seen]:
    """What each rank has seen."""
    return run_ranks(group_tasks.call_in_groups, group_tasks.RANKS, timeout_s=200, preload=PRELOAD)


def test_groups_have_plans_without_files(answers: list[group_tasks.Seen]) -> None:
    """All calls run by plans, with right data, also after a failure of a link of all ranks' network."""
    for rank, seen in enumerate(answers):
        assert list(seen.by_group) == [str(ranks) for ranks in group_tasks.GROUPS if rank in ranks]
        for called in seen.by_group.values():
            assert all(each.right for each in called)
            assert (called[0].usage.failure, called[-1].usage.failure) == ("intact", "box0/nic0--ib x 1/2")
            assert called[-1].usage.fallback == {}
            assert called[-1].usage.planned == {"allreduce": len(called), "broadcast": len(called)}


def test_the_first_rank_plans_for_all_within_a_time(answers: list[group_tasks.Seen]) -> None:
    """What takes longer is left to the wrapped backend, and the first rank of the group says why."""
    for rank in group_tasks.GROUPS[-1]:
        first, second = answers[rank].planned_by_one
        assert (first.right, first.usage.planned) == (True, {"allreduce": 1, "broadcast": 1})
        assert (second.right, second.usage.planned["broadcast"], second.usage.fallback) == (True, 1, {"broadcast": 1})
    [told] = answers[0].said
    assert "that takes more than 0.01 s; save the plan" in told
    assert [seen.said for seen in answers[1:]] == [[]] * 3
