"""Thread blocks that are joined where there are too many: the same data, no deadlock, and every limit kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_flows import flows, ring_flow
from runtime_forests import schedules

import collopt
from collopt.errors import UnsupportedError
from collopt.runtime import Program, interpret_file, lower, read_xml, run_program, without_receive_reduce
from collopt.runtime.msccl.export import export_msccl_xml
from collopt.runtime.programs.transformations import document_steps, packed
from collopt.schedules import FlowSchedule, TreeSchedule
from collopt.topologies import dgx_h100
from sample_sizes import examples


def most_blocks(program: Program) -> int:
    """Thread blocks of the rank that has most."""
    return max(len(rank.thread_blocks) for rank in program.ranks)


def check_packed(program: Program, most: int, max_steps: int) -> Program:
    """Join blocks, run what comes of it with buffers of one transfer, and return it."""
    result = packed(program, most, max_steps)
    run_program(result, interleavings=3, fifo_depth=1)
    assert result.num_instructions == program.num_instructions
    for rank, before in zip(result.ranks, program.ranks, strict=True):
        longest = max((document_steps(block) for block in before.thread_blocks), default=0)
        assert all(document_steps(block) <= max(longest, max_steps) for block in rank.thread_blocks)
        assert min(most, len(before.thread_blocks)) <= len(rank.thread_blocks) <= len(before.thread_blocks)
    return result


@given(case=schedules(), most=st.integers(1, 20), channels=st.integers(1, 3), unfused=st.booleans())
@settings(max_examples=examples(60))
def test_joined_blocks_do_every_collective(
    case: tuple[TreeSchedule, str], most: int, channels: int, unfused: bool
) -> None:
    """Trees of all sorts, with and without steps that add while they receive."""
    program = lower(*case, channels=channels)
    check_packed(without_receive_reduce(program) if unfused else program, most, 10**6)


@given(schedule=flows(), most=st.integers(1, 12), max_steps=st.integers(2, 30))
@settings(max_examples=examples(60))
def test_joined_blocks_exchange_everything(schedule: FlowSchedule, most: int, max_steps: int) -> None:
    """With scratch that is used again, and blocks that have to stay short."""
    check_packed(lower(schedule, "all_to_allv"), most, max_steps)


def test_as_many_are_joined_as_it_takes() -> None:
    """A ring's ranks have a receiving, a copying and a sending block; the shortest go first."""
    program = lower(ring_flow(4), "all_to_all")
    assert packed(program, 3, 64) is program
    for most in (2, 1):
        assert most_blocks(check_packed(program, most, 64)) == most
    # Five receives and a copy fit into six steps, and nothing else does.
    assert most_blocks(check_packed(program, 1, 6)) == 2
    assert most_blocks(check_packed(program, 1, 5)) == 3


@pytest.mark.slow
def test_plans_with_more_peers_than_blocks_are_written(tmp_path: Path) -> None:
    """Of 48 GPUs each sends to 47 and receives from 47, which makes 95 blocks; RCCL runs 64 at once."""
    plan = collopt.plan(dgx_h100(boxes=6), "all_to_all", planner="shortest-paths")
    program = lower(plan.schedule, "all_to_all", topology=plan.topology)
    assert most_blocks(program) == 95
    export_msccl_xml(plan, tmp_path / "a.xml", runtime="rccl")
    assert most_blocks(read_xml(tmp_path / "a.xml")) == 64
    assert interpret_file(tmp_path / "a.xml", interleavings=1).transfers == 48 * 47
    export_msccl_xml(plan, tmp_path / "b.xml", runtime="msccl")
    assert read_xml(tmp_path / "b.xml") == program
    with pytest.raises(UnsupportedError, match=r"47 thread blocks.* runs 40 at once, in rccl; .* fewer chunks"):
        export_msccl_xml(plan, tmp_path / "c.xml", runtime="rccl", max_thread_blocks=40)
