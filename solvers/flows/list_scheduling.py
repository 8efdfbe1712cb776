"""List scheduling of chunks on the links of their paths, with forward-backward improvement (Li and Willis, 1992).

Store and forward: a chunk crosses the next link of its path in a later step, at most floor(batch c / narrowest
capacity) of them at once.  Schedules of the reversed paths give the next priorities; see
docs/explanation/algorithms.md.
"""

import numpy as np

from ...support import progress
from ...support.arrays import IntArray, RandomArray
from ...support.kernels import kernel, kernel_with
from .max_flow import check_capacities
from .path_decomposition import Paths, path_loads
from .rounding import next_random

MAX_ITERATIONS = 400
NOISE = 2**10  # weight of a step in priorities; random noise of up to twice as much varies the iterations
SEED = 20_250_611


def list_schedule(paths: Paths, capacities: IntArray, *, batch: int = 1, effort: int = 10**7) -> IntArray:
    """Find the step, int64 (total hops,), in which each chunk crosses each link; randomized with a fixed seed."""
    quotas = step_quotas(paths, capacities, batch)
    check_capacities(int(paths.weights.max(initial=0)) * len(paths.links))
    # Iterate until a schedule attains the lower bound or the effort is spent.
    lower_bound, loads, hops = min_steps(paths, quotas), path_loads(paths, paths.weights, len(quotas)), len(paths.links)
    firsts = np.append(0, np.cumsum(np.bincount(paths.links, minlength=len(quotas))))
    random = np.array([SEED], dtype=np.uint64)
    keys, steps, best = _initial_keys(paths, loads), np.empty(hops, dtype=np.int64), np.empty(hops, dtype=np.int64)
    fewest = hops + 1
    for begin, end in progress.batches(min(MAX_ITERATIONS, max(1, -(-effort // max(1, hops))))):
        fewest = _improve(paths, quotas, firsts, keys, steps, random, begin, end, best, fewest, lower_bound)
        if fewest <= lower_bound:
            break
    return best


@kernel_with(lambda paths, *arguments: 20 * (arguments[6] - arguments[5]) * len(paths.links))
def _improve(
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
    lower_bound: int,
) -> int:
    """Run iterations ``begin .. end - 1``; keep the best schedule in `best`, and return its number of steps."""
    for iteration in range(begin, end):
        forwards = iteration % 2 == 0
        count = _list_schedule(paths, quotas, firsts, keys, forwards, steps)
        if not forwards:
            steps[:] = count - 1 - steps
        if count < fewest:
            best[:], fewest = steps, count
        if fewest <= lower_bound:
            break
        for place in range(len(steps)):
            urgent = count - 1 - steps[place] if forwards else steps[place]
            keys[place] = urgent * NOISE + int(next_random(random) * 2 * NOISE)
    return fewest


@kernel
def _initial_keys(paths: Paths, loads: IntArray) -> IntArray:
    """Return initial keys: smaller, thus more urgent, for more hops to go, then for a larger load of the next link."""
    keys = np.empty(len(paths.links), dtype=np.int64)
    scale = loads.max() + 1 if len(loads) else 1
    for path in range(len(paths.weights)):
        end, next_load = paths.starts[path + 1], 0
        for place in range(end - 1, paths.starts[path] - 1, -1):
            keys[place] = -(end - place) * scale - next_load
            next_load = loads[paths.links[place]]
    return keys


@kernel
def _list_schedule(
    paths: Paths, quotas: IntArray, firsts: IntArray, keys: IntArray, forwards: bool, steps: IntArray
) -> int:
    """Let every link carry the available hops of least key; set their steps and return the number of steps.

    Backwards, paths start at their last link.  The queue of a link is a heap in its part of `waiting`, with capacity
    for all its hops.  A link stops at the first row that exceeds its remaining quota.
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
            quota, first = quotas[link], firsts[link]
            while sizes[link] > 0 and paths.weights[rows[waiting[first]]] <= quota:
                place = waiting[first]
                _pop(waiting, urgency, first, sizes, link)
                quota -= paths.weights[rows[place]]
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


@kernel
def _push(waiting: IntArray, urgency: IntArray, first: int, sizes: IntArray, link: int, place: int, key: int) -> None:
    """Push a hop onto the heap of a link."""
    at = sizes[link]
    sizes[link] += 1
    while at > 0:
        above = (at - 1) >> 1
        if urgency[first + above] <= key:
            break
        urgency[first + at], waiting[first + at] = urgency[first + above], waiting[first + above]
        at = above
    urgency[first + at], waiting[first + at] = key, place


@kernel
def _pop(waiting: IntArray, urgency: IntArray, first: int, sizes: IntArray, link: int) -> None:
    """Pop the hop of least key from the heap of a link."""
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


def split(paths: Paths, limit: int) -> tuple[Paths, IntArray]:
    """Split paths into rows of at most `limit` chunks; return them and the path of each row, int64 (rows,)."""
    counts = -(-paths.weights // limit)
    numbers = np.repeat(np.arange(len(counts)), counts)
    weights = np.full(len(numbers), limit, dtype=np.int64)
    last = np.cumsum(counts)[counts > 0] - 1
    weights[last] = (paths.weights - (counts - 1) * limit)[counts > 0]
    hops = np.diff(paths.starts)[numbers]
    starts = np.zeros(len(numbers) + 1, dtype=np.int64)
    np.cumsum(hops, out=starts[1:])
    places = np.arange(starts[-1]) + np.repeat(paths.starts[numbers] - starts[:-1], hops)
    return Paths(weights, starts, paths.links[places]), numbers


def step_quotas(paths: Paths, capacities: IntArray, batch: int = 1) -> IntArray:
    """Return the number of chunks that each link may carry per step. Shapes: returns int64 (links,)."""
    check_capacities(batch * int(capacities.max(initial=1)))
    used = capacities[np.bincount(paths.links, minlength=len(capacities)) > 0]
    quotas: IntArray = capacities * batch // used.min(initial=2**62)
    return quotas


def min_steps(paths: Paths, quotas: IntArray) -> int:
    """Bound the number of steps from below: the longest path, or fewest hops before a link, its work, and those after.

    Shapes: `quotas` int64 (links,).
    """
    loads = path_loads(paths, paths.weights, len(quotas))
    head, tail = _heads_and_tails(paths, len(quotas))
    steps = -(-loads // np.maximum(quotas, 1)) + np.where(loads > 0, head + tail, 0)
    return max(int(steps.max(initial=0)), int(np.diff(paths.starts).max(initial=0)))


@kernel
def _heads_and_tails(paths: Paths, num_links: int) -> tuple[IntArray, IntArray]:
    """Return, per link, the fewest hops of any path before it and after it."""
    head, tail = np.full(num_links, len(paths.links)), np.full(num_links, len(paths.links))
    for path in range(len(paths.starts) - 1):
        begin, end = paths.starts[path], paths.starts[path + 1]
        for place in range(begin, end):
            link = paths.links[place]
            head[link] = min(head[link], place - begin)
            tail[link] = min(tail[link], end - 1 - place)
    return head, tail
