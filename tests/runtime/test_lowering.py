"""From forests to programs: chunks, order, channels and dependencies."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_forests import forests, random_forest, ring_forest, star_forest

from collopt.errors import ProgramError, UnsupportedError
from collopt.runtime import check_program, lower_allgather, run_program
from collopt.schedules import Forest


@given(forest=forests(), max_steps=st.integers(1, 8), max_count=st.integers(1, 4), channels=st.integers(1, 4))
@settings(max_examples=60)
def test_every_lowered_forest_passes_all_checks_and_gathers(
    forest: Forest, max_steps: int, max_count: int, channels: int
) -> None:
    """Whatever the trees and the limits: no deadlock, no race, right data, and the limits hold."""
    program = lower_allgather(forest, max_steps=max_steps, max_count=max_count, channels=channels)
    run_program(program, interleavings=3, fifo_depth=1)
    blocks = [block for rank in program.ranks for block in rank.thread_blocks]
    assert max(len(block.instructions) for block in blocks) <= max_steps
    assert max(step.count for block in blocks for step in block.instructions) <= max_count
    assert all(block.send_peer is None or block.recv_peer is None for block in blocks)


@given(forest=forests())
@settings(max_examples=30)
def test_every_hop_moves_exactly_the_share_of_its_tree(forest: Forest) -> None:
    """Between two ranks go as many shards as the trees with that hop carry: the plan's congestion is the program's."""
    program = lower_allgather(forest, max_count=2)
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


def test_weights_with_a_common_divisor_make_fewer_chunks() -> None:
    """Weights 4 and 2 of k = 6 need three chunks, not six."""
    trees = [(root, weight, [(root, 1 - root)]) for root in range(2) for weight in (4, 2)]
    program = lower_allgather(Forest.from_paths(2, 6, trees))
    assert program.chunks_per_loop == 2 * 3
    assert [step.count for step in program.ranks[0].thread_blocks[0].instructions] == [2, 1]


def test_a_large_tree_is_cut_into_even_pieces() -> None:
    """A weight of 100 exceeds the 71 chunks of a step: two steps of 50 chunks, where 1 keeps the divisor at 1."""
    trees = [(root, weight, [(root, 1 - root)]) for root in range(2) for weight in (100, 1)]
    program = lower_allgather(Forest.from_paths(2, 101, trees))
    counts = [step.count for step in program.ranks[0].thread_blocks[0].instructions]
    assert counts == [50, 50, 1]
    check_program(program)


def test_a_ring_needs_one_sender_and_one_receiver_per_rank() -> None:
    """Three blocks per rank, the steps in the order in which the data goes round."""
    program = lower_allgather(ring_forest(5))
    for rank in program.ranks:
        receive, own, forward = rank.thread_blocks
        before = (rank.rank - 1) % 5
        assert receive.recv_peer == before
        assert forward.send_peer == (rank.rank + 1) % 5
        assert [step.target.start for step in receive.instructions] == [(before - hop) % 5 for hop in range(4)]
        assert forward.instructions[0].source.buffer == "input"
        assert [wait.step for step in forward.instructions[1:] for wait in step.depends] == [0, 1, 2]
        assert len(own.instructions) == 1


def test_dependencies_that_an_earlier_step_implies_are_dropped() -> None:
    """A block that has waited for a receive has waited for the earlier ones of its block."""
    program = lower_allgather(random_forest(6, 6, seed=1))
    for rank in program.ranks:
        for block in rank.thread_blocks:
            waited: dict[int, int] = {}
            for step in block.instructions:
                for wait in step.depends:
                    assert waited.get(wait.thread_block, -1) < wait.step
                    waited[wait.thread_block] = wait.step


def test_a_busy_connection_is_spread_over_channels() -> None:
    """Ten transfers at four per block take three channels, with the same steps at both ends."""
    trees = [(root, 1, [(root, 1 - root)]) for root in range(2) for _ in range(10)]
    program = lower_allgather(Forest.from_paths(2, 10, trees), max_steps=4)
    sizes = [len(block.instructions) for block in program.ranks[0].thread_blocks if block.send_peer == 1]
    assert sizes == [4, 3, 3]
    assert program.num_channels == 3


def test_many_peers_are_spread_over_channels() -> None:
    """A channel takes 32 sends per rank, so 34 peers need a second one."""
    program = lower_allgather(star_forest(35))
    for rank in program.ranks:
        sends = Counter(block.channel for block in rank.thread_blocks if block.send_peer is not None)
        receives = Counter(block.channel for block in rank.thread_blocks if block.recv_peer is not None)
        assert max(*sends.values(), *receives.values()) <= 32
    assert program.num_channels >= 2


def test_more_channels_on_request() -> None:
    """A connection with fewer transfers than channels asked for gets one per transfer."""
    program = lower_allgather(ring_forest(4), channels=2)
    assert program.num_channels == 2
    assert all(len(rank.thread_blocks) == 2 + 1 + 2 for rank in program.ranks)


@pytest.mark.parametrize("option", ["max_steps", "max_count", "channels"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2"])
def test_refuses_senseless_options(option: str, value: object) -> None:
    """Options are positive whole numbers, and the message names the option."""
    with pytest.raises(UnsupportedError, match=option):
        lower_allgather(ring_forest(3), **{option: value})


def test_refuses_shards_of_different_sizes() -> None:
    """Rank 1 has one tree where k says two."""
    forest = Forest.from_paths(2, 2, [(0, 2, [(0, 1)]), (1, 1, [(1, 0)])])
    with pytest.raises(UnsupportedError, match="rank 1 weigh 1"):
        lower_allgather(forest)


@pytest.mark.parametrize(
    ("trees", "message"),
    [
        ([(0, 1, [(0, 1)]), (1, 1, [(1, 0), (1, 2)]), (2, 1, [(2, 0), (0, 1)])], "tree 0"),
        ([(0, 1, [(0, 1), (1, 2)]), (1, 1, [(2, 0), (0, 2)]), (2, 1, [(2, 0), (0, 1)])], "tree 1.*cut off"),
        ([(0, 1, [(0, 1), (4, 2)]), (1, 1, [(1, 0), (1, 2)]), (2, 1, [(2, 0), (0, 1)])], "tree 0"),
        ([(0, 0, [(0, 1), (1, 2)])], "weight 1 or more"),
        ([], "0 trees"),
    ],
    ids=["missing rank", "circle", "switch as sender", "weight 0", "no trees"],
)
def test_refuses_trees_that_do_not_span(trees: list[tuple[int, int, list[tuple[int, ...]]]], message: str) -> None:
    """A tree reaches every rank from its root exactly once."""
    with pytest.raises(ProgramError, match=message):
        lower_allgather(Forest.from_paths(3, 1, trees))
