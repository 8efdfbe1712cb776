"""Rounding to integers: transportation plans, single-source flows, and path flows in chunks.

Transportation polytopes and flows with integral sums have integral vertices.  Chunks of paths move by local search with
exponential link costs (Aspnes, Azar, Fiat, Plotkin and Waarts, 1997), a heuristic; see docs/explanation/algorithms.md.
"""

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...errors import SolverError
from ...support.arrays import BoolArray, FloatArray, IntArray, RandomArray
from ...support.kernels import kernel, kernel_with
from .max_flow import CAPACITY_LIMIT, check_capacities, flow_network, max_flow, solve_network
from .path_decomposition import Paths, path_loads

FITTING_ROUNDS = 40
LARGE_REMAINDER = 0.02  # remainders above this are rounded up before smaller ones


def integral_transport(rows: IntArray, columns: IntArray, target: FloatArray, allowed: BoolArray) -> IntArray | None:
    """Find a plan with the given sums, near `target` and zero where not `allowed`; None if there is none.

    Shapes: `rows` int64 (m,); `columns` int64 (n,); `target` float64, `allowed` bool and the result int64 (m, n).
    """
    fitted = _proportionally_fitted(rows, columns, np.where(allowed, target, 0.0))
    plan = np.floor(fitted + 1e-9).astype(np.int64)
    _trim(plan, rows)
    _trim(plan.T, columns)
    for entries in (fitted > plan + LARGE_REMAINDER, fitted > plan, allowed):
        missing_rows, missing_columns = rows - plan.sum(axis=1), columns - plan.sum(axis=0)
        if not missing_rows.any():
            return plan
        # At most one unit where rounding down removed a remainder, then any number wherever allowed.
        limit = 1 if entries is not allowed else int(missing_rows.sum())
        plan += _max_placement(missing_rows, missing_columns, entries & allowed, limit)
    if (rows - plan.sum(axis=1)).any():
        # From scratch, since the rounded plan may block the last units.
        plan = _max_placement(rows, columns, allowed, int(rows.sum()))
        return plan if plan.sum() == rows.sum() else None
    return plan


def _proportionally_fitted(rows: IntArray, columns: IntArray, target: FloatArray) -> FloatArray:
    fitted = target.copy()
    for _ in range(FITTING_ROUNDS):
        for sums, axis in ((rows, 1), (columns, 0)):
            totals = fitted.sum(axis=axis)
            factors = np.divide(sums, totals, out=np.zeros(len(sums)), where=totals > 0)
            fitted *= np.expand_dims(factors, axis)
        if np.abs(fitted.sum(axis=1) - rows).max(initial=0) < 1e-6:
            break
    return fitted


def _trim(plan: IntArray, rows: IntArray) -> None:
    """Reduce rows that exceed their sums, from the largest entries on."""
    for row in np.flatnonzero(plan.sum(axis=1) > rows):
        excess = int(plan[row].sum() - rows[row])
        for column in np.argsort(-plan[row], kind="stable"):
            part = min(excess, int(plan[row, column]))
            plan[row, column] -= part
            excess -= part


def _max_placement(rows: IntArray, columns: IntArray, entries: BoolArray, limit: int) -> IntArray:
    """Place as many units as possible in `entries`, at most `limit` in each."""
    origins, destinations = np.nonzero(entries & (rows[:, None] > 0) & (columns > 0))
    count, source = len(rows) + len(columns), len(rows) + len(columns)
    tails = np.concatenate([origins, np.full(len(rows), source), np.arange(len(rows), count)])
    heads = np.concatenate([destinations + len(rows), np.arange(len(rows)), np.full(len(columns), source + 1)])
    capacities = np.concatenate([np.full(len(origins), limit), rows, columns])
    flow = max_flow(count + 2, tails, heads, capacities, source, source + 1)
    placed = np.zeros(entries.shape, dtype=np.int64)
    placed[origins, destinations] = flow.residual[1 : 2 * len(origins) : 2]
    return placed


