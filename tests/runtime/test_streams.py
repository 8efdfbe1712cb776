"""How calls on CUDA tensors go on beside the caller: the order in which streams are told to wait, and for what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from collopt.errors import ProgramError
from collopt.runtime.execution import call_queue
from collopt.runtime.execution.arguments import check_async
from collopt.runtime.execution.call_queue import AsyncWork

DEVICE = torch.device("cuda", 1)


class Stream:
    """Notes what it is told."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes

    def wait_stream(self, other: Stream) -> None:
        """After what another one has to do."""
        self.notes.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event: Event) -> None:
        """After an event."""
        self.notes.append(f"{self.name} waits for {event.name}")


class Event:
    """Belongs to the stream that records it; is reached when the test says so."""

    def __init__(self, notes: list[str]) -> None:
        self.name = "event"
        self.notes = notes
        self.device = DEVICE
        self.reached = False

    def record(self, stream: Stream) -> None:
        """Come after what the stream has to do."""
        self.notes.append(f"{stream.name} records {self.name}")

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
    """Stands for `torch.cuda`: no device, but the same rules about which stream is current."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.current = Stream("main", self.notes)
        self.made = 0

    def Stream(self, device: object) -> Stream:  # noqa: N802 - torch's name for it.
        """Make a stream."""
        assert device == DEVICE
        self.made += 1
        return Stream(f"side {self.made}", self.notes)

    def Event(self) -> Event:  # noqa: N802 - torch's name for it.
        """Make an event."""
        return Event(self.notes)

    def current_stream(self, device: object) -> Stream:
        """Return the one that kernels go to."""
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
    made = Cuda()
    for name in ("Stream", "Event", "current_stream", "stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(made, name))
    return made


class Group:
    """Stands for a process group."""


def begun(cuda: Cuda, group: Group, name: str) -> AsyncWork:
    """Begin a call with one output and one input."""
    tensors = [Tensor(f"{name}'s {kind}", cuda.notes) for kind in ("output", "input")]
    return call_queue.start(group, lambda: cuda.kernel(name), tensors[:1], tensors[1:])


def test_a_call_goes_to_a_stream_of_its_own_after_what_the_current_one_has_to_do(cuda: Cuda) -> None:
    """Its tensors live until then, and only a wait makes the current stream wait."""
    work = begun(cuda, Group(), "sum")
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
    assert not work.is_completed()  # The stream waits; the process does not.


def test_calls_of_a_group_share_a_stream(cuda: Cuda) -> None:
    """So they follow each other; another group has another one."""
    one, other = Group(), Group()
    for group, name in ((one, "first"), (one, "second"), (other, "third")):
        begun(cuda, group, name)
    assert [note for note in cuda.notes if " on " in note] == ["first on side 1", "second on side 1", "third on side 2"]


def test_a_call_that_is_not_asynchronous_stays_on_the_current_stream(cuda: Cuda) -> None:
    """As it always was."""
    group = Group()
    begun(cuda, group, "first")
    cuda.notes.clear()
    call_queue.run_now(group, lambda: cuda.kernel("second"))
    assert cuda.notes == ["second on main"]


def test_a_call_that_fails_leaves_the_current_stream_as_it_was(cuda: Cuda) -> None:
    """And lets its tensors live, as half of it may be running."""

    def job() -> None:
        cuda.kernel("half")
        raise ProgramError("no")

    with pytest.raises(ProgramError, match="no"):
        call_queue.start(Group(), job, [Tensor("output", cuda.notes)], [])
    assert cuda.notes[1:] == ["output lives for side 1", "half on side 1"]
    assert cuda.current.name == "main"


def test_a_wait_with_a_limit_is_one_of_the_process(cuda: Cuda) -> None:
    """As of torch's own works."""
    work = begun(cuda, Group(), "sum")
    with pytest.raises(ProgramError, match="did not finish within"):
        work.wait(0.01)
    work._event.reached = True
    assert work.is_completed()
    assert work.wait(0.01)
    assert cuda.notes[-1] == "main waits for event"


def test_cuda_tensors_go_without_a_limit_for_each_round() -> None:
    """Which would make the process wait in the call."""
    message = ""
    try:
        check_async(True, Tensor("output", []), 5)
    except ValueError as error:
        message = str(error)
    assert message.startswith("async_op is True and timeout is 5, for which CUDA work has to be waited for in the call")
    check_async(True, Tensor("output", []), None)
