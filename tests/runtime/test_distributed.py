"""Execution through torch.distributed, with four Gloo processes."""

from __future__ import annotations

import re
import sys
from functools import partial
from typing import Any

import pytest
import runtime_tasks
from runtime_forests import COLLECTIVES, block, exchange, random_schedule, send, summing

from collopt.errors import MissingDependencyError, ProgramError, UnsupportedError
from collopt.runtime import ChunkRange, Instruction, execute, lower
from collopt.runtime.execution.local_ranks import run_ranks
from collopt.runtime.execution.rank_rounds import works_in_place

PRELOAD = ("torch", "torch.distributed")


@pytest.mark.slow
def test_gathers_tensors_of_all_sizes_types_and_shapes() -> None:
    """Uneven and empty shards, slices, element types, shapes, subgroups, plans: everything that should work does."""
    for rank, results in enumerate(
        run_ranks(runtime_tasks.gather_everything, runtime_tasks.RANKS, timeout_s=120, preload=PRELOAD)
    ):
        assert len(results) == 18
        assert [name for name, right in results.items() if not right] == [], f"rank {rank}"


@pytest.mark.slow
def test_every_collective_agrees_with_torch() -> None:
    """Integers bit for bit, floats within what the order of adding can change; every size, operation and placement."""
    for rank, results in enumerate(
        run_ranks(runtime_tasks.reduce_everything, runtime_tasks.RANKS, timeout_s=200, preload=PRELOAD)
    ):
        assert len(results) == 5 * 7 + 2 + 5 + 2
        assert [name for name, right in results.items() if not right] == [], f"rank {rank}"


def test_knows_which_programs_work_in_place() -> None:
    """Lowered ones do; one that receives over the input before it adds that does not."""
    steps = [
        Instruction("recv", None, ChunkRange("output", 0), 1),
        Instruction("reduce", ChunkRange("input", 0), ChunkRange("output", 0), 1),
    ]
    clumsy = summing([block(*steps, of=1)], [block(send("input", 0), to=0)])
    assert not works_in_place(clumsy)
    for collective in COLLECTIVES:
        assert works_in_place(lower(random_schedule(collective, 4, 3, 0), collective))


@pytest.fixture(scope="module")
def refusals() -> list[dict[str, str]]:
    """What each rank was told about each wrong call."""
    return run_ranks(runtime_tasks.wrong_calls, runtime_tasks.RANKS, timeout_s=120, preload=PRELOAD)


def test_a_wrong_call_on_one_rank_stops_all(refusals: list[dict[str, str]]) -> None:
    """The rank itself hears what is wrong, the others that another rank is."""
    messages = [answers["output size on one rank"] for answers in refusals]
    assert messages.pop(2).startswith("UnsupportedError: output has 39 elements and input has 10; expected 4 times")
    assert all(message.startswith("ProgramError: another rank refused its arguments") for message in messages)


DIFFERENT = {
    "input size differs": "the number of elements",
    "type differs": "the element type",
    "program differs": "the program",
    "slices differ": "slices",
    "ops differ": "op",
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_calls_that_differ_stop_all_ranks(refusals: list[dict[str, str]], name: str) -> None:
    """Every rank gets one message, with the ranks of each call."""
    (message,) = {answers[name] for answers in refusals}
    assert message.startswith(f"ProgramError: the ranks disagree about {DIFFERENT[name]}; ")
    assert re.search("differ: ranks 0, 1, 3 in an all.*, but rank 2 in an all", message)


WRONG = {
    "types": "output is torch.float64 and input is torch.float32",
    "strided": "input has shape (10,) and is not contiguous",
    "no tensor": "input is a list; expected a torch.Tensor",
    "conjugate": "input is a lazy conjugate",
    "overlap": "input and output overlap",
    "group size": "the group has 4 ranks, the program is for 3",
    "slices": "slices is 0",
    "timeout": "timeout is 0",
    "plan": "the schedule for allreduce is a NoneType",
    "no such op": "op is 'xor'",
    "op and type": "avg is not supported on torch.int32",
    "no output": "output is None",
    "allreduce sizes": "output has 11 elements and input has 10",
    "reduce_scatter sizes": "output has 3 elements and input has 10",
    "weights": "output has 60 elements and input has 10",
    "and then a wrong size": "output has 39 elements",
}


def test_wrong_calls_are_refused_on_every_rank(refusals: list[dict[str, str]]) -> None:
    """The message names the argument, and the group stays usable."""
    for rank, answers in enumerate(refusals):
        assert answers["after all that"] == "fine"
        for name, message in WRONG.items():
            # Rank 0's share of 60 elements by weights 1, 0, 3, 2 is indeed 10.
            if (rank, name) != (0, "weights"):
                assert answers[name].startswith(f"UnsupportedError: {message}"), (rank, name, answers[name])


@pytest.mark.slow
def test_a_rank_that_stays_away_is_noticed_in_time() -> None:
    """Its neighbor in the ring gives up after the timeout and says whom it waited for."""
    answers = run_ranks(runtime_tasks.absent_rank, runtime_tasks.RANKS, timeout_s=120, preload=PRELOAD)
    assert answers[3] == "absent"
    assert answers[0].startswith(
        "ProgramError: rank 0 could not finish round 1 of 3, in which it exchanges data with ranks [1, 3]: "
    )


@pytest.mark.slow
def test_calls_that_differ_after_both_were_used_end_with_the_reason() -> None:
    """No rank gets wrong data or SIGABRT, and each is told who differs."""
    answers = run_ranks(runtime_tasks.mismatches, runtime_tasks.RANKS, timeout_s=120, preload=PRELOAD)
    for rank, told in enumerate(answers):
        assert "; the ranks differ: ranks 0, 1, 3 in an allreduce of 10" in told["op"], told
        assert re.search("by sum.*, but rank 2 in an allreduce of 10 elements of float32 by max", told["op"])
        assert "but rank 2 in an allreduce of 40" in told["size"]
        assert "but rank 2 in an allgather of 40" in told["collective"]
        own = told["arguments"].startswith("UnsupportedError: output has 10 elements and input has 40")
        assert own if rank == 2 else "but rank 2 refused its arguments: output has 10" in told["arguments"]
        assert told["straggler"] == "fine" if rank == 2 else "; rank 2 gave no sign" in told["straggler"]


@pytest.mark.slow
def test_every_call_is_compared_on_request() -> None:
    """All ranks are told at once, before anything is sent."""
    task = partial(runtime_tasks.mismatches, debug="calls")
    answers = run_ranks(task, runtime_tasks.RANKS, timeout_s=120, preload=PRELOAD)
    for told in answers:
        assert "disagree about op" in told["op"]
        assert re.search(
            "disagree about the number of elements.*ranks 0, 1, 3 in.*but rank 2 in.* of 40 ", told["size"]
        )
        assert "disagree about the program" in told["collective"]


def test_a_rank_that_dies_is_named() -> None:
    """Not one of those that lost their connection to it."""
    with pytest.raises(ProgramError, match=r"^rank 1: the process was killed by SIGKILL"):
        run_ranks(runtime_tasks.dying_rank, runtime_tasks.RANKS, timeout_s=120, preload=PRELOAD)


def test_a_missing_group_and_a_missing_torch_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages say how to get them."""
    import torch

    with pytest.raises(UnsupportedError, match="init_process_group"):
        execute(exchange(), torch.zeros(2), torch.zeros(1))
    monkeypatch.setitem(sys.modules, "torch", None)
    nothing: Any = None
    with pytest.raises(MissingDependencyError, match=r"pip install 'collopt\[torch\]'"):
        execute(exchange(), nothing, nothing)
