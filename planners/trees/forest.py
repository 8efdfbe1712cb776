"""Throughput-optimal spanning trees for a network and shards (ForestColl section 5).

The bottleneck cut gives the optimal rate ``x*`` and with it integer link capacities and k trees per root; edge
splitting removes the switches; tree packing fills the capacities; every tree edge is mapped back to its route.  Tight
sets, guessed switch plans and trimmed capacities make the fast path; where its result fails verification, exact edge
splitting is the fallback.
"""

import numpy as np

from ...errors import CapacityOverflowError, CertificateError, SolverError
from ...schedules import Forest, verified_loads
from ...solvers.flow.max_flow import check_capacities
from ...solvers.trees.batch_packing import is_large
from ...solvers.trees.bottleneck import Bottleneck, bottleneck_cut
from ...solvers.trees.forest_packing import pack_forest, pack_untested_forest
from ...solvers.trees.height_reduction import lower_trees
from ...solvers.trees.routed_graph import RoutedGraph
from ...solvers.trees.switch_removal import join_pass_through, remove_switches
from ...solvers.trees.tight_sets import LaminarFamily, tight_family
from ...solvers.trees.transport_splitting import split_all_switches
from ...solvers.trees.tree_packing import Packing
from ...solvers.trees.trimming import trim_to_tight_sets
from ...support.arrays import IntArray
from ..plans.stages import Trace
from .fixed_count import fixed_count_capacities
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
        _check_fit(problem, capacities, forest)
    except (CapacityOverflowError, CertificateError, SolverError) as error:
        trace.note("refused", str(error))
        return _fallback_forest(problem, capacities, supplies, count, trace)
    return forest


def _check_fit(problem: TreeProblem, capacities: IntArray, forest: Forest) -> None:
    """Raise CertificateError unless these are spanning trees, no more on any link than its capacity."""
    excess = verified_loads(forest, problem.topology) - capacities
    if (excess > 0).any():
        link = problem.topology.link_at(int(excess.argmax()))
        raise CertificateError(
            f"the link from {link.tail!r} to {link.head!r} carries {excess.max()} trees more than its capacity"
        )


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
    whole = LaminarFamily(np.array([-1]), np.zeros(graph.num_nodes, dtype=np.int64))
    with trace.stage("exact edge splitting"):
        remove_switches(graph, supplies, whole, split_all_switches)
    return _pack(problem, graph, supplies, whole, count, trace)


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
