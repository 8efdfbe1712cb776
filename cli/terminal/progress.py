"""Progress messages, and the handling of Ctrl-C, during long work."""

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

from ...support.kernels import on_compiling
from .output import note

Handler = Callable[[int, FrameType | None], Any] | signal.Handlers

_log = logging.getLogger("collopt.cli")


@contextmanager
def working(message: str) -> Iterator[None]:
    """Show progress at a terminal, and log the time taken."""
    start = time.perf_counter()
    with _shown(message):
        yield
    _log.info("%s: %.3f s", message, time.perf_counter() - start)


@contextmanager
def _shown(message: str) -> Iterator[None]:
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from .progress_bar import progress_shown

    with progress_shown(message):
        yield


@contextmanager
def computing(message: str) -> Iterator[None]:
    """Show progress, and let Ctrl-C end the process at once.

    Compiled kernels return to Python, and so to its handling of Ctrl-C, only when they are done.
    """
    compiling = partial(
        note,
        "collopt: note: this run compiles numba kernels, which takes up to a minute, once; `collopt doctor --compile` "
        "compiles those of all commands",
    )
    with handling(signal.SIGINT, signal.default_int_handler, signal.SIG_DFL), working(message), on_compiling(compiling):
        yield


@contextmanager
def handling(number: signal.Signals, usual: Handler, handler: Handler) -> Iterator[None]:
    """Handle a signal, while a block runs, in another than the usual way."""
    ours = threading.current_thread() is threading.main_thread()
    # Whoever starts a program with signals ignored, or handles them in another way, is left alone.
    if not ours or signal.getsignal(number) != usual:
        yield
        return
    signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, usual)
