"""Runs plans for the ``collopt`` backend, and makes torch's kind of work of them.

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
from typing import Any

from ..calls.arguments import check_async, import_torch
from ..calls.call_queue import AsyncWork
from ..calls.concurrency import run_now, start
from ..execution.execute import PlanLike, prepared
from .call_forms import check_writable, dense, done

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

    if at_once or not _goes_on_beside(target):
        run_now(call.group, job)
        bring()
        return done(results)
    return PlannedWork(start(call.group, job, [target], [source, output, *results], afterwards=bring), results)


def _goes_on_beside(tensor: Any) -> bool:
    """Whether calls with such tensors can go on beside the caller."""
    try:
        check_async(True, tensor, None)
    except ValueError:
        return False
    return True
