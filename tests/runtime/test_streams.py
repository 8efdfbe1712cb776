"""Calls on CUDA tensors beside the caller: the order in which streams wait for each other, on a stand-in for CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from collopt.errors import ProgramError, UnsupportedError
from collopt.runtime.execution import call_queue
from collopt.runtime.execution.arguments import check_async
from collopt.runtime.execution.call_queue import AsyncWork

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
