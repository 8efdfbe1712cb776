"""Which tensors can be sent and received as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....errors import UnsupportedError

if TYPE_CHECKING:
    import torch

__all__ = ["check_alike", "check_tensor"]


def check_tensor(name: str, tensor: object) -> None:
    """Refuse what is no tensor, or does not have its elements one after the other in memory."""
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise UnsupportedError(f"{name} is a {type(tensor).__name__}; expected a torch.Tensor")
    if tensor.layout is not torch.strided or not tensor.is_contiguous():
        raise UnsupportedError(f"{name} has shape {tuple(tensor.shape)} and is not contiguous; call .contiguous()")
    if tensor.is_conj() or tensor.is_neg():
        raise UnsupportedError(f"{name} is a lazy conjugate or negative; call .resolve_conj().resolve_neg()")


def check_alike(output: torch.Tensor, given: torch.Tensor) -> None:
    """Refuse an output of another type, or on another device, than the input."""
    if output.dtype != given.dtype:
        raise UnsupportedError(f"output is {output.dtype} and input is {given.dtype}; expected the same type")
    if output.device != given.device:
        raise UnsupportedError(f"output is on {output.device} and input is on {given.device}; expected one device")
