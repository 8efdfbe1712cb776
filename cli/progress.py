"""What a person sees, and can do, while something takes time."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .output import note

__all__ = ["computing", "working"]


@contextmanager
def working(message: str) -> Iterator[None]:
    """Tell a person at a terminal what takes time."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    from ..planners.trace import on_stage

    console = Console(stderr=True, markup=False, emoji=False)
    with console.status(message) as status, on_stage(lambda stage: status.update(f"{message}: {stage}")):
        # Rich hides the cursor and could not bring it back where `computing` lets the process end.
        console.show_cursor(True)
        yield


@contextmanager
def computing(message: str) -> Iterator[None]:
    """Tell what takes time, and let Ctrl-C end the process there and then, as there is nothing to clean up.

    Compiled kernels return to Python, and so to its handling of Ctrl-C, only when they are done.
    """
    with _ended_by_interrupt(), working(message):
        from ..solvers.compiled import compiled_before

        if not compiled_before():
            note("collopt: note: the first run compiles the solvers, which takes up to a minute, once")
        yield


@contextmanager
def _ended_by_interrupt() -> Iterator[None]:
    ours = threading.current_thread() is threading.main_thread()
    # Whoever starts a program with interrupts ignored, or handles them in another way, is left alone.
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
