"""The calls of a group beside the caller, by a thread, or by a stream on a stand-in for CUDA, and what they return."""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta

import pytest
import torch

from collopt.errors import ProgramError, UnsupportedError
from collopt.runtime.execution import call_queue
from collopt.runtime.execution.arguments import check_async, check_process
from collopt.runtime.execution.call_queue import AsyncWork, CallQueue
from collopt.runtime.process_group import Tensors, run_prepared

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
    """They run in a daemon, which cannot keep the interpreter from ending."""
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
    """The log has the first error alone."""
    queue, seen = CallQueue(), []
    with caplog.at_level(logging.ERROR, "collopt.runtime"):
        first = queue.submit(failing("rank 3 is gone"))
        second = queue.submit(lambda: seen.append(2))
        assert str(first.exception(LONG_S)) == "rank 3 is gone"
        told = "an earlier call on the group failed, so this one was not started; the earlier error: rank 3 is gone"
        assert str(second.exception(LONG_S)) == told
        with pytest.raises(ProgramError, match="earlier call on the group failed"):
            queue.join()
    assert seen == []
    assert caplog.messages == ["an asynchronous call failed: rank 3 is gone"]


@pytest.mark.parametrize("is_over", [False, True])
def test_what_a_callback_calls_comes_before_the_next_call(is_over: bool) -> None:
    """A callback set before the next call runs in the calls' thread, or in the caller's if the call was over."""
    queue, seen, go = CallQueue(), [], threading.Event()
    first = AsyncWork(queue.submit(lambda: seen.append("first") if go.wait(LONG_S) else None), [])
    if is_over:
        go.set()
        first.wait()
    then = first.get_future().then(lambda _: queue.submit(lambda: seen.append("callback")).result())
    queue.submit(lambda: seen.append("next"))
    go.set()
    queue.join()
    then.wait()
    assert seen == ["first", "callback", "next"]


def test_a_callback_may_wait_for_later_calls() -> None:
    """Later calls run inside the wait, in order and once; a failure among them is theirs."""
    queue, seen, go = CallQueue(), [], threading.Event()
    later: list[AsyncWork] = []

    def callback(_: Future[None]) -> None:
        seen.append("callback")
        assert later[1].wait(0.001)
        with pytest.raises(ProgramError, match="gone"):
            later[2].wait()
        seen.append("waited")

    queue.submit(lambda: go.wait(LONG_S)).add_done_callback(callback)
    jobs = (*(lambda number=number: seen.append(number) for number in range(2)), failing("gone"))
    later.extend(AsyncWork(queue.submit(job), []) for job in jobs)
    last = queue.submit(lambda: seen.append("never"))
    go.set()
    assert isinstance(last.exception(LONG_S), ProgramError)
    assert seen == ["callback", 0, 1, "waited"]


def test_what_fails_when_the_data_is_there_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    """The ranks are still in the same call, so later ones run."""
    queue, seen = CallQueue(), []
    first = queue.submit(lambda: seen.append("sent"), failing("no memory to copy to"))
    second = queue.submit(lambda: seen.append("second"), lambda: seen.append("copied"))
    assert str(first.exception(LONG_S)) == "no memory to copy to"
    second.result(LONG_S)
    assert seen == ["sent", "second", "copied"]
    assert caplog.messages == ["an asynchronous call failed: no memory to copy to"]


def test_questions_keep_their_turn(caplog: pytest.LogCaptureFixture) -> None:
    """They come after earlier calls and callbacks in one thread, and their errors reach the asking caller alone."""

    class Group:
        """Stands for one."""

    group, seen, threads = Group(), [], set()

    def ask(name: str) -> str:
        seen.append(name)
        threads.add(threading.get_ident())
        return name

    assert call_queue.run_in_order(group, lambda: ask("alone")) == "alone"
    assert threads == {threading.get_ident()}
    threads.clear()
    call_queue._group_queues[group] = queue = CallQueue()
    first = queue.submit(lambda: (time.sleep(0.05), seen.append("first")))
    first.add_done_callback(lambda _: call_queue.run_in_order(group, lambda: ask("callback")))
    assert call_queue.run_in_order(group, lambda: ask("after")) == "after"
    assert seen == ["alone", "first", "callback", "after"]
    assert threads == {queue._thread.ident}
    with pytest.raises(ProgramError, match="disagree"):
        call_queue.run_in_order(group, failing("the ranks disagree"))
    queue.join()
    assert caplog.messages == []
    queue.submit(failing("gone"))
    with pytest.raises(ProgramError, match="earlier call"):
        call_queue.run_in_order(group, lambda: ask("never"))


