"""Progress callbacks of HiGHS, and interruption of a solve.

Progress goes to the callback in `HighsOptions.progress` and, as a short text, to `collopt.support.progress`.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

from ...support.progress import status

SECONDS_BETWEEN_CALLS = 0.2


class Progress(NamedTuple):
    """Progress of a solve.

    Attributes
    ----------
    seconds : float
        Since it started.
    iterations : int
        Of simplex or interior point; of an integer program, nodes of branch and bound.
    best : float or None
        Value of the best integer solution so far; None for a linear program or if there is none yet.
    bound : float or None
        Best dual bound of an integer program so far; None likewise.
    """

    seconds: float
    iterations: int
    best: float | None = None
    bound: float | None = None


Listener = Callable[[Progress], bool | None]
"""Called a few times per second; what it returns stops the solve if it is False."""


class Watch:
    """Reports the progress of one solve to a listener, and keeps an error that the listener raises."""

    def __init__(self, highs: Any, listener: Listener | None, sign: float, *, integral: bool) -> None:
        self._highs, self._listener, self._sign, self._whole = highs, listener, sign, integral
        self._start = self._last = time.monotonic()
        self._report: Callable[[str], None] = lambda _: None
        self._stopped = False
        self._error: BaseException | None = None

    def run(self) -> None:
        """Run HiGHS; re-raise an error of the listener, or Ctrl-C, once HiGHS has stopped."""
        import highspy

        kinds = highspy.cb.HighsCallbackType
        watched = (kinds.kCallbackSimplexInterrupt, kinds.kCallbackIpmInterrupt, kinds.kCallbackMipInterrupt)
        self._highs.setCallback(self._on_callback, None)
        for kind in watched:
            self._highs.startCallback(kind)
        try:
            with status() as self._report, self._signals_kept():
                self._highs.run()
        finally:
            for kind in watched:
                self._highs.stopCallback(kind)
            self._highs.setCallback(None, None)
        if self._error is not None:
            raise self._error

    @contextmanager
    def _signals_kept(self) -> Iterator[None]:
        """Keep what handlers of signals raise: Python may run them where it begins to call back, outside of any try."""
        before: dict[int, Callable[[int, FrameType | None], Any]] = {}
        if threading.current_thread() is threading.main_thread():
            before = {code: handler for code in signal.valid_signals() if callable(handler := signal.getsignal(code))}
        for number, handler in before.items():
            signal.signal(number, partial(self._on_signal, handler))
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, handler: Callable[[int, FrameType | None], Any], number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except BaseException as error:  # noqa: BLE001
            self._error, self._stopped = error, True

    def _on_callback(self, kind: Any, message: str, info: Any, control: Any, context: Any) -> None:  # noqa: ARG002
        try:
            now = time.monotonic()
            if not self._stopped and now - self._last >= SECONDS_BETWEEN_CALLS:
                self._last, progress = now, self._progress(now, info)
                done = f"{progress.iterations:,} {'nodes' if self._whole else 'iterations'}"
                figures = (("best", progress.best), ("bound", progress.bound)) if self._whole else ()
                self._report(
                    ", ".join([done, *(f"{name} {value:.6g}" for name, value in figures if value is not None)])
                )
                self._stopped = self._listener is not None and self._listener(progress) is False
        except BaseException as error:  # noqa: BLE001
            # An error may not pass through HiGHS: from 1.16 on it would call it an error of its own.
            self._error, self._stopped = error, True
        control.user_interrupt = self._stopped

    def _progress(self, now: float, info: Any) -> Progress:
        counts = (info.simplex_iteration_count, info.ipm_iteration_count, info.mip_node_count)
        figures = (info.mip_primal_bound, info.mip_dual_bound)
        best, bound = (self._sign * value if abs(value) < float("inf") else None for value in figures)
        return Progress(now - self._start, max(0, *counts), best, bound)
