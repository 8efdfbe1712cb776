"""Where what is left to chance starts.

Nothing is random that decides whether a plan is right or how good its bound is.  But heuristics try orders at random,
one of equally good answers has to be taken, and what checks a program runs it in several orders: all of these depend
on one seed, so that the same one does the same again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .validation import as_whole

__all__ = ["MOST_SEED", "as_seed", "current_seed", "seeded"]

MOST_SEED = 2**31 - 1
"""HiGHS takes no larger one."""
_seed: ContextVar[int] = ContextVar("collopt_seed", default=0)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Start whatever is left to chance within the context from this seed.

    Parameters
    ----------
    seed : int
        0, as everywhere else, to 2147483647.

    Raises
    ------
    UnsupportedError
        If it is no such number.

    Examples
    --------
    >>> with seeded(7):
    ...     current_seed()
    7
    """
    token = _seed.set(as_seed(seed))
    try:
        yield
    finally:
        _seed.reset(token)


def current_seed() -> int:
    """Return the seed of the innermost `seeded`, or 0."""
    return _seed.get()


def as_seed(seed: int) -> int:
    """Return a seed as Python's own integer, or raise `UnsupportedError`.

    >>> as_seed(-1)
    Traceback (most recent call last):
        ...
    collopt.errors.UnsupportedError: seed is -1; expected a whole number from 0 to 2147483647
    """
    return as_whole(seed, "seed", least=0, most=MOST_SEED)
