"""Queue of the calls of a group: a thread runs them in order on CPU tensors, a stream of its own on CUDA tensors.

The thread is a daemon, as a rank that hangs in Gloo must not keep the interpreter from ending.  But one that came back
from torch's code after that would end the process by SIGABRT, so at exit unfinished calls get some seconds each.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from datetime import timedelta
from functools import partial
from multiprocessing.util import Finalize
from queue import SimpleQueue
from threading import Thread, get_ident
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet, finalize, ref

from ...errors import ProgramError
from ..programs.program import check_seconds
from .arguments import import_torch

EXIT_TIMEOUT_S = 10.0  # How long the interpreter waits at exit for unfinished calls, all groups together
INTERRUPT_TIMEOUT_S = 5.0  # How long it waits for interrupted calls
EXIT_PRIORITY = 100  # Before multiprocessing stops the pools, managers and queues that callbacks may use
MAX_SECONDS = 1e9  # Threads cannot wait for much longer
POLL_S = 0.001  # How often a wait with a limit looks at the GPU
TAG = 8209  # Of messages here, so that on CPUs they match no others of the group; agreements keep their turn
UNUSED_TAG = 8210  # Tag of a message that is never sent

logger = logging.getLogger("collopt.runtime")

Job = Callable[[], object]
Result = TypeVar("Result")

_queues: WeakSet[CallQueue] = WeakSet()  # The process waits for them at exit,
_ending: WeakSet[Thread] = WeakSet()  # and for threads of queues that are gone
_finalizers: list[Finalize] = []
_group_queues: WeakKeyDictionary[Any, CallQueue] = WeakKeyDictionary()
_streams: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()


class QueuedCall(Future[None]):
    """A queued call; waiting for it in a callback, in the queue's own thread, runs all calls up to it."""

    def __init__(self, runner: _Runner) -> None:
        super().__init__()
        self._runner = runner

    def result(self, timeout: float | None = None) -> None:
        """Wait for completion; raise the call's exception, if any."""
        self._runner.run_until(self)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for completion; return the call's exception, if any."""
        self._runner.run_until(self)
        return super().exception(timeout)


class _Runner:
    """The worker thread's part of a queue, of which it holds no reference, as deletion ends the thread."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[tuple[Job, Job, QueuedCall] | None] = SimpleQueue()  # Arguments of `run`, or the end
        self.failure: str | None = None
        self.process = os.getpid()
        self.thread: int | None = None

    def run_all(self) -> None:
        """Run calls until the end of the queue."""
        self.thread = get_ident()
        while (item := self.jobs.get()) is not None:
            self.run(*item)
            del item  # Or the last call's tensors would live until the next call.

    def run_until(self, call: QueuedCall) -> None:
        """Run all calls up to this one if this is the worker thread."""
        if call.done():
            return
        if self.process != os.getpid():
            raise ProgramError("the call continues in the process that this one was forked from; wait for it there")
        if self.thread != get_ident():
            return
        while not call.done():
            item = self.jobs.get()
            assert item is not None  # The end comes after all calls.
            self.run(*item)

    def run(self, job: Job, on_complete: Job, call: QueuedCall) -> None:
        """Run one call, unless an earlier one failed: the ranks may be in different ones then."""
        if self.failure is not None:
            text = (
                f"an earlier call on the group failed, so this one was not started; the earlier error: {self.failure}"
            )
            call.set_exception(ProgramError(text))
            return
        try:
            try:
                job()
            except BaseException as error:
                self.failure = str(error)
                raise
            on_complete()
        except BaseException as error:  # noqa: BLE001 - whoever waits has to get it.
            logger.error("an asynchronous call failed: %s", error)  # Nobody may ever wait for it.
            call.set_exception(error)
        else:
            call.set_result(None)


class CallQueue:
    """The calls of one group."""

    def __init__(self, interrupt: Callable[[], None] = lambda: None) -> None:
        self.interrupt = interrupt
        self._runner = _Runner()
        self._thread = Thread(target=self._runner.run_all, name="collopt-calls", daemon=True)
        self._thread.start()
        # The thread of a live queue is to work until the end.
        finalize(self, _end, self._runner, self._thread).atexit = False
        _queues.add(self)
        if not _finalizers:
            # Processes of multiprocessing end without the functions of atexit.
            _finalizers.append(Finalize(None, _wait_at_exit, exitpriority=EXIT_PRIORITY))

    def submit(self, job: Job, on_complete: Job = lambda: None) -> QueuedCall:
        """Queue a job and return; in the worker thread, where callbacks run, run it at once, before all later calls."""
        call = QueuedCall(self._runner)
        if self._runner.thread == get_ident():
            self._runner.run(job, on_complete, call)
        else:
            self._runner.jobs.put((job, on_complete, call))
        return call

    def run_and_wait(self, job: Callable[[], Result]) -> Result:
        """Run a job after all earlier ones and return its result; an error in it does not stop later jobs."""
        result: Future[Result] = Future()

        def run() -> None:
            try:
                result.set_result(job())
            except BaseException as error:  # noqa: BLE001 - raised again below.
                result.set_exception(error)

        self.submit(run).result()
        return result.result()

    def join(self) -> None:
        """Wait for all earlier jobs."""
        self.submit(lambda: None).result()


def _end(runner: _Runner, thread: Thread) -> None:
    """Let the thread of a queue that is no more come to its end, perhaps by this thread itself."""
    join_at_exit(thread)
    runner.jobs.put(None)


def join_at_exit(thread: Thread) -> None:
    """Make the process wait at exit for a daemon thread in torch's code, as long as for interrupted calls."""
    _ending.add(thread)


