"""Torch works of the ``collopt`` backend: plans run on torch's tensors.

Facts about torch that this rests on (torch 2.13):

- A work that torch makes of a future forgets the future's error when it is waited for.  So ours is a subclass, whose
  `wait` torch calls from C++ too; a C++ caller who waits for its future instead, as DDP does, has the error from there.
- That future must get its error from a callback: what Python calls ``set_exception`` is a value in C++.
- `wait` without a limit comes as one with a limit of 0.
- ``asyncOp`` says whether the caller is going to wait at once; C++ callers leave it True.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import wraps
from typing import Any

from ....errors import UnsupportedError
from ..calls.arguments import check_async, import_torch
from ..calls.call_queue import AsyncWork, run_now, start
from ..execution.execute import PlanLike, prepared

torch, dist = import_torch()
Work: Any = dist.Work


class PlannedWork(Work):  # type: ignore[misc]
    """A collective that goes on by a plan."""

    def __init__(self, begun: AsyncWork, tensors: Sequence[Any]) -> None:
        super().__init__()
        self._begun = begun
        self._future = begun.get_future().then(lambda _: begun.wait() and list(tensors))

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait until the data is there, on CUDA for what the current stream does next."""
        return self._begun.wait(timeout or None)

    def synchronize(self) -> None:
        """Do the same."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it is over, well or not."""
        return self._begun.is_completed()

    def get_future(self) -> Any:
        """Return a future of the tensors, which every callback goes on with."""
        return self._future


def run_plan(
    plan: PlanLike,
    output: Any,
    input: Any,  # noqa: A002 - as in torch.distributed.
    *,
    group: Any,
    slices: int,
    op: str,
    at_once: bool,
    results: Sequence[Any] = (),
    afterwards: Callable[[], object] = lambda: None,
) -> Any:
    """Run a plan, or begin to."""
    results = results or [output]
    for tensor in (output, *results):
        check_writable(tensor)
    # Unlike no_grad this also lets us write to tensors that were made so.
    with torch.inference_mode():
        target = dense(output)
        source = target if input is output else dense(input)
    call, job = prepared(plan, target, source, group=group, slices=slices, op=op)

    def bring() -> None:
        with torch.inference_mode():
            if target is not output:
                output.copy_(target)
            afterwards()

    if at_once or not _can_run_async(target):
        run_now(call.group, job)
        bring()
        return done(results)
    return PlannedWork(start(call.group, job, [target], [source, output, *results], afterwards=bring), results)


def _can_run_async(tensor: Any) -> bool:
    """Whether calls with such tensors can run asynchronously."""
    try:
        check_async(True, tensor, None)
    except ValueError:
        return False
    return True


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
    """Refuse an output several of whose elements share memory, as in expanded tensors."""
    if any(size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        raise UnsupportedError(
            f"an output of shape {tuple(tensor.shape)} has strides {tensor.stride()}, so several of its elements are "
            "at one place in memory; expected a place for each, as .contiguous() makes"
        )


def are_alike(tensors: Sequence[Any], one: Any) -> bool:
    """Whether all have as many elements of one type on one device."""
    return all((each.numel(), each.dtype, each.device) == (one.numel(), one.dtype, one.device) for each in tensors)


def joined(tensors: Sequence[Any]) -> Any:
    """Concatenate the elements of several tensors."""
    with torch.inference_mode():
        return torch.cat([dense(tensor).view(-1) for tensor in tensors])


def split_into(whole: Any, tensors: Sequence[Any]) -> Sequence[Any]:
    """Copy the elements of one tensor to several."""
    with torch.inference_mode():
        for part, tensor in zip(whole.split([each.numel() for each in tensors]), tensors, strict=True):
            tensor.copy_(part.view(tensor.shape))
    return tensors


def done(tensors: Sequence[Any]) -> Any:
    """Return finished work, on CUDA for what follows on the current stream."""
    on_gpu = {tensor.device for tensor in tensors if tensor.device.type == "cuda"}
    future = torch.futures.Future(devices=sorted(on_gpu, key=str))
    future.set_result(list(tensors))
    return torch._C._distributed_c10d._create_work_from_future(future)
