"""Stages of planning, their times and the methods chosen.

They are logged to ``collopt.planners`` of the standard library: their ends at level INFO, starts and facts at DEBUG.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ...support import progress
from ...support.seed import current_seed


def _ignore(*_: object) -> None:
    """Do nothing with what there is to say."""


_listener: ContextVar[Callable[[str], None] | None] = ContextVar("collopt_stage_listener", default=None)
_log = logging.getLogger("collopt.planners")


@contextmanager
def on_stage(
    listener: Callable[[str], None], count: Callable[[int, int], None] = _ignore, text: Callable[[str], None] = _ignore
) -> Iterator[None]:
    """Call `listener` with the name of every stage that starts within the context.

    The functions must not raise: it may end the work, or be taken for the work's own error.
    `docs/explanation/tree-planning.md` shows what they get.

    Parameters
    ----------
    listener : callable
        Takes the name.
    count : callable, optional
        Takes how much of a long piece of work is done, and how much there is, wherever this is known.  Each count
        starts at 0, never falls, and ends at its total, also where the work ends early; one stage may have several.
    text : callable, optional
        Takes the progress of work without a total, such as ``"12,345 iterations"``, and of counts within counts; an
        empty text takes the last one back.
    """
    token = _listener.set(listener)
    try:
        with progress.listening(count, text):
            yield
    finally:
        _listener.reset(token)


class Trace:
    """Collects the provenance of one plan.

    `provenance`: Seconds per stage under ``"<stage>_s"``, and notes.
    """

    def __init__(self) -> None:
        self.provenance: dict[str, float | str] = {}
        if seed := current_seed():
            self.note("seed", seed)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage and announce it."""
        if listener := _listener.get():
            listener(name)
        _log.debug("%s ...", name)
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self.provenance[f"{name.replace(' ', '_')}_s"] = round(seconds, 6)
            _log.info("%s: %.3f s", name, seconds)

    def note(self, name: str, value: float | str) -> None:
        """Record a value."""
        self.provenance[name] = value
        _log.debug("%s: %s", name.replace("_", " "), value)
