"""How far long work has come, told to whoever listens; where nobody does, it costs next to nothing.

What has a known number of parts is counted: `counted` for a loop, `portions` for a kernel that goes through its parts
in order, `counter` for all else.  A count starts at 0, never falls, and ends at its total, also where the work ends
early.  `texts` is for what has no total.

Counts may lie within counts.  The outermost is told as a count, the next one as a text, and those deeper not at all.
What has only one part is no count, so that a count within it is told instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TypeVar

__all__ = ["counted", "counter", "listening", "portions", "texts"]

Item = TypeVar("Item")

MOST_PORTIONS = 64
"""Calls that a kernel is divided into, so that a second passes between two of them only where it takes a minute."""
SECONDS_BETWEEN_TEXTS = 0.1
"""Of a count that is told as a text, which may be one of many short ones."""
DEEPEST = 1


class _Listeners:
    """Who wants to be told; not again once one of them has raised an error, nor while one is at it."""

    def __init__(self, count: Callable[[int, int], None], text: Callable[[str], None]) -> None:
        self._count, self._text, self._deaf = count, text, False

    def tell(self, done: int, total: int) -> None:
        """Tell a count."""
        if not self._deaf:
            self._deaf = True
            self._count(done, total)
            self._deaf = False

    def say(self, text: str) -> None:
        """Tell a text."""
        if not self._deaf:
            self._deaf = True
            self._text(text)
            self._deaf = False


_listeners: ContextVar[_Listeners | None] = ContextVar("collopt_count_listeners", default=None)
_depth: ContextVar[int] = ContextVar("collopt_counts_within", default=0)
_text: ContextVar[str] = ContextVar("collopt_last_text", default="")


@contextmanager
def listening(count: Callable[[int, int], None], text: Callable[[str], None]) -> Iterator[None]:
    """Report the progress of work within the context to these functions, as `on_stage` does."""
    listeners, depth, said = _listeners.set(_Listeners(count, text)), _depth.set(0), _text.set("")
    try:
        yield
    finally:
        _listeners.reset(listeners)
        _depth.reset(depth)
        _text.reset(said)


class _Count:
    """One count, which never falls nor passes its total."""

    def __init__(self, total: int, tell: Callable[[int, int], None]) -> None:
        self._done, self._total, self._tell = -1, total, tell

    def reach(self, done: int) -> None:
        """Tell that so many are done in all, if that is news."""
        before, self._done = self._done, min(max(done, self._done), self._total)
        if self._done > before:
            self._tell(self._done, self._total)


@contextmanager
def counter(total: int) -> Iterator[Callable[[int], None]]:
    """Count what is done within the context.

    >>> with listening(lambda done, total: print(f"{done} of {total}"), print), counter(9) as reached:
    ...     reached(4)
    0 of 9
    4 of 9
    9 of 9
    """
    listeners, depth = _listeners.get(), _depth.get()
    if listeners is None or depth > DEEPEST or total < 2:
        yield _ignore
        return
    with _as_text() if depth else nullcontext(listeners.tell) as tell:
        count = _Count(total, tell)
        _depth.set(depth + 1)
        try:
            count.reach(0)
            yield count.reach
        finally:
            _depth.set(depth)
            count.reach(total)


def counted(items: Iterable[Item], total: int) -> Iterator[Item]:
    """Pass things on and count them.

    >>> with listening(lambda done, total: print(f"{done} of {total}"), print):
    ...     letters = list(counted("ab", 2))
    0 of 2
    1 of 2
    2 of 2
    """
    with counter(total) as reached:
        for done, item in enumerate(items, 1):
            yield item
            reached(done)


def portions(total: int) -> Iterator[tuple[int, int]]:
    """Divide the parts ``0 .. total - 1`` that a kernel goes through into ranges, and count the parts.

    >>> list(portions(1000))
    [(0, 1000)]
    """
    if _listeners.get() is None or _depth.get() > DEEPEST:
        yield 0, total
        return
    size = max(1, -(-total // MOST_PORTIONS))
    with counter(total) as reached:
        for begin in range(0, max(1, total), size):
            end = min(begin + size, total)
            yield begin, end
            reached(end)


@contextmanager
def texts() -> Iterator[Callable[[str], None]]:
    """Tell in words how far work within the context has come; at its end the text is taken back.

    >>> with listening(lambda done, total: None, lambda text: print(repr(text))), texts() as say:
    ...     say("round 1")
    ...     with texts() as say_more:
    ...         say_more("5 cuts")
    'round 1'
    'round 1, 5 cuts'
    'round 1'
    ''
    """
    listeners = _listeners.get()
    if listeners is None:
        yield _ignore
        return
    text = _Text(listeners.say)
    try:
        yield text.say
    finally:
        text.take_back()


class _Text:
    """What is told in words, after what the context around says."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._around, self._say, self._said = _text.get(), say, False

    def say(self, text: str) -> None:
        """Tell it."""
        both = ", ".join(filter(None, (self._around, text)))
        _text.set(both)
        self._said = True
        self._say(both)

    def take_back(self) -> None:
        """Tell what the context around said last, unless nothing was said since."""
        if self._said:
            self.say("")


@contextmanager
def _as_text() -> Iterator[Callable[[int, int], None]]:
    """Tell a count as a text, and not too often."""
    with texts() as say:
        last = time.monotonic()

        def tell(done: int, total: int) -> None:
            nonlocal last
            if (now := time.monotonic()) - last >= SECONDS_BETWEEN_TEXTS and done < total:
                last = now
                say(f"{done:,} of {total:,}")

        yield tell


def _ignore(told: object) -> None:
    """Take no notice."""
