"""Links' numbers of trees for a fixed number per root: Algorithm 5 of ForestColl, and an integer program.

Where links are not bidirectional, rounding can leave a switch unbalanced, and then no theorem says that its links can
be split.  Its surplus capacity is removed, and if the trees no longer fit, the next larger U is tried.  On small
networks the integer program then finds the best balanced numbers.
"""

from fractions import Fraction

import numpy as np

from ...errors import NoAnswerError, SolverError, UnsupportedError
from ...solvers.flow.max_flow import check_capacities, max_flow, paired_network
from ...solvers.trees.bottleneck import fixed_count_scale, violated_sink
from ...support.arrays import IntArray
from ..plans.stages import Trace
from .problem import TreeProblem

SCALES_TRIED = 64
MAX_PROGRAM = 2048
"""Ranks times links up to which the integer program is stated; it takes about a second there."""
TIME_LIMIT = 10.0


def fixed_count_capacities(problem: TreeProblem, count: int, trace: Trace) -> IntArray:
    """Number of trees per link, balanced at switches, for `count` trees per root at the least time that is found."""
    capacities, supplies = problem.capacities, problem.root_weights * count
    scale = fixed_count_scale(problem.num_nodes, problem.tails, problem.heads, capacities, problem.root_weights, count)
    found: list[IntArray] = []
    for tried in range(SCALES_TRIED):
        # In Python's integers: the products may not fit int64 where the results do.
        units = [capacity * scale.numerator // scale.denominator for capacity in capacities.tolist()]
        check_capacities(sum(units))
        balanced = _balanced(problem, np.array(units))
        if np.array_equal(balanced, units) or _carries(problem, balanced, supplies):
            if not tried:
                return balanced
            found.append(balanced)
            break
        scale = min(Fraction(held + 1, int(size)) for held, size in zip(units, capacities, strict=True))
    found += _best_balanced(problem, count, supplies)
    if not found:
        raise UnsupportedError(
            f"with {count} trees per root, rounding leaves switches with different ingress and egress capacity, and no "
            "nearby rate avoids that; leave trees_per_root out, or make every link bidirectional"
        )
    best = min(found, key=lambda shares: _scale(problem, shares))
    if best is not found[0]:
        trace.note("rounding", "integer program")
    return best


def _carries(problem: TreeProblem, capacities: IntArray, supplies: IntArray) -> bool:
    network = paired_network(problem.num_nodes, problem.tails, problem.heads, capacities)
    return violated_sink(network, supplies) < 0


def _scale(problem: TreeProblem, shares: IntArray) -> Fraction:
    """Return the U that these shares of links need."""
    return max(map(Fraction, shares.tolist(), problem.capacities.tolist()))


def _best_balanced(problem: TreeProblem, count: int, supplies: IntArray) -> list[IntArray]:
    """Solve the integer program for a small network; what it finds is checked, as it is found in floats."""
    topology = problem.topology
    if topology.num_ranks * len(problem.tails) > MAX_PROGRAM:
        return []
    from ...formulations.throughput import build_fixed_count
    from ...solvers import HighsOptions, solve

    weights = problem.root_weights.tolist()
    model = build_fixed_count(topology, count, weights=weights, direction=problem.direction)
    try:
        values = solve(model, HighsOptions(time_limit=TIME_LIMIT)).values["share"]
    except (NoAnswerError, SolverError):
        return []
    shares = np.array([round(values[link.tail, link.head]) for link in topology.links])
    balanced = _balanced(problem, np.maximum(shares, 0))
    return [balanced] if _carries(problem, balanced, supplies) else []


def _balanced(problem: TreeProblem, capacities: IntArray) -> IntArray:
    """Lower capacities, by little, until every switch has equal ingress and egress; ranks may stay unbalanced."""
    without_surplus = capacities - _surplus_flow(problem, capacities, problem.heads, problem.tails)
    return without_surplus - _surplus_flow(problem, without_surplus, problem.tails, problem.heads)


def _surplus_flow(problem: TreeProblem, capacities: IntArray, tails: IntArray, heads: IntArray) -> IntArray:
    """Return a flow per link that carries the surplus of switches (`tails` less `heads`) to ranks or deficit switches.

    Paths are shortest, so little capacity is removed; the flow always exists, since removing everything is one.
    """
    ranks, source, sink = problem.topology.num_ranks, problem.num_nodes, problem.num_nodes + 1
    surplus = np.zeros(problem.num_nodes, dtype=np.int64)
    np.add.at(surplus, tails, capacities)
    np.subtract.at(surplus, heads, capacities)
    surplus[:ranks] = 0
    nodes = np.arange(problem.num_nodes)
    flow = max_flow(
        problem.num_nodes + 2,
        np.concatenate([tails, np.full_like(nodes, source), nodes]),
        np.concatenate([np.where(heads < ranks, sink, heads), nodes, np.full_like(nodes, sink)]),
        np.concatenate([capacities, np.maximum(surplus, 0), np.maximum(-surplus, 0)]),
        source,
        sink,
    )
    assert flow.value == np.maximum(surplus, 0).sum(), "removing all capacity balances every switch"
    return flow.residual[1 : 2 * len(tails) : 2]
