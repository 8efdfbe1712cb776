"""Maximum concurrent flow by optimistic multiplicative weights, and exact bounds on its rate from approximate answers.

A flow of all demands with load(e) <= z c(e) has rate 1 / z; any dual lengths bound the rate by the sum of l(e) c(e)
over that of demand times distance.  Everything claimed is computed in integers.  Sources:
docs/explanation/algorithms.md.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import BoundError, CapacityOverflowError, SolverError, UnsupportedError
from ...support import progress
from ...support.arrays import FloatArray, IntArray
from ...support.linear_program import LinearProgram
from ...topologies.symmetry.isomorphism import LinkOrbits, link_orbits, trivial_link_orbits
from ..lp.options import Algorithm, HighsOptions
from ..lp.session import solve
from ..lp.solution import PrimalStatus
from .max_flow import check_capacities
from .shortest_paths import Adjacency, OrderArray, adjacency, distance_sums, initial_orders, soft_loads

AnyIntegers = npt.NDArray[np.int64 | np.object_]

UNIT_BITS = 44  # of the flow that serves the largest demand
MAX_LENGTH, MIN_MAX_LENGTH = 2**30, 2**10
"""The largest length, and its lower limit where large demands would make sums overflow 64 bits."""
SUM_LIMIT = 2**62


def rate_certificate(
    num_nodes: int,
    tails: IntArray,
    heads: IntArray,
    capacities: IntArray,
    demands: IntArray,
    orbits: LinkOrbits,
    flows: FloatArray,
    rate: float,
    duals: FloatArray,
) -> tuple[Fraction, Fraction]:
    """Bound a rate from below by `flows` float64 (sources, links), from above by link `duals` float64 (classes,)."""
    if not 0 < rate < np.inf or not np.isfinite(flows).all() or not (duals > 0).any() or not np.isfinite(duals).all():
        raise SolverError(f"the rate is {rate}, dual values sum to {duals.sum()}; expected finite numbers above 0")
    rows = demand_rows(demands, orbits.sources)
    class_capacities = np.zeros(len(orbits.sizes), dtype=np.object_)
    np.add.at(class_capacities, orbits.classes, capacities.astype(np.object_))
    shares = np.maximum(duals, 0.0) / orbits.sizes
    lengths = np.rint(shares * (longest_length(rows, num_nodes, MAX_LENGTH) / shares.max())).astype(np.int64)
    orders = initial_orders(orbits.sources, num_nodes)
    upper = dual_bound(adjacency(num_nodes, tails, heads), orbits, class_capacities, rows, lengths, orders)
    longest = max(map(exact_sum, rows)) * num_nodes
    amount = 2 ** max(
        0, min(UNIT_BITS - int(rows.max()).bit_length(), SUM_LIMIT.bit_length() - longest.bit_length() - 2)
    )
    units = np.floor(np.maximum(flows, 0.0) * (amount / rate))
    if units.sum(axis=1).max() > SUM_LIMIT:
        raise SolverError(f"flows are up to {flows.max()}, the rate is {rate}; expected no source to send much more")
    integers = units.astype(np.int64)
    sums = np.zeros(len(orbits.sizes), dtype=np.object_)
    for flow, row, source, count in zip(integers, rows, orbits.sources.tolist(), orbits.counts.tolist(), strict=True):
        _repair(num_nodes, tails, heads, source, row * amount, flow)
        np.add.at(sums, orbits.classes, flow.astype(np.object_) * count)
    lower = min(
        Fraction(capacity * amount, load)
        for capacity, load in zip(class_capacities.tolist(), sums.tolist(), strict=True)
        if load
    )
    return lower, upper


def demand_rows(demands: IntArray, sources: IntArray) -> IntArray:
    """Demands of some ranks for others, int64 (sources, ranks)."""
    rows = demands[sources]
    rows[np.arange(len(sources)), sources] = 0
    return np.ascontiguousarray(rows)


def exact_sum(demands: IntArray) -> int:
    """Sum without overflowing 64 bits."""
    return (int((demands >> 31).sum()) << 31) + int((demands & (2**31 - 1)).sum())


def longest_length(rows: IntArray, num_nodes: int, limit: int) -> int:
    """Return the largest length, `limit` or less, with which demands times distances fit 64 bits."""
    largest = max(map(exact_sum, rows))
    if (length := min(limit, (SUM_LIMIT - 1) // (largest * num_nodes))) < MIN_MAX_LENGTH:
        raise CapacityOverflowError(
            f"the demands of one rank add up to {largest}, which times path lengths overflows int64; "
            "state them in larger units"
        )
    return length


def dual_bound(
    links: Adjacency, orbits: LinkOrbits, capacities: AnyIntegers, rows: IntArray, lengths: IntArray, orders: OrderArray
) -> Fraction:
    """Bound the rate by the sum of length times capacity over the sum of demand times distance.

    Shapes: `capacities` of all links of an orbit, and `lengths` of each, (classes,); `rows` int64 (sources, ranks);
    `orders` as for `distance_sums`.
    """
    sums = distance_sums(orbits.sources, links, lengths[orbits.classes], orders, rows)
    if (sums < 0).any():
        raise BoundError(
            f"rank {int(orbits.sources[sums.argmin()])} cannot reach a rank for which it has data; "
            "add links until every rank reaches all others"
        )
    return Fraction(
        sum(map(int.__mul__, lengths.tolist(), capacities.tolist())),
        sum(map(int.__mul__, sums.tolist(), orbits.counts.tolist())),
    )


def _repair(num_nodes: int, tails: IntArray, heads: IntArray, source: int, needs: IntArray, flow: IntArray) -> None:
    """Send each deficit along a tree of fewest hops, in `flow` int64 (links,); `needs` is int64 (ranks,)."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order

    network = csr_array((np.ones(len(tails)), (tails, heads)), shape=(num_nodes, num_nodes))
    order, before = breadth_first_order(network, source)
    reached = np.zeros(num_nodes, dtype=np.bool_)
    reached[order] = True
    flow[~reached[tails]] = 0
    deficit = np.zeros(num_nodes, dtype=np.int64)
    deficit[: len(needs)] = needs
    np.add.at(deficit, tails, flow)
    np.subtract.at(deficit, heads, flow)
    keys = tails * num_nodes + heads
    link_order = np.argsort(keys)
    tree_links = link_order[np.searchsorted(keys[link_order], before[order[1:]] * num_nodes + order[1:])]
    for node, link in zip(order[:0:-1].tolist(), tree_links[::-1].tolist(), strict=True):
        if deficit[node] > 0:
            flow[link] += deficit[node]
            deficit[before[node]] += deficit[node]


