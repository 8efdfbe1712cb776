"""When chunks cross the links of their paths: list schedules, improved by turning them round.

Chunks are stored and forwarded: one that crosses a link in some step crosses the next link of its path in a later one.
A step lasts as long as `batch` chunks take on the narrowest link, so a link of capacity c carries at most

    floor(batch c / narrowest capacity)

chunks in each step, and no step lasts longer than that.  Nothing may be carried over: a link that is 1.5 times as wide
and were to carry 1 and 2 chunks in turn would make every second step last 4/3, as the second chunk cannot start before
the step in which it is there.  Where capacities are no multiples of the narrowest one, a batch of some chunks wastes
less.

No schedule has fewer steps than the busiest link needs, or than the longest path has hops, which
`collopt.solvers.paths.list_scheduling.fewest_steps` works out.  A list schedule lets each link, in each step, carry the
most urgent chunks that have come.  At first those are most urgent that have most hops to go, then those whose next link
is the busiest.  Then the schedule is turned round: read from its end it is one for paths walked backwards, and what
came last is most urgent there.  That shows how late each chunk may cross each link, which is what the next schedule
forwards goes by; and so on, the best is kept.

Source: for the turns, K. Y. Li and R. J. Willis, "An iterative scheduling technique for resource-constrained project
scheduling", 1992.
"""

from __future__ import annotations

import numba
import numpy as np

from ...errors import SolverError
from ...support import progress
from ...support.arrays import IntArray, RandomArray
from ..flow.max_flow import check_capacities
from .chunk_rounding import next_random
from .decomposition import Paths, path_loads

__all__ = ["fewest_steps", "ordered_hops", "split", "step_quotas"]


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


MOST_TURNS = 400
NOISE = 2**10
"""What a step counts for; random numbers of up to twice as much make every turn a little different."""
SEED = 20_250_611


def ordered_hops(paths: Paths, capacities: IntArray, *, batch: int = 1, effort: int = 10**7) -> IntArray:
    """Find the step in which each chunk crosses each link of its path, with few steps in all.

    The result depends on nothing but the arguments; random choices start from a fixed seed.

    Shapes: `capacities` int64 (links,); returns int64 (hops in all,).

    Two chunks leave node 0 over link 0, and one of them goes on over link 1, so it goes first:

    >>> ordered_hops(Paths(np.array([1, 1]), np.array([0, 1, 3]), np.array([0, 0, 1])), np.array([1, 1])).tolist()
    [1, 0, 1]
    """
    quotas = step_quotas(paths, capacities, batch)
    _check_rows(paths, quotas)
    least = fewest_steps(paths, quotas)
    return _best_order(paths, quotas, path_loads(paths, paths.weights, len(quotas)), least, effort)


def _check_rows(paths: Paths, quotas: IntArray) -> None:
    hops = np.diff(paths.starts)
    if len(hops) != len(paths.weights) or paths.starts[0] != 0 or paths.starts[-1] != len(paths.links):
        raise SolverError(
            f"{len(paths.weights)} paths of {len(paths.links)} hops have {len(hops) + 1} starts from "
            f"{paths.starts[0]} to {paths.starts[-1]}; expected one more than paths, from 0 to the number of hops"
        )
    if hops.min(initial=1) < 1 or paths.weights.min(initial=1) < 1:
        path = int((np.minimum(hops, paths.weights) < 1).argmax())
        raise SolverError(
            f"path {path} has {hops[path]} hops and {paths.weights[path]} chunks; expected at least one of each"
        )
    wide = np.repeat(paths.weights, hops) > quotas[paths.links]
    if wide.any():
        path = int(np.searchsorted(paths.starts, wide.argmax(), side="right")) - 1
        raise SolverError(
            f"the {paths.weights[path]} chunks of path {path} are more than its links carry in a step; split it into "
            "rows of fewer chunks, or raise the batch"
        )
    check_capacities(int(paths.weights.max(initial=0)) * len(paths.links))


