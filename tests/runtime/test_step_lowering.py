"""From schedules in steps to programs: which are refused, what is pruned, how it is cut and in which order it runs."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from runtime_rounds import run_in_rounds
from runtime_steps import (
    EIGHT_NODES,
    TESTBED,
    allreduce_of,
    random_steps,
    reversed_steps,
    schedule_for,
    shipped_schedule,
    step_schedules,
)

from collopt.errors import CertificateError, UnsupportedError
from collopt.planners.direct_connect.bfb import bfb_schedule, plan_bfb
from collopt.runtime import Program, interpret_file, lower, read_xml, run_program
from collopt.runtime.execution.rounds import rounds_of
from collopt.runtime.msccl.export import export_msccl_xml
from collopt.schedules import AnyStepSchedule, Send, StepAllreduce, StepSchedule
from collopt.topologies import complete, ring
from collopt.topologies.direct_connect.optimal_broadcasts import base_schedule_names
from oracles.slow_steps import steps_hold
from sample_sizes import examples

COLLECTIVES = ("allgather", "reduce_scatter", "allreduce")
RUNTIMES = ("msccl", "msccl-executor-nccl", "rccl")
PAIR = [Send(0, 0, 0, 1, (0, 1)), Send(0, 1, 0, 1, (1, 0))]
"""Two ranks exchange shards of one chunk."""
CHAIN = [
    Send(0, 0, 0, 2, (0, 1)),
    Send(1, 0, 0, 2, (1, 2)),
    Send(0, 1, 0, 2, (1, 0)),
    Send(0, 1, 0, 2, (1, 2)),
    Send(0, 2, 0, 2, (2, 1)),
    Send(1, 2, 0, 2, (1, 0)),
]
"""Three ranks in a row; rank 1 passes on what the others send it."""


def pair(**changes: object) -> StepSchedule:
    """Two ranks that exchange their shards, with some fields replaced."""
    return replace(StepSchedule.from_sends(2, 1, PAIR), **changes)  # type: ignore[arg-type]


def chain(*more: Send) -> StepSchedule:
    """Three ranks in a row, with further sends."""
    return StepSchedule.from_sends(3, 2, [*CHAIN, *more])


def transfers(program: Program) -> list[tuple[int, int | None, int]]:
    """Sender, receiver and chunks of every transfer."""
    return [
        (rank.rank, block.send_peer, step.count)
        for rank in program.ranks
        for block in rank.thread_blocks
        for step in block.instructions
        if step.kind == "send"
    ]


@given(case=step_schedules(), max_steps=st.integers(1, 8), max_count=st.integers(1, 6), channels=st.integers(1, 3))
@settings(max_examples=examples(120))
def test_every_lowered_schedule_passes_all_checks_and_has_the_right_data(
    case: tuple[AnyStepSchedule, str], max_steps: int, max_count: int, channels: int
) -> None:
    """Shards that come in parts, some of them twice; apart and in place; a step waits for at most one other."""
    schedule, collective = case
    program = lower(schedule, collective, max_steps=max_steps, max_count=max_count, channels=channels)
    run_program(program, interleavings=2, fifo_depth=1)
    run_program(replace(program, in_place=True), interleavings=1)
    blocks = [block for rank in program.ranks for block in rank.thread_blocks]
    assert max(len(block.instructions) for block in blocks) <= max_steps
    assert max(step.count for block in blocks for step in block.instructions) <= max_count
    assert max(len(step.depends) for block in blocks for step in block.instructions) <= 1
    assert program.shards == ()


@given(case=step_schedules(), elements=st.integers(0, 60), slices=st.integers(1, 3), in_place=st.booleans())
@settings(max_examples=examples(60))
def test_rounds_do_every_collective_whatever_the_size(
    case: tuple[AnyStepSchedule, str], elements: int, slices: int, in_place: bool
) -> None:
    """Joined transfers may span shards, and chunks need not divide evenly."""
    run_in_rounds(lower(*case), elements, slices, in_place)


@given(case=step_schedules())
@settings(max_examples=examples(40))
def test_every_part_is_sent_once_to_every_rank(case: tuple[AnyStepSchedule, str]) -> None:
    """What a rank already has, or gets twice, is left out."""
    program = lower(*case)
    ways = 2 if str(program.collective) == "allreduce" else 1
    assert sum(count for _, _, count in transfers(program)) == ways * program.chunks_per_loop * (program.num_ranks - 1)


@given(case=step_schedules())
@settings(max_examples=examples(40))
def test_scratch_is_bounded(case: tuple[AnyStepSchedule, str]) -> None:
    """By what a rank has and does not keep; an allgather and an allreduce need none."""
    program = lower(*case)
    for rank in program.ranks:
        spare = rank.input_chunks - rank.output_chunks if str(program.collective) == "reduce_scatter" else 0
        assert rank.scratch_chunks <= spare


@given(case=step_schedules())
@settings(max_examples=examples(40))
def test_a_program_takes_no_more_rounds_than_the_schedule_has_steps(case: tuple[AnyStepSchedule, str]) -> None:
    """Where a round holds whatever fits a step: no transfer waits for one of the same step or a later one."""
    schedule, collective = case
    assert len(rounds_of(lower(schedule, collective), max_operations=10**6)) <= schedule.num_steps


@given(ranks=st.integers(2, 5), chunks=st.integers(1, 4), seed=st.integers(0, 2**32), reduces=st.booleans())
@settings(max_examples=examples(200))
def test_refuses_exactly_the_schedules_that_a_slow_check_refuses(
    ranks: int, chunks: int, seed: int, reduces: bool
) -> None:
    """One send is dropped, repeated, moved to another step, source or receiver, or cut; what passes runs right."""
    chance = random.Random(seed)
    sends = list(random_steps(ranks, chunks, seed, 0.2 * (not reduces)).sends())
    place = chance.randrange(len(sends))
    send = sends.pop(place)
    path = (send.path[0], chance.choice([rank for rank in range(ranks) if rank != send.path[0]]))
    changed = chance.choice(
        [
            [],
            [send, send],
            [send._replace(step=chance.randrange(send.step + 2))],
            [send._replace(source=chance.randrange(ranks))],
            [send._replace(lower=chance.randrange(send.upper))],
            [send._replace(path=path)],
            [send._replace(path=send.path[::-1])],
        ]
    )
    schedule = StepSchedule.from_sends(ranks, chunks, [*sends[:place], *changed, *sends[place:]])
    assume(set(schedule.steps.tolist()) == set(range(schedule.num_steps)))
    collective = "reduce_scatter" if reduces else "allgather"
    schedule = reversed_steps(schedule) if reduces else schedule
    if steps_hold(schedule, complete(ranks)):
        run_program(lower(schedule, collective), interleavings=1)
    else:
        with pytest.raises(CertificateError):
            lower(schedule, collective)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("name", TESTBED | EIGHT_NODES)
def test_breadth_first_plans_of_direct_networks_have_the_right_data(name: str, collective: str) -> None:
    """In as many rounds as there are steps."""
    plan = plan_bfb((TESTBED | EIGHT_NODES)[name], collective)
    assert isinstance(plan.schedule, StepSchedule | StepAllreduce)
    _check_program(lower(plan.schedule, collective), plan.schedule.num_steps)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("name", base_schedule_names())
def test_schedules_that_come_with_collopt_have_the_right_data(name: str, collective: str) -> None:
    """In as many rounds as there are steps."""
    schedule = schedule_for(collective, shipped_schedule(name))
    _check_program(lower(schedule, collective), schedule.num_steps)


def _check_program(program: Program, rounds: int) -> None:
    run_program(program, interleavings=2)
    run_program(replace(program, in_place=True), interleavings=1)
    assert len(rounds_of(program, max_operations=10**6)) == rounds


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("name", EIGHT_NODES)
def test_plans_for_eight_nodes_are_written_for_every_runtime(
    tmp_path: Path, name: str, collective: str, runtime: str
) -> None:
    """The file that is read back is interpreted, apart and in place."""
    path = tmp_path / "file.xml"
    export_msccl_xml(plan_bfb(EIGHT_NODES[name], collective), path, runtime=runtime)
    assert interpret_file(path, interleavings=2).interleavings == 2
    assert (str(read_xml(path).collective), read_xml(path).num_ranks) == (collective, 8)


def test_a_shard_is_cut_into_as_few_chunks_as_its_trees_need() -> None:
    """Twelve chunks per shard, but on a ring of four the farthest rank gets halves from both sides."""
    steps = bfb_schedule(ring(4), chunks=12)
    program = lower(steps, "allgather")
    assert (steps.chunks_per_shard, program.chunks_per_loop) == (12, 4 * 2)
    assert lower(StepSchedule.from_sends(3, 2, CHAIN), "allgather").chunks_per_loop == 3


def in_turn(chunks: int) -> StepSchedule:
    """Two ranks that exchange their shards chunk by chunk, one in each step."""
    sends = [Send(chunk, rank, chunk, chunk + 1, (rank, 1 - rank)) for chunk in range(chunks) for rank in range(2)]
    return StepSchedule.from_sends(2, chunks, sends)


def test_an_allreduce_is_cut_where_either_half_cuts() -> None:
    """Halves of three sixths there, and thirds of two back; the middle one was added up in two transfers."""
    program = lower(StepAllreduce(reversed_steps(in_turn(2)), in_turn(3)), "allreduce")
    assert program.chunks_per_loop == 2 * 6
    run_program(program, interleavings=3)
    assert [count for sender, _, count in transfers(program) if sender == 0] == [3, 3, 2, 1, 1, 2]


def test_chunk_counts_beyond_64_bits_are_reduced_first() -> None:
    """Two large numbers of chunks without a common divisor, none of which anything is cut at."""
    numbers = (2**61 - 1, 2**61 - 3)
    whole = [StepSchedule.from_sends(2, many, [send._replace(upper=many) for send in PAIR]) for many in numbers]
    assert lower(StepAllreduce(reversed_steps(whole[0]), whole[1]), "allreduce").chunks_per_loop == 2


def test_what_comes_again_is_not_sent() -> None:
    """The earliest arrival stays, of two in one step the first; nothing comes back to its source."""
    again = chain(
        Send(1, 1, 0, 1, (0, 1)), Send(2, 0, 1, 2, (1, 2)), Send(1, 0, 1, 2, (1, 2)), Send(1, 2, 0, 1, (1, 2))
    )
    assert lower(again, "allgather") == lower(chain(), "allgather")


def test_strands_that_lie_next_to_each_other_travel_together() -> None:
    """Rank 0 sends rank 1 a shard of which halves go to ranks 2 and 3 first; a step moves no more than it may."""
    sends = [
        Send(0, 0, 0, 2, (0, 1)),
        *(Send(1, 0, part, part + 1, (1, 2 + part)) for part in range(2)),
        *(Send(2, 0, part, part + 1, (2 + part, 3 - part)) for part in range(2)),
        *(Send(0, rank, 0, 2, (rank, other)) for rank in range(1, 4) for other in range(4) if other != rank),
    ]
    schedule = StepSchedule.from_sends(4, 2, sends)
    for collective in ("allgather", "allreduce"):
        program = lower(schedule_for(collective, schedule), collective)
        run_program(program, interleavings=3)
        assert (0, 1, 2) in transfers(program)
    assert {count for _, _, count in transfers(lower(schedule, "allgather", max_count=1))} == {1}


def test_strands_of_several_shards_travel_together() -> None:
    """An allreduce halves what is added up on each side of a 3-cube, as one transfer per step."""
    sends = [
        Send(step, source, 0, 1, (sender, sender ^ 1 << step))
        for step in range(3)
        for sender in range(8)
        for source in range(8)
        if source >> step == sender >> step
    ]
    schedule = StepSchedule.from_sends(8, 1, sends)
    program = lower(allreduce_of(schedule), "allreduce")
    run_program(program, interleavings=3)
    assert Counter(count for sender, _, count in transfers(program) if sender == 5) == {4: 1, 2: 1, 1: 1 + 7}
    # A reduce-scatter keeps what a rank adds up of its own shard apart from the rest.
    run_program(lower(reversed_steps(schedule), "reduce_scatter"), interleavings=3)


def test_strands_that_wait_for_different_transfers_travel_apart() -> None:
    """Rank 3 gets two halves from different ranks, and sends them on as two: a step can wait for one other."""
    split = [
        *(Send(0, 0, part, part + 1, (0, 1 + part)) for part in range(2)),
        *(Send(1, 0, part, part + 1, (1 + part, 3)) for part in range(2)),
        Send(2, 0, 0, 2, (3, 4)),
        Send(2, 0, 1, 2, (3, 1)),
        Send(2, 0, 0, 1, (3, 2)),
        *(Send(0, rank, 0, 2, (rank, other)) for rank in range(1, 5) for other in range(5) if other != rank),
    ]
    program = lower(StepSchedule.from_sends(5, 2, split), "allgather")
    run_program(program, interleavings=3)
    assert sorted(count for sender, receiver, count in transfers(program) if (sender, receiver) == (3, 4)) == [1, 1, 2]


def test_only_the_ends_of_a_path_count() -> None:
    """Ranks that exchange their shards through switches 2 and 3."""
    through = StepSchedule.from_sends(2, 1, [Send(0, 0, 0, 1, (0, 2, 3, 1)), Send(0, 1, 0, 1, (1, 3, 0))])
    assert lower(through, "allgather") == lower(pair(), "allgather")


@given(seed=st.integers(0, 2**32), chunks=st.integers(1, 4))
@settings(max_examples=examples(30))
def test_every_link_carries_what_the_schedule_says(seed: int, chunks: int) -> None:
    """Between two ranks go as many shards as their sends carry, whichever way."""
    schedule = random_steps(5, chunks, seed)
    planned: Counter[tuple[int, int]] = Counter()
    for send in schedule.sends():
        planned[send.path] += Fraction(send.upper - send.lower, chunks)  # type: ignore[index, assignment]
    for collective in ("allgather", "reduce_scatter"):
        program = lower(schedule_for(collective, schedule), collective)
        sent: Counter[tuple[int, int]] = Counter()
        for sender, receiver, count in transfers(program):
            ends = (sender, receiver) if collective == "allgather" else (receiver, sender)
            sent[ends] += Fraction(5 * count, program.chunks_per_loop)  # type: ignore[index, assignment]
        assert sent == planned


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_single_rank_copies_what_it_has(collective: str) -> None:
    """There is nothing else to do."""
    program = lower(schedule_for(collective, StepSchedule.from_sends(1, 3, [])), collective)
    run_program(program)
    assert [step.kind for block in program.ranks[0].thread_blocks for step in block.instructions] == ["copy"]


@pytest.mark.parametrize(
    ("schedule", "collective", "message"),
    [
        (pair(), "reduce_scatter", "steps are for broadcast; reduce_scatter needs reduce"),
        (pair(), "allreduce", "steps are for broadcast; allreduce needs both"),
        (allreduce_of(pair()), "allgather", "steps are for both; allgather needs broadcast"),
        (pair(direction="reduce"), "allgather", "steps are for reduce; allgather needs broadcast"),
        (pair(), "broadcast", "broadcast was requested, but a schedule in steps is for shards of all ranks"),
        (pair(direction="reduce"), "reduce", "expected allgather, reduce_scatter or allreduce, or a schedule made of"),
        (pair(), "alltoall", "no lowering for the collective 'alltoall'"),
        (pair(direction="sideways"), "allgather", "steps are for sideways"),
    ],
)
def test_refuses_steps_for_something_else(schedule: AnyStepSchedule, collective: str, message: str) -> None:
    """And says what they are for."""
    with pytest.raises(UnsupportedError, match=message):
        lower(schedule, collective)


def test_refuses_a_division_too_fine_to_be_written_down() -> None:
    """One chunk apart from all others makes as many chunks as there are; the message says what to do."""
    many = 10**10 + 1
    sends = [
        Send(step, rank, lower, upper, (rank, 1 - rank))
        for rank in range(2)
        for step, lower, upper in ((0, 0, 1), (1, 1, many))
    ]
    with pytest.raises(UnsupportedError, match=r"steps divide the data into 20000000002 chunks.*into fewer chunks"):
        lower(StepSchedule.from_sends(2, many, sends), "allgather")