ROUND_LENGTH = 2**26
UNITS = 2**40  # units of flow per round, over all demands
LOAD_BITS = 61
MAX_ROUNDS_SUMMED = 64  # rounds whose loads may be summed


def scaled_demands(demands: IntArray, sources: IntArray, num_nodes: int) -> tuple[IntArray, Fraction]:
    """Convert demands to units of flow, rounded up, and return the units per unit of demand, a power of 2."""
    limit = min(UNITS.bit_length() - 1, LOAD_BITS - (MAX_ROUNDS_SUMMED * num_nodes).bit_length())
    shift = limit - (exact_sum(demands) - exact_sum(np.diagonal(demands))).bit_length()
    rows = demand_rows(demands, sources)
    if shift >= 0:
        return rows << shift, Fraction(1 << shift)
    return -(-rows >> -shift), Fraction(1, 1 << -shift)


LengthArray = npt.NDArray[np.int32]

SHARES = 2**21  # total weight of the rounds of a mixture; times `UNITS` it fits 64 bits
FIRST_ROUNDS, ROUNDS_GROWTH = 48, 1.4
FIRST_STEP_SIZE, STEP_SIZE_DECAY = 0.25, 0.7
FIRST_SHARPNESS, SHARPNESS_GROWTH, MAX_SHARPNESS = 20.0, 2, 2.0**20
BLOCKS = 16  # averaged flows per phase
MAX_ROUNDS = BLOCKS * MAX_ROUNDS_SUMMED
MAX_BLOCKS = 60  # averaged flows in the linear program
MIN_SHARE = 1e-30  # least share of an orbit of links at the start of a phase