def _best_order(paths: Paths, quotas: IntArray, loads: IntArray, least: int, effort: int) -> IntArray:
    """Turn schedules round until one has as few steps as possible, or the effort is spent; the first is by hops."""
    hops = len(paths.links)
    firsts = np.append(0, np.cumsum(np.bincount(paths.links, minlength=len(quotas))))
    random = np.array([SEED], dtype=np.uint64)
    keys, steps, best = _hop_keys(paths, loads), np.empty(hops, dtype=np.int64), np.empty(hops, dtype=np.int64)
    fewest = hops + 1
    for begin, end in progress.batches(min(MOST_TURNS, max(1, -(-effort // max(1, hops))))):
        fewest = _turned(paths, quotas, firsts, keys, steps, random, begin, end, best, fewest, least)
        if fewest <= least:
            break
    return best


@numba.njit(cache=True, nogil=True)
def _turned(
    paths: Paths,
    quotas: IntArray,
    firsts: IntArray,
    keys: IntArray,
    steps: IntArray,
    random: RandomArray,
    begin: int,
    end: int,
    best: IntArray,
    fewest: int,
    least: int,
) -> int:
    """Take some turns; keep the best schedule in `best`, and return how many steps it has."""
    for turn in range(begin, end):
        forwards = turn % 2 == 0
        count = _list_schedule(paths, quotas, firsts, keys, forwards, steps)
        if not forwards:
            steps[:] = count - 1 - steps
        if count < fewest:
            best[:], fewest = steps, count
        if fewest <= least:
            break
        for place in range(len(steps)):
            urgent = count - 1 - steps[place] if forwards else steps[place]
            keys[place] = urgent * NOISE + int(next_random(random) * 2 * NOISE)
    return fewest


@numba.njit(cache=True, nogil=True)
def _hop_keys(paths: Paths, loads: IntArray) -> IntArray:
    """Smaller, and so more urgent, for hops with more to go, then for those whose next link is busier."""
    keys = np.empty(len(paths.links), dtype=np.int64)
    scale = loads.max() + 1 if len(loads) else 1
    for path in range(len(paths.weights)):
        end, following = paths.starts[path + 1], 0
        for place in range(end - 1, paths.starts[path] - 1, -1):
            keys[place] = -(end - place) * scale - following
            following = loads[paths.links[place]]
    return keys


@numba.njit(cache=True, nogil=True)
def _list_schedule(
    paths: Paths, quotas: IntArray, firsts: IntArray, keys: IntArray, forwards: bool, steps: IntArray
) -> int:
    """Let every link carry the hops of least key that have come; set their steps and return how many there are.

    Backwards, paths are walked from their last link.  What waits for a link is a heap in its part of `waiting`, with
    room for all that will come.  A link stops at the first chunks that it cannot carry whole.
    """
    rows = np.empty(len(steps), dtype=np.int32)
    waiting, urgency = np.empty(len(steps), dtype=np.int64), np.empty(len(steps), dtype=np.int64)
    sizes = np.zeros(len(quotas), dtype=np.int64)
    active, moved = np.empty(len(quotas), dtype=np.int64), np.empty(len(steps), dtype=np.int64)
    links, ahead = 0, 1 if forwards else -1
    for row in range(len(paths.weights)):
        rows[paths.starts[row] : paths.starts[row + 1]] = row
        place = paths.starts[row] if forwards else paths.starts[row + 1] - 1
        link = paths.links[place]
        if sizes[link] == 0:
            active[links] = link
            links += 1
        _push(waiting, urgency, firsts[link], sizes, link, place, keys[place])
    step = 0
    while links > 0:
        count, kept = 0, 0
        for number in range(links):
            link = active[number]
            room, first = quotas[link], firsts[link]
            while sizes[link] > 0 and paths.weights[rows[waiting[first]]] <= room:
                place = waiting[first]
                _pop(waiting, urgency, first, sizes, link)
                room -= paths.weights[rows[place]]
                steps[place] = step
                moved[count] = place
                count += 1
            if sizes[link] > 0:
                active[kept] = link
                kept += 1
        links = kept
        for number in range(count):
            place = moved[number] + ahead
            row = rows[moved[number]]
            if paths.starts[row] <= place < paths.starts[row + 1]:
                link = paths.links[place]
                if sizes[link] == 0:
                    active[links] = link
                    links += 1
                _push(waiting, urgency, firsts[link], sizes, link, place, keys[place])
        step += 1
    return step


@numba.njit(cache=True, nogil=True)
def _push(waiting: IntArray, urgency: IntArray, first: int, sizes: IntArray, link: int, place: int, key: int) -> None:
    """Put a hop on the heap of a link."""
    at = sizes[link]
    sizes[link] += 1
    while at > 0:
        above = (at - 1) >> 1
        if urgency[first + above] <= key:
            break
        urgency[first + at], waiting[first + at] = urgency[first + above], waiting[first + above]
        at = above
    urgency[first + at], waiting[first + at] = key, place


@numba.njit(cache=True, nogil=True)
def _pop(waiting: IntArray, urgency: IntArray, first: int, sizes: IntArray, link: int) -> None:
    """Take the hop of least key off the heap of a link."""
    sizes[link] -= 1
    size = sizes[link]
    key, place = urgency[first + size], waiting[first + size]
    at = 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and urgency[first + below + 1] < urgency[first + below]:
            below += 1
        if urgency[first + below] >= key:
            break
        urgency[first + at], waiting[first + at] = urgency[first + below], waiting[first + below]
        at = below
    urgency[first + at], waiting[first + at] = key, place
