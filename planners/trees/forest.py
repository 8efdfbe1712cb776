"""Throughput-optimal spanning trees for a network and shards (ForestColl section 5).

The bottleneck cut gives the optimal rate ``x*``, edge splitting removes the switches, tree packing fills the links.
Tight sets, guessed switch plans and trimmed capacities make the fast path, exact edge splitting is the fallback.
"""

from fractions import Fraction

import numpy as np

from ...errors import CapacityOverflowError, CertificateError, NoAnswerError, SolverError, UnsupportedError
from ...schedules import Forest, verified_loads
from ...solvers.flows.bottleneck import Bottleneck, bottleneck_cut, fixed_count_scale, violated_sink
from ...solvers.flows.max_flow import check_capacities, max_flow, paired_network
from ...solvers.trees.batch_packing import is_large
from ...solvers.trees.forest_packing import pack_forest, pack_untested_forest
from ...solvers.trees.height_reduction import lower_trees
from ...solvers.trees.routed_graph import RoutedGraph
from ...solvers.trees.switch_removal import join_pass_through, remove_switches, split_all_switches
from ...solvers.trees.tight_sets import LaminarFamily, tight_family, trim_to_tight_sets
from ...solvers.trees.tree_packing import Packing
from ...support.arrays import IntArray
from ..plans.stages import Trace
from .problem import TreeProblem


def bottleneck(problem: TreeProblem) -> Bottleneck:
    """Find the bottleneck cut for the given shards (ForestColl section 4, inequality (*))."""
    return bottleneck_cut(problem.num_nodes, problem.tails, problem.heads, problem.capacities, problem.root_weights)


def best_forest(problem: TreeProblem, best: Bottleneck, count: int | None, trace: Trace) -> Forest:
    """Build a forest at the optimal rate, or the best rate for a number of trees; `trace` says why no fast path."""
    if count is None:
        # `U b_e` of section 5.2 with the smallest integral U.
        count = best.capacity
        check_capacities(sum(map(int, problem.capacities)) * best.supply, int(problem.root_weights.sum()) * count)
        capacities = problem.capacities * best.supply
    else:
        with trace.stage("fixed count"):
            capacities = fixed_count_capacities(problem, count, trace)
    supplies = problem.root_weights * count
    try:
        forest = _structured_forest(problem, capacities, supplies, count, trace)
        if (verified_loads(forest, problem.topology) > capacities).any():
            raise CertificateError("a link carries more trees than its capacity")
    except (CapacityOverflowError, CertificateError, SolverError) as error:
        trace.note("refused", str(error))
        return _fallback_forest(problem, capacities, supplies, count, trace)
    return forest


def _structured_forest(
    problem: TreeProblem, capacities: IntArray, supplies: IntArray, count: int, trace: Trace
) -> Forest:
    graph = RoutedGraph(problem.num_nodes, problem.tails, problem.heads, capacities)
    if graph.num_nodes == len(supplies) and is_large(supplies, len(capacities)):
        with trace.stage("untested trees"):
            untested = pack_untested_forest(graph, supplies)
        if untested is not None:
            return _lowered_forest(problem, graph, *untested, count, trace)
    with trace.stage("tight sets"):
        join_pass_through(graph, len(supplies))
        trimmed = trim_to_tight_sets(graph, supplies)
        trace.note("trimmed_sets", len(trimmed))
        alive = graph.alive()
        links = (graph.tails[alive], graph.heads[alive], graph.units[alive])
        family = tight_family(graph.num_nodes, *links, supplies, trimmed)
        trace.note("tight_sets", len(family.parents) - 1)
    with trace.stage("switch removal"):
        remove_switches(graph, supplies, family)
    return _pack(problem, graph, supplies, family, count, trace)


def _fallback_forest(
    problem: TreeProblem, capacities: IntArray, supplies: IntArray, count: int, trace: Trace
) -> Forest:
    graph = RoutedGraph(problem.num_nodes, problem.tails, problem.heads, capacities)
    family = LaminarFamily(np.array([-1]), np.zeros(graph.num_nodes, dtype=np.int64))
    with trace.stage("exact edge splitting"):
        remove_switches(graph, supplies, family, split_all_switches)
    return _pack(problem, graph, supplies, family, count, trace)


def _pack(
    problem: TreeProblem, graph: RoutedGraph, supplies: IntArray, family: LaminarFamily, count: int, trace: Trace
) -> Forest:
    with trace.stage("tree packing"):
        packing, links = pack_forest(graph, supplies, family)
    return _lowered_forest(problem, graph, packing, links, count, trace)


def _lowered_forest(
    problem: TreeProblem, graph: RoutedGraph, packing: Packing, links: IntArray, count: int, trace: Trace
) -> Forest:
    with trace.stage("height reduction"):
        packing = lower_trees(packing, graph.tails[links])
    routes = graph.routes(links)
    trees = packing.roots, packing.weights, packing.links
    return Forest(len(problem.root_weights), count, *trees, *routes, problem.root_weights, problem.direction)


SCALES_TRIED = 64
MAX_PROGRAM = 2048
"""Ranks times links up to which the integer program is stated; it takes about a second there."""
TIME_LIMIT = 10.0


def fixed_count_capacities(problem: TreeProblem, count: int, trace: Trace) -> IntArray:
    """Number of trees per link, balanced at switches, for `count` trees per root at the least time that is found.

    Algorithm 5 rounds capacities.  Where links are not bidirectional, that can leave a switch unbalanced, and no
    theorem says that its links can be split.  Then surplus is removed, and if the trees do not fit, the next larger U
    is tried.  On small networks an integer program then finds the best balanced numbers.
    """
    capacities, supplies = problem.capacities, problem.root_weights * count
    scale = fixed_count_scale(problem.num_nodes, problem.tails, problem.heads, capacities, problem.root_weights, count)
    candidates: list[IntArray] = []
    # Round capacities for a scale, balance switches, and raise the scale until the trees fit.
    for attempt in range(SCALES_TRIED):
        # In Python's integers: the products may not fit int64 where the results do.
        units = [capacity * scale.numerator // scale.denominator for capacity in capacities.tolist()]
        check_capacities(sum(units))
        balanced = _balanced(problem, np.array(units))
        if np.array_equal(balanced, units) or _carries(problem, balanced, supplies):
            if not attempt:
                return balanced
            candidates.append(balanced)
            break
        scale = min(Fraction(trees + 1, int(size)) for trees, size in zip(units, capacities, strict=True))
    candidates += _best_balanced(problem, count, supplies)
    if not candidates:
        advice = "leave trees_per_root out, or make every link bidirectional"
        raise UnsupportedError(f"with {count} trees per root, no nearby rate leaves switches balanced; {advice}")
    best = min(candidates, key=lambda shares: max(map(Fraction, shares.tolist(), capacities.tolist())))
    if best is not candidates[0]:
        trace.note("rounding", "integer program")
    return best


def _carries(problem: TreeProblem, capacities: IntArray, supplies: IntArray) -> bool:
    network = paired_network(problem.num_nodes, problem.tails, problem.heads, capacities)
    return violated_sink(network, supplies) < 0


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
