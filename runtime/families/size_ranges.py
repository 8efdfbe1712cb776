"""Which of several plans is the fastest for which sizes, by their estimates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from ...planners import Plan

__all__ = ["SizeWindow", "fastest_windows"]


class SizeWindow(NamedTuple):
    """Sizes for which a plan is the fastest.

    Attributes
    ----------
    plan : Plan
    first, last : int
        Bytes; both are among the sizes.
    """

    plan: Plan
    first: int
    last: int


def fastest_windows(plans: Sequence[Plan], first: int, last: int) -> tuple[SizeWindow, ...]:
    """Divide a range of sizes among plans by their estimates; see `write_family`.

    Parameters
    ----------
    plans : sequence of Plan
        Of equally fast ones the first is taken.
    first, last : int
        Bytes; both are among the sizes.

    Returns
    -------
    tuple of SizeWindow
        By size, each beginning where the one before ends.

    Examples
    --------
    Few hops for small sizes, much bandwidth for large ones:

    >>> import collopt
    >>> box = collopt.topologies.dgx1_v100()
    >>> plans = [collopt.plan(box, "allgather", planner=name) for name in ("ring", "forestcoll", "bfb")]
    >>> [(window.plan.planner, window.first, window.last) for window in fastest_windows(plans, 1, 2**20)]
    [('bfb', 1, 419999), ('forestcoll', 420000, 1048576)]
    """

    @cache
    def fastest(size: int) -> int:
        # There is no time for no bytes, but a file may be for them.
        return min(range(len(plans)), key=lambda number: (plans[number].estimate(max(size, 1)), number))

    powers = [2**power for power in range(first.bit_length(), last.bit_length()) if first < 2**power < last]
    looked_at = sorted({first, *powers, last})
    starts = [first]
    for low, high in pairwise(looked_at):
        starts.extend(_changes(fastest, low, high))
    ends = [start - 1 for start in starts[1:]] + [last]
    return tuple(SizeWindow(plans[fastest(start)], start, end) for start, end in zip(starts, ends, strict=True))


def _changes(fastest: Callable[[int], int], low: int, high: int) -> Iterator[int]:
    """Yield the sizes above `low` and up to `high` from which on another plan is the fastest."""
    if fastest(low) == fastest(high):
        return
    if high == low + 1:
        yield high
        return
    middle = (low + high) // 2
    yield from _changes(fastest, low, middle)
    yield from _changes(fastest, middle, high)
