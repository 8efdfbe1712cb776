"""Programs cut into rounds, and what each rank posts, run on numpy arrays."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
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
    recv,
    ring_forest,
    send,
    star_forest,
    with_step,
)

from collopt.errors import UnsupportedError
from collopt.runtime import ChunkRange, Program, lower_allgather, run_program
from collopt.runtime.batches import Copy, Operation, own_rounds
from collopt.runtime.rounds import rounds_of
from collopt.schedules import Forest

Queues = dict[tuple[int, int], deque[np.ndarray]]


class Rank:
    """One rank working through its rounds as torch.distributed would: post a batch, wait for all of it, go on."""

    def __init__(self, program: Program, rank: int, elements: int, slices: int) -> None:
        self.rank = rank
        self.parts = list(own_rounds(program, slices, rank, elements))
        self.input = np.arange(elements) + rank * elements
        self.output = np.full(program.num_ranks * elements, -1)
        self.awaited: list[Operation] = []

    def post(self, queues: Queues) -> None:
        """Send, remember what to receive, and copy what stays."""
        part = self.parts.pop(0)
        for each in part.operations:
            if each.is_send:
                queues[self.rank, each.peer].append(self._source(each).copy())
        self.awaited = [each for each in part.operations if not each.is_send]
        for move in part.copies:
            self.output[move.target : move.target + move.end - move.begin] = self._source(move)

    def _source(self, piece: Operation | Copy) -> np.ndarray:
        return (self.input if piece.from_input else self.output)[piece.begin : piece.end]

    def receive(self, queues: Queues) -> None:
        """Take what has arrived, in order from each peer."""
        still = []
        for each in self.awaited:
            if queues[each.peer, self.rank]:
                self.output[each.begin : each.end] = queues[each.peer, self.rank].popleft()
            else:
                still.append(each)
        self.awaited = still


def gather_in_rounds(program: Program, elements: int, slices: int) -> None:
    """Run the rounds of all ranks, each at its own pace, and check the outputs."""
    ranks = [Rank(program, rank, elements, slices) for rank in range(program.num_ranks)]
    queues: Queues = defaultdict(deque)
    # Every pass takes some rank further, or nothing ever will.
    for _ in range(1 + sum(len(rank.parts) for rank in ranks)):
        for rank in ranks:
            rank.receive(queues)
            if not rank.awaited and rank.parts:
                rank.post(queues)
    for rank in ranks:
        rank.receive(queues)
        assert not rank.parts
        assert not rank.awaited
        np.testing.assert_array_equal(rank.output, np.arange(program.num_ranks * elements))
    assert not any(queues.values())


@given(forest=forests(), elements=st.integers(0, 40), slices=st.integers(1, 4))
@settings(max_examples=60)
def test_rounds_gather_whatever_the_shard_size(forest: Forest, elements: int, slices: int) -> None:
    """Shards need not divide by chunks or slices; empty messages are left out at both ends alike."""
    gather_in_rounds(lower_allgather(forest), elements, slices)


@given(forest=forests(), slices=st.integers(1, 3), most=st.integers(1, 5))
@settings(max_examples=30)
def test_no_rank_has_more_operations_in_a_round_than_allowed(forest: Forest, slices: int, most: int) -> None:
    """And everything is sent exactly once per slice."""
    program = lower_allgather(forest)
    rounds = rounds_of(program, slices=slices, max_operations=most)
    sent: Counter[int] = Counter()
    for part in rounds:
        ends = Counter(rank for message in part.messages for rank in message[:2])
        assert max(ends.values(), default=0) <= most
        for message in part.messages:
            sent[message.slice_number] += message.chunks
    assert sent == dict.fromkeys(range(slices), program.chunks_per_loop * (forest.num_ranks - 1))


@given(forest=forests(), elements=st.integers(0, 40), slices=st.integers(1, 4))
@settings(max_examples=20)
def test_every_element_is_received_once(forest: Forest, elements: int, slices: int) -> None:
    """And the own ones are copied once."""
    program = lower_allgather(forest)
    for rank in range(forest.num_ranks):
        parts = own_rounds(program, slices, rank, elements)
        received = sum(each.end - each.begin for part in parts for each in part.operations if not each.is_send)
        assert received == elements * (forest.num_ranks - 1)
        assert sum(move.end - move.begin for part in parts for move in part.copies) == elements


def test_a_ring_takes_a_round_per_hop_and_slices_follow_each_other() -> None:
    """Five ranks: four hops; three slices: two rounds more."""
    program = lower_allgather(ring_forest(5))
    assert len(rounds_of(program)) == 4
    assert len(rounds_of(program, slices=3)) == 6


def test_messages_that_continue_each_other_are_joined() -> None:
    """Three trees over the same hop are one message of three chunks."""
    trees = [(root, 1, [(root, 1 - root)]) for root in range(2) for _ in range(3)]
    (only,) = rounds_of(lower_allgather(Forest.from_paths(2, 3, trees)))
    assert [message.chunks for message in only.messages] == [3, 3]


def test_a_message_never_spans_two_shards() -> None:
    """Rank 0 sends rank 1's and rank 2's chunks in one step; slices of two shards are not one piece of memory."""
    program = lower_allgather(star_forest(3))
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
    for number, part in enumerate(rounds_of(lower_allgather(random_forest(6, 4, 0)))):
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
    """A chunk that goes where a chunk of another size belongs, and scratch."""
    program = lower_allgather(random_forest(3, 2, 0))
    moved = with_step(program, 0, 0, 0, lambda step: replace(step, target=ChunkRange("output", step.target.start ^ 1)))
    with pytest.raises(UnsupportedError, match="the same chunk of a shard"):
        rounds_of(moved)
    scratch = with_step(program, 0, 0, 0, lambda step: replace(step, target=ChunkRange("scratch", 0)))
    with pytest.raises(UnsupportedError, match="scratch"):
        rounds_of(scratch)


@pytest.mark.parametrize("option", ["slices", "max_operations"])
def test_refuses_senseless_options(option: str) -> None:
    """Options are positive."""
    with pytest.raises(UnsupportedError, match=option):
        rounds_of(lower_allgather(ring_forest(3)), **{option: 0})
