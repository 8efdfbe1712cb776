"""Programs cut into rounds, and what each rank posts, run on numpy arrays."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_forests import (
    allgather,
    block,
    copy,
    forests,
    random_forest,
    random_schedule,
    recv,
    schedules,
    send,
    star_forest,
    star_sum,
    with_step,
)
from runtime_rounds import run_in_rounds

import collopt
from collopt.errors import UnsupportedError
from collopt.runtime import ChunkRange, Program, lower, run_program, without_receive_reduce
from collopt.runtime.execution.rank_rounds import rank_rounds
from collopt.runtime.execution.rounds import Message, Round, RoundScratch, rounds_of
from collopt.runtime.lowering.flows import ScratchAllocator
from collopt.schedules import Forest, TreeSchedule
from collopt.topologies import ring
from sample_sizes import examples


def gather_in_rounds(program: Program, elements: int, slices: int) -> None:
    """Run an allgather on shards of so many elements."""
    run_in_rounds(program, elements * program.num_ranks, slices)


@given(
    case=schedules(),
    elements=st.integers(0, 60),
    slices=st.integers(1, 4),
    in_place=st.booleans(),
    most=st.integers(1, 9),
)
@settings(max_examples=examples(120))
def test_rounds_do_every_collective_whatever_the_size(
    case: tuple[TreeSchedule, str], elements: int, slices: int, in_place: bool, most: int
) -> None:
    """Chunks have all sizes, shards are unequal, and input and output may be one memory."""
    schedule, collective = case
    run_in_rounds(lower(schedule, collective, max_count=most), elements, slices, in_place)


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "broadcast", "reduce"])
def test_programs_without_receive_reduce_run_in_rounds(collective: str) -> None:
    """Chunks of different sizes share a place in scratch, one after the other."""
    pair = without_receive_reduce(lower(random_schedule(collective, 2, 1, 0), collective, max_count=1))
    run_in_rounds(pair, 10, 2)
    many = without_receive_reduce(lower(random_schedule(collective, 5, 4, 0), collective, max_count=1))
    run_in_rounds(many, 13 * (1 + 4 * (collective in ("allgather", "reduce_scatter"))), 3)


def test_two_contributions_are_added_in_one_round() -> None:
    """They are added in the order of the program."""
    (only,) = rounds_of(star_sum((0, 0)))
    assert [(message.sender, message.stage) for message in only.messages] == [(1, 1), (2, 2)]
    run_in_rounds(star_sum((0, 0)), 7, 2)


@given(forest=forests(), slices=st.integers(1, 3), most=st.integers(1, 5))
@settings(max_examples=examples(30))
def test_no_rank_has_more_operations_in_a_round_than_allowed(forest: Forest, slices: int, most: int) -> None:
    """Everything is sent exactly once per slice."""
    program = lower(forest, "allgather")
    rounds = rounds_of(program, slices=slices, max_operations=most)
    sent: Counter[int] = Counter()
    for part in rounds:
        ends = Counter(rank for message in part.messages for rank in message[:2])
        assert max(ends.values(), default=0) <= most
        for message in part.messages:
            sent[message.slice_number] += message.chunks
    assert sent == dict.fromkeys(range(slices), program.chunks_per_loop * (forest.num_ranks - 1))


@given(forest=forests(), elements=st.integers(0, 40), slices=st.integers(1, 4))
@settings(max_examples=examples(20))
def test_every_element_is_received_once(forest: Forest, elements: int, slices: int) -> None:
    """Own elements are copied once."""
    program = lower(forest, "allgather")
    for rank in range(forest.num_ranks):
        parts = rank_rounds(program, slices, rank, elements * forest.num_ranks).rounds
        received = [each.piece for part in parts for each in part.operations if not each.is_send]
        assert sum(piece.end - piece.begin for piece in received) == elements * (forest.num_ranks - 1)
        copied = [move.target for part in parts for move in part.copies]
        assert sum(piece.end - piece.begin for piece in copied) == elements


def test_receives_are_posted_when_their_memory_is_free() -> None:
    """A ring adds in two staging areas by turns; the first sum to come goes where round 2 sends from."""
    program = lower(collopt.plan(ring(4), "allreduce", planner="ring").schedule, "allreduce")
    for rank in range(4):
        rounds = rank_rounds(program, 1, rank, 4).rounds
        assert [len(part.receives) for part in rounds] == [2, 1, 0, 3, 0, 0]


def test_one_staging_area_is_enough_where_no_receive_is_early() -> None:
    """Two would take twice the memory of a GPU for nothing."""
    program = lower(collopt.plan(ring(4), "allreduce", planner="ring").schedule, "allreduce")
    one, two = (rank_rounds(program, 1, 0, 4096, areas=areas) for areas in (1, 2))
    assert (one.staging, two.staging) == (1024, 2048)
    assert [part.operations for part in one.rounds[3:]] == [part.operations for part in two.rounds[3:]]


def test_a_message_never_spans_two_shards() -> None:
    """Rank 0 sends rank 1's and rank 2's chunks in one step; slices of two shards are not one piece of memory."""
    program = lower(star_forest(3), "allgather")
    ranks = [list(rank.thread_blocks) for rank in program.ranks]
    ranks[0] = [
        block(recv(1), of=1),
        block(recv(2), of=2),
        block(copy(0, 0)),
        block(send("output", 0, (2, 0), (0, 0), count=2), to=2),
        block(send("input", 0), to=1),
    ]
    ranks[1] = [block(recv(0), of=0), block(recv(2), of=2), block(copy(0, 1)), block(send("input", 0), to=0)]
    ranks[2] = [
        block(recv(0, count=2), of=0),
        block(copy(0, 2)),
        *(block(send("input", 0), to=rank) for rank in (0, 1)),
    ]
    changed = allgather(1, *ranks)
    run_program(changed)
    gather_in_rounds(changed, 7, 3)


def test_data_leaves_in_a_later_round_than_it_came() -> None:
    """A batch has no order inside."""
    arrived: dict[tuple[int, int], int] = {}
    for number, part in enumerate(rounds_of(lower(random_forest(6, 4, 0), "allgather"))):
        for message in part.messages:
            if message.source.buffer == "output":
                assert arrived[message.sender, message.source.start] < number
            for chunk in range(message.chunks):
                arrived[message.receiver, message.target.start + chunk] = number


def test_memory_is_filled_again_in_a_later_round_than_it_was_read() -> None:
    """Rank 0 copies its chunk, sends the copy, and copies again."""
    program = allgather(
        1,
        [block(recv(1), of=1), block(copy(0, 0), copy(0, 0, (2, 0))), block(send("output", 0, (1, 0)), to=1)],
        [block(recv(0), of=0), block(copy(0, 1)), block(send("input", 0), to=0)],
    )
    run_program(program)
    rounds = rounds_of(program)
    assert [[message.sender for message in part.copies] for part in rounds] == [[0, 1], [], [0]]
    assert [[message.sender for message in part.messages] for part in rounds] == [[1], [0], []]
    gather_in_rounds(program, 5, 2)


def test_refuses_what_cannot_be_sent_unevenly() -> None:
    """A chunk may not go where another one, perhaps of another size, belongs."""
    program = lower(random_forest(3, 2, 0), "allgather")
    moved = with_step(program, 0, 0, 0, lambda step: replace(step, target=ChunkRange("output", step.target.start ^ 1)))
    with pytest.raises(UnsupportedError, match="a chunk can only go where it belongs"):
        rounds_of(moved)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 6)), max_size=60))
def test_places_in_use_do_not_overlap(requests: list[tuple[bool, int]]) -> None:
    """Any places may be given back, and a scratch that is all given back is one gap again."""
    slots, held, total = ScratchAllocator(), [], 0
    for takes, number in requests:
        if takes or not held:
            held.append((slots.allocate(number), number))
            total += number
        else:
            slots.free(*held.pop(number % len(held)))
        used = np.zeros(slots.size, dtype=np.int64)
        for begin, count in held:
            used[begin : begin + count] += 1
        assert used.max(initial=0) <= 1
        assert slots.size <= total
    for place in held:
        slots.free(*place)
    size = slots.size
    if size:
        assert (slots.allocate(size), slots.size) == (0, size)


def message(sender: int, receiver: int, source: ChunkRange, target: ChunkRange, first: int, chunks: int) -> Message:
    """Some chunks from place to place."""
    return Message(sender, receiver, source, target, chunks, 0, first)


def test_scratch_of_rounds_is_given_on_from_the_round_after() -> None:
    """Chunks 0 and 1 of two elements come in round 0 and go in round 1, in which chunk 2 comes, and in 2 chunk 3."""
    output = ChunkRange("output", 0)
    rounds = [
        Round((message(0, 1, output, ChunkRange("scratch", 0), 0, 2),), ()),
        Round(
            (
                message(1, 2, ChunkRange("scratch", 0), output, 0, 1),
                message(1, 2, ChunkRange("scratch", 1), output, 1, 1),
                message(0, 1, output, ChunkRange("scratch", 2), 2, 1),
            ),
            (),
        ),
        Round((message(0, 1, output, ChunkRange("scratch", 3), 3, 1),), ()),
    ]
    scratch = RoundScratch(rounds, 1, 1, lambda _chunk, _slice: 2)
    assert [scratch.start(0, place) for place in range(4)] == [0, 2, 4, 0]
    assert scratch.size == 6
    assert RoundScratch(rounds, 0, 1, lambda _chunk, _slice: 2).size == 0
