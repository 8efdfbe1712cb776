"""Torch works of the ``collopt`` backend: plans run on torch's tensors.

Facts about torch that this rests on (torch 2.13):

- A work that torch makes of a future drops the future's error in `wait`.  So ours is a subclass, whose `wait` torch
  calls from C++ too; a C++ caller that waits for its future instead, as DDP does, gets the error there.
- That future must get its error from a callback: C++ takes the argument of ``set_exception`` for a value.
- `wait` without a timeout arrives as a timeout of 0.
- ``asyncOp`` is False if the caller will wait at once; C++ callers leave it True.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import wraps
from typing import Any, NamedTuple

from ...errors import UnsupportedError
from ..execution.arguments import check_async, import_torch
from ..execution.call_queue import AsyncWork, run_now, start

Work: Any = dist.Work


class PlannedWork(Work):  # type: ignore[misc]
    """A collective that runs asynchronously by a plan."""

    def __init__(self, work: AsyncWork, tensors: Sequence[Any]) -> None:
        super().__init__()
        self._work = work
        self._future = work.get_future().then(lambda _: work.wait() and list(tensors))

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for completion; on CUDA the current stream waits."""
        return self._work.wait(timeout or None)

    def synchronize(self) -> None:
        """Same as `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether the collective has finished or failed."""
        return self._work.is_completed()

    def get_future(self) -> Any:
        """Return a future of the output tensors."""
        return self._future


class Tensors(NamedTuple):
    """Output and input of a call; where these are copies, the caller's tensors and the function that fills them."""

    output: Any
    input: Any
    results: Sequence[Any] = ()
    on_complete: Callable[[], object] = lambda: None


def run_prepared(
    prepare: Callable[[Any, Any], tuple[Any, Callable[[], None] | None]], tensors: Tensors, *, synchronous: bool
) -> Any:
    """Run or start the job, if any, of the call that `prepare` returns for a contiguous output and input."""
    output, argument, results, on_complete = tensors
    results = results or [output]
    for tensor in (output, *results):
        check_writable(tensor)
    # Unlike no_grad this also lets us write to tensors that were made so.
    with torch.inference_mode():
        target = contiguous(output)
        source = target if argument is output else contiguous(argument)
    call, job = prepare(target, source)

    def copy_back() -> None:
        with torch.inference_mode():
            if target is not output:
                output.copy_(target)
            on_complete()

    if job is None or synchronous or not _can_run_async(target):
        if job is not None:
            run_now(call.group, job)
        copy_back()
        return completed_work(results)
    return PlannedWork(start(call.group, job, [target], [source, output, *results], on_complete=copy_back), results)


def _can_run_async(tensor: Any) -> bool:
    """Whether calls with such tensors can run asynchronously."""
    try:
        check_async(True, tensor, None)
    except ValueError:
        return False
    return True


def list_arguments(method: Callable[..., Any]) -> Callable[..., Any]:
    """Convert a call to the overload that torch.distributed and C++ use: lists of tensors, and one object with options.

    DDP uses another overload.  The base class converts it and calls the method again, which pybind11 only allows if the
    calling function does not have the method's own name.
    """

    @wraps(method)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        if named.keys() - {"opts"} or any(
            isinstance(argument, (torch.Tensor, dist.ReduceOp.RedOpType, int)) for argument in args
        ):
            return getattr(dist.ProcessGroup, method.__name__)(self, *args, **named)
        return method(self, *args, **named)

    return call


def misalignment(ranks: list[int]) -> str | None:
    """Return why the ranks of a group are not an aligned block of consecutive ranks, or None if they are."""
    start, size = ranks[0], len(ranks)
    if ranks == list(range(start, start + size)) and start % size == 0:
        return None
    shown = ", ".join(map(str, ranks[:3])) + ", …" * (size > 3)
    return f"the group of ranks {shown} is no run of {size} consecutive ones that starts at a multiple of {size}"


def contiguous(tensor: Any) -> Any:
    """Return the tensor, or a contiguous copy without lazy conjugation and negation."""
    return tensor.resolve_conj().resolve_neg().contiguous()


def check_writable(tensor: Any) -> None:
    """Refuse an output whose elements share memory, as in expanded tensors."""
    if any(size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        raise UnsupportedError(
            f"an output of shape {tuple(tensor.shape)} has strides {tensor.stride()}, so several of its elements are "
            "at one place in memory; expected a place for each, as .contiguous() makes"
        )


def are_uniform(tensors: Sequence[Any], one: Any) -> bool:
    """Whether all tensors have the number of elements, type and device of `one`."""
    return all(
        (tensor.numel(), tensor.dtype, tensor.device) == (one.numel(), one.dtype, one.device) for tensor in tensors
    )


def sizes_of(tensors: Sequence[Any]) -> list[int]:
    """Elements of each tensor."""
    return [tensor.numel() for tensor in tensors]


def flatten(tensors: Sequence[Any]) -> Any:
    """Concatenate the elements of several tensors."""
    with torch.inference_mode():
        return torch.cat([contiguous(tensor).view(-1) for tensor in tensors])


def unflatten(buffer: Any, tensors: Sequence[Any]) -> Sequence[Any]:
    """Copy the elements of one tensor to several."""
    with torch.inference_mode():
        for part, tensor in zip(buffer.split(sizes_of(tensors)), tensors, strict=True):
            tensor.copy_(part.view(tensor.shape))
    return tensors


def completed_work(tensors: Sequence[Any]) -> Any:
    """Return completed work; on CUDA its future is ordered after the current stream."""
    on_gpu = {tensor.device for tensor in tensors if tensor.device.type == "cuda"}
    future = torch.futures.Future(devices=sorted(on_gpu, key=str))
    future.set_result(list(tensors))
    return torch._C._distributed_c10d._create_work_from_future(future)