def test_a_fork_has_no_use_for_calls_and_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork cannot wait for unfinished calls, may not use groups, and does not wait at its end."""

    class Group:
        """Stands for one."""

    group, go, here = Group(), threading.Event(), os.getpid()
    check_process(group)
    queue = CallQueue()
    over = queue.submit(lambda: None)
    over.result(LONG_S)
    work = AsyncWork(queue.submit(lambda: go.wait(LONG_S)), [])
    monkeypatch.setattr(call_queue, "_queues", call_queue._queues)
    monkeypatch.setattr(call_queue, "_finalizers", list(call_queue._finalizers))
    with monkeypatch.context() as fork:
        fork.setattr(os, "getpid", lambda: here + 1)
        call_queue._clear_after_fork()
        begin = time.monotonic()
        call_queue._wait_at_exit()
        assert time.monotonic() - begin < call_queue.EXIT_TIMEOUT_S
        for limit in (None, 0.01):
            with pytest.raises(ProgramError, match="continues in the process that this one was forked from"):
                work.wait(limit)
        assert over.result() is None
        with pytest.raises(UnsupportedError, match=f"the group is that of process {here}, of which this one is a fork"):
            check_process(group)
        check_process(Group())
    go.set()
    assert work.wait()
    check_process(group)


@pytest.mark.parametrize("results", [(), (torch.zeros(3), torch.zeros(1).expand(2, 5))])
def test_outputs_without_a_place_for_each_element_are_refused(results: tuple[torch.Tensor, ...]) -> None:
    """The refusal comes before anything is sent."""
    output = torch.zeros(4) if results else torch.zeros(1).expand(2, 5)
    with pytest.raises(UnsupportedError, match=r"an output of shape \(2, 5\) has strides \(0, 0\), so elements share"):
        run_prepared(lambda *_: (None, None), Tensors(output, output, results), synchronous=False)


def test_the_thread_ends_with_the_group_and_keeps_no_tensor() -> None:
    """An unreachable queue has no thread, and an idle one keeps nothing of its last call."""

    class Held:
        """Stands for a group and for a tensor."""

    group, tensor = Held(), Held()
    kept = weakref.ref(tensor)
    call_queue._group_queues[group] = queue = CallQueue()
    thread = queue._thread
    queue.submit(lambda tensor=tensor: None)
    del tensor
    queue.join()
    assert kept() is None
    assert thread.is_alive()
    del queue, group
    gc.collect()
    assert ended(thread)


def test_the_end_of_the_program_waits_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It logs the number of late groups and interrupts them, once."""
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
    monkeypatch.setattr(call_queue, "EXIT_TIMEOUT_S", 0.5)
    call_queue._wait_at_exit()
    assert quick.done()
    (message,) = caplog.messages
    assert message.startswith(
        "the program exits with calls that are unfinished after 0.5 s, on groups: 2; wait for the work"
    )
    assert interrupted == [1, 1]
    for queue in queues:
        queue.join()
    # The end may be called for twice, by atexit and by multiprocessing.
    call_queue._wait_at_exit()
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("limit", [0.01, timedelta(milliseconds=10)])
def test_a_wait_can_be_given_up_and_begun_again(limit: float | timedelta) -> None:
    """The call goes on meanwhile."""
    done: Future[None] = Future()
    work = AsyncWork(done, [])
    for _ in range(2):
        with pytest.raises(ProgramError, match=r"did not finish within 0\.01 s; it continues"):
            work.wait(limit)
    assert not work.is_completed()
    done.set_result(None)
    assert work.is_completed()
    assert [work.wait(), work.wait(limit), work.wait(timeout=1e300)] == [True] * 3


def test_a_failure_is_told_by_every_wait() -> None:
    """Waits with and without a limit raise it, and so does torch's future."""
    done: Future[None] = Future()
    work = AsyncWork(done, [])
    before = work.get_future()
    done.set_exception(ProgramError("rank 3 is gone"))
    for wait in (work.wait, lambda: work.wait(1), before.wait, work.get_future().wait):
        with pytest.raises(ProgramError, match="rank 3 is gone"):
            wait()
    assert work.is_completed()


