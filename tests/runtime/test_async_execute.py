"""Calls that go on beside the caller, with four Gloo processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import async_tasks
import numpy as np
import pytest
import runtime_tasks

from collopt.runtime.all_to_allv.steps import Exchange, rank_steps
from collopt.runtime.execution.local_ranks import run_ranks

PRELOAD = (
    "torch",
    "torch.distributed",
    "collopt.planners.pairs.fast",
    "collopt.solvers.fast.stages",
    "collopt.runtime.all_to_allv.step_kernel",
)
RANKS = runtime_tasks.RANKS


@pytest.fixture(scope="module")
def answers() -> list[async_tasks.Answers]:
    """What all ranks have to tell."""
    # Compile the kernels once, before all ranks would do so at the same time.
    rank_steps(Exchange(np.ones((4, 4), dtype=np.int64).tobytes(), 2, 2, 4), 0)
    return run_ranks(async_tasks.everything, RANKS, timeout_s=200, preload=PRELOAD)


@pytest.mark.slow
def test_calls_that_go_on_give_what_the_others_do(answers: list[async_tasks.Answers]) -> None:
    """Many at once, mixed with synchronous calls, messages, collectives and exchanges, in one group or two."""
    for rank, answer in enumerate(answers):
        assert len(answer.right) == 12
        assert [name for name, right in answer.right.items() if not right] == [], f"rank {rank}"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("expanded", "UnsupportedError: output has shape (10,) and is not contiguous"),
        ("no bool", "UnsupportedError: async_op is 1; expected True or False"),
        ("debugging", "UnsupportedError: async_op is True and TORCH_DISTRIBUTED_DEBUG is DETAIL, which takes"),
        ("afterwards", "fine"),
        ("wait", "UnsupportedError: timeout is 0; expected a positive number of seconds"),
    ],
)
@pytest.mark.slow
def test_wrong_arguments_are_told_by_the_call(answers: list[async_tasks.Answers], name: str, message: str) -> None:
    """And not by the wait."""
    for answer in answers:
        assert answer.refusals[name].startswith(message)


@pytest.mark.slow
def test_a_wrong_call_on_one_rank_stops_all(answers: list[async_tasks.Answers]) -> None:
    """By the call again; nothing has begun."""
    told = [answer.refusals["one rank"] for answer in answers]
    assert told.pop(2).startswith("UnsupportedError: output has 11 elements and input has 10")
    assert all(message.startswith("ProgramError: another rank refused its arguments") for message in told)


@pytest.mark.slow
def test_futures_hold_the_output(answers: list[async_tasks.Answers]) -> None:
    """Which ranks other than the root of a reduce have none of."""
    for rank, answer in enumerate(answers):
        assert answer.futures == {"then": 12, "afterwards": True, "outputs": int(rank == 2)}


@pytest.mark.slow
def test_callbacks_go_on_with_collectives(answers: list[async_tasks.Answers]) -> None:
    """Synchronous and asynchronous ones, that they wait for, while other calls wait for them."""
    for answer in answers:
        assert answer.callbacks == [[6, 24, 96], [6]]


def test_waiting_tells_of_a_rank_that_stays_away() -> None:
    """Within the timeout of one call, however many there are; the log tells it once, too."""
    *answers, (nothing, _, _) = run_ranks(async_tasks.absent_rank, RANKS, timeout_s=120, preload=PRELOAD)
    assert nothing == []
    for rank, ((early, *messages), said, seconds) in enumerate(answers):
        assert early.startswith("ProgramError: the call did not finish within 0.05 s; it continues")
        failure = f"rank {rank} could not finish round "
        assert [message.startswith(f"ProgramError: {failure}") for message in messages[:2]] == [True, True]
        later = (
            "ProgramError: an earlier call on the group failed, so this one was not started; the earlier error: "
            f"{failure}"
        )
        assert [message.startswith(later) for message in messages[2:]] == [True] * 3
        assert [each.startswith(f"an asynchronous call failed: {failure}") for each in said] == [True]
        assert seconds < 20


Left = dict[str, list[dict[str, Any]]]
WAYS_TO_LEAVE = ("finished", "forked", "without rank 3", "late release", "destroyed")


@pytest.fixture(scope="module")
def left() -> Left:
    """What becomes of four ranks that come to the end of their program without waiting for their calls, in each way."""
    task = Path(async_tasks.__file__).with_name("leaving_tasks.py")
    done = subprocess.run(
        [sys.executable, task, *WAYS_TO_LEAVE],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(task.parent), *sys.path])},
    )
    assert done.returncode == 0, done.stderr
    found: Left = json.loads(done.stdout)
    for ranks in found.values():
        assert [each["code"] for each in ranks] == [0] * RANKS, found
    return found


@pytest.mark.slow
def test_calls_that_nobody_waits_for_come_to_their_end_before_the_program_does(
    left: Left,
) -> None:
    """Rank 0, which waits, has its data from the others, which do not."""
    assert [each["said"] for each in left["finished"]] == [""] * RANKS


def test_processes_of_multiprocessing_bring_their_calls_to_an_end_too() -> None:
    """Though they leave without what atexit knows: rank 0 has its data from ranks whose task is over."""
    assert run_ranks(async_tasks.leaving_early, RANKS, timeout_s=120, preload=PRELOAD) == [[6, 6, 6], [], [], []]


@pytest.mark.slow
def test_a_fork_ends_at_once_and_is_told_what_it_cannot_do(left: Left) -> None:
    """While a call of the process that it is a fork of goes on; that one comes to its end undisturbed."""
    first, *others = (each["said"].splitlines() for each in left["forked"])
    assert others == [[]] * (RANKS - 1)
    assert [line.partition(";")[0] for line in first if "Warning" not in line] == [
        "ProgramError: the call continues in the process that this one was forked from",
        first[1].partition(";")[0],
        "the fork has ended with 0 while the call went on",
        "the call has brought 6",
    ]
    assert first[1].startswith("UnsupportedError: the group is that of process ")


@pytest.mark.slow
def test_a_program_ends_though_its_calls_cannot(left: Left) -> None:
    """Soon, and it says why it has waited."""
    found = left["without rank 3"]
    for each in found[:3]:
        assert each["said"].startswith("the program exits with calls that are unfinished after 1 s, on groups: 1; wait")
        assert "an asynchronous call failed: rank " in each["said"]
        assert each["seconds"] < 30


@pytest.mark.slow
def test_a_program_ends_after_its_calls_have_released_their_tensors(left: Left) -> None:
    """A thread that were in torch's code at that time would end the process by SIGABRT."""
    assert [each["said"] for each in left["late release"]] == [""] * RANKS


@pytest.mark.slow
def test_errors_that_nobody_waits_for_are_told(left: Left) -> None:
    """Here of a group that is destroyed too early."""
    for each in left["destroyed"]:
        assert "an asynchronous call failed: rank " in each["said"] or not each["said"]
