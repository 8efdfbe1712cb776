"""Runs calls of a group beside the caller, one after the other, in a thread of their own.

The rounds of a plan wait for each other, and Gloo's waits block a thread.  One thread for each group keeps its calls in
order, and so the same on all ranks.  It is a daemon: a rank that hangs in Gloo must not keep the interpreter from
ending, so at the end calls that still go on get some seconds, and are interrupted and told of if that is not enough.
(To leave the thread alone then would end the process by SIGABRT if a wait of Gloo's returned after the interpreter.)
"""

from __future__ import annotations

import atexit
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from threading import Thread, current_thread
from weakref import WeakSet, finalize

from ...errors import ProgramError

__all__ = ["CallQueue"]

EXIT_PATIENCE_S = 10.0
"""How long the end of the interpreter is put off for calls that still go on, all groups together."""
INTERRUPTION_S = 5.0
"""How long it is put off for those that have been interrupted."""

logger = logging.getLogger("collopt.runtime")

Job = Callable[[], None]


class _Runner:
    """What the thread holds: not the queue itself, which ends the thread when nobody needs it any more."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[tuple[Job, Future[None]] | None] = SimpleQueue()
        self.failure: str | None = None

    def run_all(self) -> None:
        """Run what comes until nothing will."""
        while (item := self.jobs.get()) is not None:
            self.run(*item)
            del item  # Or the last call's tensors would live until the next call.

    def run(self, job: Job, done: Future[None]) -> None:
        """Run one call, unless an earlier one failed: the ranks may be in different ones then."""
        try:
            if self.failure is not None:
                raise ProgramError(
                    f"an earlier call on the group failed, so this one was not begun; that one's error: {self.failure}"
                )
            job()
        except BaseException as error:  # noqa: BLE001 - whoever waits has to get it.
            if self.failure is None:
                self.failure = str(error)
                # Nobody may ever wait for it.
                logger.error("a call that went on beside its caller failed: %s", error)
            done.set_exception(error)
        else:
            done.set_result(None)


class CallQueue:
    """The calls of one group.

    Parameters
    ----------
    interrupt : callable, optional
        Makes the call that is running fail, whatever becomes of the group.
    """

    def __init__(self, interrupt: Callable[[], None] = lambda: None) -> None:
        self.interrupt = interrupt
        self._runner = _Runner()
        self._last: Future[None] = Future()
        self._last.set_result(None)
        self._thread = Thread(target=self._runner.run_all, name="collopt-calls", daemon=True)
        self._thread.start()
        finalize(self, self._runner.jobs.put, None)
        _queues.add(self)

    def submit(self, job: Job) -> Future[None]:
        """Run a job after all earlier ones; return at once.

        In the thread itself, which is where callbacks of a job run, a job runs at once: one that waited for its turn
        could be waited for in vain.
        """
        done: Future[None] = Future()
        if current_thread() is self._thread:
            self._runner.run(job, done)
        else:
            self._last = done
            self._runner.jobs.put((job, done))
        return done

    def join(self) -> None:
        """Wait for all earlier jobs.

        Raises
        ------
        ProgramError
            If one of them failed, as the group is of no more use then.
        """
        self.submit(lambda: None).result()

    def is_over_by(self, until: float) -> bool:
        """Whether all jobs are over when the monotonic clock shows that time."""
        return bool(wait([self._last], max(0.0, until - time.monotonic())).done)


_queues: WeakSet[CallQueue] = WeakSet()


@atexit.register
def _finish() -> None:
    """Let calls that nobody waited for come to their end before the interpreter does."""
    until = time.monotonic() + EXIT_PATIENCE_S
    late = [queue for queue in list(_queues) if not queue.is_over_by(until)]
    if not late:
        return
    logger.error(
        "the program ends with calls that still go on after %g s, on groups: %d; wait for what execute or "
        "all_to_all_single return with async_op=True",
        EXIT_PATIENCE_S,
        len(late),
    )
    for queue in late:
        queue.interrupt()
    until = time.monotonic() + INTERRUPTION_S
    for queue in late:
        queue.is_over_by(until)
