"""Orders for connections that hold something."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import ProgramError
from collopt.runtime import ChunkRange, Instruction, Program, RankProgram, ThreadBlock
from collopt.runtime.msccl.lint_runs import buffered_order
from collopt.runtime.programs.interpret import run_interleaving
from sample_sizes import examples


def exchange(first: str, second: str, count: int = 1) -> Program:
    """Two ranks that send (s) and receive (r) in these orders; what they leave behind does not matter."""
    steps = {
        "s": Instruction("send", ChunkRange("input", 0), None, count),
        "r": Instruction("recv", None, ChunkRange("output", 0), count),
    }
    ranks = tuple(
        RankProgram(rank, 4, 8, 0, (ThreadBlock(1 - rank, 1 - rank, 0, tuple(steps[way] for way in ways)),))
        for rank, ways in enumerate((first, second))
    )
    return Program("exchange", "allgather", 2, 8, ranks)


def gets_through(program: Program, depth: int) -> bool:
    """Whether there is an order; it holds every step once, and a send before its receive."""
    try:
        order = buffered_order(program, depth)
    except ProgramError:
        return False
    place = {number: position for position, number in enumerate(order.sequence)}
    assert sorted(place) == list(range(len(order.sites)))
    for number, step in enumerate(order.instructions):
        assert not step.receives or place[order.partners[number]] < place[number]
        assert all(place[earlier] < place[number] for earlier in order.before[number])
    return True


@settings(max_examples=examples(200))
@given(st.permutations("sssrrr"), st.permutations("sssrrr"), st.integers(1, 4))
def test_agrees_with_the_machine(first: list[str], second: list[str], depth: int) -> None:
    """Which takes turns at random, with connections of that size."""
    program = exchange("".join(first), "".join(second))
    try:
        run_interleaving(program, seed=0, fifo_depth=depth)
        stuck = False
    except ProgramError as error:
        stuck = "deadlocks" in str(error)
    assert gets_through(program, depth) == (not stuck)


@pytest.mark.parametrize(("count", "depth", "through"), [(2, 2, True), (3, 2, False), (3, 3, True), (4, 3, False)])
def test_large_transfers_take_a_place_for_each_chunk(count: int, depth: int, through: bool) -> None:
    """So that one that does not fit waits for its receive."""
    assert gets_through(exchange("sr", "sr", count), depth) == through
    assert gets_through(exchange("sr", "rs", count), depth)


def test_ends_that_disagree_are_refused() -> None:
    """As everywhere."""
    with pytest.raises(ProgramError, match="sends but"):
        buffered_order(exchange("ssr", "sr"), 2)
