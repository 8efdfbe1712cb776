"""Programs broken on purpose, each in one way, and the refusal of each."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_forests import (
    COLLECTIVES,
    allgather,
    block,
    copy,
    exchange,
    random_schedule,
    recv,
    schedules,
    send,
    star_sum,
    with_block,
    with_blocks,
    with_step,
)

from collopt.errors import ProgramError, UnsupportedError
from collopt.runtime import ChunkRange, Dependency, Instruction, Program, check_program, lower, without_receive_reduce
from collopt.runtime.programs.check import check_hazards
from collopt.runtime.programs.interpret import run_interleaving
from collopt.runtime.programs.ordering import global_order
from collopt.schedules import TreeSchedule
from sample_sizes import examples


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda step: replace(step, count=2), "output, which has 2 chunks"),
        (lambda step: replace(step, target=ChunkRange("output", -1)), "target chunks -1"),
        (lambda step: replace(step, target=ChunkRange("scratch", 0)), "scratch, which has 0 chunks"),
        (lambda step: replace(step, target=ChunkRange("heap", 0)), "buffer 'heap'"),
        (lambda step: replace(step, target=ChunkRange("input", 0)), "writes to the input"),
        (lambda step: replace(step, target=None), "without a target"),
        (lambda step: replace(step, source=ChunkRange("input", 0)), "with a source"),
        (lambda step: replace(step, count=0), "moves 0 chunks"),
        (lambda step: replace(step, kind="swap"), "kind 'swap'; expected one of send, recv"),
        (lambda step: replace(step, kind="recv_reduce"), "recv_reduce without a source"),
        (lambda step: replace(step, kind="reduce", source=ChunkRange("output", 1)), "onto themselves"),
        (lambda step: replace(step, depends=(Dependency(1, 1),)), "thread block 1 step 1 .* does not exist"),
        (lambda step: replace(step, depends=(Dependency(7, 0),)), "thread block 7 step 0 .* does not exist"),
        (lambda step: replace(step, depends=(Dependency(0, 0),)), "deadlocks.*step 0.*waits for.*step 0"),
    ],
)
def test_refuses_a_broken_receive(change: object, message: str) -> None:
    """The message says where and what."""
    with pytest.raises(ProgramError, match=message):
        check_program(with_step(exchange(), 0, 0, 0, change))


@pytest.mark.parametrize(
    ("number", "changes", "message"),
    [
        (2, {"send_peer": None}, "send but its thread block has no send peer"),
        (0, {"recv_peer": None}, "recv but its thread block has no recv peer"),
        (2, {"send_peer": 2}, "send peer 2; expected a rank from 0 to 1"),
        (0, {"recv_peer": -1}, "receive peer -1"),
        (2, {"send_peer": 0}, "own rank"),
        (2, {"channel": -1}, "channel -1"),
        (2, {"channel": 1}, "rank 0 to rank 1 on channel"),
        (2, {"instructions": ()}, "0 sends but 1 receives"),
        (0, {"instructions": ()}, "1 sends but 0 receives"),
    ],
)
def test_refuses_a_broken_thread_block(number: int, changes: dict[str, object], message: str) -> None:
    """Peers, channels and the two ends of connections."""
    with pytest.raises(ProgramError, match=message):
        check_program(with_block(exchange(), 0, number, lambda old: replace(old, **changes)))


@pytest.mark.parametrize("number", [0, 2])
def test_refuses_two_thread_blocks_on_one_end_of_a_connection(number: int) -> None:
    """They would take each other's data."""
    blocks = list(exchange().ranks[0].thread_blocks)
    twin = replace(blocks[number], instructions=())
    with pytest.raises(ProgramError, match=f"thread blocks {number} and 3 both"):
        check_program(with_blocks(exchange(), 0, [*blocks, twin]))


