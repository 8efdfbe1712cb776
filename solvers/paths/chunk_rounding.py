"""Whole chunks for the paths of a flow, so that the busiest link has little more to do than before.

A pair of ranks has a whole number of chunks to send, and a flow says in which proportion its paths should share them.
Where the shares are not whole, each path first gets the whole part, and the largest remainders get what is left.  That
may put chunks of many pairs on the same link, so then chunks are moved, one at a time, between paths of a pair.  A link
costs ``exp(s x)`` if it works for x times as long as one chunk takes on the narrowest link, with s of about 1, and a
chunk goes where it adds the least.  Moves that cost nothing are made too, and in most passes through all pairs also
some that cost a little: where every link must do exactly the same, chunks have to pass each other.

The result is a heuristic's.  To share out whole chunks best is NP-hard already for one chunk per pair and two paths.

Source: for the costs, which stand for the largest load, J. Aspnes, Y. Azar, A. Fiat, S. Plotkin and O. Waarts, "On-line
routing of virtual circuits with applications to load balancing and machine scheduling", 1997.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numba
import numpy as np

from ...errors import SolverError
from ...support.arrays import FloatArray, IntArray, RandomArray
from ..flow.max_flow import CAPACITY_LIMIT, check_capacities
from .decomposition import Paths, path_loads

__all__ = ["next_random", "rounded"]


SHARPEST, SHARPNESS = 25.0, (1.5, 1.0, 0.7)
"""For the last pass of a cycle, and for the others, cycle by cycle: what holds up one does not hold up the next."""
CYCLE = 10
"""Passes, of which the first allows the most costly moves and the last none."""
MOST_COSTLY = 0.7
"""How much more than now a chunk may cost after a move, as a part of what it costs now."""
MOST_CYCLES = 40
PATIENCE = 5 * CYCLE
"""Passes without success after which it is enough."""
STRIDES = (1, 2, 3, 5, 7, 11, 13, 17)
SEED = 20_250_611
FARTHEST = 40.0
"""Exponent at which costs stop to rise or fall."""


def rounded(
    paths: Paths,
    pairs: IntArray,
    amounts: IntArray,
    capacities: IntArray,
    *,
    goal: Fraction | None = None,
    effort: int = 2 * 10**8,
) -> IntArray:
    """Share out whole chunks among the paths of each pair, with little to do for the busiest link.

    The result depends on nothing but the arguments; random choices start from a fixed seed.

    Shapes: `pairs` int64 (paths,); `amounts` int64 (pairs,); `capacities` int64 (links,); returns int64 (paths,).

    Two pairs may each use link 0 or a link of their own; one chunk goes over each link:

    >>> ways = Paths(np.ones(4, dtype=np.int64), np.arange(5), np.array([0, 1, 0, 2]))
    >>> rounded(ways, np.array([0, 0, 1, 1]), np.array([2, 1]), np.ones(3, dtype=np.int64)).tolist()
    [1, 1, 0, 1]
    """
    _check_arrays(paths, pairs, amounts, capacities)
    members = np.argsort(pairs, kind="stable")
    starts = np.searchsorted(pairs[members], np.arange(len(amounts) + 1))
    totals = np.zeros(len(amounts), dtype=np.int64)
    np.add.at(totals, pairs, paths.weights)
    if ((amounts > 0) & (totals == 0)).any():
        pair = int(((amounts > 0) & (totals == 0)).argmax())
        raise SolverError(f"pair {pair} has {amounts[pair]} chunks to send and no path; expected at least one")
    chunks, rests = _shares(paths, pairs, amounts, totals)
    if not rests.any():
        return chunks
    shares = chunks + rests / totals[pairs]
    _add_rests(members, starts, amounts, rests, chunks)
    if sum(amounts.tolist()) * int(capacities.max()) >= CAPACITY_LIMIT:
        return chunks
    used = np.flatnonzero(np.bincount(paths.links))
    patience = 0
    if goal is None:
        patience = PATIENCE
        loads = np.bincount(paths.links, np.repeat(shares, np.diff(paths.starts)), len(capacities))
        goal = Fraction(float((loads[used] / capacities[used]).max()) * (1 - 1e-9))
    loads = path_loads(paths, chunks, len(capacities))
    return _moved(paths, members, starts, chunks, loads, capacities, _limits(goal, capacities, used), patience, effort)


def _check_arrays(paths: Paths, pairs: IntArray, amounts: IntArray, capacities: IntArray) -> None:
    columns = {
        "weights": (paths.weights, 1),
        "pairs": (pairs, 0),
        "amounts": (amounts, 0),
        "capacities": (capacities, 1),
    }
    for name, (column, least) in columns.items():
        if column.ndim != 1 or column.dtype != np.int64 or column.min(initial=least) < least:
            raise SolverError(
                f"{name} have shape {column.shape}, type {column.dtype} and minimum {column.min(initial=least)}; "
                f"expected int64 in one row, none below {least}"
            )
    if len(pairs) != len(paths.weights) or len(paths.starts) != len(pairs) + 1:
        raise SolverError(
            f"there are {len(paths.weights)} weights, {len(pairs)} pairs and {len(paths.starts)} starts of paths; "
            "expected as many weights as pairs, and one more start"
        )
    if pairs.max(initial=-1) >= len(amounts) or paths.links.max(initial=-1) >= len(capacities):
        raise SolverError(
            f"the last pair is {pairs.max(initial=-1)} and the last link {paths.links.max(initial=-1)}; "
            f"expected less than {len(amounts)} amounts and {len(capacities)} capacities"
        )
    check_capacities(sum(amounts.tolist()), int(np.bincount(pairs, paths.weights.astype(np.float64)).max(initial=0)))


def _shares(paths: Paths, pairs: IntArray, amounts: IntArray, totals: IntArray) -> tuple[IntArray, IntArray]:
    """Whole parts of the shares, and what is left of the paths' amount times weight."""
    if int(amounts.max(initial=0)) * int(paths.weights.max(initial=0)) < 2**62:
        return np.divmod(amounts[pairs] * paths.weights, totals[pairs])
    # Python's integers take several times as long, and cannot overflow.
    products = amounts[pairs].astype(np.object_) * paths.weights.astype(np.object_)
    whole = products // totals[pairs]
    return whole.astype(np.int64), (products - whole * totals[pairs]).astype(np.int64)


