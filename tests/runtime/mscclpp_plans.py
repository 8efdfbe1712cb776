"""MSCCL++ plans of small random schedules, for the tests of their writer, reader and machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from runtime_forests import random_schedule

from collopt.runtime.lowering.lower import lower
from collopt.runtime.mscclpp import lower as lowering
from collopt.runtime.mscclpp.execution_plan import ExecutionPlan, document_of
from collopt.runtime.mscclpp.interpret import run_execution_plan
from collopt.runtime.mscclpp.reader import parse_document
from collopt.runtime.programs.check import check_program
from collopt.runtime.programs.program import Program

TWO_BOXES = [0, 0, 1, 1]
Document = dict[str, Any]


def to_execution_plan(program: Program, **options: Any) -> ExecutionPlan:
    """Convert a program after the checks that an export makes of its plan."""
    chosen = lowering.PlanOptions(**options)
    chosen.check()
    check_program(program)
    lowering.check_collective(program, in_place=chosen.in_place)
    if chosen.in_place:
        check_program(replace(program, in_place=True))
    return lowering.verified(lowering.converted(program, chosen))


def small_plan(collective: str, **options: Any) -> ExecutionPlan:
    """Random trees on four ranks; rank 1 is the root where there is one."""
    schedule = random_schedule(collective, 4, 2, 3, root=1)
    return to_execution_plan(lower(schedule, collective, max_steps=4), **options)


def small_document(collective: str, **options: Any) -> Document:
    """Return the JSON of the same."""
    return document_of(small_plan(collective, **options))


def run_document(document: object) -> None:
    """Read a document and run it once; raises what is wrong with it."""
    run_execution_plan(parse_document(document, "plan.json"), interleavings=1)


def operations(document: Document) -> list[tuple[list[Document], int]]:
    """Every operation, as the list that holds it and its position there."""
    found = []
    for gpu in document["gpus"]:
        for block in gpu["threadblocks"]:
            for position, operation in enumerate(block["ops"]):
                found.append((block["ops"], position))
                found += [(operation["ops"], inner) for inner in range(len(operation.get("ops", ())))]
    return found
