"""What HiGHS says while it works, and how to stop it.

It is told to the listener of the solve, and in a few words to whoever listens to work in general; see
`collopt.support.progress`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ...support.progress import status

__all__ = ["Listener", "Progress", "Watch"]

SECONDS_BETWEEN_CALLS = 0.2


class Progress(NamedTuple):
    """How far a solve has come.

    Attributes
    ----------
    seconds : float
        Since it started.
    iterations : int
        Of simplex or interior point; of an integer program, nodes of branch and bound.
    best : float or None
        Value of the best whole answer so far; None for a linear program or where there is none yet.
    bound : float or None
        What no whole answer can beat as far as is known; None likewise.
    """

    seconds: float
    iterations: int
    best: float | None = None
    bound: float | None = None


Listener = Callable[[Progress], bool | None]
"""Called a few times per second; what it returns stops the solve if it is False."""


class Watch:
    """Tells a listener of one solve how far it is, and holds on to an error that the listener raises."""

    def __init__(self, highs: Any, listener: Listener | None, sign: float, *, whole: bool) -> None:
        self._highs, self._listener, self._sign, self._whole = highs, listener, sign, whole
        self._start = self._last = time.monotonic()
        self._say: Callable[[str], None] = _nobody
        self._stopped = False
        self._error: BaseException | None = None

    def run(self) -> None:
        """Run HiGHS; an error of the listener, or Ctrl-C, comes out once HiGHS has stopped."""
        import highspy

        kinds = highspy.cb.HighsCallbackType
        watched = (kinds.kCallbackSimplexInterrupt, kinds.kCallbackIpmInterrupt, kinds.kCallbackMipInterrupt)
        self._highs.setCallback(self._hear, None)
        for kind in watched:
            self._highs.startCallback(kind)
        try:
            with status() as self._say:
                self._highs.run()
        finally:
            for kind in watched:
                self._highs.stopCallback(kind)
            self._highs.setCallback(None, None)
        if self._error is not None:
            raise self._error

    def _hear(self, kind: Any, message: str, facts: Any, orders: Any, context: Any) -> None:  # noqa: ARG002
        try:
            now = time.monotonic()
            if not self._stopped and now - self._last >= SECONDS_BETWEEN_CALLS:
                self._last, progress = now, self._progress(now, facts)
                self._say(_words(progress, whole=self._whole))
                self._stopped = self._listener is not None and self._listener(progress) is False
        except BaseException as error:  # noqa: BLE001
            # An error may not pass through HiGHS; this is also where Ctrl-C arrives.
            self._error, self._stopped = error, True
        orders.user_interrupt = self._stopped

    def _progress(self, now: float, facts: Any) -> Progress:
        counts = (facts.simplex_iteration_count, facts.ipm_iteration_count, facts.mip_node_count)
        known = (facts.mip_primal_bound, facts.mip_dual_bound)
        best, bound = (self._sign * value if abs(value) < float("inf") else None for value in known)
        return Progress(now - self._start, max(0, *counts), best, bound)


def _words(progress: Progress, *, whole: bool) -> str:
    """Say in words how far a solve has come; `whole` if it is of an integer program."""
    done = f"{progress.iterations:,} {'nodes' if whole else 'iterations'}"
    known = (("best", progress.best), ("bound", progress.bound)) if whole else ()
    return ", ".join([done, *(f"{name} {value:.6g}" for name, value in known if value is not None)])


def _nobody(text: str) -> None:
    """Take no notice."""
