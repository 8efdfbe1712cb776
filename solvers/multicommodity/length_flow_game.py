"""The game between flows and lengths whose value is the rate of a concurrent flow; see `concurrent_flow`.

A *level* is some rounds in which the lengths follow the loads and the flows follow the lengths.  After it the averaged
lengths are measured, the averaged flows mixed, and the next level starts from these lengths.

Demands and links as the kernels of the concurrent flow take them: whole numbers whose sums fit 64 bits.

The best mixture of some flows: a small linear program over their loads.

A flow of every commodity may be replaced by a mixture of such flows, whose loads mix likewise.  So with loads c(k, e)
of flow k on link e, over capacity, the best mixture is

    minimise z  subject to  sum over k of x(k) c(k, e) <= z  for each link e,  sum of x(k) = 1,  x >= 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import BoundError, CapacityOverflowError
from ...support import progress
from ...support.arrays import BoolArray, FloatArray, IntArray
from ...topologies.graphs.orbits import LinkOrbits
from ..highs.options import Algorithm, HighsOptions
from ..highs.session import solve
from ..highs.solution import PrimalStatus
from ..lp.program import Labels
from .soft_shortest_paths import Adjacent, adjacent, distance_sums, soft_loads, start_orders

__all__ = [
    "MOST_SUMMED",
    "UNITS",
    "FlowGame",
    "Instance",
    "MixedFlow",
    "Steps",
    "best_mixture",
    "instance",
    "scaled_needs",
]


LONGEST, LEAST_LONGEST = 2**26, 2**10
"""The greatest length, and what it may come down to where demands are so large that sums would leave 64 bits."""
SUM_LIMIT = 2**62
UNITS = 2**40
"""Units of flow of one round, all demands together."""
LOAD_BITS = 61
MOST_SUMMED = 64
"""Rounds whose loads may be added up."""


class Instance(NamedTuple):
    """A problem as the kernels take it.

    `capacities` (int64 (links,)).
    `class_capacities` (int64 (classes,)): Sums over the links of a kind.
    `demands`, `needs` (int64 (sources, ranks)): Of one source of each kind, as given and in units of flow.
    `amount`: Units of flow that a demand of 1 gets.
    `longest`: The greatest length.
    """

    links: Adjacent
    capacities: IntArray
    alike: LinkOrbits
    class_capacities: IntArray
    demands: IntArray
    needs: IntArray
    amount: Fraction
    longest: int


def instance(
    num_nodes: int, tails: IntArray, heads: IntArray, capacities: IntArray, demands: IntArray, alike: LinkOrbits
) -> Instance:
    """Scale a problem."""
    class_capacities = np.zeros(len(alike.sizes), dtype=np.int64)
    np.add.at(class_capacities, alike.classes, capacities)
    rows = _rows(demands, alike.sources)
    most = max(_total(rows[row : row + 1]) for row in range(len(rows)))
    longest = min(LONGEST, (SUM_LIMIT - 1) // (most * num_nodes))
    if longest < LEAST_LONGEST:
        raise CapacityOverflowError(
            f"the demands of one rank add up to {most}, which times path lengths overflows int64; "
            "state them in larger units"
        )
    needs, amount = scaled_needs(demands, alike.sources, num_nodes)
    return Instance(
        adjacent(num_nodes, tails, heads), capacities.copy(), alike, class_capacities, rows, needs, amount, longest
    )


def scaled_needs(demands: IntArray, sources: IntArray, num_nodes: int) -> tuple[IntArray, Fraction]:
    """Give demands in units of flow, rounded up, and how many units a demand of 1 gets at least: a power of 2.

    All demands together are less than `UNITS` units, or less still where `MOST_SUMMED` times the number of nodes
    times all of them would leave 64 bits.
    """
    limit = min(UNITS.bit_length() - 1, LOAD_BITS - (MOST_SUMMED * num_nodes).bit_length())
    shift = limit - (_total(demands) - _total(np.diagonal(demands))).bit_length()
    rows = _rows(demands, sources)
    if shift >= 0:
        return rows << shift, Fraction(1 << shift)
    return -(-rows >> -shift), Fraction(1, 1 << -shift)


def _rows(demands: IntArray, sources: IntArray) -> IntArray:
    rows = demands[sources]
    rows[np.arange(len(sources)), sources] = 0
    return np.ascontiguousarray(rows)


def _total(demands: IntArray) -> int:
    """Add up without leaving 64 bits."""
    return (int((demands >> 31).sum()) << 31) + int((demands & (2**31 - 1)).sum())


LengthArray = npt.NDArray[np.int32]

SHARES = 2**21
"""Rounds that a mixture counts, repeated ones too: times `instance.UNITS` this fits 64 bits."""

FIRST_ROUNDS, MORE_ROUNDS = 48, 1.4
FIRST_PACE, SLOWER = 0.25, 0.7
FIRST_SHARPNESS, SHARPER, SHARPEST = 20.0, 2, 2.0**20
BLOCKS = 16
"""Averaged flows of one level."""
MOST_ROUNDS = BLOCKS * MOST_SUMMED
MOST_BLOCKS = 60
"""Averaged flows in the linear program."""
LEAST_SHARE = 1e-30
"""Of a kind of links, at the start of a level."""


class Steps(NamedTuple):
    """Rounds whose flows, mixed, are the flow that was found; see `source_flows`.

    `classes` (int64 (links,)): The column of `lengths` of each link.
    `lengths` (int32 (steps, classes)).
    `sharpness` (float64 (steps,)).
    `weights` (int64 (steps,)): How often the flow of each step counts.
    """

    classes: IntArray
    lengths: npt.NDArray[np.int32]
    sharpness: FloatArray
    weights: IntArray


class MixedFlow(NamedTuple):
    """A flow of all demands.

    `rate`: The least ``capacity * amount / load`` of a link.
    `loads` (int64 (links,)): Rounded up.
    `amount`: What a demand of 1 gets.
    `steps`: What it is made of.
    """

    rate: Fraction
    loads: IntArray
    amount: Fraction
    steps: Steps


@dataclass
class _Block:
    """Some rounds in a row: the sum of their loads, and how to have their flows again."""

    loads: IntArray
    lengths: list[LengthArray] = field(default_factory=list)
    sharpness: list[float] = field(default_factory=list)

    def add(self, loads: IntArray, lengths: IntArray, sharpness: float) -> None:
        self.loads += loads
        self.lengths.append(lengths.astype(np.int32))
        self.sharpness.append(sharpness)


class FlowGame:
    """The state between levels.

    `upper`: The best bound of the rate so far.
    `best_lengths` (int64 (classes,)): The lengths that prove it.
    """

    def __init__(self, given: Instance, most_rounds: int) -> None:
        self._given, self.rounds_left = given, most_rounds
        self._orders = start_orders(given.alike.sources, len(given.links.out_starts) - 1)
        # At first all links have equal shares: lengths are inverse to capacities.
        self._centre = given.alike.sizes / given.alike.sizes.sum()
        self._rounds, self._pace, self._hardness = FIRST_ROUNDS, FIRST_PACE, FIRST_SHARPNESS
        self._blocks: list[_Block] = []
        self.best_lengths = self._lengths(self._centre)
        self.upper = self._bound(self.best_lengths)
        self._scale = float(self._congestion(self._loads(self.best_lengths, self._sharpness(self.best_lengths))).max())

    def level(self) -> MixedFlow:
        """Play some rounds, average both sides, and measure the lengths."""
        late, middle = self._play()
        # Of a few averages, now one proves more and now another; the late one is the best to go on from.
        self._centre = np.maximum(late, LEAST_SHARE)
        for shares in (self._centre, middle):
            lengths = self._lengths(shares)
            if (bound := self._bound(lengths)) < self.upper:
                self.best_lengths, self.upper = lengths, bound
        self.rounds_left -= self._rounds
        self._rounds = min(int(self._rounds * MORE_ROUNDS), MOST_ROUNDS)
        self._pace, self._hardness = self._pace * SLOWER, min(self._hardness * SHARPER, SHARPEST)
        return self._mixed()

    def _play(self) -> tuple[FloatArray, FloatArray]:
        """Let lengths follow loads and flows follow lengths; return averages of the shares.

        The share of a kind of links is length times capacity, with sum 1.  The first average is that of the second half
        of the rounds, the other the geometric mean of all.
        """
        total, last, middle, late = (np.zeros(len(self._centre)) for _ in range(4))
        start, size = np.log(self._centre), -(-self._rounds // BLOCKS)
        for number in progress.iterate(range(self._rounds), self._rounds):
            exponents = start + self._pace * (total + last)
            shares = _normal(exponents)
            middle += exponents
            if 2 * number >= self._rounds:
                late += shares
            lengths = self._lengths(shares)
            sharpness = self._sharpness(lengths)
            loads = self._loads(lengths, sharpness)
            last = self._congestion(loads) / self._scale
            total += last
            if number % size == 0:
                self._blocks.append(_Block(np.zeros_like(loads)))
            self._blocks[-1].add(loads, lengths, sharpness)
        return late / late.sum(), _normal(middle / self._rounds)

    def _mixed(self) -> MixedFlow:
        """Mix the averaged flows, forget those of no use, and set the scale of congestion for the next level."""
        given, blocks = self._given, self._blocks
        rounds = np.array([len(block.sharpness) for block in blocks])
        congestion = np.array([self._congestion(block.loads) for block in blocks]) / rounds[:, None]
        shares = best_mixture(congestion / self._scale)
        weights = (shares / rounds * SHARES).astype(np.int64)
        # Whole numbers of any size: sums over a kind of links may leave 64 bits where a single link does not.
        sums = sum((block.loads.astype(object) * int(weight) for block, weight in zip(blocks, weights, strict=True)), 0)
        loads = (-(-sums // given.alike.sizes)).astype(np.int64)[given.alike.classes]
        used = np.flatnonzero(weights)
        steps = Steps(
            given.alike.classes,
            np.array([lengths for number in used for lengths in blocks[number].lengths]),
            np.array([sharpness for number in used for sharpness in blocks[number].sharpness]),
            np.repeat(weights, rounds * (weights > 0)),
        )
        amount = given.amount * int(weights @ rounds)
        used_links = np.flatnonzero(loads)
        rate = min(Fraction(int(given.capacities[link]), int(loads[link])) for link in used_links) * amount
        self._scale = float(given.amount / rate)
        keep = np.sort(np.argsort(-shares, kind="stable")[: MOST_BLOCKS - BLOCKS])
        self._blocks = [blocks[number] for number in keep]
        return MixedFlow(rate, loads, amount, steps)

    def _lengths(self, shares: FloatArray) -> IntArray:
        lengths = shares / self._given.class_capacities
        whole = np.rint(lengths * (self._given.longest / lengths.max())).astype(np.int64)
        return np.asarray(np.maximum(whole, 1))

    def _sharpness(self, lengths: IntArray) -> float:
        """Relative to the mean length of a unit of capacity; 8 is the power in `soft_flows`."""
        capacities = self._given.class_capacities
        return self._hardness / 8 * float(capacities.sum()) / float(lengths @ capacities.astype(np.float64))

    def _loads(self, lengths: IntArray, sharpness: float) -> IntArray:
        """Answer lengths with a flow; its loads are added up by kinds of links."""
        given, alike = self._given, self._given.alike
        long = lengths[alike.classes]
        loads = soft_loads(
            alike.sources, alike.counts, given.links, given.capacities, long, sharpness, self._orders, given.needs
        )
        sums = np.zeros_like(alike.sizes)
        np.add.at(sums, alike.classes, loads)
        return sums

    def _congestion(self, loads: IntArray) -> FloatArray:
        return np.asarray(loads / self._given.class_capacities)

    def _bound(self, lengths: IntArray) -> Fraction:
        given = self._given
        sums = distance_sums(
            given.alike.sources, given.links, lengths[given.alike.classes], self._orders, given.demands
        )
        if (sums < 0).any():
            source = int(given.alike.sources[sums.argmin()])
            raise BoundError(
                f"rank {source} cannot reach a rank for which it has data; "
                "add links until every rank reaches all others"
            )
        volume = sum(map(int.__mul__, lengths.tolist(), given.class_capacities.tolist()))
        return Fraction(volume, sum(map(int.__mul__, sums.tolist(), given.alike.counts.tolist())))


def _normal(exponents: FloatArray) -> FloatArray:
    """Powers of e, to the sum 1."""
    powers = np.exp(exponents - exponents.max())
    return np.asarray(powers / powers.sum())


NEGLIGIBLE = 1e-7
"""Loads below this are left out: the solver does not take numbers of very different sizes."""


@dataclass(frozen=True)
class _Program:
    """A `collopt.solvers.lp.program.LinearProgram` of few columns, that is its own model."""

    costs: FloatArray
    matrix: Any
    row_bounds: tuple[FloatArray, FloatArray]
    column_bounds: tuple[FloatArray, FloatArray]
    whole: BoolArray
    name: str = "mixture of flows"
    maximize: bool = False
    offset: float = 0.0
    variables: Mapping[str, Labels] = field(default_factory=dict)
    constraints: Mapping[str, Labels] = field(default_factory=dict)

    def linear_program(self) -> _Program:
        """Return itself."""
        return self


def best_mixture(loads: FloatArray) -> FloatArray:
    """Find the shares of some flows whose greatest load is least.

    Shapes: `loads` float64 (flows, links); returns float64 (flows,).

    >>> import numpy as np
    >>> best_mixture(np.array([[1.0, 0.0], [0.0, 3.0]])).round(6)
    array([0.75, 0.25])
    """
    from scipy.sparse import csc_array

    flows, links = loads.shape
    matrix = np.zeros((links + 1, flows + 1))
    matrix[:links, :flows], matrix[:links, flows], matrix[links, :flows] = loads.T, -1, 1
    matrix[np.abs(matrix) < NEGLIGIBLE] = 0
    limits = np.append(np.zeros(links), 1.0)
    program = _Program(
        np.append(np.zeros(flows), 1.0),
        csc_array(matrix),
        (np.append(np.full(links, -np.inf), 1.0), limits),
        (np.zeros(flows + 1), np.full(flows + 1, np.inf)),
        np.zeros(flows + 1, dtype=np.bool_),
    )
    solution = solve(program, HighsOptions(algorithm=Algorithm.SIMPLEX))
    shares = np.ones(flows)
    if solution.status.primal is PrimalStatus.FEASIBLE:
        found = np.maximum(solution.evidence.values[:flows], 0.0)
        shares = found if found.any() else shares
    return np.asarray(shares / shares.sum())
