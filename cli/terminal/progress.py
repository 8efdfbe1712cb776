"""Progress at a terminal, and the handling of Ctrl-C, during long work."""

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import FrameType
from typing import Any

from ...support.kernels import on_compiling
from .output import note

Handler = Callable[[int, FrameType | None], Any] | signal.Handlers

WIDTH = 24  # of the bar


WIDE_TERMINAL = 110  # Columns of a terminal from which on the message stays in front of the name of the stage
_log = logging.getLogger("collopt.cli")


@contextmanager
def working(message: str) -> Iterator[None]:
    """Show progress at a terminal, and log the time taken."""
    start = time.perf_counter()
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    with progress_shown(message) if on_terminal else nullcontext():
        yield
    _log.info("%s: %.3f s", message, time.perf_counter() - start)


@contextmanager
def progress_shown(message: str) -> Iterator[None]:
    """Show a message, the current stage, and its progress as a bar with counts, or as text."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    from ...planners import on_stage

    console = Console(stderr=True, markup=False, emoji=False)
    # Bars and counts are text: rich's own would take the whole work for finished at the end of the first.
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TextColumn("{task.fields[bar]}", style="bar.complete", markup=False),
        TextColumn("{task.fields[count]}", markup=False, table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[text]}", markup=False, table_column=Column(no_wrap=True)),
        TimeElapsedColumn(),
    )
    # Standard output is for data, which may go elsewhere.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as progress:
        # Rich hides the cursor and could not bring it back where `computing` lets the process end.
        console.show_cursor(True)
        task = progress.add_task(message, total=None, bar="", count="", text="")

        def stage(name: str) -> None:
            progress.update(task, description=f"{message}: {name}" if console.width >= WIDE_TERMINAL else name)

        def count(done: int, total: int) -> None:
            bar = "━" * (WIDTH * done // max(total, 1))
            progress.update(task, bar=f"{bar:<{WIDTH}}", count=f"{done:,} of {total:,}")
            if done >= total:
                # Whatever comes next has no count yet.
                progress.update(task, bar="", count="")

        def text(words: str) -> None:
            progress.update(task, text=words)

        progress.refresh()
        with on_stage(stage, count, text):
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
