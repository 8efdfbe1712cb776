"""Binary heaps in parts of arrays, for kernels."""

from __future__ import annotations

import numba

from ...support.arrays import IntArray

__all__ = ["drop", "push"]


@numba.njit(cache=True, nogil=True)
def push(times: IntArray, codes: IntArray, first: int, size: int, time: int, code: int) -> None:
    """Add an entry to the heap at places ``first``, ..., ``first + size - 1``, which has the least (time, code) first.

    >>> times, codes = np.empty((2, 3), dtype=np.int64)
    >>> for size, time in enumerate([5, 2, 3]):
    ...     push(times, codes, 0, size, time, 10 * time)
    >>> int(codes[0])
    20
    >>> drop(times, codes, 0, 3)
    >>> int(codes[0])
    30
    """
    at = size
    while at > 0:
        up = (at - 1) // 2
        if times[first + up] < time or (times[first + up] == time and codes[first + up] <= code):
            break
        times[first + at] = times[first + up]
        codes[first + at] = codes[first + up]
        at = up
    times[first + at] = time
    codes[first + at] = code


@numba.njit(cache=True, nogil=True)
def drop(times: IntArray, codes: IntArray, first: int, size: int) -> None:
    """Take away the first of the `size` entries of the heap that begins at place ``first``; see `push`."""
    last = size - 1
    time, code = times[first + last], codes[first + last]
    at = 0
    while True:
        low = 2 * at + 1
        if low >= last:
            break
        other = low + 1
        if other < last and (
            times[first + other] < times[first + low]
            or (times[first + other] == times[first + low] and codes[first + other] < codes[first + low])
        ):
            low = other
        if time < times[first + low] or (time == times[first + low] and code <= codes[first + low]):
            break
        times[first + at] = times[first + low]
        codes[first + at] = codes[first + low]
        at = low
    times[first + at] = time
    codes[first + at] = code
