"""What ranks say while they work, to whoever waits for their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["Listener", "listening", "tell"]

Listener = Callable[[Any], object]

_listener: ContextVar[Listener | None] = ContextVar("collopt_rank_listener", default=None)


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Hand what is told within the context to `listener`; None lets nobody hear it."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(news: object) -> None:
    """Say something to whoever listens; from a process of its own, where there is one, so it has to be picklable.

    Examples
    --------
    >>> with listening(print):
    ...     tell("half of it is done")
    half of it is done
    >>> tell("and nobody hears this")
    """
    if listener := _listener.get():
        listener(news)
