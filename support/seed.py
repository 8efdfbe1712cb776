"""Random seed of heuristics, of choices among equally good answers, and of execution orders; no proof is random."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .validation import as_whole

MAX_SEED = 2**31 - 1  # the largest seed of HiGHS
_seed: ContextVar[int] = ContextVar("collopt_seed", default=0)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Set the random seed of everything that is randomized within the context.

    Seeds are from 0, the default, to 2147483647; anything else raises `UnsupportedError`.

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
    """Validate a seed and return it as an int, or raise `UnsupportedError`."""
    return as_whole(seed, "seed", low=0, high=MAX_SEED)
