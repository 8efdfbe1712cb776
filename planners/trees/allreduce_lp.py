"""Tree allreduce by linear programming with cutting planes.

Interior point without crossover stops in the middle of the best face, where the violated cuts are those that really
bind: a few rounds are enough.  Then the best rate is fixed, and a corner that takes least of the links has small
denominators.  Trees are packed into the shares of the links; see `collopt.formulations.allreduce`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import count
from math import floor
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import NoAnswerError, SolverError, UnsupportedError
from ...formulations.allreduce_cuts import AllreduceCutModel, Hops, build, build_mirrored, opposite_links
from ...formulations.allreduce_rounding import round_flow
from ...schedules import ALLREDUCE, Allreduce, Forest
from ...schedules.collective import Direction
from ...solvers import Algorithm, HighsOptions, Session, Solution, Termination, solve
from ...solvers.flows.max_flow import sweep_sinks
from ...support import progress
from ...support.arrays import BoolArray, FloatArray, IntArray
from ...support.quantities import MAX_BANDWIDTH
from ...topologies import Topology
from ..plans.plan import Plan, proved_plan
from ..plans.registry import register_planner
from ..plans.stages import Trace
from .forest import best_forest, bottleneck
from .problem import checked_count, tree_options, tree_problem, whole_numbers
from .spanned_switches import in_original_numbers, spannable, spanning_network
from .strength import allreduce_bound

MAX_COLUMNS = 200_000  # beyond this a round takes minutes
MAX_ROUNDS = 200

GRAIN = 2**36  # floats are read in multiples of the rate over this
TOLERANCE = 2**16  # cuts that lack no more grains than this are as wide as they should be; a millionth of the rate

SLACK = 1e-9  # how far below the optimum a rate is asked for that is known in floats alone
GRAINS_OF_FLOATS = 2**24  # such rates are read in multiples of one over this


@dataclass(frozen=True)
class BestRates:
    """An optimal solution of the allreduce program.

    `shares`: By direction and number of the link: what trees of this kind take, as much into a switch as out of it.
        Where every link has an opposite of its bandwidth, in-trees are left out: they are the out-trees reversed.
    """

    rate: Fraction  # what no trees can beat, GB/s; the optimum, if `exact`
    unit: Fraction  # GB/s that root rates and shares are counted in
    root_rates: tuple[Fraction, ...]  # in rank order
    shares: dict[Direction, tuple[Fraction, ...]]
    exact: bool  # whether the root rates add up to `rate`; otherwise they are off by what floats are
    cuts: int  # how many were added


def best_rates(topology: Topology, num_roots: int | None = None) -> BestRates:
    """Solve the allreduce program of a topology exactly, by cuts; the first `num_roots` of all ranks may root trees."""
    _, _, capacities, unit = topology.arrays
    # Whole numbers are exact in floats.
    unit = unit if capacities.max() <= MAX_BANDWIDTH else Fraction(1)
    counted = topology.scaled(1 / unit)
    mirrored = opposite_links(topology) is not None
    return _best_rates(build_mirrored(counted) if mirrored else build(counted, num_roots=num_roots), unit)


def _best_rates(model: AllreduceCutModel, unit: Fraction) -> BestRates:
    columns = sum(len(hops.columns) for hops in model.hops.values())
    if columns > MAX_COLUMNS:
        limit = f"expected at most {MAX_COLUMNS}: use planner 'forestcoll'"
        raise UnsupportedError(f"the allreduce program of {model.topology} has {columns} variables; {limit}")
    cuts = _CutPool(model)
    cuts.add_while_violated(lambda: _solved_inside(model))
    optimum = solve(model, HighsOptions(algorithm=Algorithm.IPM))
    rate, reached = _proved_rate(optimum)
    first = _fix_rate(model, reached)
    session = Session(model, HighsOptions(algorithm=Algorithm.SIMPLEX))
    session.solve(first)
    best = cuts.add_while_violated(session.solve)
    root_rates, shares, exact = _exact_solution(model, best)
    return BestRates(rate * unit, unit, root_rates, shares, exact and rate == reached, cuts.number)


def _solved_inside(model: AllreduceCutModel) -> Solution:
    """Solve by interior point, with crossover only if there is no proved answer without it."""
    solution = solve(model, HighsOptions(algorithm=Algorithm.IPM_WITHOUT_CROSSOVER))
    if solution.status.termination is Termination.OPTIMAL:
        return solution
    return solve(model, HighsOptions(algorithm=Algorithm.IPM))


def _proved_rate(optimum: Solution) -> tuple[Fraction, Fraction]:
    """Upper and lower bound on the rate of trees; equal if the basis is exactly optimal."""
    try:
        rate = optimum.exact.objective
    except NoAnswerError:
        upper = optimum.interval.upper
        if upper is None:
            raise
        return upper, Fraction(optimum.objective * (1 - SLACK))
    return rate, rate


def _fix_rate(model: AllreduceCutModel, rate: Fraction) -> Solution:
    """Fix the best rate and minimize traffic, so that rounds converge to one of many equivalent solutions."""
    model.constrain("best_rate", [(model.variables.root_rate, 1.0)], lower=float(rate))
    columns = np.concatenate([hops.columns for hops in model.hops.values()])
    model.minimize([(columns, np.random.default_rng(0).integers(1000, 1100, len(columns)) / 1000)])
    return solve(model, HighsOptions(algorithm=Algorithm.IPM))


def _exact_solution(
    model: AllreduceCutModel, best: Solution
) -> tuple[tuple[Fraction, ...], dict[Direction, tuple[Fraction, ...]], bool]:
    """Root rates and shares as fractions, and whether they are those of the exact basis."""
    try:
        values, exact = best.exact.values, True
        flows = {direction: _link_totals(model, hops, values[direction]) for direction, hops in model.hops.items()}
    except NoAnswerError:
        values, exact = best.values, False
        flows = {direction: _rounded(model, hops, values[direction]) for direction, hops in model.hops.items()}
    rates = [Fraction(0)] * model.topology.num_ranks
    for root, value in zip(model.roots.tolist(), values["root_rate"], strict=True):
        rates[root] = Fraction(value) if exact else Fraction(floor(max(value, 0) * GRAINS_OF_FLOATS), GRAINS_OF_FLOATS)
    return tuple(rates), flows, exact


def _link_totals(model: AllreduceCutModel, hops: Hops, values: npt.NDArray[Any]) -> tuple[Fraction, ...]:
    """Total of all hops on each link."""
    shares = [Fraction(0)] * model.topology.num_links
    for link, value in zip(hops.links.tolist(), values.tolist(), strict=True):
        shares[link] += value
    return tuple(shares)


def _rounded(model: AllreduceCutModel, hops: Hops, values: FloatArray) -> tuple[Fraction, ...]:
    """Total of all hops on each link, rounded so that flow is conserved at switches."""
    flows: dict[int, dict[tuple[int, int], float]] = {}
    numbers: dict[tuple[int, int], int] = {}
    rows = zip(*(array.tolist() for array in (hops.origins, hops.tails, hops.heads, hops.links, values)), strict=True)
    for origin, tail, head, link, value in rows:
        flows.setdefault(origin, {})[tail, head] = value
        numbers[tail, head] = link
    shares = [Fraction(0)] * model.topology.num_links
    for origin, flow in flows.items():
        for ends, amount in round_flow(flow, origin, range(model.topology.num_ranks), GRAINS_OF_FLOATS).items():
            shares[numbers[ends]] += amount
    return tuple(shares)


class _RankPairs:
    """Pairs of ranks that hops of one kind connect."""

    def __init__(self, hops: Hops, num_ranks: int) -> None:
        self._ends = hops.heads < num_ranks
        keys, self._pair = np.unique(hops.origins[self._ends] * num_ranks + hops.heads[self._ends], return_inverse=True)
        self.tails, self.heads = np.divmod(keys, num_ranks)

    def bandwidths(self, values: FloatArray) -> FloatArray:
        """Bandwidth from rank to rank, by pair."""
        return np.bincount(self._pair, weights=values[self._ends], minlength=len(self.tails)).astype(np.float64)


class _CutPool:
    """Cuts of a model, and their separation."""

    def __init__(self, model: AllreduceCutModel) -> None:
        self._model = model
        self._pairs = {direction: _RankPairs(hops, model.topology.num_ranks) for direction, hops in model.hops.items()}
        self._rounds = count(1)
        self.number = 0

    def add_while_violated(self, solved: Callable[[], Solution]) -> Solution:
        """Solve and add cuts until none is violated; return the last solution."""
        with progress.status() as say:
            for number in range(1, MAX_ROUNDS + 1):
                say(f"round {number}, {self.number:,} cuts")
                solution = solved()
                if not self._add_violated(solution):
                    return solution
        raise SolverError(f"{self._model.blocks.name} still has violated cuts after {MAX_ROUNDS} rounds")

    def _add_violated(self, solution: Solution) -> bool:
        rates = np.zeros(self._model.topology.num_ranks)
        rates[self._model.roots] = solution.values["root_rate"]
        violated = False
        number = next(self._rounds)
        for direction, pairs in self._pairs.items():
            inside = _violated_cuts(pairs, rates, pairs.bandwidths(solution.values[direction]))
            if len(inside):
                self._model.add_cuts(f"{direction}_cuts_{number}", direction, inside)
                self.number += len(inside)
                violated = True
        return violated


def _violated_cuts(pairs: _RankPairs, rates: FloatArray, bandwidths: FloatArray) -> BoolArray:
    """A violated cut for every rank that does not receive the whole rate: the larger side of its minimum cut."""
    total = max(float(rates.sum()), np.finfo(np.float64).tiny)
    supplies, capacities = _quantized(rates, total), _quantized(bandwidths, total)
    ranks = len(rates)
    sweep = sweep_sinks(ranks, pairs.tails, pairs.heads, capacities, supplies, ranks)
    return np.unique(~sweep.sink_sides[sweep.deficit > TOLERANCE], axis=0)


def _quantized(values: FloatArray, total: float) -> IntArray:
    # More than everything is no help.
    grains: IntArray = np.rint(np.clip(values, 0, 2 * total) / total * GRAIN).astype(np.int64)
    return grains


@register_planner("allreduce-lp", ALLREDUCE)
def plan_allreduce_lp(topology: Topology, *, trees_per_root: int | None = None, in_network: bool = True) -> Plan:
    """Plan an optimal tree allreduce by linear programming.

    With `in_network`, switches that multicast and aggregate take part like ranks without data, if that is faster.
    """
    count = None if trees_per_root is None else checked_count(trees_per_root)
    trace = Trace()
    switches = spannable(topology) if in_network else ()
    with trace.stage("linear program"):
        bound, plain = allreduce_bound(topology), best_rates(topology)
        network, rates = topology, plain
        if switches:
            spanning = spanning_network(topology, switches)
            network, rates = max((topology, plain), (spanning, best_rates(spanning, topology.num_ranks)), key=_rate)
        if not any(plain.root_rates):
            raise NoAnswerError(f"the bandwidths of {topology} differ too much for floats; use planner 'forestcoll'")
    schedule = _schedule(topology, network, rates, count, trace)
    if rates is not plain and schedule.total_weight / schedule.inverse_rate(topology) <= plain.rate:
        rates = plain  # copies that switches loop back do not fit
        schedule = _schedule(topology, topology, plain, count, trace)
    trace.note("tree_algbw", str(rates.rate))
    trace.note("cuts", rates.cuts)
    plan = proved_plan(topology, ALLREDUCE, schedule, "allreduce-lp", tree_options(in_network, count), trace, bound)
    if rates.exact and count is None and not topology.loopback and plan.algbw != rates.rate:
        raise SolverError(f"trees reach {plan.algbw} GB/s where the program proves that they reach {rates.rate}")
    return plan


def _rate(choice: tuple[Topology, BestRates]) -> Fraction:
    return choice[1].rate


def _schedule(topology: Topology, network: Topology, rates: BestRates, count: int | None, trace: Trace) -> Allreduce:
    """Pack trees on a network whose compute nodes are the ranks of the topology, and maybe switches after them."""
    broadcast = _forest(network, "broadcast", rates, count, trace)
    if "reduce" in rates.shares:
        reduction = _forest(network, "reduce", rates, count, trace)
    else:
        reduction = replace(broadcast, direction="reduce")
    if network is topology:
        return Allreduce(reduction, broadcast)
    return Allreduce(*(in_original_numbers(forest, network, topology).tidied() for forest in (reduction, broadcast)))


def _forest(topology: Topology, direction: Direction, rates: BestRates, count: int | None, trace: Trace) -> Forest:
    """Pack the trees of one direction into the network of their shares."""
    shares = zip(topology.links, rates.shares[direction], strict=True)
    links = tuple(link._replace(bandwidth=share) for link, share in shares if share > 0)
    problem = tree_problem(replace(topology, links=links), direction, whole_numbers(rates.root_rates))
    return best_forest(problem, bottleneck(problem), count, trace)
