"""Notice of kernels that are compiled because numba's cache does not have them, and their time; imports numba late."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_listeners: list[Callable[[], object]] = []


@contextmanager
def on_first_miss(listener: Callable[[], object]) -> Iterator[None]:
    """Call a function before the first kernel that is compiled within the context."""
    _listeners.append(listener)
    try:
        yield
    finally:
        if listener in _listeners:
            _listeners.remove(listener)


def report_miss() -> None:
    """Tell all who have not been told."""
    while _listeners:
        _listeners.pop()()


@dataclass
class CompileTime:
    """Wall time of compiling kernels; 0 until the context of `timed_compilation` ends."""

    seconds: float = 0.0


@contextmanager
def timed_compilation() -> Iterator[CompileTime]:
    """Time the kernels that are compiled within the context, in this thread or others."""
    from numba.core import event

    found, listener = CompileTime(), event.TimingListener()  # type: ignore[no-untyped-call]
    with event.install_listener("numba:compile", listener):
        yield found
    if listener.done:
        found.seconds = listener.duration
