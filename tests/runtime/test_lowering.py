"""From forests to programs: chunks, order, channels and dependencies."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from runtime_forests import (
    COLLECTIVES,
    allreduce_at,
    forests,
    random_forest,
    random_schedule,
    recv,
    recv_reduce,
    ring_allreduce_at_one_rank,
    ring_forest,
    schedules,
    send,
    star_forest,
    weighted_forest,
)

from collopt.errors import CertificateError, UnsupportedError
from collopt.runtime import check_program, lower, run_program
from collopt.runtime.lowering.trees import step_numbers
from collopt.runtime.programs.ordering import global_order
from collopt.schedules import Allreduce, Forest, TreeSchedule
from sample_sizes import examples


@given(forest=forests(), max_steps=st.integers(1, 8), max_count=st.integers(1, 4), channels=st.integers(1, 4))
@settings(max_examples=examples(45))
def test_every_lowered_forest_passes_all_checks_and_gathers(
    forest: Forest, max_steps: int, max_count: int, channels: int
) -> None:
    """Whatever the trees and the limits: no deadlock, no race, right data, and the limits hold."""
    program = lower(forest, "allgather", max_steps=max_steps, max_count=max_count, channels=channels)
    run_program(program, interleavings=3, fifo_depth=1)
    blocks = [block for rank in program.ranks for block in rank.thread_blocks]
    assert max(len(block.instructions) for block in blocks) <= max_steps
    assert max(step.count for block in blocks for step in block.instructions) <= max_count
    assert all(block.send_peer is None or block.recv_peer is None for block in blocks)


@given(case=schedules(), max_steps=st.integers(1, 8), max_count=st.integers(1, 4), channels=st.integers(1, 3))
@settings(max_examples=examples(60))
def test_every_collective_passes_all_checks_and_has_the_right_data(
    case: tuple[TreeSchedule, str], max_steps: int, max_count: int, channels: int
) -> None:
    """Equal and unequal shards, apart and in place; a step waits for at most one other."""
    schedule, collective = case
    program = lower(schedule, collective, max_steps=max_steps, max_count=max_count, channels=channels)
    run_program(program, interleavings=2, fifo_depth=1)
    run_program(replace(program, in_place=True), interleavings=1)
    blocks = [block for rank in program.ranks for block in rank.thread_blocks]
    assert max(len(block.instructions) for block in blocks) <= max_steps
    assert max(step.count for block in blocks for step in block.instructions) <= max_count
    assert max(len(step.depends) for block in blocks for step in block.instructions) <= 1


@given(case=schedules())
@settings(max_examples=examples(40))
def test_scratch_is_bounded(case: tuple[TreeSchedule, str]) -> None:
    """By what a rank has and does not keep; what only moves, and an allreduce, needs none."""
    program = lower(*case)
    for rank in program.ranks:
        if str(program.collective) in ("reduce_scatter", "reduce"):
            assert rank.scratch_chunks <= rank.input_chunks - rank.output_chunks
        else:
            assert rank.scratch_chunks == 0


@given(case=schedules())
@settings(max_examples=examples(40))
def test_every_contribution_is_sent_once(case: tuple[TreeSchedule, str]) -> None:
    """Each chunk crosses as many hops as its trees have, N - 1 per tree, whatever the collective."""
    program = lower(*case)
    sent = sum(
        step.count
        for rank in program.ranks
        for block in rank.thread_blocks
        for step in block.instructions
        if step.kind == "send"
    )
    ways = 2 if str(program.collective) == "allreduce" else 1
    assert sent == ways * program.chunks_per_loop * (program.num_ranks - 1)


def test_a_chain_adds_up_on_its_way_and_keeps_sums_in_scratch() -> None:
    """Rank 2 sends its input, rank 1 adds its own in scratch and sends that, rank 0 adds up in its output."""
    chain = replace(
        Forest.from_paths(3, 1, [(0, 1, [(0, 1), (1, 2)])]), root_weights=np.array([1, 0, 0]), direction="reduce"
    )
    program = lower(chain, "reduce")
    (last,) = program.ranks[2].thread_blocks
    assert last.instructions == (send("input", 0),)
    receive, forward = program.ranks[1].thread_blocks
    assert receive.instructions == (recv_reduce(("input", 0), ("scratch", 0)),)
    assert forward.instructions == (send("scratch", 0, (0, 0)),)
    (final,) = program.ranks[0].thread_blocks
    assert final.instructions == (recv_reduce(("input", 0), ("output", 0)),)
    assert program.shards == (1, 0, 0)


def test_an_allreduce_overwrites_partial_sums_only_after_they_are_sent() -> None:
    """Rank 1 adds up in its output, sends that up, and receives the final sum there."""
    up = replace(Forest.from_paths(3, 1, [(0, 1, [(0, 1), (1, 2)])]), root_weights=np.array([1, 0, 0]))
    program = lower(Allreduce(replace(up, direction="reduce"), up), "allreduce")
    steps = [(block.recv_peer, block.send_peer, block.instructions) for block in program.ranks[1].thread_blocks]
    assert steps == [
        (2, None, (recv_reduce(("input", 0), ("output", 0)),)),
        (0, None, (recv(0, (2, 0)),)),
        (None, 0, (send("output", 0, (0, 0)),)),
        (None, 2, (send("output", 0, (1, 0)),)),
    ]


def test_an_allreduce_may_add_up_everything_at_one_rank() -> None:
    """Half of the buffer on each tree: the other ranks add up what they pass on, and nobody has a shard."""
    program = lower(ring_allreduce_at_one_rank(), "allreduce")
    assert (program.chunks_per_loop, program.shards) == (2, ())
    assert all((rank.input_chunks, rank.output_chunks, rank.scratch_chunks) == (2, 2, 0) for rank in program.ranks)
    run_program(program, interleavings=3)
    run_program(replace(program, in_place=True), interleavings=3)
    receives = [step.kind for block in program.ranks[2].thread_blocks for step in block.instructions if step.receives]
    assert receives == ["recv_reduce"] * 2


def test_an_allreduce_is_divided_in_proportion_to_the_weights_of_its_roots() -> None:
    """Weights 0, 1 and 2: the first third of the buffer is added up at rank 1, the rest at rank 2."""
    program = lower(allreduce_at([0, 1, 2], 1, seed=0), "allreduce")
    last_sums = {
        (rank.rank, chunk)
        for rank in program.ranks
        for block in rank.thread_blocks
        for step in block.instructions
        if step.kind == "recv_reduce" and step.target
        for chunk in range(step.target.start, step.target.start + step.count)
    }
    received = {
        (rank.rank, chunk)
        for rank in program.ranks
        for block in rank.thread_blocks
        for step in block.instructions
        if step.kind == "recv" and step.target
        for chunk in range(step.target.start, step.target.start + step.count)
    }
    third = program.chunks_per_loop // 3
    # A root adds up its part and is sent it by nobody.
    roots = {chunk: rank for rank, chunk in last_sums - received}
    assert roots == {chunk: 1 if chunk < third else 2 for chunk in range(3 * third)}


def test_weights_that_share_a_divisor_with_their_trees_make_fewer_chunks() -> None:
    """Six units of data on trees of 4 and 2 are three chunks."""
    up = [(2, weight, [(2, 3), (3, 0), (0, 1)]) for weight in (4, 2)]
    forest = replace(Forest.from_paths(4, 1, up), root_weights=np.array([0, 0, 6, 0]))
    assert lower(Allreduce(replace(forest, direction="reduce"), forest), "allreduce").chunks_per_loop == 3


def test_refuses_a_division_too_fine_to_be_written_down() -> None:
    """Weights without a common divisor that would take millions of steps; the message says what to do."""
    trees = [(0, 10**10, [(0, 1)]), (0, 1, [(0, 1)])]
    forest = replace(Forest.from_paths(2, 10**10 + 1, trees), root_weights=np.array([1, 0]))
    for max_count in (71, 2**31 - 1):  # the latter needs few transfers, but checks look at each chunk
        with pytest.raises(UnsupportedError, match=r"10000000001 chunks.*fewer trees per root"):
            lower(forest, "broadcast", max_count=max_count)


def test_shards_follow_the_weights() -> None:
    """Weights 1, 0 and 2 of two trees each: 2, 0 and 4 chunks."""
    program = lower(weighted_forest([1, 0, 2], 2, seed=0, max_weight=1), "allgather")
    assert program.shards == (2, 0, 4)
    assert [rank.input_chunks for rank in program.ranks] == [2, 0, 4]
    assert all(rank.output_chunks == 6 for rank in program.ranks)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_single_rank_copies_what_it_has(collective: str) -> None:
    """There is nothing else to do."""
    alone = Forest(
        1,
        1,
        np.array([0]),
        np.array([1]),
        np.array([[-1]], dtype=np.int32),
        np.array([0, 1]),
        np.array([0]),
        direction="reduce" if collective.startswith("reduce") else "broadcast",
    )
    schedule = Allreduce(replace(alone, direction="reduce"), alone) if collective == "allreduce" else alone
    program = lower(schedule, collective)
    run_program(program)
    assert [step.kind for block in program.ranks[0].thread_blocks for step in block.instructions] == ["copy"]


@pytest.mark.parametrize(
    ("schedule", "collective", "message"),
    [
        (ring_forest(3), "reduce_scatter", "trees are for broadcast; reduce_scatter needs reduce"),
        (ring_forest(3), "allreduce", "trees are for broadcast; allreduce needs both"),
        (random_schedule("allreduce", 3, 1, 0), "allgather", "trees are for both; allgather needs broadcast"),
        (random_schedule("reduce", 3, 1, 0), "broadcast", "trees are for reduce; broadcast needs broadcast"),
        (ring_forest(3), "broadcast", "3 ranks have data; expected one, the root"),
        (ring_forest(3), "alltoall", "no lowering for the collective 'alltoall'; expected one of allgather"),
        (None, "allgather", "schedule for allgather is a NoneType; only those made of trees"),
    ],
)
def test_refuses_trees_for_something_else(schedule: TreeSchedule, collective: str, message: str) -> None:
    """And says what they are for."""
    with pytest.raises(UnsupportedError, match=message):
        lower(schedule, collective)


@given(forest=forests())
@settings(max_examples=examples(30))
def test_every_hop_moves_exactly_the_share_of_its_tree(forest: Forest) -> None:
    """Between two ranks go as many shards as the trees with that hop carry: the plan's congestion is the program's."""
    program = lower(forest, "allgather", max_count=2)
    shard = program.ranks[0].input_chunks
    sent: Counter[tuple[int, int]] = Counter()
    for rank in program.ranks:
        for block in rank.thread_blocks:
            for step in block.instructions:
                if block.send_peer is not None:
                    sent[rank.rank, block.send_peer] += step.count
    planned: Counter[tuple[int, int]] = Counter()
    for tree in range(forest.num_trees):
        for edge in forest.edges(tree):
            planned[edge.tail, edge.head] += int(forest.weights[tree])
    assert {pair: Fraction(chunks, shard) for pair, chunks in sent.items()} == {
        pair: Fraction(weight, forest.trees_per_root) for pair, weight in planned.items()
    }


def test_a_large_tree_is_cut_into_even_pieces() -> None:
    """A weight of 100 exceeds the 71 chunks of a step: two steps of 50 chunks, where 1 keeps the divisor at 1."""
    trees = [(root, weight, [(root, 1 - root)]) for root in range(2) for weight in (100, 1)]
    program = lower(Forest.from_paths(2, 101, trees), "allgather")
    counts = [step.count for step in program.ranks[0].thread_blocks[0].instructions]
    assert counts == [50, 50, 1]
    check_program(program)


def test_a_ring_needs_one_sender_and_one_receiver_per_rank() -> None:
    """Three blocks per rank, the steps in the order in which the data goes round."""
    program = lower(ring_forest(5), "allgather")
    for rank in program.ranks:
        receive, own, forward = rank.thread_blocks
        before = (rank.rank - 1) % 5
        assert receive.recv_peer == before
        assert forward.send_peer == (rank.rank + 1) % 5
        assert [step.target.start for step in receive.instructions] == [(before - hop) % 5 for hop in range(4)]
        assert forward.instructions[0].source.buffer == "input"
        assert [wait.step for step in forward.instructions[1:] for wait in step.depends] == [0, 1, 2]
        assert len(own.instructions) == 1


@given(case=schedules(), most=st.integers(1, 4))
@example(
    case=(allreduce_at([0, 1, 0, 1], 2, 104), "allreduce"), most=1
)  # a receive implies what a later send waited for
@example(case=(random_forest(6, 6, seed=1), "allgather"), most=1)
@settings(max_examples=examples(45))
def test_dependencies_that_other_steps_of_the_rank_imply_are_dropped(case: tuple[TreeSchedule, str], most: int) -> None:
    """However long the way: earlier steps of the block, what these wait for, and so on."""
    order = global_order(lower(*case, max_count=most))
    known: dict[int, set[int]] = {}  # of each step, all of its rank that come before, and the step itself
    for step in order.sequence:
        known[step] = {step}.union(*(known[earlier] for earlier in order.before[step]))
        above, site = order.before[step], order.sites[step]
        for number, wait in enumerate(above):
            if number or not site.step:  # the first one of a later step is the step above it
                others = above[:number] + above[number + 1 :]
                assert not any(wait in known[other] for other in others), site


def test_a_busy_connection_is_spread_over_channels() -> None:
    """Ten transfers at four per block take three channels, with the same steps at both ends."""
    trees = [(root, 1, [(root, 1 - root)]) for root in range(2) for _ in range(10)]
    program = lower(Forest.from_paths(2, 10, trees), "allgather", max_steps=4)
    sizes = [len(block.instructions) for block in program.ranks[0].thread_blocks if block.send_peer == 1]
    assert sizes == [4, 3, 3]
    assert program.num_channels == 3


def test_many_peers_are_spread_over_channels() -> None:
    """A channel takes 32 sends per rank, so 34 peers need a second one."""
    program = lower(star_forest(35), "allgather")
    for rank in program.ranks:
        sends = Counter(block.channel for block in rank.thread_blocks if block.send_peer is not None)
        receives = Counter(block.channel for block in rank.thread_blocks if block.recv_peer is not None)
        assert max(*sends.values(), *receives.values()) <= 32
    assert program.num_channels >= 2


def test_more_channels_on_request() -> None:
    """A connection with fewer transfers than channels asked for gets one per transfer."""
    program = lower(ring_forest(4), "allgather", channels=2)
    assert program.num_channels == 2
    assert all(len(rank.thread_blocks) == 2 + 1 + 2 for rank in program.ranks)


@pytest.mark.parametrize("option", ["max_steps", "max_count", "channels"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2"])
def test_refuses_senseless_options(option: str, value: object) -> None:
    """Options are positive whole numbers, and the message names the option."""
    with pytest.raises(UnsupportedError, match=option):
        lower(ring_forest(3), "allgather", **{option: value})


@pytest.mark.parametrize(
    ("trees", "message"),
    [
        ([(0, 1, [(0, 1)]), (1, 1, [(1, 0), (1, 2)]), (2, 1, [(2, 0), (0, 1)])], "tree 0"),
        ([(0, 1, [(0, 1), (1, 2)]), (1, 1, [(2, 0), (0, 2)]), (2, 1, [(2, 0), (0, 1)])], "tree 1 does not reach rank"),
    ],
    ids=["missing rank", "circle"],
)
def test_refuses_trees_that_do_not_span(trees: list[tuple[int, int, list[tuple[int, ...]]]], message: str) -> None:
    """A tree reaches every rank from its root exactly once."""
    with pytest.raises(CertificateError, match=message):
        lower(Forest.from_paths(3, 1, trees), "allgather")


@settings(max_examples=examples(60))
@given(rows=st.lists(st.tuples(*[st.sampled_from([-1, 0, 1, 2**40])] * 8), max_size=30), cut=st.integers(0, 30))
def test_equal_steps_have_one_number(rows: list[tuple[int, ...]], cut: int) -> None:
    """In the order of their first occurrence over all ranks, however full the hash table is."""
    known, slots, count, found = np.empty((30, 8), dtype=np.int64), np.zeros(32, dtype=np.int32), 0, []
    for part in (rows[:cut], rows[cut:]):
        numbers, count = step_numbers(np.array(part, dtype=np.int64).reshape(-1, 8), known, count, slots)
        found += numbers.tolist()
    different = list(dict.fromkeys(rows))
    assert found == [different.index(row) for row in rows]
    assert [tuple(row) for row in known[:count].tolist()] == different


def test_small_programs_do_not_count_what_others_froze(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may have frozen millions of objects, and counting them goes through all."""
    monkeypatch.setattr(gc, "get_freeze_count", lambda: pytest.fail("all frozen objects were counted"))
    lower(ring_forest(4), "allgather")
    assert gc.isenabled()
