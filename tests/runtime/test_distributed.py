"""Execution through torch.distributed, with four Gloo processes beside torch's own collectives."""

from __future__ import annotations

import re
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
import runtime_tasks
from runtime_flows import random_flow, ring_flow
from runtime_forests import (
    COLLECTIVES,
    allreduce_at,
    block,
    exchange,
    random_schedule,
    ring_allreduce_at_one_rank,
    send,
    summing,
    weighted_forest,
)
from runtime_steps import random_steps, schedule_for
from runtime_tasks import IDLE, RANKS, Case

import collopt
from collopt.errors import MissingDependencyError, ProgramError, UnsupportedError
from collopt.runtime import ChunkRange, Instruction, RunReport, execute, lower, run_local
from collopt.runtime.execution.arguments import OPERATIONS
from collopt.runtime.execution.execute import program_of
from collopt.runtime.execution.local_ranks import run_ranks
from collopt.runtime.execution.rank_rounds import works_in_place
from collopt.topologies import dgx1_v100

PRELOAD = ("torch", "torch.distributed")
TIMEOUT_S = 300


def wrong_cases(cases: list[Case]) -> list[str]:
    """Run cases on as many ranks, and return the names of those with a wrong output on some rank."""
    results = run_ranks(
        partial(runtime_tasks.compared, cases=cases), cases[0].program.num_ranks, timeout_s=TIMEOUT_S, preload=PRELOAD
    )
    return [f"{name} on rank {rank}" for rank, names in enumerate(results) for name in names]


def flow_cases() -> list[Case]:
    """Equal and unequal parts of all sizes and types; every number of elements is a multiple of the traffic."""
    flows = {
        "ring": ring_flow(RANKS),
        "random": random_flow(RANKS, 2, 3, most=None, chunks_per_unit=3),
        "unequal": random_flow(RANKS, 1, 4, most=6, chunks_per_unit=2),
        "many parts": random_flow(RANKS, 0, 5, most=40),
        "idle rank": IDLE,
    }
    cases = []
    for name, schedule in flows.items():
        program = lower(schedule, "all_to_all" if len(np.unique(schedule.traffic)) == 1 else "all_to_allv")
        unit = sum(program.layout.parts)
        for units, slices, dtype in ((0, 1, "float32"), (1, 1, "int64"), (7, 3, "int16"), (5003, 1, "bfloat16")):
            cases.append(Case(name, program, units * unit, dtype, slices))
    return cases


def stage_and_step_cases() -> list[Case]:
    """FAST's stages between equal and unequal servers, and random steps."""
    exchanges: dict[str, tuple[list[int], list[list[int]]]] = {
        "two servers": ([2, 2], [[1, 4, 9, 2], [0, 3, 5, 5], [7, 0, 0, 2], [6, 6, 1, 1]]),
        "one sends": ([2, 2], [[0, 0, 13, 5], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]),
        "unequal servers": ([1, 2, 1], [[2, 8, 3, 12], [6, 0, 0, 1], [0, 4, 0, 10], [5, 0, 7, 0]]),
    }
    cases = []
    for name, (sizes, rows) in exchanges.items():
        schedule = collopt.schedule_all_to_allv(np.array(rows), servers=len(sizes), gpus_per_server=sizes)
        program = lower(schedule, "all_to_allv", instances=2 if name == "two servers" else 1)
        unit = sum(program.layout.parts)
        cases += [Case(name, program, units * unit, "int32", slices) for units, slices in ((1, 1), (257, 3))]
    for collective in ("allgather", "reduce_scatter", "allreduce"):
        steps = lower(schedule_for(collective, random_steps(4, 3, seed=2)), collective)
        cases.append(Case(f"steps of {collective}", steps, 4004, "float32", 2))
    return cases


