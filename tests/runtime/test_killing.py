"""A rank that is killed in mid-run: all others raise, and in time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import killing_tasks
import pytest

TIMEOUT_S = 3.0
"""Of the calls."""
GRACE_PERIOD_S = 5.0
TRIES = 3


def tries(what: str, number: int) -> list[dict[str, Any]]:
    """Let a process of its own run so many tries."""
    task = Path(killing_tasks.__file__)
    done = subprocess.run(
        [sys.executable, task, what, str(TIMEOUT_S), str(number)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120 + 30 * number,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(task.parents[1]), str(task.parent)])},
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    assert len(found) == number
    return found


def check(found: list[dict[str, Any]]) -> None:
    """All other ranks raised our own error, not before the death and no later than the timeout and five seconds."""
    for number, each in enumerate(found):
        assert each["raised"] == ["ProgramError"] * (killing_tasks.RANKS - 1), (number, each)
        assert min(each["seconds"]) >= 0, (number, each)
        assert max(each["seconds"]) <= TIMEOUT_S + GRACE_PERIOD_S, (number, each)


@pytest.mark.slow
@pytest.mark.parametrize(
    "both", [("allgather", "allreduce"), ("all_to_all_single", "overlapped"), ("reshard",)], ids="-".join
)
def test_all_other_ranks_raise_in_time_when_one_is_killed(both: tuple[str, str]) -> None:
    """Another rank dies at another moment in each try; two calls at once, since most of the time is spent waiting."""
    with ThreadPoolExecutor(len(both)) as threads:
        results = list(threads.map(partial(tries, number=TRIES), both))
    for found in results:
        assert len({each["victim"] for each in found}) > 1
        check(found)
