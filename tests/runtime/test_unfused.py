"""Steps that add while they receive, split."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_forests import schedules, star_sum

from collopt.runtime import lower, run_program, without_receive_reduce
from collopt.schedules import TreeSchedule
from sample_sizes import examples


@given(case=schedules(), most=st.integers(1, 4))
@settings(max_examples=examples(60))
def test_split_programs_do_the_same(case: tuple[TreeSchedule, str], most: int) -> None:
    """Apart and in place, with bounded additional scratch and no step that receives and adds."""
    fused = lower(*case, max_count=most)
    program = without_receive_reduce(fused)
    run_program(program, interleavings=2, fifo_depth=1)
    run_program(replace(program, in_place=True), interleavings=1)
    for before, after in zip(fused.ranks, program.ranks, strict=True):
        assert {step.kind for block in after.thread_blocks for step in block.instructions} <= {
            "send",
            "recv",
            "copy",
            "reduce",
        }
        receiving = sum(block.recv_peer is not None for block in before.thread_blocks)
        assert after.scratch_chunks <= before.scratch_chunks + receiving * most


def test_what_has_nothing_to_split_stays_as_it_is() -> None:
    """Sends, receives and copies."""
    program = without_receive_reduce(star_sum((0, 0)))
    assert without_receive_reduce(program) == program


def test_the_first_contribution_comes_to_the_blocks_scratch_and_the_input_to_the_output() -> None:
    """So that nothing is lost where input and output are the same memory; dependencies move to the steps that add."""
    program = without_receive_reduce(star_sum((0, 0)))
    first, second = program.ranks[0].thread_blocks
    assert [step.kind for step in first.instructions] == ["recv", "copy", "reduce"]
    assert [step.kind for step in second.instructions] == ["recv", "reduce"]
    assert second.instructions[0].depends == ()
    assert [(wait.thread_block, wait.step) for wait in second.instructions[1].depends] == [(0, 2)]
    assert program.ranks[0].scratch_chunks == 2