def tree_cases() -> list[Case]:
    """All collectives: types, slices, sizes that do not divide, operations, in place, unequal shards, free roots."""
    cases = []
    for collective in COLLECTIVES:
        program = lower(random_schedule(collective, RANKS, 3, seed=7, root=2), collective)
        unit = RANKS if collective in ("allgather", "reduce_scatter") else 1
        for elements, slices, dtype in (
            (1, 1, "int64"),
            (10007, 3, "uint8"),
            (10007, 2, "float32"),
            (3, 5, "bfloat16"),
            (0, 1, "float64"),
        ):
            cases.append(Case(collective, program, elements * unit, dtype, slices))
        cases.append(Case(f"{collective} in place", program, 101 * unit, "int16", in_place=True))
    for collective, direction in (("allgather", "broadcast"), ("reduce_scatter", "reduce")):
        program = lower(weighted_forest([1, 0, 3, 2], 2, seed=5, direction=direction), collective)
        cases += [Case(f"unequal {collective}", program, elements) for elements in (1, 5, 6000, 6001)]
    for schedule in (ring_allreduce_at_one_rank(), allreduce_at([0, 5, 0, 2], 3, seed=4)):
        program = lower(schedule, "allreduce")
        for elements, slices in ((0, 1), (1, 1), (5, 2), (6001, 3)):
            cases += [Case("free roots", program, elements, "int64", slices, in_place=way) for way in (False, True)]
    program = lower(random_schedule("allreduce", RANKS, 2, seed=1), "allreduce")
    cases += [Case(op, program, 999, dtype, op=op) for op in OPERATIONS for dtype in ("float16", "float64")]
    cases += [Case(op, program, 999, dtype, op=op) for op in ("sum", "min") for dtype in ("int8", "uint8")]
    return cases


def test_results_agree_with_torch() -> None:
    """Moved data agrees in every bit, sums in every number, whatever the collective, size, type, slices and place."""
    assert wrong_cases([*flow_cases(), *stage_and_step_cases(), *tree_cases()]) == []


@pytest.mark.slow
def test_special_tensors_and_groups_work() -> None:
    """Other types and shapes, parameters and subgroups; sums have the same bits on all ranks."""
    for results in run_ranks(runtime_tasks.specials, RANKS, timeout_s=120, preload=PRELOAD):
        assert [name for name, right in results.items() if not right] == []


def test_plans_are_lowered_once() -> None:
    """The program is that of `lower` without limits of steps and counts."""
    plan = runtime_tasks.planned("allgather", random_steps(3, 2, seed=0))
    assert program_of(plan) is program_of(plan)
    assert program_of(plan) == lower(plan.schedule, "allgather", max_steps=10**6, max_count=10**6)


