"""What happened while a plan was made: how long each stage took, and which way it went.

Stages are also told to the logger ``collopt.planners`` of the standard library: when one ends at the level INFO, when
one starts, and facts, at DEBUG.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

__all__ = ["Trace", "counted", "on_stage"]

Item = TypeVar("Item")


class _Listeners(NamedTuple):
    """Who wants to be told."""

    stage: Callable[[str], None]
    told: Callable[[int, int], None]


def _ignore(done: int, total: int) -> None:
    """Take no notice of counts."""


_listeners: ContextVar[_Listeners | None] = ContextVar("collopt_stage_listeners", default=None)
_counting: ContextVar[bool] = ContextVar("collopt_counting", default=False)
_log = logging.getLogger("collopt.planners")


@contextmanager
def on_stage(listener: Callable[[str], None], count: Callable[[int, int], None] = _ignore) -> Iterator[None]:
    """Tell `listener` the name of every stage that starts within the context; progress displays use this.

    Parameters
    ----------
    listener : callable
        Takes the name.
    count : callable, optional
        Takes how much of a long piece of work is done, and how much there is, wherever this is known.

    Examples
    --------
    >>> import collopt
    >>> with on_stage(print):
    ...     plan = collopt.plan(collopt.topologies.ring(3), "allgather")
    bottleneck
    tight sets
    switch removal
    tree packing
    tree lowering
    verification
    """
    token = _listeners.set(_Listeners(listener, count))
    try:
        yield
    finally:
        _listeners.reset(token)


def counted(items: Iterable[Item], total: int) -> Iterator[Item]:
    """Pass things on, and tell whoever listens how many are done; of counts within counts, only the outermost is told.

    Parameters
    ----------
    items : iterable
        Each is done when the next one is asked for.
    total : int
        How many there are.

    Yields
    ------
    object

    Examples
    --------
    >>> with on_stage(print, lambda done, total: print(f"{done} of {total}")):
    ...     letters = list(counted("ab", 2))
    0 of 2
    1 of 2
    2 of 2
    """
    listeners = _listeners.get()
    if listeners is None or _counting.get():
        yield from items
        return
    _counting.set(True)
    try:
        listeners.told(0, total)
        for done, item in enumerate(items, 1):
            yield item
            listeners.told(done, total)
    finally:
        _counting.set(False)


class Trace:
    """Collects the provenance of one plan.

    Attributes
    ----------
    provenance : dict
        Seconds per stage under ``"<stage>_s"``, and notes.
    """

    def __init__(self) -> None:
        self.provenance: dict[str, float | str] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage and announce it."""
        if listeners := _listeners.get():
            listeners.stage(name)
        _log.debug("%s ...", name)
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self.provenance[f"{name.replace(' ', '_')}_s"] = round(seconds, 6)
            _log.info("%s: %.3f s", name, seconds)

    def note(self, name: str, value: float | str) -> None:
        """Keep a fact."""
        self.provenance[name] = value
        _log.debug("%s: %s", name.replace("_", " "), value)
