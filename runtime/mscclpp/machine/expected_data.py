"""What the collective of an MSCCL++ plan promises, and whether the memory of its ranks holds it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....errors import ProgramError
from ...interpreter.machine import expected_outputs
from ...programs.layout import Layout
from ...programs.program import Program
from ..format.execution_plan import ExecutionPlan
from .memory import Data, Memory


def layout_of(plan: ExecutionPlan) -> Layout:
    """Where chunks stand; the root is found by who reads its input, or writes its output."""
    first = plan.gpus[0]
    chunks = max(first.input_chunks, first.output_chunks)
    if plan.collective.in_pairs:
        chunks *= plan.num_ranks
    shards: tuple[int, ...] = ()
    if plan.collective.has_one_root:
        root = _root(plan)
        shards = tuple(chunks * (rank == root) for rank in range(plan.num_ranks))
    return Layout.of(plan.collective, plan.num_ranks, chunks, shards)


def check_data(plan: ExecutionPlan, layout: Layout, memory: Sequence[Memory], inputs: Sequence[Data]) -> None:
    """Compare what all ranks hold at the end with what they must, slice by slice."""
    slices = memory[0].slices
    given = []
    for rank, held in enumerate(inputs):
        begin, end = layout.input_range(rank)
        given.append(held.reshape(-1, slices)[: end - begin])
    shards = layout.shards if layout.collective.has_one_root else ()
    program = Program(plan.name, plan.collective, plan.num_ranks, layout.chunks, (), shards=shards)
    for rank, expected in enumerate(expected_outputs(program, given)):
        arrays = memory[rank].arrays
        if not plan.in_place and not np.array_equal(arrays["input"], inputs[rank]):
            raise ProgramError(f"rank {rank} ends with a changed input")
        wrong = np.argwhere(arrays["output"].reshape(-1, slices)[: len(expected)] != expected)
        if len(wrong):
            raise ProgramError(f"rank {rank} ends with wrong data in output chunk {wrong[0][0]}, slice {wrong[0][1]}")


def _root(plan: ExecutionPlan) -> int:
    """Return the only rank whose input is read, in a broadcast, or whose output is written, in a reduce."""
    found = set()
    for gpu in plan.gpus:
        for block in gpu.thread_blocks:
            for operation in (inner for outer in block for inner in (outer, *outer.body)):
                if plan.collective.reduces:
                    found |= {place.rank for place in operation.targets if place.buffer == "output"}
                else:
                    found |= {place.rank for place in operation.sources if place.buffer == "input"}
    if not found and plan.in_place and plan.num_ranks == 1:
        return 0
    if len(found) != 1:
        what = "have their output written" if plan.collective.reduces else "read their input"
        raise ProgramError(f"{len(found)} ranks of the {plan.collective} {what}; expected one, the root")
    return found.pop()
