"""All-to-all of unequal parts, with four Gloo processes."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import partial

import all_to_all_tasks
import numpy as np
import numpy.typing as npt
import pytest
import torch

from collopt.errors import UnsupportedError
from collopt.planners import schedule_all_to_allv
from collopt.runtime import all_to_all_single
from collopt.runtime.all_to_allv.steps import Exchange, rank_steps
from collopt.runtime.execution.local_ranks import run_ranks

PRELOAD = (
    "torch",
    "torch.distributed",
    "collopt.planners.all_to_all.fast",
    "collopt.solvers.steps.stages",
    "collopt.runtime.all_to_allv.steps",
)


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Compile all kernels once, before all ranks would do so at the same time."""
    rows = np.ones((4, 4), dtype=np.int64).tobytes()
    for exchange in (
        Exchange(rows, 2, 2, 4),
        Exchange(rows, 2, 2, 4, "fewest", 100, 500),
        Exchange(rows, 2, (3, 1), 4, nics=((Fraction(1),) * 3, (Fraction(1, 2),))),
    ):
        rank_steps(exchange, 0)


@pytest.fixture(scope="module")
def answers() -> list[all_to_all_tasks.Answers]:
    """What all ranks have to tell."""
    return run_ranks(all_to_all_tasks.everything, all_to_all_tasks.RANKS, timeout_s=120, preload=PRELOAD)


def wrong(results: list[dict[str, bool]], cases: int) -> list[str]:
    """Names of what came out wrong on any rank."""
    assert {len(each) for each in results} == {cases}
    return [f"{name} on rank {rank}" for rank, each in enumerate(results) for name, right in each.items() if not right]


@pytest.mark.slow
def test_agrees_with_torch_on_many_matrices() -> None:
    """Matrices of all types agree bit for bit on 2 x 2, 1 x 4 and 4 x 1 GPUs."""
    task = partial(all_to_all_tasks.many_matrices, seeds=8)
    results = run_ranks(task, all_to_all_tasks.RANKS, timeout_s=280, preload=PRELOAD)
    assert wrong(results, 8 * 3 * (2 * 4 + 6)) == []


@pytest.mark.slow
def test_sixteen_ranks_agree_with_torch() -> None:
    """Matrices agree on 4 x 4 and 2 x 8 GPUs, by all kinds of stages."""
    task = partial(all_to_all_tasks.sixteen_ranks, seeds=8)
    assert wrong(run_ranks(task, 16, timeout_s=280, preload=PRELOAD), 64) == []


@pytest.mark.slow
def test_what_ranks_send_is_near_the_optimum() -> None:
    """Eight ranks send the bytes of the schedule; links are a thousandth as fast as those for cells of 50 MB."""
    reports = run_ranks(all_to_all_tasks.counted_exchanges, 8, timeout_s=280, preload=PRELOAD)
    cases = itertools.product(all_to_all_tasks.KINDS, all_to_all_tasks.NICS)
    for (kind, nics), *counted in zip(cases, *reports, strict=True):
        check_counts(all_to_all_tasks.cells_of_50_kb(kind), nics, counted)