def test_refuses_ends_that_disagree_about_a_count() -> None:
    """Two chunks are sent where one is received and then another."""
    program = allgather(
        2,
        [block(recv(2, count=2), of=1), block(copy(0, 0, count=2)), block(send("input", 0, count=2), to=1)],
        [block(recv(0), recv(1), of=0), block(copy(0, 2, count=2)), block(send("input", 0, count=2), to=0)],
    )
    with pytest.raises(ProgramError, match="1 sends but 2 receives"):
        check_program(program)
    program = with_block(program, 1, 0, lambda old: replace(old, instructions=old.instructions[:1]))
    with pytest.raises(ProgramError, match="sends 2 chunks but its receive at rank 1 thread block 0 step 0 takes 1"):
        check_program(program)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"collective": "alltoall"}, UnsupportedError, "alltoall"),
        ({"collective": "allreduce"}, ProgramError, "rank 0 has 1 input chunks; an allreduce needs 2"),
        ({"collective": "reduce_scatter"}, ProgramError, "rank 0 has 1 input chunks; a reduce_scatter needs 2"),
        ({"collective": "broadcast"}, ProgramError, "several shards"),
        ({"shards": (2, 0)}, ProgramError, "rank 0 has 1 input chunks; an allgather needs 2"),
        ({"shards": (2, 1)}, ProgramError, r"shards \[2, 1\] are not those of 2 ranks with 2 chunks"),
        ({"shards": (2,)}, ProgramError, "shards"),
        ({"shards": (3, -1)}, ProgramError, "shards"),
        ({"num_ranks": 3}, ProgramError, "steps for 2 ranks; expected 3"),
        ({"chunks_per_loop": 3}, ProgramError, "multiple"),
        ({"chunks_per_loop": 4}, ProgramError, "1 input chunks; an allgather needs 2"),
    ],
)
def test_refuses_sizes_that_are_no_allgather(changes: dict[str, object], error: type[Exception], message: str) -> None:
    """Ranks and chunks have to add up."""
    with pytest.raises(error, match=message):
        check_program(replace(exchange(), **changes))


def test_refuses_ranks_out_of_order() -> None:
    """Rank r is entry r."""
    program = exchange()
    with pytest.raises(ProgramError, match="list the ranks in order"):
        check_program(replace(program, ranks=program.ranks[::-1]))


def test_refuses_a_negative_scratch() -> None:
    """And accepts some that nobody uses."""
    check_program(allgather(1, *[list(rank.thread_blocks) for rank in exchange().ranks], scratch=3))
    with pytest.raises(ProgramError, match="-1 scratch chunks"):
        check_program(allgather(1, *[list(rank.thread_blocks) for rank in exchange().ranks], scratch=-1))


def test_refuses_a_circle_of_waiting_and_names_it() -> None:
    """Both ranks receive before they send."""
    program = allgather(
        1,
        [block(recv(1), send("input", 0), to=1, of=1), block(copy(0, 0))],
        [block(recv(0), send("input", 0), to=0, of=0), block(copy(0, 1))],
    )
    with pytest.raises(ProgramError, match=r"rank 0 thread block 0 step 1 .* waits for rank 1 thread block 0 step 1"):
        check_program(program)


def test_refuses_what_only_buffering_saves() -> None:
    """Both ranks send before they receive in one block: fine in a FIFO, a deadlock without one."""
    program = allgather(
        1,
        [block(send("input", 0), recv(1), to=1, of=1), block(copy(0, 0))],
        [block(send("input", 0), recv(0), to=0, of=0), block(copy(0, 1))],
    )
    run_interleaving(program, seed=0, fifo_depth=1)
    with pytest.raises(ProgramError, match="deadlocks"):
        check_program(program)


def test_two_additions_that_nothing_keeps_in_order_race() -> None:
    """The second would read the sum before the first has written it."""
    check_program(star_sum((0, 0)))
    with pytest.raises(ProgramError, match=r"race: rank 0 thread block 0 step 0 writes output chunk 0.*reads it"):
        check_program(star_sum())


def test_refuses_an_addition_to_what_nobody_wrote() -> None:
    """The first contribution must not be added to an output that is still empty."""
    program = with_step(star_sum((0, 0)), 0, 0, 0, lambda step: replace(step, source=step.target))
    with pytest.raises(ProgramError, match="rank 0 thread block 0 step 0 reads output chunk 0, which nothing has"):
        check_program(program)


def test_refuses_a_copy_onto_itself() -> None:
    """What an overlapping copy leaves behind depends on who makes it."""
    twice = Instruction("copy", ChunkRange("output", 0), ChunkRange("output", 1), 2, (Dependency(1, 0),))
    program = allgather(
        2,
        [block(recv(2, count=2), of=1), block(copy(0, 0, count=2), twice), block(send("input", 0, count=2), to=1)],
        [block(recv(0, count=2), of=0), block(copy(0, 2, count=2)), block(send("input", 0, count=2), to=0)],
    )
    with pytest.raises(ProgramError, match="onto themselves"):
        check_program(program)


