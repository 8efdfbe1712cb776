"""Tensors that go into a plan and come out of it, for the ``collopt`` backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....errors import UnsupportedError
from ..calls.arguments import import_torch

__all__ = ["are_alike", "check_writable", "dense", "done", "joined", "spread"]

torch, _ = import_torch()


def dense(tensor: Any) -> Any:
    """Return the tensor, or a copy that stands in memory as it looks."""
    return tensor.resolve_conj().resolve_neg().contiguous()


def check_writable(tensor: Any) -> None:
    """Refuse an output whose elements have one place for several of them, as expanded tensors' have.

    Raises
    ------
    UnsupportedError
        If it is such a tensor.
    """
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