@pytest.mark.slow
def test_traffic_of_a_plan_is_run_in_multiples() -> None:
    """The report has the largest multiple of the traffic within the elements, or the traffic itself."""
    traffic = np.ones((8, 8), dtype=np.int64)
    traffic[:, 3] = 5
    plan = collopt.plan(dgx1_v100(), "all_to_allv", traffic=traffic)
    report = run_local(plan, elements=1000, repeats=1, dtype="int16", timeout_s=TIMEOUT_S)
    assert report.all_correct
    # 96 units of 666 elements are the most within 64000.
    assert (report.elements_in_all, report.total_bytes) == (63936, 2 * 63936 // 8)
    assert "from each to each, on average" in str(report)
    schedule = random_flow(2, 0, 1, most=30)
    report = run_local(runtime_tasks.planned("all_to_allv", schedule), elements=1, repeats=1, timeout_s=TIMEOUT_S)
    assert report.all_correct
    assert report.elements_in_all == int(schedule.traffic.sum()) // int(np.gcd.reduce(schedule.traffic, axis=None))
    assert RunReport("gloo", 4, 1, "uint8", 1, (True,) * 4, 0.5, "all_to_allv", "sum", 48).total_bytes == 12


def test_programs_that_work_in_place_are_recognised() -> None:
    """Lowered ones do; a program that receives over the input before it adds that does not."""
    steps = [
        Instruction("recv", None, ChunkRange("output", 0), 1),
        Instruction("reduce", ChunkRange("input", 0), ChunkRange("output", 0), 1),
    ]
    assert not works_in_place(summing([block(*steps, of=1)], [block(send("input", 0), to=0)]))
    for collective in COLLECTIVES:
        assert works_in_place(lower(random_schedule(collective, 4, 3, 0), collective))


@pytest.fixture(scope="module")
def refusals() -> list[dict[str, str]]:
    """Return each rank's messages about wrong calls."""
    return run_ranks(runtime_tasks.wrong_calls, RANKS, timeout_s=120, preload=PRELOAD)


ON_ONE_RANK = {
    "timeout on one rank": "timeout is '1'; expected",
    "output size on one rank": "output has 39 elements and input has 10; expected 4 times",
    "parts on one rank": "output has 12 elements",
    "idle rank": "output has 1 elements and input has 0; expected 0 and 0 times",
}
DIFFERENT = {
    "input size differs": "the number of elements",
    "type differs": "the element type",
    "program differs": "the program",
    "slices differ": "slices",
    "ops differ": "op",
    "parts differ": "the number of elements",
    "around an idle rank": "the number of elements",
}
EVERYWHERE = {
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
    "parts": "output has 7 elements and input has 7; expected 4 and 4 times the same number",
    "uneven parts": "output has ",
    "overlap of parts": "input and output overlap",
    "overlap of a part": "input and output overlap",
    "no input": "input is None",
    "and then a wrong size": "output has 39 elements",
}


def test_wrong_calls_are_refused_on_every_rank(refusals: list[dict[str, str]]) -> None:
    """The message names the argument on ranks that are wrong, other ranks stop too, and the group stays usable."""
    for rank, answers in enumerate(refusals):
        assert answers["after all that"] == "fine"
        for name, message in EVERYWHERE.items():
            # Rank 0's share of 60 elements by weights 1, 0, 3, 2 is indeed 10.
            if (rank, name) != (0, "weights"):
                assert answers[name].startswith(f"UnsupportedError: {message}"), (rank, name, answers[name])
        for name, message in ON_ONE_RANK.items():
            own = (
                f"UnsupportedError: {message}" if rank == 2 else "ProgramError: rank 2 refused its arguments of the run"
            )
            assert answers[name].startswith(own), (rank, name, answers[name])


@pytest.mark.parametrize("name", DIFFERENT)
def test_calls_that_differ_stop_all_ranks(refusals: list[dict[str, str]], name: str) -> None:
    """Every rank names the difference, and two ranks of different calls."""
    for answers in refusals:
        ranks = r"(: \d+ on rank 0, \d+ on rank [12]|, such as ranks 0 and 2); all have to make the same call"
        assert re.fullmatch(f"ProgramError: the ranks disagree about {DIFFERENT[name]}{ranks}", answers[name])


@pytest.mark.slow
def test_a_rank_that_stays_away_is_noticed_in_time() -> None:
    """Its neighbor in the ring gives up after the timeout and says whom it waited for."""
    answers = run_ranks(runtime_tasks.absent_rank, RANKS, timeout_s=120, preload=PRELOAD)
    assert answers[3] == "absent"
    assert answers[0].startswith(
        "ProgramError: rank 0 could not finish round 1 of 3, in which it exchanges data with ranks [1, 3]: "
    )


@pytest.mark.slow
def test_calls_that_differ_after_both_were_used_end_with_the_reason() -> None:
    """No rank gets wrong data or SIGABRT, and each is told who differs."""
    answers = run_ranks(runtime_tasks.mismatches, RANKS, timeout_s=120, preload=PRELOAD)
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
    answers = run_ranks(task, RANKS, timeout_s=120, preload=PRELOAD)
    for told in answers:
        assert "disagree about op" in told["op"]
        assert "disagree about the number of elements: 10 on rank 0, 40 on rank 2" in told["size"]
        assert "disagree about the program" in told["collective"]


def test_a_rank_that_dies_is_named() -> None:
    """Ranks that lose their connection to it are not named."""
    with pytest.raises(ProgramError, match=r"^rank 1: the process was killed by SIGKILL"):
        run_ranks(runtime_tasks.dying_rank, RANKS, timeout_s=120, preload=PRELOAD)


def test_a_missing_group_and_a_missing_torch_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages say how to get them."""
    import torch

    with pytest.raises(UnsupportedError, match="init_process_group"):
        execute(exchange(), torch.zeros(2), torch.zeros(1))
    monkeypatch.setitem(sys.modules, "torch", None)
    nothing: Any = None
    with pytest.raises(MissingDependencyError, match=r"pip install 'collopt\[torch\]'"):
        execute(exchange(), nothing, nothing)
