"""Memory of the MSCCL++ interpreter, and the results expected in it."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ProgramError
from ..interpreter.interpret import expected_outputs
from ..programs.layout import Layout
from ..programs.program import Buffer
from .execution_plan import ExecutionPlan, Gpu

Data = npt.NDArray[Any]


class Memory:
    """Allocations of one rank, and the buffers in them.

    `pads`: elements of the allocations in front of the input and the output; in place, the first of them.  `bounds`:
    begin and end of each buffer's allocation in the memory of all ranks, which that of this one follows `begin`.
    """

    def __init__(
        self, gpu: Gpu, layout: Layout, rank: int, in_place: bool, slices: int, begin: int, pads: tuple[int, int]
    ) -> None:
        self.slices, self.chunks = slices, gpu.chunks
        self.pads = {"input": pads[0], "output": pads[1], "scratch": 0, "shared": pads[0]}
        self.first = self.pads.copy()
        self.names: dict[str, str] = {buffer: buffer for buffer in gpu.chunks}
        if in_place:
            self.names |= {"input": "shared", "output": "shared"}
            self.first["output"] = pads[0]
            if layout.collective.is_sharded:
                smaller: Buffer = "input" if layout.collective.input == "shard" else "output"
                self.first[smaller] += layout.offsets[rank] * slices
        sizes: dict[str, int] = defaultdict(int)
        for buffer, chunks in gpu.chunks.items():
            allocation = self.names[buffer]
            sizes[allocation] = max(sizes[allocation], self.first[buffer] + chunks * slices)
        ends = dict(zip(sizes, accumulate(sizes.values(), initial=begin), strict=False))
        self.bounds = {buffer: (ends[name], ends[name] + sizes[name]) for buffer, name in self.names.items()}
        self.end = begin + sum(sizes.values())

    def bind(self, memory: Data) -> None:
        """Make `arrays` of the buffers, views of the memory of all ranks."""
        begins = {buffer: self.bounds[buffer][0] + self.first[buffer] for buffer in self.chunks}
        self.arrays: dict[str, Data] = {
            buffer: memory[begins[buffer] :][: chunks * self.slices] for buffer, chunks in self.chunks.items()
        }

    def place(self, element: int) -> tuple[str, int]:
        """Allocation that an element of the memory of all ranks is in, and the chunk."""
        for buffer, (begin, end) in self.bounds.items():
            if begin <= element < end:
                name = self.names[buffer]
                return name, (element - begin - self.pads[name]) // self.slices
        raise AssertionError


def layout_of(plan: ExecutionPlan) -> Layout:
    """Layout of the plan's collective; the root is the rank that reads its input, or writes its output."""
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
    """Compare the results of all ranks with the expected ones, slice by slice."""
    slices = memory[0].slices
    chunks = []
    for rank, own in enumerate(inputs):
        begin, end = layout.input_range(rank)
        chunks.append(own.reshape(-1, slices)[: end - begin])
    for rank, expected in enumerate(expected_outputs(layout, chunks)):
        arrays = memory[rank].arrays
        if not plan.in_place and not np.array_equal(arrays["input"], inputs[rank]):
            raise ProgramError(f"rank {rank} ends with a changed input")
        mistakes = np.argwhere(arrays["output"].reshape(-1, slices)[: len(expected)] != expected)
        if len(mistakes):
            raise ProgramError(
                f"rank {rank} ends with wrong data in output chunk {mistakes[0][0]}, slice {mistakes[0][1]}"
            )


def _root(plan: ExecutionPlan) -> int:
    """Return the only rank whose input is read, in a broadcast, or whose output is written, in a reduce."""
    roots = set()
    for operation in plan.operations():
        if plan.collective.reduces:
            roots |= {place.rank for place in operation.targets if place.buffer == "output"}
        else:
            roots |= {place.rank for place in operation.sources if place.buffer == "input"}
    if not roots and plan.in_place and plan.num_ranks == 1:
        return 0
    if len(roots) != 1:
        what = "have their output written" if plan.collective.reduces else "read their input"
        raise ProgramError(f"{len(roots)} ranks of the {plan.collective} {what}; expected one, the root")
    return roots.pop()
