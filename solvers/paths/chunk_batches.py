"""Rows of few chunks that move together along their paths, and how many of them links carry in a step."""

from __future__ import annotations

import numba
import numpy as np

from ...errors import SolverError
from ...support.arrays import IntArray
from ..flow.max_flow import check_capacities
from .decomposition import Paths, path_loads

__all__ = ["fewest_steps", "split", "step_quotas"]


def split(paths: Paths, most: int) -> tuple[Paths, IntArray]:
    """Cut paths into rows of few chunks.

    Shapes: returns int64 (rows,).

    >>> rows, numbers = split(Paths(np.array([3, 0, 1]), np.array([0, 2, 3, 4]), np.array([7, 8, 9, 7])), 2)
    >>> rows
    Paths(weights=array([2, 1, 1]), starts=array([0, 2, 4, 5]), links=array([7, 8, 7, 8, 7]))
    >>> numbers
    array([0, 0, 2])
    """
    if most < 1 or paths.weights.min(initial=0) < 0:
        raise SolverError(
            f"rows have at most {most} chunks and paths at least {paths.weights.min(initial=0)}; expected at least 1 "
            "and 0"
        )
    counts = -(-paths.weights // most)
    numbers = np.repeat(np.arange(len(counts)), counts)
    weights = np.full(len(numbers), most, dtype=np.int64)
    last = np.cumsum(counts)[counts > 0] - 1
    weights[last] = (paths.weights - (counts - 1) * most)[counts > 0]
    hops = np.diff(paths.starts)[numbers]
    starts = np.zeros(len(numbers) + 1, dtype=np.int64)
    np.cumsum(hops, out=starts[1:])
    places = np.arange(starts[-1]) + np.repeat(paths.starts[numbers] - starts[:-1], hops)
    return Paths(weights, starts, paths.links[places]), numbers


def step_quotas(paths: Paths, capacities: IntArray, batch: int = 1) -> IntArray:
    """Count the chunks that each link may carry in each step.

    Shapes: `capacities` int64 (links,); returns int64 (links,).
    """
    if capacities.ndim != 1 or capacities.dtype != np.int64 or capacities.min(initial=1) < 1 or batch < 1:
        raise SolverError(
            f"capacities have shape {capacities.shape}, type {capacities.dtype} and minimum "
            f"{capacities.min(initial=1)}, and the batch is {batch}; expected int64 in one row, none below 1"
        )
    if paths.links.min(initial=0) < 0 or paths.links.max(initial=-1) >= len(capacities):
        raise SolverError(
            f"links go from {paths.links.min(initial=0)} to {paths.links.max(initial=-1)}; "
            f"expected numbers from 0 to {len(capacities) - 1}"
        )
    check_capacities(batch * int(capacities.max(initial=1)))
    used = capacities[np.bincount(paths.links, minlength=len(capacities)) > 0]
    quotas: IntArray = capacities * batch // used.min(initial=2**62)
    return quotas


def fewest_steps(paths: Paths, quotas: IntArray) -> int:
    """Return a lower bound on the number of steps: the longest path, or what a link needs from first to last.

    Nothing comes to a link before the fewest hops that a path takes to it, and its last chunk has some way to go.

    Shapes: `quotas` int64 (links,).
    """
    loads = path_loads(paths, paths.weights, len(quotas))
    before, after = _least_around(paths, len(quotas))
    needed = -(-loads // np.maximum(quotas, 1)) + np.where(loads > 0, before + after, 0)
    return max(int(needed.max(initial=0)), int(np.diff(paths.starts).max(initial=0)))


@numba.njit(cache=True, nogil=True)
def _least_around(paths: Paths, num_links: int) -> tuple[IntArray, IntArray]:
    """For each link the fewest hops that any path has before it, and after it."""
    before, after = np.full(num_links, len(paths.links)), np.full(num_links, len(paths.links))
    for path in range(len(paths.starts) - 1):
        begin, end = paths.starts[path], paths.starts[path + 1]
        for place in range(begin, end):
            link = paths.links[place]
            before[link] = min(before[link], place - begin)
            after[link] = min(after[link], end - 1 - place)
    return before, after
