"""What torch says of memory, in our words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ....errors import UnsupportedError

__all__ = ["memory_for"]


@contextmanager
def memory_for(what: str, mending: str) -> Iterator[None]:
    """Tell that tensors do not fit memory; torch has no exception of its own for that on CPUs.

    >>> with memory_for("elements=8 of int32", "fewer"):
    ...     raise MemoryError
    Traceback (most recent call last):
        ...
    collopt.errors.UnsupportedError: there is not enough memory for elements=8 of int32 on this rank; give fewer
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not re.search("memory|overflow|size", str(error)):
            raise
        raise UnsupportedError(f"there is not enough memory for {what} on this rank; give {mending}") from error
