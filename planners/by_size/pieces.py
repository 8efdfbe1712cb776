"""Exchanges along several digits in uneven pieces: what a step brings is passed on beside the next piece.

The shares of the pieces are the optimum of the linear program `collopt.formulations.piece_shares`, rounded to the
fewest chunks that lose next to nothing.
"""

from collections.abc import Iterator
from functools import cached_property
from math import prod

import numpy as np

from ...formulations.piece_shares import HopKind, build
from ...schedules import StepSchedule
from ...solvers import solve
from ...support.arrays import BoolArray, FloatArray, IntArray
from .digits import Digits, LastHops
from .exchanges import Routing, exchange
from .move_loads import MoveLoads

CHUNKS_TRIED = (*range(2, 65), *(1 << power for power in range(7, 13)))
ROUNDING_LOSS = 2e-3
LEAST_GAIN = 1e-2  # of one more step
MOST_STEPS = 8
MOST_LEVELS = 3
MOST_LINKS = 256  # that are compared with each other


class Pieces:
    """The hops along digits by kind, which are combinations of levels, and what they load.

    Parameters
    ----------
    digits : Digits
        Whose levels have one step each.
    routing : Routing
        Of the network.
    moves : MoveLoads
        What the moves of the digits put on links.
    """

    def __init__(self, digits: Digits, routing: Routing, moves: MoveLoads) -> None:
        self.digits, self.routing, self._moves = digits, routing, moves
        self._shares: dict[int, FloatArray] = {}

    @cached_property
    def kinds(self) -> IntArray:
        """The kind of each last hop, int64 (pairs,): fewer levels first, so that each comes after the one before it."""
        return self._order[self._masks]

    @cached_property
    def _masks(self) -> IntArray:
        """Bit i says whether source and receiver differ on level i, int64 (pairs,)."""
        hops = self.digits.last_hops
        masks = np.zeros(len(hops.sources), dtype=np.int64)
        for number, level in enumerate(self.digits.levels):
            masks |= (level.digits[hops.sources] != level.digits[hops.receivers]).astype(np.int64) << number
        return masks

    @cached_property
    def _order(self) -> IntArray:
        """Number of the kind of each mask, int64 (masks,); -1 of the empty one."""
        masks = sorted(range(1 << len(self.digits.levels)), key=lambda mask: (mask.bit_count(), mask))
        order = np.empty(len(masks), dtype=np.int64)
        order[masks] = np.arange(len(masks)) - 1
        return order

    @cached_property
    def before(self) -> list[int]:
        """The kind that hops of each kind go on from: that of one level less; -1 for the source."""
        masks = np.argsort(self._order)[1:].tolist()
        return [int(self._order[mask ^ 1 << mask.bit_length() - 1]) for mask in masks]

    @cached_property
    def loads(self) -> tuple[IntArray, IntArray]:
        """Shards on each link by kind, int64 (kinds, links), and capacities, of links that are not always less busy."""
        topology = self.routing.problem.topology
        loads = self.shards @ self._moves.loads
        columns = np.unique(np.vstack([loads, topology.arrays.capacities]), axis=1)
        columns = columns[:, columns[:-1].any(axis=0)]
        if columns.shape[1] <= MOST_LINKS:
            columns = columns[:, ~_dominated(columns[:-1] / columns[-1])]
        return columns[:-1], columns[-1]

    @cached_property
    def shards(self) -> IntArray:
        """Shards that hops of each kind carry in each move, int64 (kinds, moves)."""
        masks = np.argsort(self._order)[1:]
        levels = self.digits.levels
        carried_shards = np.zeros((len(masks), len(self.digits.moves)), dtype=np.int64)
        for kind, mask in enumerate(masks.tolist()):
            last = mask.bit_length() - 1
            before = prod(level.size - 1 for place, level in enumerate(levels[:last]) if mask >> place & 1)
            carried_shards[kind, [move.level == last for move in self.digits.moves]] = before
        return carried_shards

    @property
    def limit(self) -> float:
        """Time of the busiest link, all steps together."""
        loads, capacities = self.loads
        return float((loads.sum(axis=0) / capacities).max())

    def time(self, shares: FloatArray) -> float:
        """Time of all steps with shares of the kinds, float (kinds, steps)."""
        loads, capacities = self.loads
        return float((loads.T @ shares / capacities[:, None]).max(axis=0).sum())

    def shares(self, steps: int) -> FloatArray:
        """Return the best shares of the kinds in each step, float (kinds, steps)."""
        if steps in self._shares:
            return self._shares[steps]
        loads, capacities = self.loads
        kinds = [HopKind(row, None if before < 0 else before) for row, before in zip(loads, self.before, strict=True)]
        # The least capacity is one, so that the solver's tolerances fit.
        values = solve(build(kinds, capacities / capacities.min(), steps)).values["share"]
        self._shares[steps] = np.maximum(values, 0)
        return self._shares[steps]

    def useful_steps(self) -> Iterator[int]:
        """Yield numbers of steps, more than there are levels, each of which gains something over fewer."""
        first = len(self.digits.levels)
        if first > MOST_LEVELS:
            return
        best = self.time(self.shares(first))
        for steps in range(first + 1, MOST_STEPS + 1):
            if best <= self.limit * (1 + LEAST_GAIN):
                break
            time = self.time(self.shares(steps))
            if time * (1 + LEAST_GAIN) < best:
                best = time
                yield steps

    def schedule(self, steps: int) -> StepSchedule:
        """Build the schedule in whole chunks."""
        chunks, ends = self._rounded(self.shares(steps))
        hops, parts = self.digits.last_hops, np.diff(ends, axis=1)
        hops_of_steps = [np.flatnonzero(parts[self.kinds, step]) for step in range(steps)]
        numbers, step = np.concatenate(hops_of_steps), np.repeat(np.arange(steps), list(map(len, hops_of_steps)))
        kinds = self.kinds[numbers]
        picked = LastHops(*(column[numbers] for column in hops))
        return exchange(picked, self.routing, chunks, step, ends[kinds, step], ends[kinds, step + 1])

    def _rounded(self, shares: FloatArray) -> tuple[int, IntArray]:
        """Round shares to chunks, and say where pieces end, int64 (kinds, steps + 1); the first column is 0."""
        exact_time = self.time(shares)
        best: tuple[float, int, IntArray] | None = None
        for chunks in CHUNKS_TRIED:
            ends = self._whole_ends(shares, chunks)
            time = self.time(np.diff(ends, axis=1) / chunks)
            if best is None or time < best[0]:
                best = time, chunks, ends
            if time <= exact_time * (1 + ROUNDING_LOSS):
                break
        assert best
        return best[1:]

    def _whole_ends(self, shares: FloatArray, chunks: int) -> IntArray:
        """Round the sums of shares; no kind may get ahead of the one before it."""
        ends = np.zeros((len(shares), shares.shape[1] + 1), dtype=np.int64)
        ends[:, 1:] = np.rint(shares.cumsum(axis=1) * chunks)
        ends[:, -1] = chunks
        for kind, before in enumerate(self.before):
            if before >= 0:
                ends[kind, 1:] = np.minimum(ends[kind, 1:], ends[before, :-1])
        return ends


def _dominated(times: FloatArray) -> BoolArray:
    """Whether each link, a column of times by kind, is never busier than another one, bool (links,)."""
    less = (times[:, :, None] <= times[:, None, :]).all(axis=0)
    order = np.arange(times.shape[1])
    ties = less & less.T & (order[:, None] < order)  # of equal ones the last stays
    return np.asarray((less & ~less.T | ties).any(axis=1))
