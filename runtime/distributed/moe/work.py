"""Dispatches and combines on their way: rows move at once or asynchronously, and gradients are connected after that."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, TypeVar

from ..calls.arguments import import_torch
from ..calls.call_queue import AsyncWork, run_now, start
from .transport import Parts

Result = TypeVar("Result")


class MoeWork(Generic[Result]):
    """An asynchronous dispatch or combine; leave the tensors that it was given alone until `wait` has returned.

    Parameters
    ----------
    group : ProcessGroup
        Whose ranks take part.
    job : callable
        Exchanges rows, and returns what has arrived.
    finish : callable
        Makes the result of what has arrived, with its gradients.
    given : sequence of Tensor
        What is sent, which is kept until then.
    async_op : bool
        Whether the job runs beside the program, or at once.
    """

    def __init__(
        self,
        group: Any,
        job: Callable[[], Parts],
        finish: Callable[[Parts], Result],
        given: Parts,
        async_op: bool,
    ) -> None:
        torch, _ = import_torch()
        self._finish, self._results = finish, list[Result]()
        self._parts: Parts = []
        self._work: AsyncWork | None = None
        self._needs_gradient = torch.is_grad_enabled()

        def run() -> None:
            with torch.no_grad():
                self._parts = job()

        if async_op:
            self._work = start(group, run, [], given)
        else:
            run_now(group, run)

    def wait(self, timeout: float | timedelta | None = None) -> Result:
        """Return what the call returns without `async_op`; may be called any number of times.

        If there are gradients, all ranks have to wait for their works in the same order, as backward passes go back in
        that order.  On CUDA tensors the current stream waits and this process does not, unless there is a timeout.

        Units: `timeout` in seconds.
        """
        if self._results:
            return self._results[0]
        torch, _ = import_torch()
        if self._work is not None:
            self._work.wait(timeout)
            for part in self._parts:
                if part.is_cuda:  # It was made on the stream of the exchange.
                    part.record_stream(torch.cuda.current_stream(part.device))
        with torch.set_grad_enabled(self._needs_gradient):
            self._results.append(self._finish(self._parts))
        return self._results[0]

    def is_completed(self) -> bool:
        """Whether the exchange has finished or failed."""
        return self._work is None or self._work.is_completed()