def _waiting_steps(program: Program) -> list[tuple[int, int, int]]:
    return [
        (rank.rank, number, step)
        for rank in program.ranks
        for number, thread_block in enumerate(rank.thread_blocks)
        for step, instruction in enumerate(thread_block.instructions)
        # A receive of a final sum comes after the send of the partial one in any case, by way of the root.
        if instruction.depends and instruction.kind != "recv"
    ]


@given(case=schedules(), seed=st.integers(0, 2**32), most=st.integers(1, 4))
@settings(max_examples=examples(60))
def test_refuses_every_lowered_program_that_lost_a_dependency(
    case: tuple[TreeSchedule, str], seed: int, most: int
) -> None:
    """Lowering keeps only dependencies that nothing else implies, so each of them is missed."""
    program = lower(*case, max_count=most)
    waiting = _waiting_steps(program)
    if not waiting:
        return
    rank, number, step = random.Random(seed).choice(waiting)
    with pytest.raises(ProgramError, match=f"race: rank {rank} thread block"):
        check_program(with_step(program, rank, number, step, lambda old: replace(old, depends=())))


@given(case=schedules())
@settings(max_examples=examples(40))
def test_a_rank_by_itself_shows_that_it_has_no_race(case: tuple[TreeSchedule, str]) -> None:
    """Every order that data need follows from the rank's own dependencies, in place too."""
    program = lower(*case)
    for in_place in (False, True):
        order = global_order(replace(program, in_place=in_place))
        alone = replace(order, partners=[-1] * len(order.partners))
        check_hazards(replace(program, in_place=in_place), alone)


def _mutated(program: Program, chance: random.Random) -> Program:
    """Change one random step or swap two neighbors."""
    rank = chance.randrange(program.num_ranks)
    number = chance.randrange(len(program.ranks[rank].thread_blocks))
    steps = list(program.ranks[rank].thread_blocks[number].instructions)
    step = chance.randrange(len(steps))
    way = chance.randrange(5)
    if way == 0 and len(steps) > 1:
        other = chance.randrange(len(steps))
        steps[step], steps[other] = steps[other], steps[step]
    elif way == 1:
        target = chance.randrange(len(program.ranks[rank].thread_blocks))
        last = len(program.ranks[rank].thread_blocks[target].instructions)
        steps[step] = replace(steps[step], depends=(Dependency(target, chance.randrange(last)),))
    elif way == 3 and steps[step].receives:
        kind = "recv" if steps[step].kind == "recv_reduce" else "recv_reduce"
        source = None if kind == "recv" else ChunkRange("input", 0)
        steps[step] = replace(steps[step], kind=kind, source=source)
    elif way == 2 and steps[step].source:
        steps[step] = replace(steps[step], source=ChunkRange("output", chance.randrange(program.chunks_per_loop)))
    elif steps[step].target:
        steps[step] = replace(steps[step], target=ChunkRange("output", chance.randrange(program.chunks_per_loop)))
    return with_block(program, rank, number, lambda old: replace(old, instructions=tuple(steps)))


def _outcome(program: Program, seed: int, fifo_depth: int) -> str:
    try:
        run_interleaving(program, seed=seed, fifo_depth=fifo_depth)
    except ProgramError as error:
        return str(error)
    return "right"


@given(seed=st.integers(0, 2**32), mutations=st.integers(1, 3))
@settings(max_examples=examples(100))
def test_an_accepted_program_does_the_same_in_every_interleaving(seed: int, mutations: int) -> None:
    """Soundness: what passes the checks, right or wrong, neither deadlocks nor depends on who is faster."""
    chance = random.Random(seed)
    collective = chance.choice(COLLECTIVES)
    program = lower(random_schedule(collective, chance.randint(2, 4), chance.randint(1, 3), seed), collective)
    if chance.random() < 0.3:
        program = without_receive_reduce(program)
    for _ in range(mutations):
        program = _mutated(program, chance)
    try:
        check_program(program)
    except ProgramError:
        return
    outcomes = {_outcome(program, run, fifo_depth=1 + run % 3) for run in range(8)}
    assert len(outcomes) == 1
    assert "deadlock" not in outcomes.pop()
