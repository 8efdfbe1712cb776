"""Progress of long computations, reported to callbacks; without callbacks it costs next to nothing.

Work with a known number of parts reports (done, total): `iterate` for a loop, `batches` for a kernel that goes through
its parts in order, `task` for all else.  `done` starts at 0, never falls, and ends at `total`, also where the work ends
early.  `status` reports text, for work without a total.

Tasks may be nested.  The outermost reports numbers, the next one text, and those deeper nothing.  Work with only one
part is no task, so that a task inside it is reported instead.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")

MAX_BATCHES = 64  # kernel calls of one task, so that a second passes between two of them only where all take a minute
STATUS_INTERVAL = 0.1  # seconds between two texts of a nested task, which may be one of many short ones
MAX_DEPTH = 1


class _Callbacks:
    """The functions to report to; not again once one of them has raised an error, nor while one runs."""

    def __init__(self, on_count: Callable[[int, int], None], on_text: Callable[[str], None]) -> None:
        self._on_count, self._on_text, self._muted = on_count, on_text, False

    def count(self, done: int, total: int) -> None:
        """Report numbers."""
        self._report(self._on_count, done, total)

    def text(self, text: str) -> None:
        """Report a text."""
        self._report(self._on_text, text)

    def _report(self, callback: Callable[..., None], *figures: int | str) -> None:
        if not self._muted:
            self._muted = True
            callback(*figures)
            self._muted = False


_callbacks: ContextVar[_Callbacks | None] = ContextVar("collopt_progress_callbacks", default=None)
_depth: ContextVar[int] = ContextVar("collopt_progress_depth", default=0)
_text: ContextVar[str] = ContextVar("collopt_progress_text", default="")


@contextmanager
def listening(on_count: Callable[[int, int], None], on_text: Callable[[str], None]) -> Iterator[None]:
    """Report the progress of work within the context to these functions, as `on_stage` does."""
    callbacks, depth, text = _callbacks.set(_Callbacks(on_count, on_text)), _depth.set(0), _text.set("")
    try:
        yield
    finally:
        _callbacks.reset(callbacks)
        _depth.reset(depth)
        _text.reset(text)


class _Task:
    """The state of one task, which never falls nor passes its total."""

    def __init__(self, total: int, emit: Callable[[int, int], None]) -> None:
        self._done, self._total, self._emit = -1, total, emit

    def reach(self, done: int) -> None:
        """Report that so many parts are done in all, if they are more than before."""
        before, self._done = self._done, min(max(done, self._done), self._total)
        if self._done > before:
            self._emit(self._done, self._total)


@contextmanager
def task(total: int) -> Iterator[Callable[[int], None]]:
    """Report how many parts are done within the context."""
    callbacks, depth = _callbacks.get(), _depth.get()
    if callbacks is None or depth > MAX_DEPTH or total < 2:
        yield _ignore
        return
    with _count_as_text() if depth else nullcontext(callbacks.count) as emit:
        state = _Task(total, emit)
        _depth.set(depth + 1)
        try:
            state.reach(0)
            yield state.reach
        finally:
            _depth.set(depth)
            state.reach(total)


def iterate(items: Iterable[Item], total: int) -> Iterator[Item]:
    """Yield the items, each one part of a task."""
    with task(total) as reached:
        for done, item in enumerate(items, 1):
            yield item
            reached(done)


def batches(total: int) -> Iterator[tuple[int, int]]:
    """Divide the parts ``0 .. total - 1`` of a kernel into ranges, and report the parts that are done."""
    if _callbacks.get() is None or _depth.get() > MAX_DEPTH:
        yield 0, total
        return
    size = max(1, -(-total // MAX_BATCHES))
    with task(total) as reached:
        for begin in range(0, max(1, total), size):
            end = min(begin + size, total)
            yield begin, end
            reached(end)


@contextmanager
def status() -> Iterator[Callable[[str], None]]:
    """Report texts on the work within the context; at its end the text is reset."""
    callbacks = _callbacks.get()
    if callbacks is None:
        yield _ignore
        return
    outer, emitted = _text.get(), False

    def say(text: str) -> None:
        nonlocal emitted
        joined, emitted = ", ".join(filter(None, (outer, text))), True
        _text.set(joined)
        callbacks.text(joined)

    try:
        yield say
    finally:
        if emitted:
            say("")


@contextmanager
def _count_as_text() -> Iterator[Callable[[int, int], None]]:
    """Report numbers as text, at most once in `STATUS_INTERVAL`."""
    with status() as say:
        last = time.monotonic()

        def emit(done: int, total: int) -> None:
            nonlocal last
            if (now := time.monotonic()) - last >= STATUS_INTERVAL and done < total:
                last = now
                say(f"{done:,} of {total:,}")

        yield emit


def _ignore(_: object) -> None:
    """Report nothing."""
