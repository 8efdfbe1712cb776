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


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("input size differs", "the number of elements"),
        ("type differs", "the element type"),
        ("program differs", "the program"),
        ("slices differ", "slices"),
        ("ops differ", "op"),
    ],
)
def test_calls_that_differ_stop_all_ranks(refusals: list[dict[str, str]], name: str, what: str) -> None:
    """Each is right by itself; all are told which ranks are in which call."""
    (told,) = {answers[name] for answers in refusals}
    assert told.startswith(f"ProgramError: the ranks disagree about {what}; all have to make the same call; the ranks ")
    assert re.search("differ: ranks 0, 1, 3 in an all.*, but rank 2 in an all", told)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("types", "UnsupportedError: output is torch.float64 and input is torch.float32"),
        ("strided", "UnsupportedError: input has shape (10,) and is not contiguous"),
        ("no tensor", "UnsupportedError: input is a list; expected a torch.Tensor"),
        ("conjugate", "UnsupportedError: input is a lazy conjugate or negative; call .resolve_conj().resolve_neg()"),
        ("overlap", "UnsupportedError: input and output overlap"),
        ("group size", "UnsupportedError: the group has 4 ranks, the program is for 3"),
        ("slices", "UnsupportedError: slices is 0"),
        ("timeout", "UnsupportedError: timeout is 0"),
        ("plan", "UnsupportedError: the schedule for allreduce is a NoneType; only those made of trees"),
        ("no such op", "UnsupportedError: op is 'xor'; expected one of sum, prod, min, max, avg"),
        ("op and type", "UnsupportedError: avg is not supported on torch.int32; expected one of float16"),
        ("no output", "UnsupportedError: output is None; allreduce needs one on every rank"),
        ("allreduce sizes", "UnsupportedError: output has 11 elements and input has 10; expected the same number"),
        (
            "reduce_scatter sizes",
            "UnsupportedError: output has 3 elements and input has 10; expected 4 times as many in",
        ),
        ("weights", "UnsupportedError: output has 60 elements and input has 10; expected"),
        ("after all that", "fine"),
        ("and then a wrong size", "UnsupportedError: output has 39 elements"),
    ],
)
def test_wrong_calls_are_refused_on_every_rank(refusals: list[dict[str, str]], name: str, message: str) -> None:
    """With our own errors, and the group stays usable."""
    # Rank 0's share of 60 elements by weights 1, 0, 3, 2 is indeed 10.
    told = refusals[1:] if name == "weights" else refusals
    assert [answers[name].startswith(message) for answers in told] == [True] * len(told), told[0][name]


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


def test_asks_for_an_initialised_group() -> None:
    """And says how to get one."""
    import torch

    with pytest.raises(UnsupportedError, match="init_process_group"):
        execute(exchange(), torch.zeros(2), torch.zeros(1))


def test_says_how_to_install_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything else works without it."""
    monkeypatch.setitem(sys.modules, "torch", None)
    nothing: Any = None
    with pytest.raises(MissingDependencyError, match=r"pip install 'collopt\[torch\]'"):
        execute(exchange(), nothing, nothing)
