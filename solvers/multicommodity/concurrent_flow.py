"""Maximum concurrent flow by optimistic multiplicative weights, with a certified optimality gap.

A flow of all demands with load(e) <= z c(e) has rate 1 / z; any dual lengths bound the rate by f <= sum of l(e) c(e) /
sum of demand(s, t) distance(s, t).  Everything claimed is computed in integers.  Sources: N. E. Young, 2001; Rakhlin
and Sridharan, 2013; see docs/explanation/algorithms.md.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...errors import SolverError, UnsupportedError
from ...support import progress
from ...support.arrays import IntArray
from ...topologies.graphs.orbits import LinkOrbits, link_orbits, trivial_link_orbits
from ..flow.max_flow import check_capacities, check_column
from .multiplicative_weights import MultiplicativeWeights, Steps, scaled_demands, scaled_instance
from .soft_shortest_paths import adjacency, initial_orders, soft_loads


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
    _check_arrays(num_nodes, tails, heads, capacities, demands)
    orbits = _orbits(num_nodes, tails, heads, capacities, demands, automorphisms)
    game = MultiplicativeWeights(scaled_instance(num_nodes, tails, heads, capacities, demands, orbits), max_rounds)
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
    found: ConcurrentFlow,
    sources: IntArray,
) -> IntArray:
    """Compute the flow of `found` by source, int64 (sources, links), for `sources` int64 (sources,)."""
    links, capacities, once = adjacency(num_nodes, tails, heads), capacities.copy(), np.ones(1, dtype=np.int64)
    units, _ = scaled_demands(demands, sources, num_nodes)
    orders = initial_orders(sources, num_nodes)
    flows = np.zeros((len(sources), len(tails)), dtype=np.int64)
    steps = zip(found.steps.lengths, found.steps.sharpness, found.steps.weights, strict=True)
    for shares, sharpness, weight in progress.iterate(steps, len(found.steps.weights)):
        lengths = shares[found.steps.classes].astype(np.int64)
        for row in range(len(sources)):
            one = slice(row, row + 1)
            flows[row] += weight * soft_loads(
                sources[one], once, links, capacities, lengths, sharpness, orders[one], units[one]
            )
    return flows


def _orbits(
    num_nodes: int,
    tails: IntArray,
    heads: IntArray,
    capacities: IntArray,
    demands: IntArray,
    automorphisms: IntArray | None,
) -> LinkOrbits:
    """Find the orbits of ranks and links, trivial ones without automorphisms."""
    if automorphisms is None:
        return trivial_link_orbits(len(tails), demands)
    if automorphisms.ndim != 2 or automorphisms.shape[1] != num_nodes:
        raise SolverError(f"automorphisms have shape {automorphisms.shape}; expected rows of {num_nodes} nodes")
    try:
        return link_orbits(tails, heads, capacities, demands, automorphisms)
    except UnsupportedError as error:
        raise SolverError(str(error)) from None


def _check_arrays(num_nodes: int, tails: IntArray, heads: IntArray, capacities: IntArray, demands: IntArray) -> None:
    if not len(tails):
        raise SolverError("there are no links; expected at least one")
    for name, column, least in (("tails", tails, 0), ("heads", heads, 0), ("capacities", capacities, 1)):
        check_column(name, column, length=len(tails), least=least)
    if (last := max(int(tails.max()), int(heads.max()))) >= num_nodes:
        raise SolverError(f"the last node of the links is {last}; expected nodes from 0 to {num_nodes - 1}")
    check_capacities(sum(capacities.tolist()))
    if demands.ndim != 2 or demands.shape[0] != demands.shape[1] or not 2 <= len(demands) <= num_nodes:
        raise SolverError(
            f"demands have shape {demands.shape}; expected a row and a column for each of 2 to {num_nodes} ranks"
        )
    if demands.dtype != np.int64 or demands.min() < 0:
        raise SolverError(
            f"demands have type {demands.dtype} and least value {demands.min()}; expected int64 from 0 on"
        )
    if np.count_nonzero(demands) == np.count_nonzero(np.diagonal(demands)):
        raise SolverError("all demands are 0; expected some rank to have something for another one")
