"""Runs one rank's steps of an all-to-all at once, or beside the caller.

On CPU tensors a thread runs them, one per group, so that calls of a group follow each other on all ranks alike.  Their
messages have a tag of their own, and so do not match other messages of the group.  On CUDA tensors a stream of its own
does, and the caller's thread only posts: waiting for NCCL work blocks the stream at hand, not the process.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from ...errors import ProgramError
from ..execution.agreement import first_line, wait_for_all
from ..execution.arguments import import_torch
from .arguments import AllToAllCall
from .steps import Copy, Message, OwnSteps

__all__ = ["AllToAllWork", "run_now", "start"]

TAG = 8209
"""Any number that others are unlikely to take."""

_workers: WeakKeyDictionary[Any, ThreadPoolExecutor] = WeakKeyDictionary()
_streams: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


class AllToAllWork(Protocol):
    """An exchange that goes on, as torch's own works; until `wait` returns, leave its tensors alone."""

    def wait(self) -> bool:
        """Wait until the output is complete, on CUDA for what the current stream does next; return True.

        Raises
        ------
        ProgramError
            If the exchange failed or was late; the output then holds anything.
        """

    def is_completed(self) -> bool:
        """Whether it is over, well or not."""


class _ThreadWork(NamedTuple):
    """An exchange that a thread runs."""

    future: Future[None]

    def wait(self) -> bool:
        """Wait for the thread."""
        self.future.result()
        return True

    def is_completed(self) -> bool:
        """Whether the thread is done with it."""
        return self.future.done()


class _StreamWork(NamedTuple):
    """An exchange that a stream runs, and the tensors, which have to live as long."""

    event: Any
    tensors: tuple[Any, Any]

    def wait(self) -> bool:
        """Let the current stream wait."""
        self.event.wait()
        return True

    def is_completed(self) -> bool:
        """Whether the stream is done with it."""
        return bool(self.event.query())


def run_now(call: AllToAllCall, plan: OwnSteps | None) -> None:
    """Run the steps, after those of earlier calls that still go on; nothing without a plan."""
    if plan is None:
        return
    if (worker := _workers.get(call.group)) is not None:
        worker.submit(int).result()
    _run(call, plan)


def start(call: AllToAllCall, plan: OwnSteps | None) -> AllToAllWork:
    """Begin to run the steps, and return before they are done."""
    torch, _ = import_torch()
    if plan is None:
        done: Future[None] = Future()
        done.set_result(None)
        return _ThreadWork(done)
    if call.input.device.type != "cuda":
        if (worker := _workers.get(call.group)) is None:
            worker = _workers[call.group] = ThreadPoolExecutor(1, thread_name_prefix="collopt-all-to-all")
        return _ThreadWork(worker.submit(_run, call, plan))
    if (stream := _streams.get(call.group)) is None:
        stream = _streams[call.group] = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        _run(call, plan)
        event = torch.cuda.Event()
        event.record()
    for tensor in (call.output, call.input):
        tensor.record_stream(stream)
    return _StreamWork(event, (call.output, call.input))


def _run(call: AllToAllCall, plan: OwnSteps) -> None:
    torch, dist = import_torch()
    number = 0
    try:
        # Unlike no_grad this also lets us write to tensors that were made so.
        with torch.inference_mode():
            memories = (
                call.input.detach().view(-1).view(torch.uint8),
                call.output.detach().view(-1).view(torch.uint8),
                torch.empty(plan.scratch, dtype=torch.uint8, device=call.input.device),
            )
            for number, step in enumerate(plan.in_order(), start=1):  # noqa: B007 - told below.
                _copy(step.before, memories)
                for batch in step.batches:
                    _exchange(call, batch, memories)
                _copy(step.after, memories)
    except RuntimeError as error:
        raise ProgramError(
            f"rank {dist.get_rank(call.group)} could not finish step {number} of {plan.num_steps} of an all-to-all: "
            f"{first_line(error)}"
        ) from error


def _copy(copies: list[Copy], memories: tuple[Any, Any, Any]) -> None:
    for source, begin, target, place, length in copies:
        memories[target][place : place + length].copy_(memories[source][begin : begin + length])


def _exchange(call: AllToAllCall, batch: list[Message], memories: tuple[Any, Any, Any]) -> None:
    """Post one batch and wait; the pieces of memory live until then."""
    _, dist = import_torch()
    operations = [
        dist.P2POp(
            dist.isend if is_send else dist.irecv,
            memories[memory][place : place + length],
            group=call.group,
            tag=TAG,
            group_peer=peer,
        )
        for peer, is_send, memory, place, length in batch
    ]
    wait_for_all(dist.batch_isend_irecv(operations), call.timeout)
