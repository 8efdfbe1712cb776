"""ForestColl: throughput-optimal spanning trees on any topology with switches.

The steps of ForestColl section 5: the bottleneck cut gives the optimal rate ``x*`` and with it integer link
capacities and k trees per root; edge splitting removes the switches; tree packing fills the capacities; every tree
edge is mapped back to its route through the switches.  What comes out is verified before anyone sees it.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from ..errors import BoundError, SolverError, UnsupportedError
from ..schedules import Bound, Cut, Forest
from ..solvers.bottleneck import Bottleneck, bottleneck_cut, fixed_count_scale
from ..solvers.forest_packing import pack_forest
from ..solvers.max_flow import check_capacities
from ..solvers.routed_graph import RoutedGraph
from ..solvers.switch_guess import split_all_switches
from ..solvers.switch_removal import join_pass_through, remove_switches
from ..solvers.tight_sets import Family, tight_family
from ..solvers.tree_lowering import lower_trees
from ..solvers.trimming import trim_to_tight_sets
from ..topologies import Topology
from .plan import Plan
from .trace import Trace

__all__ = ["bound_allgather", "plan_allgather"]

IntArray = npt.NDArray[np.int64]

MAX_TREES_PER_ROOT = 2**20


def bound_allgather(topology: Topology) -> Bound:
    """Find the throughput bound of allgather with one shard of equal size per rank, and a bottleneck cut.

    ForestColl section 4, inequality (*), by Newton's method; see `collopt.solvers.bottleneck`.

    Parameters
    ----------
    topology : Topology
        Every switch must take in as much bandwidth as it gives out.

    Returns
    -------
    Bound

    Raises
    ------
    BoundError
        If some rank cannot reach another, so that no allgather exists.
    UnsupportedError
        If a switch's ingress and egress differ.
    CapacityOverflowError
        If exact arithmetic would leave int64.

    Examples
    --------
    >>> from collopt.topologies import dgx_a100
    >>> bound = bound_allgather(dgx_a100(boxes=2))
    >>> bound.inverse_rate
    Fraction(3, 65)
    """
    _check_reachable(topology)
    _check_balanced(topology)
    return _bound(topology, _bottleneck(topology))


def plan_allgather(topology: Topology, *, trees_per_root: int | None = None) -> Plan:
    """Plan an allgather whose trees together reach the throughput bound.

    Parameters
    ----------
    topology : Topology
        As for `bound_allgather`.
    trees_per_root : int, optional
        Number of trees per root, the paper's k; the smallest that reaches the bound by default.  With a given number
        the plan is the best for that number (Algorithm 5), which can be below the bound.

    Returns
    -------
    Plan
        Already verified.

    Raises
    ------
    BoundError, UnsupportedError, CapacityOverflowError
        As for `bound_allgather`; the second also if rounding capacities for `trees_per_root` leaves a switch
        unbalanced.

    Examples
    --------
    >>> from collopt.topologies import dgx_a100
    >>> plan = plan_allgather(dgx_a100(boxes=2))
    >>> plan.gap, plan.schedule.trees_per_root
    (Fraction(0, 1), 13)
    """
    _check_reachable(topology)
    _check_balanced(topology)
    trace = Trace()
    with trace.stage("bottleneck"):
        best = _bottleneck(topology)
        if trees_per_root is None:
            capacities, count = _optimal_capacities(topology, best), best.capacity
        else:
            count = _checked_count(trees_per_root)
            capacities = _fixed_count_capacities(topology, count)
    supplies = np.full(topology.num_ranks, count, dtype=np.int64)
    forest = _forest(topology, capacities, supplies, trace)
    with trace.stage("verification"):
        loads = forest.link_loads(topology)
        plan = Plan(
            topology,
            "allgather",
            forest,
            _bound(topology, best),
            forest.congestion(topology),
            loads,
            "forestcoll",
            {} if trees_per_root is None else {"trees_per_root": count},
            trace.provenance,
        )
        plan.verify()
    if trees_per_root is None and plan.gap != 0:
        raise SolverError(f"the plan misses its bound by {plan.gap}, which Theorems 6 and 10 rule out")
    return plan


def _check_reachable(topology: Topology) -> None:
    first = topology.compute_nodes[0]
    for towards in (False, True):
        reached, stack = {first}, [first]
        while stack:
            node = stack.pop()
            links = topology.in_links(node) if towards else topology.out_links(node)
            for link in links:
                other = link.tail if towards else link.head
                if other not in reached:
                    reached.add(other)
                    stack.append(other)
        for rank in topology.compute_nodes:
            if rank not in reached:
                source, target = (rank, first) if towards else (first, rank)
                raise BoundError(
                    f"there is no path from rank {source!r} to rank {target!r} in {topology!r}; "
                    "add links or leave ranks out"
                )


def _check_balanced(topology: Topology) -> None:
    for switch in topology.switch_nodes:
        ingress, egress = topology.ingress(switch), topology.egress(switch)
        if ingress != egress:
            raise UnsupportedError(
                f"switch {switch!r} takes in {float(ingress):g} GB/s and gives out {float(egress):g} GB/s; "
                "expected the same, since edge splitting pairs them: add the missing direction or lower the larger one"
            )


def _bottleneck(topology: Topology) -> Bottleneck:
    tails, heads, capacities, _ = topology.arrays
    ones = np.ones(topology.num_ranks, dtype=np.int64)
    return bottleneck_cut(len(topology.nodes), tails, heads, capacities, ones)


def _bound(topology: Topology, best: Bottleneck) -> Bound:
    inside = frozenset(node for node, inside in zip(topology.nodes, best.source_side, strict=True) if inside)
    return Bound(topology, "allgather", Fraction(best.supply, best.capacity) / topology.arrays.unit, Cut(inside))


def _optimal_capacities(topology: Topology, best: Bottleneck) -> IntArray:
    """Trees per link when every root has ``best.capacity``: ``U b_e`` of section 5.2 with the smallest integral U."""
    check_capacities(sum(map(int, topology.arrays.capacities)) * best.supply)
    return topology.arrays.capacities * best.supply


def _checked_count(trees_per_root: int) -> int:
    if isinstance(trees_per_root, bool) or not isinstance(trees_per_root, (int, np.integer)):
        raise UnsupportedError(f"trees_per_root is {trees_per_root!r}; expected a whole number")
    if not 1 <= trees_per_root <= MAX_TREES_PER_ROOT:
        raise UnsupportedError(f"trees_per_root is {trees_per_root}; expected 1 to {MAX_TREES_PER_ROOT}")
    return int(trees_per_root)


def _fixed_count_capacities(topology: Topology, count: int) -> IntArray:
    """``floor(U b_e)`` for the smallest U that leaves room for `count` trees per root (Algorithm 5)."""
    tails, heads, capacities, _ = topology.arrays
    ones = np.ones(topology.num_ranks, dtype=np.int64)
    scale = fixed_count_scale(len(topology.nodes), tails, heads, capacities, ones, count)
    check_capacities(sum(map(int, capacities)) * scale.numerator)
    floored = capacities * scale.numerator // scale.denominator
    surplus = np.zeros(len(topology.nodes), dtype=np.int64)
    np.add.at(surplus, heads, floored)
    np.subtract.at(surplus, tails, floored)
    for number in range(topology.num_ranks, len(topology.nodes)):
        if surplus[number]:
            raise UnsupportedError(
                f"{count} trees per root leave switch {topology.nodes[number]!r} with different capacities in and out "
                "once they are rounded; leave trees_per_root out, or make every link bidirectional"
            )
    return floored


def _forest(topology: Topology, capacities: IntArray, supplies: IntArray, trace: Trace) -> Forest:
    """Turn capacities into trees: along tight sets with guessed switch plans, or exactly and slowly if that fails."""
    try:
        return _structured_forest(topology, capacities, supplies, trace)
    except SolverError as error:
        trace.note("refused", str(error))
        return _general_forest(topology, capacities, supplies, trace)


def _structured_forest(topology: Topology, capacities: IntArray, supplies: IntArray, trace: Trace) -> Forest:
    graph = _graph(topology, capacities)
    with trace.stage("tight sets"):
        join_pass_through(graph, topology.num_ranks)
        trace.note("trimmed_sets", trim_to_tight_sets(graph, supplies))
        alive = graph.alive()
        family = tight_family(graph.num_nodes, graph.tails[alive], graph.heads[alive], graph.units[alive], supplies)
        trace.note("tight_sets", len(family.parents) - 1)
    with trace.stage("switch removal"):
        remove_switches(graph, supplies, family)
    return _packed(graph, supplies, family, trace)


def _general_forest(topology: Topology, capacities: IntArray, supplies: IntArray, trace: Trace) -> Forest:
    graph = _graph(topology, capacities)
    whole = Family(np.array([-1]), np.zeros(graph.num_nodes, dtype=np.int64))
    with trace.stage("exact edge splitting"):
        remove_switches(graph, supplies, whole, split_all_switches)
    return _packed(graph, supplies, whole, trace)


def _graph(topology: Topology, capacities: IntArray) -> RoutedGraph:
    return RoutedGraph(len(topology.nodes), topology.arrays.tails, topology.arrays.heads, capacities)


def _packed(graph: RoutedGraph, supplies: IntArray, family: Family, trace: Trace) -> Forest:
    with trace.stage("tree packing"):
        packing, links = pack_forest(graph, supplies, family)
    with trace.stage("tree lowering"):
        packing = lower_trees(packing, graph.tails[links])
    routes = graph.routes(links)
    return Forest(
        len(supplies),
        int(supplies.max()),
        packing.roots,
        packing.weights,
        packing.links.astype(np.int32),
        routes.starts,
        routes.nodes,
    )
