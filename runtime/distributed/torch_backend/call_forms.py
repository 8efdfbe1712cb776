"""The forms that torch's calls of a process group have, and of groups, those that plans are for.

Tensors that go into a plan and come out of it, for the ``collopt`` backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from ....errors import UnsupportedError
from ..calls.arguments import import_torch

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


def dense(tensor: Any) -> Any:
    """Return the tensor, or a copy that stands in memory as it looks."""
    return tensor.resolve_conj().resolve_neg().contiguous()


def check_writable(tensor: Any) -> None:
    """Refuse an output whose elements have one place for several of them, as expanded tensors' have."""
    if any(size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        raise UnsupportedError(
            f"an output of shape {tuple(tensor.shape)} has strides {tensor.stride()}, so several of its elements are "
            "at one place in memory; expected a place for each, as .contiguous() makes"
        )


def are_alike(tensors: Sequence[Any], one: Any) -> bool:
    """Whether all have as many elements of one type on one device."""
    return all((each.numel(), each.dtype, each.device) == (one.numel(), one.dtype, one.device) for each in tensors)


def joined(tensors: Sequence[Any]) -> Any:
    """Copy several tensors to one row of elements."""
    with torch.inference_mode():
        return torch.cat([dense(tensor).view(-1) for tensor in tensors])


def spread(whole: Any, tensors: Sequence[Any]) -> Sequence[Any]:
    """Copy one row of elements to several tensors."""
    with torch.inference_mode():
        for part, tensor in zip(whole.split([each.numel() for each in tensors]), tensors, strict=True):
            tensor.copy_(part.view(tensor.shape))
    return tensors


def done(tensors: Sequence[Any]) -> Any:
    """Return work that is over, on CUDA for what follows on the current stream."""
    on_gpu = {tensor.device for tensor in tensors if tensor.device.type == "cuda"}
    future = torch.futures.Future(devices=sorted(on_gpu, key=str))
    future.set_result(list(tensors))
    return torch._C._distributed_c10d._create_work_from_future(future)
