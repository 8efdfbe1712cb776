"""Progress of long computations, reported to callbacks; without callbacks it costs next to nothing.

Work reports (done, total), which never falls and ends at the total: `iterate` for a loop, `batches` for a kernel,
`task` for all else; `status` reports text.  Of nested tasks the outermost reports numbers, the next one text.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import TypeVar

Item = TypeVar("Item")

MAX_BATCHES = 64  # kernel calls of one task
STATUS_INTERVAL = 0.1  # seconds between two texts of a nested task, which may be one of many short ones
MAX_DEPTH = 1


class _Callbacks:
    """The functions to report to; not again once one of them has raised an error, nor while one runs."""

    def __init__(self, on_count: Callable[[int, int], None], on_text: Callable[[str], None]) -> None:
        self.count, self.text = partial(self._report, on_count), partial(self._report, on_text)
        self._muted = False

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


@contextmanager
def task(total: int) -> Iterator[Callable[[int], None]]:
    """Report how many parts are done within the context; work with only one part is no task."""
    callbacks, depth, done = _callbacks.get(), _depth.get(), -1
    if callbacks is None or depth > MAX_DEPTH or total < 2:
        yield lambda _: None
        return
    with _count_as_text() if depth else nullcontext(callbacks.count) as emit:

        def reach(count: int) -> None:
            nonlocal done
            before, done = done, min(max(count, done), total)
            if done > before:
                emit(done, total)

        _depth.set(depth + 1)
        try:
            reach(0)
            yield reach
        finally:
            _depth.set(depth)
            reach(total)


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
        yield lambda _: None
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
