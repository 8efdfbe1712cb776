"""The operations that can stand for adding, on torch tensors.

Sums are made in the tensors' own type, contribution by contribution, in the order that the program lays down, which is
the same for every run and every rank: integers wrap around, and floating-point results depend on that order, though all
ranks get the same bits.
"""

from __future__ import annotations

from typing import Any

from ....errors import UnsupportedError
from ...programs.checks import check_choice
from ...programs.layout import Layout

OPERATIONS = ("sum", "prod", "min", "max", "avg")

INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")

FUNCTIONS = {"sum": "add", "prod": "mul", "min": "minimum", "max": "maximum", "avg": "add"}
"""Names in torch; an average is a sum that is divided at the end."""

TYPES = {
    "sum": (*INTEGERS, *FLOATS, *COMPLEX),
    "prod": (*INTEGERS, *FLOATS, *COMPLEX),
    "min": (*INTEGERS, *FLOATS),
    "max": (*INTEGERS, *FLOATS),
    "avg": (*FLOATS, *COMPLEX),
}


def check_operation(op: str, dtype: Any, layout: Layout) -> None:
    """Refuse an operation that there is not, or that is not made on this type."""
    check_choice("op", op, OPERATIONS)
    if layout.reduces and str(dtype).removeprefix("torch.") not in TYPES[op]:
        raise UnsupportedError(f"{op} is not supported on {dtype}; expected one of {', '.join(TYPES[op])}")


def combine(op: str, one: Any, other: Any, target: Any) -> None:
    """Write ``one`` and ``other`` combined to `target`, which may be either of them."""
    import torch

    getattr(torch, FUNCTIONS[op])(other, one, out=target)


def finish(op: str, output: Any, num_ranks: int) -> None:
    """Make of what has been combined what was asked for."""
    if op == "avg":
        output.div_(num_ranks)