def _clear_after_fork() -> None:
    """Forget the queues in a fork."""
    global _queues  # noqa: PLW0603 - the old one may be in use by a thread that is not here.
    _queues = WeakSet()
    _finalizers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_clear_after_fork)


@atexit.register
def _wait_at_exit() -> None:
    """Wait for unfinished calls at exit; interrupt those that are late, and say so."""
    if late := _late(list(_queues), EXIT_TIMEOUT_S):
        _queues.difference_update(late)
        logger.error(
            "the program exits with calls that are unfinished after %g s, on groups: %d; wait for the work that "
            "execute or all_to_all_single returns with async_op=True",
            EXIT_TIMEOUT_S,
            len(late),
        )
        for queue in late:
            queue.interrupt()
        _late(late, INTERRUPT_TIMEOUT_S)
    until = time.monotonic() + INTERRUPT_TIMEOUT_S
    for thread in list(_ending):
        thread.join(max(0.0, until - time.monotonic()))


def _late(queues: list[CallQueue], seconds: float) -> list[CallQueue]:
    """Return queues with jobs that are incomplete, or hold their data, after some seconds."""
    last: dict[Future[None], CallQueue] = {queue.submit(lambda: None): queue for queue in queues}
    return [last[call] for call in wait(last, seconds).not_done]


class AsyncWork:
    """An asynchronous call, used like torch's own works; leave its tensors alone until `wait` has returned."""

    def __init__(self, done: Future[None], outputs: list[Any], event: Any = None) -> None:
        self._done = done
        self._outputs = outputs
        self._event = event

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until the outputs are complete, or at most `timeout` seconds; may be called any number of times.

        On CUDA tensors the current stream waits and this process does not, unless there is a timeout.  In a callback on
        CPU tensors the call is run then and there, with all that comes before it, whatever the timeout.
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
        """Whether the call has finished or failed."""
        return self._done.done() and (self._event is None or bool(self._event.query()))

    def get_future(self) -> Any:
        """Return a `torch.futures.Future` of the list of outputs.

        Callbacks run in the thread of the group's calls, or in that which sets them if the call was over before.  They
        may call collectives of the group if ``then`` is set before the group's next call, which these then come before
        on every rank; of later ones the ranks may get each other's data.  In a callback, wait for later calls by
        `wait`: torch's futures would wait there for ever.
        """
        torch, _ = import_torch()
        if self._event is None:
            future = torch.futures.Future()

            def transfer(done: Future[None]) -> None:
                if error := done.exception():
                    future.set_exception(error)
                else:
                    future.set_result(self._outputs)

            self._done.add_done_callback(transfer)
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
        """Raise ProgramError unless the call completes within `seconds`; its own failure is raised later."""
        until = time.monotonic() + seconds
        try:
            self._done.exception(min(seconds, MAX_SECONDS))
            while not self.is_completed():
                if time.monotonic() > until:
                    raise TimeoutError
                time.sleep(POLL_S)
        except TimeoutError:
            raise ProgramError(
                f"the call did not finish within {seconds:g} s; it continues, and can be waited for again"
            ) from None


def run_now(group: Any, job: Callable[[], None]) -> None:
    """Run a call of a group in this thread, after its earlier calls have completed."""
    if (queue := _group_queues.get(group)) is not None:
        queue.join()
    job()


def run_in_order(group: Any, job: Callable[[], Result]) -> Result:
    """Run a job in the thread of the group's call queue, so in the same order on all ranks, and return its result."""
    queue = _group_queues.get(group)
    return job() if queue is None else queue.run_and_wait(job)


def start(
    group: Any,
    job: Callable[[], object],
    outputs: list[Any],
    inputs: list[Any],
    *,
    on_complete: Callable[[], object] = lambda: None,
) -> AsyncWork:
    """Start a call of a group asynchronously."""
    torch, _ = import_torch()
    device = next(tensor.device for tensor in (*outputs, *inputs))
    if device.type == "cuda":
        streams = _streams.setdefault(group, {})
        if device not in streams:
            streams[device] = torch.cuda.Stream(device)
        event = run_on_stream(torch.cuda, streams[device], device, lambda: (job(), on_complete()), [*outputs, *inputs])
        return AsyncWork(_completed(), outputs, event)
    if (queue := _group_queues.get(group)) is None:
        queue = _group_queues[group] = CallQueue(partial(_interrupt, ref(group)))
    return AsyncWork(queue.submit(job, on_complete), outputs)


def completed_work(outputs: list[Any]) -> AsyncWork:
    """Return completed work, for a call without data."""
    return AsyncWork(_completed(), outputs)


def run_on_stream(cuda: Any, stream: Any, device: Any, job: Callable[[], object], tensors: list[Any]) -> Any:
    """Run a job on a stream after the work of the current stream; return an event recorded after the job."""
    stream.wait_stream(cuda.current_stream(device))
    for tensor in tensors:
        # Before the job: should it fail half-way, the other half may still be running.
        tensor.record_stream(stream)
    with cuda.stream(stream):
        job()
        event = cuda.Event()
        event.record(stream)
    return event


def _interrupt(group: ref[Any]) -> None:
    """Make pending receives of a Gloo group fail: after one timeout Gloo aborts all messages of a group."""
    torch, dist = import_torch()
    process_group = group()
    if process_group is None or not isinstance(process_group._get_backend(torch.device("cpu")), dist.ProcessGroupGloo):
        return
    for peer in set(range(process_group.size())) - {process_group.rank()}:
        # Of a peer that is gone there is nothing to wait for; others may go on.
        with suppress(RuntimeError):
            process_group.recv([torch.empty(1)], peer, UNUSED_TAG).wait(timedelta(milliseconds=1))


def _completed() -> Future[None]:
    done: Future[None] = Future()
    done.set_result(None)
    return done
