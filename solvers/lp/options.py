"""Progress callbacks of HiGHS, and interruption of a solve.

Progress goes to the callback in `HighsOptions.progress` and, as a short text, to `collopt.support.progress`.
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import FrameType
from typing import Any, NamedTuple, TypeVar

from ...errors import UnsupportedError
from ...support.progress import status
from ...support.seed import MAX_SEED, current_seed, seeded

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
        self._highs, self._listener, self._sign, self._integral = highs, listener, sign, integral
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
                done = f"{progress.iterations:,} {'nodes' if self._integral else 'iterations'}"
                figures = (("best", progress.best), ("bound", progress.bound)) if self._integral else ()
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


Result = TypeVar("Result")

MAX_THREADS = 2**20
_usual_threads: ContextVar[int | None] = ContextVar("collopt_usual_threads", default=None)


@contextmanager
def limited_threads(threads: int) -> Iterator[None]:
    """Set the number of threads, at least 1, of every solve within the context that does not set its own.

    Examples
    --------
    >>> with limited_threads(2):
    ...     HighsOptions().settings()["threads"]
    2
    """
    _check_number("threads", threads, 1, MAX_THREADS, integral=True)
    token = _usual_threads.set(threads)
    try:
        yield
    finally:
        _usual_threads.reset(token)


def as_here(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function that runs elsewhere, in a thread or process, with this context's seed and number of threads."""
    return partial(_with_context, function, current_seed(), _usual_threads.get())


def _with_context(function: Callable[..., Result], seed: int, threads: int | None, *arguments: Any) -> Result:
    with seeded(seed), nullcontext() if threads is None else limited_threads(threads):
        return function(*arguments)


class Algorithm(Enum):
    """How HiGHS solves a linear program; integer programs are always solved by branch and bound."""

    SIMPLEX = "simplex"
    """Dual simplex: ends in a basis, best for re-solving and up to about 10^4 columns."""
    IPM = "ipm"
    """Interior point, then crossover to a basis: best for flows above about 10^4 columns."""
    IPM_WITHOUT_CROSSOVER = "ipm without crossover"
    """Interior point alone: a solution inside the optimal face, and no basis."""
    PDLP = "pdlp"
    """First-order primal-dual method: for programs too large to factorize, at lower accuracy."""


@dataclass(frozen=True)
class HighsOptions:
    """Options of HiGHS; None selects its default.

    Attributes
    ----------
    algorithm : Algorithm, optional
    time_limit : float, optional
        Seconds.
    threads : int, optional
        Those of `limited_threads`, or the choice of HiGHS, by default.
    random_seed : int, optional
        0 to 2147483647; that of `collopt.solvers.seeded`, or 0, by default.
    primal_tolerance, dual_tolerance : float, optional
        Feasibility tolerance of constraints and of reduced costs, 1e-10 to 1.
    log : bool
        Let HiGHS print its own log.
    progress : callable, optional
        Called with a `collopt.solvers.Progress` a few times per second; if it returns False, the solve stops with
        `Termination.INTERRUPTED`.  PDLP does not call it.

    Examples
    --------
    >>> HighsOptions(algorithm=Algorithm.IPM, time_limit=60).threads is None
    True
    """

    algorithm: Algorithm | None = None
    time_limit: float | None = None
    threads: int | None = None
    random_seed: int | None = None
    primal_tolerance: float | None = None
    dual_tolerance: float | None = None
    log: bool = False
    progress: Listener | None = None

    def __post_init__(self) -> None:
        """Check every field once."""
        if self.algorithm is not None and not isinstance(self.algorithm, Algorithm):
            names = ", ".join(f"Algorithm.{member.name}" for member in Algorithm)
            raise UnsupportedError(f"algorithm is {self.algorithm!r}; expected one of {names}")
        if self.progress is not None and not callable(self.progress):
            raise UnsupportedError(f"progress is {self.progress!r}; expected a function of one argument, or None")
        _check_number("time_limit", self.time_limit, 0, math.inf)
        _check_number("threads", self.threads, 1, MAX_THREADS, integral=True)
        _check_number("random_seed", self.random_seed, 0, MAX_SEED, integral=True)
        _check_number("primal_tolerance", self.primal_tolerance, 1e-10, 1)
        _check_number("dual_tolerance", self.dual_tolerance, 1e-10, 1)

    def settings(self) -> dict[str, Any]:
        """Return HiGHS's own names and values of the options that are set, except for the listener."""
        # Always set what an earlier solve of the same session may have changed.
        settings: dict[str, Any] = {"output_flag": self.log, "solver": "choose", "presolve": "choose"}
        # Integer programs are solved to an optimality gap of 0.
        settings |= {"mip_rel_gap": 0.0, "mip_abs_gap": 0.0}
        if self.algorithm is not None:
            bare = self.algorithm is Algorithm.IPM_WITHOUT_CROSSOVER
            settings["solver"] = "ipm" if bare else self.algorithm.value
            settings["run_crossover"] = "off" if bare else "on"
        values = {
            "time_limit": None if self.time_limit is None else float(self.time_limit),
            "threads": _usual_threads.get() if self.threads is None else self.threads,
            "random_seed": current_seed() if self.random_seed is None else self.random_seed,
            "primal_feasibility_tolerance": self.primal_tolerance,
            "dual_feasibility_tolerance": self.dual_tolerance,
        }
        return settings | {name: value for name, value in values.items() if value is not None}


def _check_number(name: str, value: float | None, low: float, high: float, *, integral: bool = False) -> None:
    kind = int if integral else (int, float)
    if value is None or (isinstance(value, kind) and not isinstance(value, bool) and low <= value <= high):
        return
    between = f"from {low} to {high}" if integral else f"from {low:g} to {high:g}"
    expected = f"{'a whole number' if integral else 'a number'} {between}, or None"
    raise UnsupportedError(f"{name} is {value!r}; expected {expected}")