DEVICE = torch.device("cuda", 1)


class Stream:
    """Notes its waits."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes

    def wait_stream(self, other: Stream) -> None:
        """Wait for another stream."""
        self.notes.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event: Event) -> None:
        """Wait for an event."""
        self.notes.append(f"{self.name} waits for event")


class Event:
    """Is reached when the test says so."""

    device = DEVICE
    reached = False

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    def record(self, stream: Stream) -> None:
        """Come after the work of a stream."""
        self.notes.append(f"{stream.name} records event")

    def query(self) -> bool:
        """Whether the stream is there."""
        return self.reached


class Tensor:
    """A tensor on a GPU."""

    device = DEVICE

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes

    def record_stream(self, stream: Stream) -> None:
        """Live until the stream is done."""
        self.notes.append(f"{self.name} lives for {stream.name}")


class Cuda:
    """Stands for `torch.cuda`: no device, but the same rules about the current stream."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.current = Stream("main", self.notes)
        self.streams = 0

    def Stream(self, device: object) -> Stream:  # noqa: N802 - torch's name for it.
        """Make a stream."""
        assert device == DEVICE
        self.streams += 1
        return Stream(f"side {self.streams}", self.notes)

    def Event(self) -> Event:  # noqa: N802 - torch's name for it.
        """Make an event."""
        return Event(self.notes)

    def current_stream(self, device: object) -> Stream:
        """Return the current stream."""
        assert device == DEVICE
        return self.current

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        """Make a stream the current one for a while."""
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def kernel(self, name: str) -> None:
        """Launch something."""
        self.notes.append(f"{name} on {self.current.name}")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """Put the stand-in where torch.cuda is."""
    stand_in = Cuda()
    for name in ("Stream", "Event", "current_stream", "stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(stand_in, name))
    return stand_in


class Group:
    """Stands for a process group."""


def start(cuda: Cuda, group: Group, name: str) -> AsyncWork:
    """Begin a call with one output and one input."""
    tensors = [Tensor(f"{name}'s {kind}", cuda.notes) for kind in ("output", "input")]
    return call_queue.start(group, lambda: cuda.kernel(name), tensors[:1], tensors[1:])


def test_a_call_runs_on_a_stream_of_its_own_after_the_current_one(cuda: Cuda) -> None:
    """Tensors live until then; a wait makes the current stream wait, and with a time limit the process."""
    work = start(cuda, Group(), "sum")
    assert cuda.notes == [
        "side 1 waits for main",
        "sum's output lives for side 1",
        "sum's input lives for side 1",
        "sum on side 1",
        "side 1 records event",
    ]
    cuda.notes.clear()
    cuda.kernel("own")
    assert not work.is_completed()
    assert work.wait()
    cuda.kernel("next")
    assert cuda.notes == ["own on main", "main waits for event", "next on main"]
    assert not work.is_completed()
    with pytest.raises(ProgramError, match="did not finish within"):
        work.wait(0.01)
    work._event.reached = True
    assert work.is_completed()
    assert work.wait(0.01)
    assert cuda.notes[-1] == "main waits for event"


def test_calls_of_a_group_share_a_stream_and_synchronous_calls_use_the_current_one(cuda: Cuda) -> None:
    """Another group has another stream."""
    one, other = Group(), Group()
    for group, name in ((one, "first"), (one, "second"), (other, "third")):
        start(cuda, group, name)
    call_queue.run_now(one, lambda: cuda.kernel("fourth"))
    launches = [note for note in cuda.notes if " on " in note]
    assert launches == ["first on side 1", "second on side 1", "third on side 2", "fourth on main"]


def test_a_call_that_fails_leaves_the_current_stream_as_it_was(cuda: Cuda) -> None:
    """Its tensors live on, as half of it may be running."""

    def job() -> None:
        cuda.kernel("half")
        raise ProgramError("no")

    with pytest.raises(ProgramError, match="no"):
        call_queue.start(Group(), job, [Tensor("output", cuda.notes)], [])
    assert cuda.notes[1:] == ["output lives for side 1", "half on side 1"]
    assert cuda.current.name == "main"


def test_asynchronous_calls_on_cuda_tensors_take_no_time_limit_for_rounds() -> None:
    """It would make the process wait in the call."""
    with pytest.raises(UnsupportedError, match="timeout"):
        check_async(True, Tensor("output", []), 5)
    check_async(True, Tensor("output", []), None)
