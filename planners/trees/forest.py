"""From a network and shards to a throughput-optimal forest.

The steps of ForestColl section 5: the bottleneck cut gives the optimal rate ``x*`` and with it integer link capacities
and k trees per root; edge splitting removes the switches; tree packing fills the capacities; every tree edge is mapped
back to its route through the switches.  Tight sets, guessed switch plans and trimmed capacities make this fast.  What
comes of them is verified, and a general way without them takes over where they fail.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ...errors import CapacityOverflowError, CertificateError, SolverError, UnsupportedError
from ...schedules import Forest, verified_link_loads
from ...solvers.flow.max_flow import check_capacities, max_flow, paired_network
from ...solvers.trees.bottleneck import Bottleneck, bottleneck_cut, fixed_count_scale, violated_sink
from ...solvers.trees.forest_packing import pack_forest
from ...solvers.trees.height_reduction import lower_trees
from ...solvers.trees.routed_graph import RoutedGraph
from ...solvers.trees.switch_removal import join_pass_through, remove_switches
from ...solvers.trees.tight_sets import LaminarFamily, tight_family
from ...solvers.trees.transport_splitting import split_all_switches
from ...solvers.trees.trimming import trim_to_tight_sets
from ...support.arrays import IntArray
from ..plans.stages import Trace
from .problem import Network

SCALES_TRIED = 64


def bottleneck(asked: Network) -> Bottleneck:
    """Find the bottleneck cut for the shards asked for (ForestColl section 4, inequality (*))."""
    return bottleneck_cut(asked.num_nodes, asked.tails, asked.heads, asked.capacities, asked.root_weights)


def best_forest(asked: Network, best: Bottleneck, count: int | None, trace: Trace) -> Forest:
    """Build a forest at the optimal rate, or at the best rate for a given number of trees.

    A fast way that gives up, or whose forest is not one or does not fit its capacities, is left for the general way;
    `trace` is told why.  Only the fast way's forest is verified here.
    """
    if count is None:
        # `U b_e` of section 5.2 with the smallest integral U.
        count = best.capacity
        check_capacities(sum(map(int, asked.capacities)) * best.supply, int(asked.root_weights.sum()) * count)
        capacities = asked.capacities * best.supply
    else:
        with trace.stage("fixed count"):
            capacities = _floored_capacities(asked, count)
    supplies = asked.root_weights * count
    try:
        forest = _structured_forest(asked, capacities, supplies, count, trace)
        _check_fit(asked, capacities, forest)
    except (CapacityOverflowError, CertificateError, SolverError) as error:
        trace.note("refused", str(error))
        return _general_forest(asked, capacities, supplies, count, trace)
    return forest


def _check_fit(asked: Network, capacities: IntArray, forest: Forest) -> None:
    """Raise CertificateError unless these are spanning trees, no more on any link than its capacity."""
    excess = verified_link_loads(forest, asked.topology) - capacities
    if (excess > 0).any():
        link = asked.topology.links[int(excess.argmax())]
        raise CertificateError(
            f"the link from {link.tail!r} to {link.head!r} carries {excess.max()} trees more than its capacity"
        )


def _floored_capacities(asked: Network, count: int) -> IntArray:
    """``floor(U b_e)`` for the smallest U that leaves room for `count` trees per root (Algorithm 5).

    On links that are not bidirectional, rounding can leave a switch unbalanced, and then no theorem says that its links
    can be split.  What it has too much is given up, and if the trees no longer fit, the next larger U is tried.
    """
    capacities = asked.capacities
    scale = fixed_count_scale(asked.num_nodes, asked.tails, asked.heads, capacities, asked.root_weights, count)
    supplies = asked.root_weights * count
    for _ in range(SCALES_TRIED):
        # In Python's integers: the products may not fit int64 where the results do.
        units = [capacity * scale.numerator // scale.denominator for capacity in capacities.tolist()]
        check_capacities(sum(units))
        floored = np.array(units)
        balanced = _balanced(asked, floored)
        if np.array_equal(balanced, floored) or _fits(asked, balanced, supplies):
            return balanced
        scale = min(Fraction(held + 1, int(size)) for held, size in zip(units, capacities, strict=True))
    raise UnsupportedError(
        f"with {count} trees per root, rounding leaves switches with different ingress and egress capacity, and no "
        "nearby rate avoids that; leave trees_per_root out, or make every link bidirectional"
    )


def _balanced(asked: Network, capacities: IntArray) -> IntArray:
    """Lower capacities, by little, until every switch takes in what it gives out; only ranks may end up uneven.

    What a switch takes in too much is given up against the links, back to a rank or to a switch that takes in too
    little; what a switch then still gives out too much, along the links.
    """
    against = capacities - _given_up(asked, capacities, asked.heads, asked.tails)
    return against - _given_up(asked, against, asked.tails, asked.heads)


def _given_up(asked: Network, capacities: IntArray, tails: IntArray, heads: IntArray) -> IntArray:
    """Per link, its part in a flow from the switches with more capacity into their links' ends than out of them.

    Shortest paths to ranks or to switches of which the opposite is true, so little is given up; the flow always exists,
    since giving up everything is one.
    """
    ranks, source, sink = asked.topology.num_ranks, asked.num_nodes, asked.num_nodes + 1
    surplus = np.zeros(asked.num_nodes, dtype=np.int64)
    np.add.at(surplus, tails, capacities)
    np.subtract.at(surplus, heads, capacities)
    surplus[:ranks] = 0
    nodes = np.arange(asked.num_nodes)
    flow = max_flow(
        asked.num_nodes + 2,
        np.concatenate([tails, np.full_like(nodes, source), nodes]),
        np.concatenate([np.where(heads < ranks, sink, heads), nodes, np.full_like(nodes, sink)]),
        np.concatenate([capacities, np.maximum(surplus, 0), np.maximum(-surplus, 0)]),
        source,
        sink,
    )
    assert flow.value == np.maximum(surplus, 0).sum(), "giving up everything balances every switch"
    return flow.residual[1 : 2 * len(tails) : 2]


def _fits(asked: Network, capacities: IntArray, supplies: IntArray) -> bool:
    links = paired_network(asked.num_nodes, asked.tails, asked.heads, capacities)
    return violated_sink(links, supplies) < 0


def _structured_forest(asked: Network, capacities: IntArray, supplies: IntArray, count: int, trace: Trace) -> Forest:
    graph = RoutedGraph(asked.num_nodes, asked.tails, asked.heads, capacities)
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
    return _packed(asked, graph, supplies, family, count, trace)


def _general_forest(asked: Network, capacities: IntArray, supplies: IntArray, count: int, trace: Trace) -> Forest:
    graph = RoutedGraph(asked.num_nodes, asked.tails, asked.heads, capacities)
    whole = LaminarFamily(np.array([-1]), np.zeros(graph.num_nodes, dtype=np.int64))
    with trace.stage("exact edge splitting"):
        remove_switches(graph, supplies, whole, split_all_switches)
    return _packed(asked, graph, supplies, whole, count, trace)


def _packed(
    asked: Network, graph: RoutedGraph, supplies: IntArray, family: LaminarFamily, count: int, trace: Trace
) -> Forest:
    with trace.stage("tree packing"):
        packing, links = pack_forest(graph, supplies, family)
    with trace.stage("height reduction"):
        packing = lower_trees(packing, graph.tails[links])
    routes = graph.routes(links)
    return Forest(
        len(supplies),
        count,
        packing.roots,
        packing.weights,
        packing.links.astype(np.int32),
        routes.starts,
        routes.nodes,
        asked.root_weights,
        asked.direction,
    )