def rounded_flow(
    num_nodes: int, tails: IntArray, heads: IntArray, flow: FloatArray, source: int, demands: IntArray
) -> IntArray:
    """Find an integral flow that meets all demands, near a fractional one; `flow` float64 (links,), `demands` (nodes,).

    Integral capacities have integral maximum flows, so rounding an exact `flow` up leaves enough capacity.
    """
    sinks = np.flatnonzero(demands)
    all_tails = np.concatenate([tails, sinks])
    all_heads = np.concatenate([heads, np.full(len(sinks), num_nodes)])
    total = int(demands.sum())
    # Flow beyond the total demand circulates in cycles.
    rounded_up = np.ceil(np.minimum(flow, float(total))).astype(np.int64)
    for raisable in (flow > 0, np.ones(len(flow), dtype=np.bool_)):
        slack = 0
        while slack < 2 * max(total, 1):
            capacities = np.concatenate([np.minimum(rounded_up + slack * raisable, total), demands[sinks]])
            result = solve_network(flow_network(num_nodes + 1, all_tails, all_heads, capacities), source, num_nodes)
            if result.value == total:
                return result.residual[1 : 2 * len(tails) : 2].copy()
            slack = max(1, 2 * slack)
    raise SolverError(f"no flow from node {source} brings all {total} units")


MAX_SHARPNESS, SHARPNESS = 25.0, (1.5, 1.0, 0.7)
"""For the last pass of a cycle, and for the others, varying over cycles to escape local optima."""
CYCLE = 10  # passes per cycle; the first allows the most costly moves and the last none
MAX_COST_INCREASE = 0.7  # largest relative increase of the cost of a chunk by a move
MAX_CYCLES = 40
PATIENCE = 5 * CYCLE  # passes without improvement after which the search stops
STRIDES = (1, 2, 3, 5, 7, 11, 13, 17)
SEED = 20_250_611
MAX_EXPONENT = 40.0  # exponents are clipped to this absolute value


def rounded(
    paths: Paths,
    pairs: IntArray,
    amounts: IntArray,
    capacities: IntArray,
    *,
    goal: Fraction | None = None,
    effort: int = 2 * 10**8,
) -> IntArray:
    """Distribute integral chunks over the paths of each pair, with a small maximum link load, from a fixed seed.

    Shapes: `pairs` int64 (paths,); `amounts` int64 (pairs,); returns int64 (paths,).
    """
    check_capacities(sum(amounts.tolist()), int(np.bincount(pairs, paths.weights.astype(np.float64)).max(initial=0)))
    members = np.argsort(pairs, kind="stable")
    starts = np.searchsorted(pairs[members], np.arange(len(amounts) + 1))
    totals = np.zeros(len(amounts), dtype=np.int64)
    np.add.at(totals, pairs, paths.weights)
    chunks, remainders = _shares(paths, pairs, amounts, totals)
    if not remainders.any():
        return chunks
    shares = chunks + remainders / totals[pairs]
    _distribute_remainders(members, starts, amounts, remainders, chunks)
    if sum(amounts.tolist()) * int(capacities.max()) >= CAPACITY_LIMIT:
        return chunks
    used = np.flatnonzero(np.bincount(paths.links))
    patience = 0
    if goal is None:
        patience = PATIENCE
        loads = np.bincount(paths.links, np.repeat(shares, np.diff(paths.starts)), len(capacities))
        goal = Fraction(float((loads[used] / capacities[used]).max()) * (1 - 1e-9))
    loads = path_loads(paths, chunks, len(capacities))
    steps = capacities[paths.links].min() / capacities
    random = np.array([SEED], dtype=np.uint64)
    search = _Search(paths, members, starts, chunks, loads, capacities, steps, np.empty(len(loads)), random)
    return _local_search(search, _limits(goal, capacities, used), patience, effort)


class _Search(NamedTuple):
    """State of the local search."""

    paths: Paths
    members: IntArray  # int64 (paths,): the paths of each pair, one pair after the other
    starts: IntArray  # int64 (pairs + 1,): where those of each pair begin
    chunks: IntArray  # int64 (paths,)
    loads: IntArray  # int64 (links,)
    capacities: IntArray  # int64 (links,)
    steps: FloatArray  # what one chunk adds to the time of each link, relative to the slowest
    costs: FloatArray  # of one more chunk on each link
    random: RandomArray


def _shares(paths: Paths, pairs: IntArray, amounts: IntArray, totals: IntArray) -> tuple[IntArray, IntArray]:
    """Return the integral parts of the shares, and the remainders of amount times weight."""
    if int(amounts.max(initial=0)) * int(paths.weights.max(initial=0)) < 2**62:
        return np.divmod(amounts[pairs] * paths.weights, totals[pairs])
    # Python integers are slower and cannot overflow.
    products = amounts[pairs].astype(np.object_) * paths.weights.astype(np.object_)
    quotients = products // totals[pairs]
    return quotients.astype(np.int64), (products - quotients * totals[pairs]).astype(np.int64)


def _limits(goal: Fraction, capacities: IntArray, used: IntArray) -> IntArray:
    """Return the chunks that each link may carry at the least attainable load from `goal` on."""
    load = min(Fraction(math.ceil(goal * capacity), capacity) for capacity in set(capacities[used].tolist()))
    limits = {capacity: math.floor(load * capacity) for capacity in set(capacities.tolist())}
    return np.array([limits[capacity] for capacity in capacities.tolist()], dtype=np.int64)


