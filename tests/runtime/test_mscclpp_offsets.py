"""Buffers that begin behind the start of their allocation, which is what MSCCL++ registers."""

from __future__ import annotations

import pytest
from mscclpp_plans import TWO_BOXES, Document, operations, small_document, small_plan

from collopt.errors import ProgramError
from collopt.runtime.mscclpp.execution_plan import ExecutionPlan
from collopt.runtime.mscclpp.interpret import run_execution_plan
from collopt.runtime.mscclpp.reader import parse_document

AT_START = 0, 0


def without_offsets(document: Document) -> ExecutionPlan:
    """Read the plan with sources that are read from where their allocation starts, as plans mostly have them."""
    for held, position in operations(document):
        for source in held[position].get("src_buff", ()):
            source.pop("buffer_id", None)
    return parse_document(document, "plan.json")


@pytest.mark.parametrize(
    ("collective", "placement", "slices"),
    [
        ("allgather", "in-place", 4096),
        ("allgather", "out-of-place", None),
        ("reduce_scatter", "in-place", None),
        ("reduce_scatter", "out-of-place", None),
        ("allreduce", "in-place", None),
        ("allreduce", "out-of-place", 4096),
        ("broadcast", "in-place", 4096),
        ("reduce", "out-of-place", 4096),
    ],
)
def test_plans_are_right_wherever_buffers_begin(collective: str, placement: str, slices: int | None) -> None:
    """On two boxes, so with port channels."""
    plan = small_plan(collective, boxes=TWO_BOXES, placement=placement, slice_bytes=slices)
    for pads in (AT_START, (5, 2)):
        run_execution_plan(plan, interleavings=1, pads=pads)


def test_the_input_of_an_allgather_in_place_is_not_read_from_the_start_of_the_output() -> None:
    """It is there on one rank only, so plans whose port channels read it without its offset are wrong."""
    plan = without_offsets(small_document("allgather", boxes=TWO_BOXES, placement="in-place", slice_bytes=None))
    with pytest.raises(ProgramError):
        run_execution_plan(plan, interleavings=1, pads=AT_START)


@pytest.mark.parametrize("collective", ["allgather", "allreduce", "broadcast"])
def test_sources_without_offset_are_right_at_the_start_of_an_allocation_only(collective: str) -> None:
    """A port channel reads the memory that is registered."""
    plan = without_offsets(small_document(collective, boxes=TWO_BOXES, slice_bytes=None))
    run_execution_plan(plan, interleavings=1, pads=AT_START)
    with pytest.raises(ProgramError, match=r"wrong data|race"):
        run_execution_plan(plan, interleavings=1, pads=(1, 2))
