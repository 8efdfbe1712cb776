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
    "collopt.planners.all_to_all.fast",
    "collopt.solvers.steps.stages",
    "collopt.runtime.all_to_allv.steps",
)
RANKS = runtime_tasks.RANKS


@pytest.fixture(scope="module")
def answers() -> list[async_tasks.Answers]:
    """What all ranks have to tell."""
    # Compile the kernels once, before all ranks would do so at the same time.
    rank_steps(Exchange(np.ones((4, 4), dtype=np.int64).tobytes(), 2, 2, 4), 0)
    return run_ranks(async_tasks.everything, RANKS, timeout_s=200, preload=PRELOAD)


REFUSALS = {
    "expanded": "UnsupportedError: output has shape (10,) and is not contiguous",
    "no bool": "UnsupportedError: async_op is 1",
    "debugging": "UnsupportedError: async_op is True and TORCH_DISTRIBUTED_DEBUG is DETAIL",
    "afterwards": "fine",
    "wait": "UnsupportedError: timeout is 0",
}


@pytest.mark.slow
def test_asynchronous_calls_have_the_results_of_synchronous_ones(answers: list[async_tasks.Answers]) -> None:
    """They mix with synchronous calls, messages and exchanges; futures and callbacks go on with results."""
    for rank, answer in enumerate(answers):
        assert [name for name, right in answer.right.items() if not right] == [], f"rank {rank}"
        # Ranks other than the root of a reduce have no output.
        assert answer.futures == {"then": 12, "afterwards": True, "outputs": int(rank == 2)}
        assert answer.callbacks == [[6, 24, 96], [6]]


@pytest.mark.slow
def test_wrong_arguments_are_refused_by_the_call(answers: list[async_tasks.Answers]) -> None:
    """The wait has nothing to refuse; an argument that is wrong on one rank stops all."""
    for rank, answer in enumerate(answers):
        for name, message in REFUSALS.items():
            assert answer.refusals[name].startswith(message)
        own = "UnsupportedError: output has 11 elements" if rank == 2 else "ProgramError: rank 2 refused"
        assert answer.refusals["one rank"].startswith(own)


def test_waiting_tells_of_a_rank_that_stays_away() -> None:
    """All outstanding calls fail within the timeout of one, and the log has the first failure."""
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
WAYS_TO_LEAVE = ("finished", "forked", "without rank 3")


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
def test_programs_end_in_the_ordinary_way_with_calls_that_nobody_waited_for(left: Left) -> None:
    """Calls come to their end, or the end says that they cannot; a fork ends at once and may not use the calls."""
    texts = {way: [rank["said"] for rank in ranks] for way, ranks in left.items()}
    assert texts["finished"] == [""] * RANKS
    for rank in left["without rank 3"][:3]:
        assert rank["said"].startswith("the program exits with calls that are unfinished after 1 s, on groups: 1; wait")
        assert "an asynchronous call failed: rank " in rank["said"]
        assert rank["seconds"] < 30
    first, *others = texts["forked"]
    assert others == [""] * (RANKS - 1)
    lines = [line for line in first.splitlines() if "Warning" not in line]
    assert lines[0].startswith("ProgramError: the call continues in the process that this one was forked from")
    assert lines[1].startswith("UnsupportedError: the group is that of process ")
    assert lines[2:] == ["the fork has ended with 0 while the call went on", "the call has brought 6"]


def test_processes_of_multiprocessing_bring_their_calls_to_an_end_too() -> None:
    """Rank 0 gets the data of ranks whose tasks are over, though these end without the functions of atexit."""
    assert run_ranks(async_tasks.leaving_early, RANKS, timeout_s=120, preload=PRELOAD) == [[6, 6, 6], [], [], []]
