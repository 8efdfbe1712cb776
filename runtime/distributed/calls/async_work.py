"""What a call returns that goes on beside its caller."""

from __future__ import annotations

import time
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

from ....errors import ProgramError
from ...programs.checks import check_seconds
from .arguments import import_torch

__all__ = ["AsyncWork"]

MOST_SECONDS = 1e9
"""Threads cannot wait for much longer."""

POLL_S = 0.001
"""How often a wait with a limit looks at the GPU."""


class AsyncWork:
    """A call that goes on, to be used as torch's own works are; leave its tensors alone until `wait` has returned.

    Parameters
    ----------
    done : concurrent.futures.Future
        Over when a thread has run the call, or, on CUDA, when the call has been handed to the GPU.
    outputs : list of torch.Tensor
        What `get_future` gives.
    event : torch.cuda.Event, optional
        What the GPU reaches when the call is over there.
    """

    def __init__(self, done: Future[None], outputs: list[Any], event: Any = None) -> None:
        self._done = done
        self._outputs = outputs
        self._event = event

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until the outputs are complete; may be called any number of times.

        On CUDA tensors the current stream waits and this process does not, unless there is a timeout.  In a callback on
        CPU tensors the call is run then and there, with all that comes before it, whatever the timeout.

        Parameters
        ----------
        timeout : float or timedelta, optional
            Seconds after which to give up waiting; the call itself goes on.

        Returns
        -------
        bool
            True.

        Raises
        ------
        UnsupportedError
            If the timeout is not a positive number of seconds.
        ProgramError
            If the call failed, and its outputs hold anything; if it is not over in time; or if this process is a fork
            of the one in which it goes on.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        if seconds is not None:
            check_seconds("timeout", seconds)
            self._wait_at_most(seconds)
        self._done.result()
        if self._event is not None:
            torch, _ = import_torch()
            torch.cuda.current_stream(self._event.device).wait_event(self._event)
        return True

    def is_completed(self) -> bool:
        """Whether it is over, well or not."""
        return self._done.done() and (self._event is None or bool(self._event.query()))

    def get_future(self) -> Any:
        """Return a `torch.futures.Future` of the list of outputs.

        Callbacks run in the thread that runs the group's calls, if the call was not over before, and in that which sets
        them if it was.

        Notes
        -----
        A callback may call collectives of the group if ``then`` is set before the group's next call.  They come right
        after this call then, and before that next one, on every rank, whether this call was over or not.  Of one that
        is set later, nothing says on which ranks its calls come before other calls, and the ranks may get each other's
        data.

        In a callback, wait for later calls of the group by `wait`: what torch's futures wait for there never comes.
        """
        torch, _ = import_torch()
        if self._event is None:
            future = torch.futures.Future()
            self._done.add_done_callback(lambda done: _hand_over(done, future, self._outputs))
            return future
        device = self._event.device
        future = torch.futures.Future(devices=[device])
        # What waits for the future waits for the stream on which it got its value.
        stream = torch.cuda.Stream(device)
        stream.wait_event(self._event)
        with torch.cuda.stream(stream):
            future.set_result(self._outputs)
        return future

    def _wait_at_most(self, seconds: float) -> None:
        """Raise unless it is over within so many seconds; a failure is told afterwards."""
        until = time.monotonic() + seconds
        try:
            self._done.exception(min(seconds, MOST_SECONDS))
            while not self.is_completed():
                if time.monotonic() > until:
                    raise TimeoutError
                time.sleep(POLL_S)
        except TimeoutError:
            raise ProgramError(
                f"the call was not over after {seconds:g} s of waiting; it goes on, and can be waited for again"
            ) from None


def _hand_over(done: Future[None], future: Any, outputs: list[Any]) -> None:
    """Give a future of torch's what one of ours has come to."""
    error = done.exception()
    if error is None:
        future.set_result(outputs)
    else:
        future.set_exception(error)
