"""The forms that torch's calls of a process group have, and of groups, those that plans are for."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..calls.arguments import import_torch

__all__ = ["in_lists", "misplacement"]

torch, dist = import_torch()
ProcessGroup: Any = dist.ProcessGroup


def in_lists(method: Callable[..., Any]) -> Callable[..., Any]:
    """Bring a call into the form that torch.distributed and C++ use: lists of tensors, and one object with the options.

    DDP has a call in another form, which must have the same effect.  The base class makes the usual form of it and
    calls the method again.  (pybind11 would not let it if the function that asks for that had the method's own name.)
    """

    @wraps(method)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        if named.keys() - {"opts"} or any(
            isinstance(each, (torch.Tensor, dist.ReduceOp.RedOpType, int)) for each in args
        ):
            return getattr(ProcessGroup, method.__name__)(self, *args, **named)
        return method(self, *args, **named)

    return call


def misplacement(ranks: list[int]) -> str | None:
    """Say why the ranks of a group are not those of a part of the machine, if they are not."""
    start, size = ranks[0], len(ranks)
    if ranks == list(range(start, start + size)) and start % size == 0:
        return None
    shown = ", ".join(map(str, ranks[:3])) + ", …" * (size > 3)
    return f"the group of ranks {shown} is no run of {size} consecutive ones that starts at a multiple of {size}"