def check_counts(
    traffic: npt.NDArray[np.int64], nics: list[list[int]] | None, reports: list[all_to_all_tasks.Counted]
) -> None:
    """Compare the bytes of all steps with the schedule and the optimum; without a NIC there are none outside."""
    model = all_to_all_tasks.SLOW_LINKS
    assert all(each.right for each in reports)
    steps = max(step for each in reports for step, *_ in each.sent) + 1
    bytes_of = np.zeros((2, 2, 8, steps), dtype=np.int64)  # inside servers or between them, sent or received
    for rank, each in enumerate(reports):
        for step, peer, length in each.sent:
            outside = int(rank // 2 != peer // 2)
            bytes_of[outside, 0, rank, step] += length
            bytes_of[outside, 1, peer, step] += length
    if nics:
        assert not bytes_of[1, :, 3].any()
    inside, outside = bytes_of.max(axis=(1, 2))
    times = np.maximum(inside / float(model.scale_up), outside / float(model.scale_out)) / 1000
    times += float(model.wake_up) * (times > 0)
    schedule = schedule_all_to_allv(traffic, servers=4, gpus_per_server=2, nics=nics, model=model)
    assert times.sum() == pytest.approx(float(schedule.completion_time(model)))
    assert times.sum() <= 1.02 * float(schedule.optimum(model))
    assert [each.scratch for each in reports] == schedule.scratch_bytes.tolist()
    assert max(each.scratch for each in reports) <= traffic.sum(axis=1).mean() / (2 if nics else 4)


def test_options_groups_and_odd_tensors_work(answers: list[all_to_all_tasks.Answers]) -> None:
    """Ranks exchange right data by every option, in subgroups, and with long, empty or odd rows."""
    assert wrong([each.specials for each in answers], 20) == []


def test_exchanges_go_on_beside_the_caller(answers: list[all_to_all_tasks.Answers]) -> None:
    """Several exchanges of two groups run at once, with collectives and messages of these groups between them."""
    assert wrong([each.beside for each in answers], 6) == []


@pytest.mark.parametrize("name", all_to_all_tasks.WRONG)
def test_a_wrong_argument_on_one_rank_stops_all(answers: list[all_to_all_tasks.Answers], name: str) -> None:
    """That rank names the argument, the others name the rank, and nothing is written."""
    for rank, answer in enumerate(answers):
        message, is_untouched = answer.refusals[f"wrong: {name}"]
        own = f"UnsupportedError: {all_to_all_tasks.WRONG[name][0]}"
        expected = own if rank == 2 else "ProgramError: rank 2 refused its arguments"
        assert message.startswith(expected), f"rank {rank}: {message}"
        assert is_untouched


@pytest.mark.parametrize("name", all_to_all_tasks.DIFFERENT)
def test_arguments_that_differ_stop_all(answers: list[all_to_all_tasks.Answers], name: str) -> None:
    """All ranks get the same message of one line, and nothing is written."""
    ((message, is_untouched),) = {answer.refusals[f"different: {name}"] for answer in answers}
    kind = "ProgramError" if "rank 2" in message or "disagree" in message else "UnsupportedError"
    assert message.startswith(f"{kind}: {all_to_all_tasks.DIFFERENT[name][0]}"), message
    assert is_untouched
    assert "\n" not in message


def test_torchs_detailed_debugging_excludes_asynchronous_calls(answers: list[all_to_all_tasks.Answers]) -> None:
    """After all refusals the group stays usable."""
    assert "TORCH_DISTRIBUTED_DEBUG" in answers[2].refusals["debugging"][0]
    assert {answer.refusals["after all that"][0] for answer in answers} == {"fine"}


def test_a_rank_that_stays_away_is_noticed_in_time(answers: list[all_to_all_tasks.Answers]) -> None:
    """The others give up after the timeout."""
    *messages, absent = (each.absence for each in answers)
    assert absent == "absent"
    for message in messages:
        assert message.startswith("ProgramError: the ranks could not agree on the all-to-all: "), message
        assert message.endswith("; rank 3 gave no sign: late, or ended")


@pytest.mark.slow
def test_waiting_tells_of_a_rank_that_sends_nothing() -> None:
    """A call after the one that failed is not started, and its message has the earlier error."""
    *answers, (_, last) = run_ranks(all_to_all_tasks.late, all_to_all_tasks.RANKS, timeout_s=120, preload=PRELOAD)
    assert last.startswith("ProgramError: the ranks could not agree on the all-to-all: ")
    for rank, (first, second) in enumerate(answers):
        assert first.startswith(f"ProgramError: rank {rank} could not finish step "), first
        assert second.startswith("ProgramError: an earlier call on the group failed")
        assert second.endswith(first.removeprefix("ProgramError: "))


def test_asks_for_an_initialised_group() -> None:
    """The message names the function that makes a group."""
    with pytest.raises(UnsupportedError, match="init_process_group"):
        all_to_all_single(torch.zeros(2), torch.zeros(2))
