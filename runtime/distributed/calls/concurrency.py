"""Runs calls at once, or beside the caller: the same for all collectives, whatever their messages are.

On CPU tensors a thread runs a call, one per group.  On CUDA tensors a stream of the group's own does, and the caller's
thread only posts: waiting for NCCL work blocks the stream at hand, not the process.  NCCL runs what it is given by one
group in the order of the calls, on whatever streams these are made.

Messages have a tag of their own, and so do not match other messages of the group, which on the CPU may come in between.
What the ranks have to agree on has no tag, and so has to keep its turn among the calls.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

from .arguments import import_torch
from .call_queue import AsyncWork, CallQueue

Answer = TypeVar("Answer")

TAG = 8209
"""Any number that others are unlikely to take."""
NO_TAG = 8210
"""That of a message which never comes."""

_queues: WeakKeyDictionary[Any, CallQueue] = WeakKeyDictionary()
_streams: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()


def run_now(group: Any, job: Callable[[], None]) -> None:
    """Run a call of a group, after those of its earlier calls that still go on in a thread."""
    if (queue := _queues.get(group)) is not None:
        queue.join()
    job()


def in_turn(group: Any, question: Callable[[], Answer]) -> Answer:
    """Let the ranks of a group agree on something, after its earlier calls and what their callbacks have called.

    In the thread that runs these, as callbacks do; so whatever two ranks compare, they compare in the same order.
    """
    queue = _queues.get(group)
    return question() if queue is None else queue.ask(question)


def start(
    group: Any,
    job: Callable[[], object],
    outputs: list[Any],
    inputs: list[Any],
    *,
    afterwards: Callable[[], object] = lambda: None,
) -> AsyncWork:
    """Begin to run a call of a group, and return before it is over."""
    torch, _ = import_torch()
    device = next(tensor.device for tensor in (*outputs, *inputs))
    if device.type == "cuda":
        streams = _streams.setdefault(group, {})
        if device not in streams:
            streams[device] = torch.cuda.Stream(device)
        event = run_on_stream(torch.cuda, streams[device], device, lambda: (job(), afterwards()), [*outputs, *inputs])
        return AsyncWork(_over(), outputs, event)
    if (queue := _queues.get(group)) is None:
        queue = _queues[group] = CallQueue(partial(_interrupt, ref(group)))
    return AsyncWork(queue.submit(job, afterwards), outputs)


def nothing_to_do(outputs: list[Any]) -> AsyncWork:
    """Return the work of a call that is over before it has begun."""
    return AsyncWork(_over(), outputs)


def run_on_stream(cuda: Any, stream: Any, device: Any, job: Callable[[], object], tensors: list[Any]) -> Any:
    """Let a stream do a job after what the current stream has to do; return an event that it reaches then."""
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
    """Let what waits for messages of a group of Gloo fail: after one late message Gloo gives up all of a group's."""
    torch, dist = import_torch()
    found = group()
    if found is None or not isinstance(found._get_backend(torch.device("cpu")), dist.ProcessGroupGloo):
        return
    for peer in set(range(found.size())) - {found.rank()}:
        # Of a peer that is gone there is nothing to wait for; others may go on.
        with suppress(RuntimeError):
            found.recv([torch.empty(1)], peer, NO_TAG).wait(timedelta(milliseconds=1))


def _over() -> Future[None]:
    done: Future[None] = Future()
    done.set_result(None)
    return done
