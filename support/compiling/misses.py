"""Notice of kernels that are compiled because numba's cache does not have them; imports no numba."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