def _limits(goal: Fraction, capacities: IntArray, used: IntArray) -> IntArray:
    """Whole chunks that each link may carry when the goal is reached, which it is not before some link is at its."""
    least = min(Fraction(math.ceil(goal * capacity), capacity) for capacity in set(capacities[used].tolist()))
    most = {capacity: math.floor(least * capacity) for capacity in set(capacities.tolist())}
    return np.array([most[capacity] for capacity in capacities.tolist()], dtype=np.int64)


@numba.njit(cache=True, nogil=True)
def _add_rests(members: IntArray, starts: IntArray, amounts: IntArray, rests: IntArray, chunks: IntArray) -> None:
    """Give the paths of each pair with the largest remainders one chunk more, until all chunks have a path."""
    for pair in range(len(amounts)):
        own = members[starts[pair] : starts[pair + 1]]
        left = amounts[pair] - chunks[own].sum()
        if left > 0:
            # Every pair starts at another of its paths, so that equal remainders do not all go to the first.
            turned = np.roll(own, pair)
            for place in np.argsort(-rests[turned], kind="mergesort")[:left]:
                chunks[turned[place]] += 1


@numba.njit(cache=True, nogil=True)
def _moved(
    paths: Paths,
    members: IntArray,
    starts: IntArray,
    chunks: IntArray,
    loads: IntArray,
    capacities: IntArray,
    limits: IntArray,
    patience: int,
    effort: int,
) -> IntArray:
    """Move chunks until the goal is reached and `patience` passes did no better, or the effort is spent.

    The best that was met is returned; `chunks` is changed.
    """
    random = np.array([SEED], dtype=np.uint64)
    steps = np.empty(len(loads))
    steps[:] = capacities[paths.links].min() / capacities
    costs = np.empty(len(loads))
    best, best_link = chunks.copy(), _busiest(loads, capacities)
    best_load = loads[best_link]
    reached, idle = (loads <= limits).all(), 0
    for turn in range(CYCLE * MOST_CYCLES):
        if effort <= 0 or (reached and idle >= patience):
            break
        idle += 1
        peak = (loads * steps).max()
        last = turn % CYCLE == CYCLE - 1
        sharpness = SHARPEST if last else SHARPNESS[turn // CYCLE % len(SHARPNESS)]
        for link in range(len(loads)):
            costs[link] = _cost(loads[link], steps[link], peak, sharpness)
        # The first cycle goes straight downhill.
        more = MOST_COSTLY * (1 - turn % CYCLE / (CYCLE - 1)) ** 2 if turn >= CYCLE else 0.0
        effort = _pass(paths, members, starts, chunks, loads, steps, costs, peak, sharpness, more, random, effort)
        link = _busiest(loads, capacities)
        if loads[link] * capacities[best_link] < best_load * capacities[link]:
            best[:], best_link, best_load, idle = chunks, link, loads[link], 0
            reached = reached or (loads <= limits).all()
    return best


@numba.njit(cache=True, nogil=True)
def _pass(
    paths: Paths,
    members: IntArray,
    starts: IntArray,
    chunks: IntArray,
    loads: IntArray,
    steps: FloatArray,
    costs: FloatArray,
    peak: float,
    sharpness: float,
    more: float,
    random: RandomArray,
    effort: int,
) -> int:
    """Take one chunk off each path and put it where it costs least, or about the same; return what effort is left."""
    pairs = len(starts) - 1
    first = int(next_random(random) * pairs)
    # Pairs come in another order each time, but not far from each other: those of one rank lie close in memory.
    stride = STRIDES[int(next_random(random) * len(STRIDES))]
    stride = stride if pairs % stride else 1
    for turned in range(pairs):
        pair = (first + turned * stride) % pairs
        begin, size = starts[pair], starts[pair + 1] - starts[pair]
        if size < 2:
            continue
        for number in range(begin, begin + size):
            path = members[number]
            if chunks[path] == 0:
                continue
            if effort <= 0:
                return effort
            _put(paths, path, -1, loads, steps, costs, peak, sharpness)
            now = 0.0
            for place in range(paths.starts[path], paths.starts[path + 1]):
                now += costs[paths.links[place]]
            chosen, least = path, now * (1 - 1e-9)
            allowed = now * (1 + 1e-9 + more * next_random(random))
            turn = int(next_random(random) * size)
            for other_number in range(size):
                other = members[begin + (other_number + turn) % size]
                if other == path:
                    continue
                cost, place, end = 0.0, paths.starts[other], paths.starts[other + 1]
                effort -= end - place
                while place < end and cost <= allowed:
                    cost += costs[paths.links[place]]
                    place += 1
                if cost < least:
                    chosen, least = other, cost
                elif chosen == path and cost <= allowed:
                    chosen = other
            chunks[path] -= 1
            chunks[chosen] += 1
            _put(paths, chosen, 1, loads, steps, costs, peak, sharpness)
    return effort


@numba.njit(cache=True, nogil=True)
def _put(
    paths: Paths,
    path: int,
    chunks: int,
    loads: IntArray,
    steps: FloatArray,
    costs: FloatArray,
    peak: float,
    sharpness: float,
) -> None:
    """Put chunks on all links of a path."""
    for place in range(paths.starts[path], paths.starts[path + 1]):
        link = paths.links[place]
        loads[link] += chunks
        costs[link] = _cost(loads[link], steps[link], peak, sharpness)


@numba.njit(cache=True, nogil=True)
def _cost(load: int, step: float, peak: float, sharpness: float) -> float:
    """What one chunk more costs on a link: nearly the difference of two exponentials."""
    return step * math.exp(min(FARTHEST, max(-FARTHEST, sharpness * ((load + 1) * step - peak))))


@numba.njit(cache=True, nogil=True)
def next_random(state: RandomArray) -> float:
    """Return the next number of a linear congruential generator, from 0 to 1.

    Shapes: `state` uint64 (1,).
    """
    state[0] = state[0] * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
    return float(state[0] >> np.uint64(11)) / 2.0**53


@numba.njit(cache=True, nogil=True)
def _busiest(loads: IntArray, capacities: IntArray) -> int:
    busiest = 0
    for link in range(1, len(loads)):
        if loads[link] * capacities[busiest] > loads[busiest] * capacities[link]:
            busiest = link
    return busiest
