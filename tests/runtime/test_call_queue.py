"""The thread that runs a group's calls beside the caller, and what a call returns that goes on there."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta

import pytest

from collopt.errors import ProgramError, UnsupportedError
from collopt.runtime.execution import beside, call_queue
from collopt.runtime.execution.async_work import AsyncWork
from collopt.runtime.execution.call_queue import CallQueue

LONG_S = 30.0
"""Longer than anything here takes."""


def failing(text: str) -> Callable[[], None]:
    """Return a job that raises."""

    def job() -> None:
        raise ProgramError(text)

    return job


def ended(thread: threading.Thread) -> bool:
    """Whether a thread comes to its end soon."""
    thread.join(LONG_S)
    return not thread.is_alive()


def test_jobs_run_one_after_the_other_in_the_order_of_the_calls() -> None:
    """In a daemon, which cannot keep the interpreter from ending."""
    queue, seen, inside = CallQueue(), [], []

    def job(number: int) -> None:
        inside.append(number)
        time.sleep(0.001)
        seen.append((number, len(inside), threading.current_thread().daemon))
        inside.remove(number)

    for number in range(20):
        queue.submit(lambda number=number: job(number))
    queue.join()
    assert seen == [(number, 1, True) for number in range(20)]


def test_what_comes_after_a_failure_is_not_begun(caplog: pytest.LogCaptureFixture) -> None:
    """The log tells of the first error alone, which nobody may wait for."""
    queue, seen = CallQueue(), []
    with caplog.at_level(logging.ERROR, "collopt.runtime"):
        first = queue.submit(failing("rank 3 is gone"))
        second = queue.submit(lambda: seen.append(2))
        assert str(first.exception(LONG_S)) == "rank 3 is gone"
        told = "an earlier call on the group failed, so this one was not begun; that one's error: rank 3 is gone"
        assert str(second.exception(LONG_S)) == told
        with pytest.raises(ProgramError, match="earlier call on the group failed"):
            queue.join()
    assert seen == []
    assert caplog.messages == ["a call that went on beside its caller failed: rank 3 is gone"]


def test_a_callback_may_call_and_wait() -> None:
    """Its calls run at once, before those that are waiting: as it came before them too."""
    queue, seen, go = CallQueue(), [], threading.Event()

    def callback(_: Future[None]) -> None:
        AsyncWork(queue.submit(lambda: seen.append("callback")), []).wait()
        queue.join()

    first = queue.submit(lambda: seen.append("first") if go.wait(LONG_S) else None)
    first.add_done_callback(callback)
    queue.submit(lambda: seen.append("second"))
    go.set()
    queue.join()
    assert seen == ["first", "callback", "second"]


def test_the_thread_ends_with_the_group_and_keeps_no_tensor() -> None:
    """A queue that nobody can reach any more has no thread, and an idle one nothing of its last call."""

    class Held:
        """Stands for a group and for a tensor."""

    group, tensor = Held(), Held()
    kept = weakref.ref(tensor)
    beside._queues[group] = queue = CallQueue()
    thread = queue._thread
    queue.submit(lambda tensor=tensor: None)
    del tensor
    queue.join()
    assert kept() is None
    assert thread.is_alive()
    del queue, group
    gc.collect()
    assert ended(thread)


def test_a_call_waits_for_those_that_go_on() -> None:
    """And raises if one of them failed; a group without any just runs it."""

    class Group:
        """Stands for one."""

    group, seen = Group(), []
    beside.run_now(group, lambda: seen.append("alone"))
    assert group not in beside._queues
    beside._queues[group] = CallQueue()
    beside._queues[group].submit(lambda: (time.sleep(0.05), seen.append("before"))[1])
    beside.run_now(group, lambda: seen.append("after"))
    assert seen == ["alone", "before", "after"]
    beside._queues[group].submit(failing("gone"))
    with pytest.raises(ProgramError, match="earlier call"):
        beside.run_now(group, lambda: seen.append("never"))
    assert seen == ["alone", "before", "after"]


def test_the_end_of_the_program_waits_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And tells how many groups are late, and interrupts those."""
    go, interrupted = threading.Event(), []

    def interrupt() -> None:
        interrupted.append(1)
        if len(interrupted) == 2:
            go.set()

    queues = [CallQueue(interrupt) for _ in range(3)]
    monkeypatch.setattr(call_queue, "_queues", weakref.WeakSet(queues))
    quick = queues[0].submit(lambda: time.sleep(0.05))
    for queue in queues[1:]:
        queue.submit(lambda: None if go.wait(LONG_S) else failing("nothing came")())
    monkeypatch.setattr(call_queue, "EXIT_PATIENCE_S", 0.5)
    call_queue._finish()
    assert quick.done()
    (message,) = caplog.messages
    assert message.startswith("the program ends with calls that still go on after 0.5 s, on groups: 2; wait for what")
    assert interrupted == [1, 1]
    for queue in queues:
        queue.join()
    call_queue._finish()
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("limit", [0.01, timedelta(milliseconds=10)])
def test_a_wait_can_be_given_up_and_begun_again(limit: float | timedelta) -> None:
    """The call goes on meanwhile."""
    done: Future[None] = Future()
    work = AsyncWork(done, [])
    for _ in range(2):
        with pytest.raises(ProgramError, match=r"was not over after 0\.01 s of waiting; it goes on"):
            work.wait(limit)
    assert not work.is_completed()
    done.set_result(None)
    assert work.is_completed()
    assert [work.wait(), work.wait(limit), work.wait(timeout=1e300)] == [True] * 3


@pytest.mark.parametrize("limit", [0, -1, float("nan"), "1", True, timedelta(0)])
def test_a_wait_takes_positive_seconds_alone(limit: float) -> None:
    """Torch takes 0 for no limit; here it is an error."""
    done: Future[None] = Future()
    done.set_result(None)
    with pytest.raises(UnsupportedError, match=r"timeout is .*; expected a positive number of seconds"):
        AsyncWork(done, []).wait(limit)


def test_a_failure_is_told_by_every_wait() -> None:
    """With a limit and without, and by the future too, which is one of torch's."""
    done: Future[None] = Future()
    work = AsyncWork(done, [])
    before = work.get_future()
    done.set_exception(ProgramError("rank 3 is gone"))
    for wait in (work.wait, lambda: work.wait(1), before.wait, work.get_future().wait):
        with pytest.raises(ProgramError, match="rank 3 is gone"):
            wait()
    assert work.is_completed()
