"""What a case is, the data of its calls, and what is right: by numpy alone, without collopt.

Numbers that are added are whole and small, so every order of additions gives the same bits, in every type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

TYPES = {
    "int32": np.int32,
    "uint32": np.uint32,
    "float16": np.float16,
    "float32": np.float32,
    "bfloat16": np.uint16,  # its upper half of a float32; numpy has no such type
    "uint8": np.uint8,
}
"""Types of an element by their names in MSCCL++'s `DataType`."""
LARGEST = 15
REDUCING = ("reduce_scatter", "allreduce", "reduce")


@dataclass(frozen=True)
class Case:
    """Calls of a collective with one plan file: the first alone, the others back to back."""

    name: str
    plan: str  # Path of the file
    collective: str
    ranks: int
    placement: str  # "in-place" or "out-of-place"
    root: int  # By which broadcast and reduce are judged
    send_bytes: int  # Of one rank, as the next
    receive_bytes: int
    dtype: str  # A name in `TYPES`
    calls: int
    seed: int
    expected: str  # "right"; "wrong" or "timeout" for files that were damaged on purpose


def inputs_of(case: Case, call: int) -> list[Bytes]:
    """Make the data that each rank sends in a call; every process makes the same."""
    return [_input(case, np.random.default_rng([case.seed, call, rank])) for rank in range(case.ranks)]


def _input(case: Case, generator: np.random.Generator) -> Bytes:
    if case.collective not in REDUCING:
        return generator.integers(0, 256, case.send_bytes, dtype=np.uint8)
    element = np.dtype(TYPES[case.dtype])
    low = 0 if case.dtype.startswith("uint") else -LARGEST
    numbers = generator.integers(low, LARGEST + 1, case.send_bytes // element.itemsize)
    return _bytes_of(numbers.astype(np.float64), case.dtype)


def expected_output(case: Case, inputs: Sequence[Bytes], rank: int) -> Bytes | None:
    """Compute what a rank has to receive; None where the collective leaves its output open."""
    if case.collective == "allgather":
        return np.concatenate(inputs)
    if case.collective == "broadcast":
        return inputs[case.root]
    if case.collective == "reduce" and rank != case.root:
        return None
    if case.collective in ("allreduce", "reduce"):
        return _sum(inputs, case.dtype)
    size = case.send_bytes // case.ranks
    parts = [data[rank * size : (rank + 1) * size] for data in inputs]
    return _sum(parts, case.dtype) if case.collective == "reduce_scatter" else np.concatenate(parts)


def _sum(parts: Sequence[Bytes], dtype: str) -> Bytes:
    return _bytes_of(np.sum([numbers_of(part, dtype) for part in parts], axis=0), dtype)


def numbers_of(data: Bytes, dtype: str) -> NDArray[np.float64]:
    """Read the elements of a buffer."""
    elements = data.view(TYPES[dtype])
    if dtype == "bfloat16":
        elements = (elements.astype(np.uint32) << 16).view(np.float32)
    return elements.astype(np.float64)


def _bytes_of(numbers: NDArray[np.float64], dtype: str) -> Bytes:
    if dtype == "bfloat16":
        return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return np.ascontiguousarray(numbers.astype(TYPES[dtype])).view(np.uint8)