class Steps(NamedTuple):
    """Rounds whose weighted flows give the final flow; see `source_flows`."""

    classes: IntArray  # int64 (links,): the column of `lengths` of each link
    lengths: npt.NDArray[np.int32]  # int32 (steps, classes)
    sharpness: FloatArray  # float64 (steps,)
    weights: IntArray  # int64 (steps,): multiplicity of the flow of each round


class MixedFlow(NamedTuple):
    """A flow of all demands."""

    rate: Fraction  # the least ``capacity * amount / load`` of a link
    loads: IntArray  # int64 (links,): rounded up
    amount: Fraction  # units of flow per unit of demand
    steps: Steps  # the rounds that it is mixed from


@dataclass
class _Block:
    """Consecutive rounds: the sum of their loads, and what reproduces their flows."""

    loads: IntArray
    lengths: list[LengthArray] = field(default_factory=list)
    sharpness: list[float] = field(default_factory=list)

    def add(self, loads: IntArray, lengths: IntArray, sharpness: float) -> None:
        self.loads += loads
        self.lengths.append(lengths.astype(np.int32))
        self.sharpness.append(sharpness)


class MultiplicativeWeights:
    """State between phases: the best upper bound of the rate so far, and lengths that prove it, (classes,)."""

    def __init__(
        self, network: tuple[int, IntArray, IntArray, IntArray], demands: IntArray, orbits: LinkOrbits, max_rounds: int
    ) -> None:
        num_nodes, tails, heads, self._capacities = network
        self._links, self._orbits, self.rounds_left = adjacency(num_nodes, tails, heads), orbits, max_rounds
        self._class_capacities = np.zeros(len(orbits.sizes), dtype=np.int64)
        np.add.at(self._class_capacities, orbits.classes, self._capacities)
        # Of one source per orbit: demands, also in units of flow, which are so many per unit of demand.
        self._demands = demand_rows(demands, orbits.sources)
        self._units, self._amount = scaled_demands(demands, orbits.sources, num_nodes)
        self._max_length = longest_length(self._demands, num_nodes, ROUND_LENGTH)
        self._orders = initial_orders(orbits.sources, num_nodes)
        # All links start with equal shares: lengths are inverse to capacities.
        self._center = orbits.sizes / orbits.sizes.sum()
        self._rounds, self._step_size, self._relative_sharpness = FIRST_ROUNDS, FIRST_STEP_SIZE, FIRST_SHARPNESS
        self._blocks: list[_Block] = []
        self.best_lengths = self._lengths(self._center)
        self.upper = self._bound(self.best_lengths)
        self._scale = float(self._congestion(self._loads(self.best_lengths, self._sharpness(self.best_lengths))).max())

    def phase(self) -> MixedFlow:
        """Run some rounds, average both players, and compute the bound of the averaged lengths."""
        second_half, log_mean = self._run_rounds()
        # Either average may prove more; the next phase starts best from that of the second half.
        self._center = np.maximum(second_half, MIN_SHARE)
        for shares in (self._center, log_mean):
            lengths = self._lengths(shares)
            if (bound := self._bound(lengths)) < self.upper:
                self.best_lengths, self.upper = lengths, bound
        self.rounds_left -= self._rounds
        self._rounds = min(int(self._rounds * ROUNDS_GROWTH), MAX_ROUNDS)
        self._step_size *= STEP_SIZE_DECAY
        self._relative_sharpness = min(self._relative_sharpness * SHARPNESS_GROWTH, MAX_SHARPNESS)
        return self._mixture()

    def _run_rounds(self) -> tuple[FloatArray, FloatArray]:
        """Let lengths follow loads and flows follow lengths; return the shares of late rounds, and of all."""
        total, last, log_mean, second_half = (np.zeros(len(self._center)) for _ in range(4))
        start, size = np.log(self._center), -(-self._rounds // BLOCKS)
        for number in progress.iterate(range(self._rounds), self._rounds):
            exponents = start + self._step_size * (total + last)
            shares = _softmax(exponents)
            log_mean += exponents
            if 2 * number >= self._rounds:
                second_half += shares
            lengths = self._lengths(shares)
            sharpness = self._sharpness(lengths)
            loads = self._loads(lengths, sharpness)
            last = self._congestion(loads) / self._scale
            total += last
            if number % size == 0:
                self._blocks.append(_Block(np.zeros_like(loads)))
            self._blocks[-1].add(loads, lengths, sharpness)
        return second_half / second_half.sum(), _softmax(log_mean / self._rounds)

    def _mixture(self) -> MixedFlow:
        """Mix the averaged flows, drop those without use, and set the scale of congestion for the next phase."""
        blocks = self._blocks
        rounds = np.array([len(block.sharpness) for block in blocks])
        congestion = np.array([self._congestion(block.loads) for block in blocks]) / rounds[:, None]
        shares = best_mixture(congestion / self._scale)
        weights = (shares / rounds * SHARES).astype(np.int64)
        # Python integers: the sum over an orbit may overflow 64 bits where a single link does not.
        sums = sum((block.loads.astype(object) * int(weight) for block, weight in zip(blocks, weights, strict=True)), 0)
        loads = (-(-sums // self._orbits.sizes)).astype(np.int64)[self._orbits.classes]
        used = np.flatnonzero(weights)
        steps = Steps(
            self._orbits.classes,
            np.array([lengths for number in used for lengths in blocks[number].lengths]),
            np.array([sharpness for number in used for sharpness in blocks[number].sharpness]),
            np.repeat(weights, rounds * (weights > 0)),
        )
        amount = self._amount * int(weights @ rounds)
        used_links = np.flatnonzero(loads)
        rate = min(Fraction(int(self._capacities[link]), int(loads[link])) for link in used_links) * amount
        self._scale = float(self._amount / rate)
        keep = np.sort(np.argsort(-shares, kind="stable")[: MAX_BLOCKS - BLOCKS])
        self._blocks = [blocks[number] for number in keep]
        return MixedFlow(rate, loads, amount, steps)

    def _lengths(self, shares: FloatArray) -> IntArray:
        lengths = shares / self._class_capacities
        integers = np.rint(lengths * (self._max_length / lengths.max())).astype(np.int64)
        return np.asarray(np.maximum(integers, 1))

    def _sharpness(self, lengths: IntArray) -> float:
        """Scale the sharpness to the mean length per unit of capacity; 8 is the power in `soft_loads`."""
        capacities = self._class_capacities
        return self._relative_sharpness / 8 * float(capacities.sum()) / float(lengths @ capacities.astype(np.float64))

    def _loads(self, lengths: IntArray, sharpness: float) -> IntArray:
        """Route all demands under given lengths; return the loads, summed per orbit of links."""
        orbits = self._orbits
        rows, links, capacities = (orbits.sources, orbits.counts), self._links, self._capacities
        lengths = lengths[orbits.classes]
        loads = soft_loads(*rows, links, capacities, lengths, sharpness, self._orders, self._units)
        sums = np.zeros_like(orbits.sizes)
        np.add.at(sums, orbits.classes, loads)
        return sums

    def _congestion(self, loads: IntArray) -> FloatArray:
        return np.asarray(loads / self._class_capacities)

    def _bound(self, lengths: IntArray) -> Fraction:
        return dual_bound(self._links, self._orbits, self._class_capacities, self._demands, lengths, self._orders)


def _softmax(exponents: FloatArray) -> FloatArray:
    """Return the exponentials, normalized to sum 1."""
    powers = np.exp(exponents - exponents.max())
    return np.asarray(powers / powers.sum())


NEGLIGIBLE = 1e-7  # smaller loads are dropped, since the solver does not accept very different magnitudes


def best_mixture(loads: FloatArray) -> FloatArray:
    """Find the mixture, float64 (flows,), of `loads` float64 (flows, links) that minimizes the maximum load."""
    from scipy.sparse import csc_array

    flows, links = loads.shape
    matrix = np.zeros((links + 1, flows + 1))
    matrix[:links, :flows], matrix[:links, flows], matrix[links, :flows] = loads.T, -1, 1
    matrix[np.abs(matrix) < NEGLIGIBLE] = 0
    limits = np.append(np.zeros(links), 1.0)
    program = LinearProgram(
        name="mixture of flows",
        maximize=False,
        costs=np.append(np.zeros(flows), 1.0),
        offset=0.0,
        matrix=csc_array(matrix),
        row_bounds=(np.append(np.full(links, -np.inf), 1.0), limits),
        column_bounds=(np.zeros(flows + 1), np.full(flows + 1, np.inf)),
        integral=np.zeros(flows + 1, dtype=np.bool_),
        variables={},
        constraints={},
    )
    solution = solve(program, HighsOptions(algorithm=Algorithm.SIMPLEX))
    shares = np.ones(flows)
    if solution.status.primal is PrimalStatus.FEASIBLE:
        mixture = np.maximum(solution.evidence.values[:flows], 0.0)
        shares = mixture if mixture.any() else shares
    return np.asarray(shares / shares.sum())


class ConcurrentFlow(NamedTuple):
    """A flow, and dual lengths that bound its optimality gap."""

    lower: Fraction  # rate of the flow: the least ``capacity * amount / load`` of a link
    upper: Fraction  # dual bound: the sum of length times capacity over the sum of demand times distance
    lengths: IntArray  # int64 (links,): dual lengths, at least 1
    loads: IntArray  # int64 (links,): load of each link, rounded up
    amount: Fraction  # units of flow per unit of demand, at least
    steps: Steps  # the rounds that the flow is mixed from

    @property
    def gap(self) -> Fraction:
        """Optimality gap of the flow, at most: 1 - lower / upper."""
        return 1 - self.lower / self.upper


def concurrent_flow(
    num_nodes: int,
    tails: IntArray,
    heads: IntArray,
    capacities: IntArray,
    demands: IntArray,
    *,
    gap: float | Fraction = Fraction(1, 100),
    floor: Fraction = Fraction(0),
    max_rounds: int = 10_000,
    automorphisms: IntArray | None = None,
) -> ConcurrentFlow:
    """Route all demands at nearly the maximum common rate, f of linear program (3) of the direct-connect paper.

    By convexity and symmetry some optimum has equal loads on all links of an orbit, so one source and one link per
    orbit suffice.  Where no rate above `floor` is possible, the gap may be larger.  Shapes: `demands` int64 (ranks,
    ranks); `automorphisms` int64 (generators, nodes).
    """
    if not 0 < gap < 1 or max_rounds < 1:
        raise UnsupportedError(
            f"the gap is {gap} and max_rounds is {max_rounds}; expected a gap between 0 and 1, and at least one round"
        )
    check_capacities(sum(capacities.tolist()))
    if automorphisms is None:
        orbits = trivial_link_orbits(len(tails), demands)
    else:
        orbits = link_orbits(tails, heads, capacities, demands, automorphisms)
    game = MultiplicativeWeights((num_nodes, tails, heads, capacities.copy()), demands, orbits, max_rounds)
    with progress.status() as report:
        best = game.phase()
        while best.rate < (1 - Fraction(gap)) * game.upper and game.upper > floor and game.rounds_left > 0:
            report(f"within {float(1 - best.rate / game.upper):.2%}")
            best = max(best, game.phase(), key=lambda flow: flow.rate)
    return ConcurrentFlow(best.rate, game.upper, game.best_lengths[orbits.classes], best.loads, best.amount, best.steps)


def source_flows(
    num_nodes: int,
    tails: IntArray,
    heads: IntArray,
    capacities: IntArray,
    demands: IntArray,
    totals: ConcurrentFlow,
    sources: IntArray,
) -> IntArray:
    """Compute the flow of `totals` by source, int64 (sources, links), for `sources` int64 (sources,)."""
    links, capacities, once = adjacency(num_nodes, tails, heads), capacities.copy(), np.ones(1, dtype=np.int64)
    units, _ = scaled_demands(demands, sources, num_nodes)
    orders = initial_orders(sources, num_nodes)
    flows = np.zeros((len(sources), len(tails)), dtype=np.int64)
    steps = zip(totals.steps.lengths, totals.steps.sharpness, totals.steps.weights, strict=True)
    for shares, sharpness, weight in progress.iterate(steps, len(totals.steps.weights)):
        lengths = shares[totals.steps.classes].astype(np.int64)
        for row in range(len(sources)):
            one = slice(row, row + 1)
            flows[row] += weight * soft_loads(
                sources[one], once, links, capacities, lengths, sharpness, orders[one], units[one]
            )
    return flows