@kernel
def _distribute_remainders(
    members: IntArray, starts: IntArray, amounts: IntArray, remainders: IntArray, chunks: IntArray
) -> None:
    """Distribute the remaining chunks of each pair by the largest remainder method."""
    for pair in range(len(amounts)):
        own = members[starts[pair] : starts[pair + 1]]
        left = amounts[pair] - chunks[own].sum()
        if left > 0:
            # Rotate the paths of a pair, so that equal remainders do not all favor the first.
            turned = np.roll(own, pair)
            for place in np.argsort(-remainders[turned], kind="mergesort")[:left]:
                chunks[turned[place]] += 1


@kernel_with(lambda search, _, __, effort: min(effort, 500 * len(search.paths.links)))
def _local_search(search: _Search, limits: IntArray, patience: int, effort: int) -> IntArray:
    """Move chunks until the goal is met and `patience` passes are idle, or the effort is spent; return the best."""
    loads, capacities, steps = search.loads, search.capacities, search.steps
    best, best_link = search.chunks.copy(), _most_loaded(loads, capacities)
    best_load = loads[best_link]
    reached, idle = (loads <= limits).all(), 0
    for turn in range(CYCLE * MAX_CYCLES):
        if effort <= 0 or (reached and idle >= patience):
            break
        idle += 1
        peak = (loads * steps).max()
        last = turn % CYCLE == CYCLE - 1
        sharpness = MAX_SHARPNESS if last else SHARPNESS[turn // CYCLE % len(SHARPNESS)]
        for link in range(len(loads)):
            search.costs[link] = _cost(loads[link], steps[link], peak, sharpness)
        # The first cycle is pure descent.
        warmth = 1 - turn % CYCLE / (CYCLE - 1) if turn >= CYCLE else 0.0
        tolerance = MAX_COST_INCREASE * (warmth * warmth)
        effort = _pass(search, peak, sharpness, tolerance, effort)
        link = _most_loaded(loads, capacities)
        if loads[link] * capacities[best_link] < best_load * capacities[link]:
            best[:], best_link, best_load, idle = search.chunks, link, loads[link], 0
            reached = reached or (loads <= limits).all()
    return best


@kernel
def _pass(search: _Search, peak: float, sharpness: float, tolerance: float, effort: int) -> int:
    """Move one chunk of each path to where it costs least, or about the same; return the remaining effort."""
    paths, members, starts, chunks, _, _, _, costs, random = search
    pairs = len(starts) - 1
    first = int(next_random(random) * pairs)
    # The order of pairs varies, with small strides for locality: pairs of one rank are close in memory.
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
            _add(search, path, -1, peak, sharpness)
            now = 0.0
            for place in range(paths.starts[path], paths.starts[path + 1]):
                now += costs[paths.links[place]]
            target, lowest = path, now * (1 - 1e-9)
            allowed = now * (1 + 1e-9 + tolerance * next_random(random))
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
                if cost < lowest:
                    target, lowest = other, cost
                elif target == path and cost <= allowed:
                    target = other
            chunks[path] -= 1
            chunks[target] += 1
            _add(search, target, 1, peak, sharpness)
    return effort


@kernel
def _add(search: _Search, path: int, chunks: int, peak: float, sharpness: float) -> None:
    """Add chunks to all links of a path."""
    paths, loads = search.paths, search.loads
    for place in range(paths.starts[path], paths.starts[path + 1]):
        link = paths.links[place]
        loads[link] += chunks
        search.costs[link] = _cost(loads[link], search.steps[link], peak, sharpness)


@kernel
def _cost(load: int, step: float, peak: float, sharpness: float) -> float:
    """Return the marginal cost of one more chunk on a link, about a difference of exponentials."""
    return step * math.exp(min(MAX_EXPONENT, max(-MAX_EXPONENT, sharpness * ((load + 1) * step - peak))))


@kernel
def next_random(state: RandomArray) -> float:
    """Return the next number in [0, 1) of a linear congruential generator. Shapes: `state` uint64 (1,)."""
    state[0] = state[0] * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
    return float(state[0] >> np.uint64(11)) / 2.0**53


@kernel
def _most_loaded(loads: IntArray, capacities: IntArray) -> int:
    most_loaded = 0
    for link in range(1, len(loads)):
        if loads[link] * capacities[most_loaded] > loads[most_loaded] * capacities[link]:
            most_loaded = link
    return most_loaded
