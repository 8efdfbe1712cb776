"""What happened while a plan was made: how long each stage took, and which way it went."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Trace", "on_stage"]

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("collopt_stage_listener", default=None)


@contextmanager
def on_stage(listener: Callable[[str], None]) -> Iterator[None]:
    """Tell `listener` the name of every stage that starts within the context; progress displays use this.

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
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


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
        if listener := _listener.get():
            listener(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.provenance[f"{name.replace(' ', '_')}_s"] = round(time.perf_counter() - start, 6)

    def note(self, name: str, value: float | str) -> None:
        """Keep a fact."""
        self.provenance[name] = value
