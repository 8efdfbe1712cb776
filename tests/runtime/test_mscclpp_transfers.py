"""What receivers tell senders is needed: without it there are races."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mscclpp_plans import to_execution_plan
from runtime_forests import recv, send

import collopt
from collopt.errors import ProgramError
from collopt.runtime import ChunkRange, Instruction, Program, RankProgram, ThreadBlock, check_program, lower
from collopt.runtime.mscclpp import lower as mscclpp
from collopt.runtime.mscclpp.interpret import run_execution_plan
from collopt.runtime.mscclpp.transfers import plan_transfers
from collopt.runtime.programs.ordering import global_order
from collopt.topologies import hypercube

PAIRS = [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.fixture(scope="module")
def program() -> Program:
    """An all-to-all in which scratch is used for one transfer after the other."""
    return lower(collopt.plan(hypercube(3), "all_to_all").schedule, "all_to_all")


def across(boxes: list[int]) -> set[tuple[int, int]]:
    """Pairs of ranks in different boxes."""
    ranks = range(len(boxes))
    return {(one, other) for one in ranks for other in ranks if boxes[one] != boxes[other]}


@pytest.mark.parametrize(("told", "boxes"), [("credits", None), ("credits", PAIRS), ("acknowledgements", PAIRS)])
def test_without_it_there_is_a_race(
    program: Program, monkeypatch: pytest.MonkeyPatch, told: str, boxes: list[int] | None
) -> None:
    """A target is overwritten that is still in use, or a source that has not been read."""
    transfers = plan_transfers(program, global_order(program), across(boxes or [0] * 8))
    assert getattr(transfers, told)
    run_execution_plan(to_execution_plan(program, boxes=boxes), interleavings=4)

    def forgetful(*arguments: Any) -> Any:
        return replace(plan_transfers(*arguments), **{told: set()})

    monkeypatch.setattr(mscclpp, "plan_transfers", forgetful)
    with pytest.raises(ProgramError, match="race"):
        to_execution_plan(program, boxes=boxes)


def test_nothing_is_told_without_need() -> None:
    """Trees write every chunk of the output once, so nobody has to be asked."""
    program = lower(collopt.plan(hypercube(3), "allgather").schedule, "allgather")
    transfers = plan_transfers(program, global_order(program), across(PAIRS))
    assert not transfers.credits
    assert not transfers.acknowledgements
    assert set(transfers.scratch) == {0}


def test_a_source_that_is_overwritten_waits_for_its_reader() -> None:
    """Rank 0 passes two chunks through one place of its scratch, to another box."""
    through = [Instruction("copy", ChunkRange("input", chunk), ChunkRange("scratch", 0), 1) for chunk in range(2)]
    sender = ThreadBlock(1, None, 0, (through[0], send("scratch", 0), through[1], send("scratch", 0)))
    own = Instruction("copy", ChunkRange("input", 0), ChunkRange("output", 0), 2)
    ranks = (
        RankProgram(0, 2, 2, 1, (sender, ThreadBlock(None, None, 0, (own,)))),
        RankProgram(1, 0, 2, 0, (ThreadBlock(None, 0, 0, (recv(0), recv(1))),)),
    )
    program = Program("through", "broadcast", 2, 2, ranks, shards=(2, 0))
    check_program(program)
    assert len(plan_transfers(program, global_order(program), across([0, 1])).acknowledgements) == 1
    assert not plan_transfers(program, global_order(program), set()).acknowledgements
    for boxes in (None, [0, 1]):
        run_execution_plan(to_execution_plan(program, boxes=boxes, slice_bytes=4096), interleavings=6)
